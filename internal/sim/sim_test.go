package sim

import (
	"bufio"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
)

var (
	seeds = flag.Int("seeds", 2000, "how many worlds to live through")
	first = flag.Uint64("first", 1, "the first seed")
	one   = flag.Uint64("seed", 0, "live through this world only, and tell of it")
)

// simulation is one way to live through a world, which may tell all that happens in it.
type simulation func(seed uint64, faults Faults, tell func(format string, args ...any)) (Report, error)

// runPlain tells nothing.
func runPlain(seed uint64, faults Faults, _ func(format string, args ...any)) (Report, error) {
	return Run(seed, faults)
}

// live lives through a share of the worlds that are asked for, adds up what is reported
// of each, and gives how many they were. A failure prints the seed that shows it. With
// -seed it is that world alone, which tells all, and nothing is added.
func live(t *testing.T, share int, run simulation, add func(Report)) (worlds int, many bool) {
	t.Helper()
	if *one != 0 {
		report, err := run(*one, FaultsOf(*one), t.Logf)
		t.Logf("%v, %+v", report, report.Deliveries)
		if err != nil {
			t.Error(err)
		}
		return 1, false
	}
	n := *seeds / share
	if testing.Short() {
		n /= 20
	}
	failed := 0
	for seed := *first; seed < *first+uint64(n); seed++ {
		report, err := run(seed, FaultsOf(seed), nil)
		if err != nil {
			t.Errorf("%v\n%v\nagain: go test ./internal/sim -run %s -seed %d -v", report, err, t.Name(), seed)
			if failed++; failed == 10 {
				break
			}
		}
		add(report)
	}
	return n, true
}

// TestSeeds lives through many worlds.
func TestSeeds(t *testing.T) {
	var sum Report
	ended := map[string]int{}
	n, many := live(t, 1, runPlain, func(report Report) {
		sum.Runs += report.Runs
		sum.Steps += report.Steps
		sum.Commits += report.Commits
		sum.Crashes += report.Crashes
		sum.Handovers += report.Handovers
		sum.Answers += report.Answers
		sum.Dead += report.Dead
		for status, n := range report.Ended {
			ended[string(status)] += n
		}
	})
	if !many {
		return
	}
	t.Logf("%d worlds from seed %d: %d runs, %d events, %d commits, %d crashes, %d handovers, %d dead letters; ended: %v",
		n, *first, sum.Runs, sum.Steps, sum.Commits, sum.Crashes, sum.Handovers, sum.Dead, ended)
	for _, status := range []string{"completed", "failed", "cancelled", "compensated"} {
		if ended[status] == 0 {
			t.Errorf("no run ended %s: the worlds have become too tame", status)
		}
	}
	if sum.Crashes == 0 || sum.Dead == 0 || sum.Handovers == 0 || sum.Answers == 0 {
		t.Error("nothing crashed, was handed over, refused or answered: the worlds have become too tame")
	}
}

// TestOldSeeds lives through the worlds that once broke a promise.
func TestOldSeeds(t *testing.T) {
	old(t, "testdata/seeds.txt", runPlain)
}

// old lives through the worlds of a file: on each line a seed, and what broke.
func old(t *testing.T, file string, run simulation) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, why, _ := strings.Cut(lines.Text(), " ")
		if text == "" || text[0] == '#' {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if report, err := run(seed, FaultsOf(seed), nil); err != nil {
			t.Errorf("%v (%s): %v", report, why, err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestASeedGivesTheSameHistory is what makes a printed seed worth something.
func TestASeedGivesTheSameHistory(t *testing.T) { sameHistory(t, runPlain) }

func sameHistory(t *testing.T, run simulation) {
	t.Helper()
	for seed := uint64(1); seed <= 20; seed++ {
		a, errA := run(seed, FaultsOf(seed), nil)
		b, errB := run(seed, FaultsOf(seed), nil)
		if a.String() != b.String() || a.Deliveries != b.Deliveries || a.Drives != b.Drives || (errA == nil) != (errB == nil) {
			t.Errorf("one seed, two histories:\n%v %v\n%v %v", a, errA, b, errB)
		}
	}
}

// TestWithoutFaults is the plain case, which has to be quick in the time of
// the world too.
func TestWithoutFaults(t *testing.T) {
	for seed := uint64(1); seed <= 200; seed++ {
		if report, err := Run(seed, Faults{}); err != nil {
			t.Errorf("%v: %v", report, err)
		}
	}
}

// TestHandoversRepeatNothing: an owner that gives its partition back in good
// order leaves nothing for the next one to do again.
func TestHandoversRepeatNothing(t *testing.T) {
	handovers := 0
	for seed := uint64(1); seed <= 300; seed++ {
		report, err := Run(seed, Faults{Handover: 0.02})
		if err != nil {
			t.Errorf("%v: %v", report, err)
		}
		if report.Repeats > 0 {
			t.Errorf("%v: %d calls were queued again after a handover", report, report.Repeats)
		}
		handovers += report.Handovers
	}
	if handovers == 0 {
		t.Error("nothing was handed over")
	}
}

func BenchmarkWorld(b *testing.B) {
	runs := 0
	seed := uint64(0)
	for b.Loop() {
		seed++
		report, err := Run(seed, FaultsOf(seed))
		if err != nil {
			b.Fatal(err)
		}
		runs += report.Runs
	}
	b.ReportMetric(float64(runs)/b.Elapsed().Seconds(), "runs/s")
}
