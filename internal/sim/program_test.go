package sim

import (
	"strings"
	"testing"
)

// TestProgramSeeds lives through many worlds in which processes serve programs, as all
// cases of programs say: Programs01 to Programs15, each with what must have happened of
// it. A failure prints the seed that shows it; with -seed and -v that world tells all
// that happens in it.
func TestProgramSeeds(t *testing.T) {
	if *one != 0 {
		report, err := RunPrograms(*one, FaultsOf(*one), t.Logf)
		t.Log(report)
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
	seen, ended := Seen{}, map[string]int{}
	failed := 0
	for seed := *first; seed < *first+uint64(n); seed++ {
		report, err := RunPrograms(seed, FaultsOf(seed), nil)
		if err != nil {
			t.Errorf("%v\n%v\nagain: go test ./internal/sim -run TestProgramSeeds -seed %d -v", report, err, seed)
			if failed++; failed == 10 {
				break
			}
		}
		sum.Runs += report.Runs
		sum.Steps += report.Steps
		sum.Crashes += report.Crashes
		sum.Drives += report.Drives
		seen.Add(report.Seen)
		for status, n := range report.Ended {
			ended[string(status)] += n
		}
	}
	t.Logf("%d worlds from seed %d: %d runs, %d drives, %d events, %d crashes of owners; ended: %v", n, *first, sum.Runs, sum.Drives, sum.Steps, sum.Crashes, ended)
	for what := range seen { // others are of outcomes
		if !strings.HasPrefix(what, "Programs") {
			delete(seen, what)
		}
	}
	shown(t, seen, programLines, n)
}

// TestOldProgramSeeds lives through the worlds that once broke a promise.
func TestOldProgramSeeds(t *testing.T) {
	old(t, "testdata/program_seeds.txt", func(seed uint64) (Report, error) { return RunPrograms(seed, FaultsOf(seed), nil) })
}

func TestAProgramSeedGivesTheSameHistory(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, errA := RunPrograms(seed, FaultsOf(seed), nil)
		b, errB := RunPrograms(seed, FaultsOf(seed), nil)
		if a.String() != b.String() || a.Drives != b.Drives || (errA == nil) != (errB == nil) {
			t.Errorf("one seed, two histories:\n%v %v\n%v %v", a, errA, b, errB)
		}
	}
}

// TestProgramsWithoutFaults is where nothing of a journal that is over may be left.
func TestProgramsWithoutFaults(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		report, err := RunPrograms(seed, Faults{}, nil)
		if err != nil {
			t.Errorf("%v: %v", report, err)
		}
		if report.Left > 0 {
			t.Errorf("%v: %d values of earlier journals are left", report, report.Left)
		}
	}
}
