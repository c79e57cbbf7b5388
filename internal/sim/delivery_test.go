package sim

import (
	"slices"
	"testing"
)

// TestDeliverySeeds lives through many worlds in which outcomes are delivered, as
// all cases of deliveries say: Delivery01 to Delivery14, each with what must have
// happened of it. A failure prints the seed that shows it; with -seed and -v that
// world tells all that happens in it.
func TestDeliverySeeds(t *testing.T) {
	var sum Report
	var d Deliveries
	seen := Seen{}
	n, many := live(t, 4, RunDeliveries, func(report Report) {
		sum.Runs += report.Runs
		sum.Steps += report.Steps
		sum.Crashes += report.Crashes
		d.add(report.Deliveries)
		seen.Add(report.Seen)
	})
	if !many {
		return
	}
	shown(t, seen, lines, n)
	t.Logf("%d worlds from seed %d: %d runs, %d events, %d crashes; %+v", n, *first, sum.Runs, sum.Steps, sum.Crashes, d)
	if sum.Crashes == 0 || slices.Contains([]int{d.Attempts, d.Calls, d.Unmade, d.AtOnce, d.Consumed, d.Refused, d.Deaths, d.Replays}, 0) {
		t.Error("something did not happen at all: the worlds have become too tame")
	}
}

func (d *Deliveries) add(o Deliveries) {
	d.Attempts += o.Attempts
	d.Calls += o.Calls
	d.Unmade += o.Unmade
	d.AtOnce += o.AtOnce
	d.Consumed += o.Consumed
	d.Refused += o.Refused
	d.Deaths += o.Deaths
	d.Replays += o.Replays
	d.Listed += o.Listed
}

// TestOldDeliverySeeds lives through the worlds that once broke a promise.
func TestOldDeliverySeeds(t *testing.T) {
	old(t, "testdata/delivery_seeds.txt", RunDeliveries)
}

func TestADeliverySeedGivesTheSameHistory(t *testing.T) { sameHistory(t, RunDeliveries) }

// TestDeliveriesWithoutFaults is where nothing is told that nobody has to know:
// no delivery is left on the list but dead ones.
func TestDeliveriesWithoutFaults(t *testing.T) {
	for seed := uint64(1); seed <= 200; seed++ {
		report, err := RunDeliveries(seed, Faults{}, nil)
		if err != nil {
			t.Errorf("%v: %v", report, err)
		}
		if report.Deliveries.Listed > 0 {
			t.Errorf("%v: %d deliveries are over, and still on the list", report, report.Deliveries.Listed)
		}
	}
}
