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
	var sum Report
	seen, ended := Seen{}, map[string]int{}
	n, many := live(t, 4, RunPrograms, func(report Report) {
		sum.Runs += report.Runs
		sum.Steps += report.Steps
		sum.Crashes += report.Crashes
		sum.Drives += report.Drives
		seen.Add(report.Seen)
		for status, n := range report.Ended {
			ended[string(status)] += n
		}
	})
	if !many {
		return
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
	old(t, "testdata/program_seeds.txt", RunPrograms)
}

func TestAProgramSeedGivesTheSameHistory(t *testing.T) { sameHistory(t, RunPrograms) }

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
