package bench

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// few makes rows of a few runs.
func few(t *testing.T) Options {
	return Options{
		Duration: 50 * time.Millisecond, Runs: 8, InFlight: []int{4}, Partitions: 4,
		Timers: 8, Lead: 100 * time.Millisecond, Hooks: 8, Outcomes: 300, Steps: 50, Dir: t.TempDir(),
	}
}

func rows(t *testing.T, opts Options) []Row {
	t.Helper()
	var all []Row
	if err := Run(t.Context(), opts, func(r Row) error { all = append(all, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// writes is what one run of each workload stores: commands, calls, records,
// outcomes. A burst of results may share a record, and so may the end of one
// delivery and the start of another.
var writes = map[string]struct{ least, most float64 }{
	SetRun:   {5, 5},       // start, record, outcome, receipt, record
	Sequence: {33, 33},     // start, record, outcome, and call, result, record of each step
	Fanout:   {204, 303},   // start, record, outcome, and call, result of each item, with 1 to 100 records
	Receipt:  {5, 5},       // as W1
	Deliver:  {5, 5},       // start, record, delivery, record, outcome
	Timers:   {4, 6 + 0.5}, // start, record, tick, record, outcome; the durable timer may be needed as well
	Hook:     {306, 311},   // of each delivery its id, command, record; and what a start and an end have
	Begin:    {9, 11},
	Many:     {9, 10},
	Backlog:  {9, 14},    // as W1, and that nobody is there: a receipt, a record, on the list and off it
	Program:  {26, 26},   // start, record, call, outcome; and record command, record of each step and of the end
	Long:     {106, 106}, // likewise
}

func TestEveryWorkload(t *testing.T) {
	got := rows(t, few(t))
	var names []string
	for _, r := range got {
		names = append(names, r.Workload)
		t.Run(r.Workload, func(t *testing.T) { check(t, r) })
	}
	if !slices.Equal(names, Workloads()) {
		t.Errorf("rows of %v, want %v", names, Workloads())
	}
}

func check(t *testing.T, r Row) {
	t.Helper()
	steps := map[string]int{Sequence: 10, Fanout: 100, Hook: 100, Program: 10, Long: 50}[r.Workload]
	steps = max(steps, 1)
	runs := 8
	if r.Workload == Backlog {
		runs = 300
	}
	if r.Runs != runs || r.Steps != runs*steps {
		t.Errorf("%d runs, %d steps; want %d and %d", r.Runs, r.Steps, runs, runs*steps)
	}
	perRun := r.WritesPerStep * float64(steps)
	// Owners save their cursors once a second: on a slow machine that adds some.
	if want := writes[r.Workload]; perRun < want.least || perRun > want.most+2 {
		t.Errorf("%.2f writes a run, want %v to %v", perRun, want.least, want.most)
	}
	if r.RunsPerSecond <= 0 || r.StepsPerSecond <= 0 || r.Floor <= 0 || r.Ratio <= 0 || r.RSS <= 0 {
		t.Errorf("a rate, the floor or the memory is missing: %+v", r)
	}
	if r.P50 < 0 || r.P50 > r.P99 || r.P99 > r.Max || r.Max == 0 {
		t.Errorf("times %v, %v, %v are not in order, or a timer came early", r.P50, r.P99, r.Max)
	}
	if r.Sync != "default" || r.Mode != "embedded" {
		t.Errorf("sync %q, mode %q", r.Sync, r.Mode)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"workload", "in_flight", "runs_per_second", "steps_per_second", "p50_ms", "p99_ms",
		"writes_per_step", "floor_per_second", "rss_mib", "sync", "mode",
	} {
		if fields[name] == nil {
			t.Errorf("the row has no %s: %s", name, data)
		}
	}
}

func TestACluster(t *testing.T) {
	opts := few(t)
	opts.Only, opts.Replicas, opts.Workers, opts.Functions = []string{Sequence}, 3, 2, 2
	got := rows(t, opts)
	if len(got) != 1 || got[0].Runs != 8 || got[0].Mode != "cluster" {
		t.Errorf("rows %+v", got)
	}
}

func TestAServerThatIsThereIsLeftAsItWas(t *testing.T) {
	s := natstest.New(t, natstest.Listen())
	opts := few(t)
	opts.Only, opts.URL = []string{SetRun}, s.URL()
	got := rows(t, opts)
	if len(got) != 1 || got[0].Runs != 8 || got[0].Mode != "nats" || got[0].Sync != "server" {
		t.Errorf("rows %+v", got)
	}
	list := s.JetStream().StreamNames(t.Context())
	for name := range list.Name() {
		t.Errorf("stream %s was left behind", name)
	}
	if list.Err() != nil {
		t.Error(list.Err())
	}
}

func TestAlwaysSynced(t *testing.T) {
	opts := few(t)
	opts.Only, opts.SyncAlways, opts.GroupWrites = []string{SetRun}, true, true
	if got := rows(t, opts); len(got) != 1 || got[0].Sync != "always" || got[0].Runs != 8 {
		t.Errorf("rows %+v", got)
	}
}

func TestWhatCannotBeMeasured(t *testing.T) {
	never := func(Row) error { t.Error("there is a row"); return nil }
	for name, opts := range map[string]Options{
		"unknown workload":  {Only: []string{"W13"}},
		"replicas":          {Replicas: 2},
		"negative duration": {Duration: -1},
		"nothing in flight": {InFlight: []int{0}},
	} {
		if err := Run(t.Context(), opts, never); !errors.Is(err, drover.CodeInvalidRequest) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestTheEndOfAContextEndsARow(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	opts := few(t)
	opts.Only, opts.Runs, opts.Duration = []string{SetRun}, 0, time.Hour
	stop := errors.New("enough")
	timer := time.AfterFunc(500*time.Millisecond, func() { cancel(stop) })
	defer timer.Stop()
	if err := Run(ctx, opts, func(Row) error { return nil }); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}

func TestPercentiles(t *testing.T) {
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration(100-i)*time.Millisecond)
	}
	p50, p99, longest := percentiles(times)
	if p50 != 51 || p99 != 100 || longest != 100 {
		t.Errorf("%v, %v, %v", p50, p99, longest)
	}
	if p50, p99, longest = percentiles(nil); p50 != 0 || p99 != 0 || longest != 0 {
		t.Errorf("of nothing: %v, %v, %v", p50, p99, longest)
	}
}
