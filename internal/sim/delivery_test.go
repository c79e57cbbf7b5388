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
	if *one != 0 {
		report, err := RunDeliveries(*one, FaultsOf(*one), t.Logf)
		t.Logf("%v, %+v", report, report.Deliveries)
		if err != nil {
			t.Error(err)
		}
		return
	}
	n := *seeds / 4
	if testing.Short() {
		n /= 20
	}
	var sum Report
	var d Deliveries
	seen := Seen{}
	failed := 0
	for seed := *first; seed < *first+uint64(n); seed++ {
		report, err := RunDeliveries(seed, FaultsOf(seed), nil)
		if err != nil {
			t.Errorf("%v\n%v\nagain: go test ./internal/sim -run TestDeliverySeeds -seed %d -v", report, err, seed)
			if failed++; failed == 10 {
				break
			}
		}
		sum.Runs += report.Runs
		sum.Steps += report.Steps
		sum.Crashes += report.Crashes
		d.add(report.Deliveries)
		seen.Add(report.Seen)
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
	old(t, "testdata/delivery_seeds.txt", func(seed uint64) (Report, error) { return RunDeliveries(seed, FaultsOf(seed), nil) })
}

func TestADeliverySeedGivesTheSameHistory(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, errA := RunDeliveries(seed, FaultsOf(seed), nil)
		b, errB := RunDeliveries(seed, FaultsOf(seed), nil)
		if a.String() != b.String() || a.Deliveries != b.Deliveries || (errA == nil) != (errB == nil) {
			t.Errorf("one seed, two histories:\n%v %v\n%v %v", a, errA, b, errB)
		}
	}
}

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
