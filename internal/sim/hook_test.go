package sim

import (
	"testing"
)

// TestHookSeeds lives through many worlds with hooks. A failure prints the seed
// that shows it; with -seed and -v that world tells all that happens in it.
func TestHookSeeds(t *testing.T) {
	var sum Report
	n, many := live(t, 4, RunHooks, func(report Report) {
		sum.Runs += report.Runs
		sum.Steps += report.Steps
		sum.Crashes += report.Crashes
		sum.Senders += report.Senders
		sum.Delivered += report.Delivered
		sum.Successions += report.Successions
	})
	if !many {
		return
	}
	t.Logf("%d worlds from seed %d: %d runs, %d events, %d crashes, %d deliveries tried, %d accepted, %d hand-overs",
		n, *first, sum.Runs, sum.Steps, sum.Crashes, sum.Senders, sum.Delivered, sum.Successions)
	if sum.Crashes == 0 || sum.Delivered == 0 || sum.Successions == 0 || sum.Senders <= sum.Delivered {
		t.Error("nothing crashed, was accepted, refused or handed over: the worlds have become too tame")
	}
}

// TestSuccessorSeeds lives through worlds with hooks in which all are told of the
// runs, and of their successors, as case 13 of deliveries says.
func TestSuccessorSeeds(t *testing.T) {
	seen := Seen{}
	n, many := live(t, 8, RunSuccessors, func(report Report) {
		seen.Add(report.Seen)
	})
	if !many {
		return
	}
	for _, what := range []string{"Delivery13 a subject was told of a successor", "Delivery13 a session was told of a successor"} {
		if t.Logf("%d worlds from seed %d: %s %d times", n, *first, what, seen[what]); seen[what] == 0 && n > 50 {
			t.Errorf("it did not happen at all: %s", what)
		}
	}
}

// TestOldHookSeeds lives through the worlds that once broke a promise.
func TestOldHookSeeds(t *testing.T) {
	old(t, "testdata/hook_seeds.txt", RunHooks)
}

func TestAHookSeedGivesTheSameHistory(t *testing.T) { sameHistory(t, RunHooks) }

// TestHooksWithoutFaults is where nothing may be left to a sweeper: no token is
// freed behind the back of a run, and every delivery is handed over.
func TestHooksWithoutFaults(t *testing.T) {
	for seed := uint64(1); seed <= 150; seed++ {
		report, err := RunHooks(seed, Faults{}, nil)
		if err != nil {
			t.Errorf("%v: %v", report, err)
		}
		if report.Swept {
			t.Errorf("%v: a sweeper had to free a token", report)
		}
	}
}
