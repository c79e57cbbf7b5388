package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// The names of the workloads, in their order.
const (
	SetRun   = "W1"
	Sequence = "W2"
	Fanout   = "W3"
	Receipt  = "W4"
	Deliver  = "W5"
	Timers   = "W6"
	Hook     = "W7"
	Begin    = "W8"
	Many     = "W9"
	Backlog  = "W10"
	Program  = "W11"
	Long     = "W12"
)

// Workloads lists all of them.
func Workloads() []string {
	return []string{SetRun, Sequence, Fanout, Receipt, Deliver, Timers, Hook, Begin, Many, Backlog, Program, Long}
}

// Options of a run of the benchmarks. The zero value measures everything, each
// row for 5 s, on an embedded server.
type Options struct {
	// Only names the workloads to measure. Empty: all.
	Only []string
	// InFlight replaces the numbers of runs in flight of each workload.
	InFlight []int
	// Duration of a row without its warm-up and its floor. 0: 5 s.
	Duration time.Duration
	// Runs ends a row after so many runs, whatever the time. 0: no such limit.
	Runs int
	// URL of a server that is there. Empty: servers in this process.
	URL string
	// Replicas of the streams, 1 or 3. With 3 and no URL, three servers in this
	// process are a cluster. 0: 1.
	Replicas int
	// SyncAlways has embedded servers write every message to the disk before it
	// is acknowledged.
	SyncAlways bool
	// GroupWrites has the worker and the functions group their writes, as is meant
	// for servers that sync always.
	GroupWrites bool
	// SyncInterval of embedded servers. 0: 100 ms, as with drover dev, and in a
	// cluster 2 min, as with nats-server.
	SyncInterval time.Duration
	// Partitions of the fleet. 0: the default of a fleet.
	Partitions int
	// Workers and Functions are how many workers, and servers of the no-op
	// function, share the load. 0: 1 each.
	Workers, Functions int
	// TCP has the parts connect to an embedded server over the loopback.
	TCP bool
	// Timers is how many of them W6 sets. 0: 2000.
	Timers int
	// Lead is how long before its due time the timers of W6 are set. What is
	// longer than a worker's cover time makes them durable messages of the
	// server. 0: 13 s.
	Lead time.Duration
	// Hooks is to how many of them W9 delivers. 0: 10,000.
	Hooks int
	// Outcomes is how many of them W10 has waiting. 0: 20,000.
	Outcomes int
	// Steps is how many of them a program of W12 has. 0: 1,000.
	Steps int
	// Dir is where embedded servers keep their folders, which are removed in the
	// end. Empty: the folder for temporary files.
	Dir string
}

// Row is what was measured of one workload with one number of runs in flight.
type Row struct {
	Workload       string  `json:"workload"`
	InFlight       int     `json:"in_flight"`
	Runs           int     `json:"runs"`  // all that ended, warm-up included
	Steps          int     `json:"steps"` // of these runs: sets, calls, deliveries, timers
	RunsPerSecond  float64 `json:"runs_per_second"`
	StepsPerSecond float64 `json:"steps_per_second"`
	P50            float64 `json:"p50_ms"` // of one run, or of lateness
	P99            float64 `json:"p99_ms"`
	Max            float64 `json:"max_ms"`
	WritesPerStep  float64 `json:"writes_per_step"` // messages that streams of the fleet stored
	Floor          float64 `json:"floor_per_second"`
	Ratio          float64 `json:"ratio"`           // of steps a second to the floor
	CPU            float64 `json:"cpu_us_per_step"` // processor time of this process
	RSS            float64 `json:"rss_mib"`
	Sync           string  `json:"sync"` // always, default; server: what the server is set to
	Mode           string  `json:"mode"` // embedded, cluster, nats
}

// warmShare is the part of the duration that a row warms up for.
const warmShare = 5

func (o Options) withDefaults() (Options, error) {
	if len(o.Only) == 0 {
		o.Only = Workloads()
	}
	for _, name := range o.Only {
		if !slices.Contains(Workloads(), name) {
			return o, drover.Errorf(drover.CodeInvalidRequest,
				"there is no workload %q: name some of %s", name, strings.Join(Workloads(), ", "))
		}
	}
	if o.Replicas != 0 && o.Replicas != 1 && o.Replicas != 3 {
		return o, drover.Errorf(drover.CodeInvalidRequest, "replicas is %d, and must be 1 or 3", o.Replicas)
	}
	if o.Duration < 0 || o.Runs < 0 || o.Workers < 0 || o.Functions < 0 || o.Timers < 0 || o.Lead < 0 || o.Hooks < 0 || o.Outcomes < 0 || o.Steps < 0 ||
		slices.ContainsFunc(o.InFlight, func(n int) bool { return n < 1 }) {
		return o, drover.Errorf(drover.CodeInvalidRequest, "durations and counts of a benchmark must not be negative, and at least one run is in flight")
	}
	orElse(&o.Duration, 5*time.Second)
	orElse(&o.Replicas, 1)
	orElse(&o.Workers, 1)
	orElse(&o.Functions, 1)
	orElse(&o.Timers, 2000)
	orElse(&o.Lead, 13*time.Second)
	orElse(&o.Hooks, 10_000)
	orElse(&o.Outcomes, 20_000)
	orElse(&o.Steps, 1000)
	return o, nil
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o Options) mode() string {
	switch {
	case o.URL != "":
		return "nats"
	case o.Replicas > 1:
		return "cluster"
	}
	return "embedded"
}

func (o Options) sync() string {
	switch {
	case o.URL != "":
		return "server"
	case o.SyncAlways:
		return "always"
	}
	return "default"
}

// Run measures rows, and gives each to emit when it is there. It ends with the
// first error.
func Run(ctx context.Context, opts Options, emit func(Row) error) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	for _, w := range workloads(opts) {
		if !slices.Contains(opts.Only, w.name) {
			continue
		}
		counts := w.inFlight
		if len(opts.InFlight) > 0 && !w.fixed {
			counts = opts.InFlight
		}
		for _, n := range counts {
			row, err := measure(ctx, opts, w, n)
			if err != nil && ctx.Err() != nil {
				return errors.Join(context.Cause(ctx), err)
			}
			if err != nil {
				return fmt.Errorf("workload %s with %d runs in flight: %w", w.name, n, err)
			}
			if err := emit(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure makes one row with a fleet of its own.
func measure(ctx context.Context, opts Options, w workload, inFlight int) (row Row, err error) {
	f, err := newFleet(ctx, opts)
	defer func() { err = errors.Join(err, f.stop()) }()
	if err != nil {
		return row, err
	}
	row = Row{Workload: w.name, InFlight: inFlight, Sync: opts.sync(), Mode: opts.mode()}
	if row.Floor, err = f.floor(ctx, min(opts.Duration/2, 2*time.Second)); err != nil {
		return row, err
	}
	if w.program {
		if err := f.programs(ctx); err != nil {
			return row, err
		}
	}
	if err := f.define(ctx, w.definition); err != nil {
		return row, err
	}
	before, err := f.stored(ctx)
	if err != nil {
		return row, err
	}
	l, used := w.load(f, w, inFlight), processor()
	if err := l.run(ctx); err != nil {
		return row, err
	}
	used = processor() - used
	after, err := f.settled(ctx)
	if err != nil {
		return row, err
	}
	l.fill(&row)
	row.WritesPerStep = float64(after-before) / float64(row.Steps)
	if row.Floor > 0 {
		row.Ratio = row.StepsPerSecond / row.Floor
	}
	row.RSS, row.CPU = resident(), float64(used.Microseconds())/float64(row.Steps)
	if calls := int(f.calls.Load()); w.calls && calls < row.Steps {
		return row, fmt.Errorf("the no-op was done %d times for %d steps", calls, row.Steps)
	}
	return row, nil
}
