package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/bench"
)

func (a *app) benchCommand() *cobra.Command {
	var opts bench.Options
	sync, profile := "default", ""
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure how fast a fleet is, here or on a server of yours",
		GroupID: groupServe,
		Long: `Bench starts a server, a worker, functions and publishers in this process, lets them work, and prints a row for
each workload and number of runs in flight:

  W1  a run with one set, from the start until its notification came
  W2  ten calls one after the other, from the start until the outcome
  W3  a fan-out of 100 calls and its join
  W4  a run with one set, from its end until its notification was answered and that is stored
  W5  a run that waits, from the delivery until the outcome
  W6  2,000 timers that are due within one second; the times are how late they were
  W7  deliveries to runs that hold a hook, from the request until its answer
  W8  deliveries that start a run, from the request until its answer
  W9  one delivery to 10,000 hooks by their tag, until the last of them has answered
  W10 20,000 outcomes that wait for a stream, from its making until all receipts are stored
  W11 a program of ten steps that do nothing, from the start until the outcome
  W12 a program of 1,000 such steps

The floor is what the same server does at best: revision-checked updates a second, pipelined, measured just before
each row. With --nats the fleet has the prefix drover_bench, and is removed before and after.`,
		Example: `  drover bench
  drover bench --json --only W2 --duration 5s
  drover bench --only W2 --sync always
  drover bench --nats nats://host:4222 --replicas 3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sync != "default" && sync != "always" {
				return usageError("--sync %q must be default or always", sync)
			}
			if opts.URL != "" && cmd.Flags().Changed("sync") {
				return usageError("--sync is for the server of this process: with --nats, the server's own settings say it")
			}
			opts.SyncAlways = sync == "always"
			if !cmd.Flags().Changed("group-writes") {
				opts.GroupWrites = opts.SyncAlways
			}
			return profiled(profile, func() error { return a.bench(cmd.Context(), opts) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&opts.Only, "only", nil, "workloads to measure, with commas; all of "+strings.Join(bench.Workloads(), ", ")+" where none is given")
	f.IntSliceVar(&opts.InFlight, "in-flight", nil, "runs in flight, with commas, in place of each workload's own")
	f.DurationVar(&opts.Duration, "duration", 5*time.Second, "how long each row is measured")
	f.StringVar(&sync, "sync", sync, "when writes are flushed to the disk: default (every 100 ms, and by three servers every 2 min, as nats-server does), or always")
	f.BoolVar(&opts.GroupWrites, "group-writes", false, "let writes share a sync; on with --sync always")
	f.IntVar(&opts.Replicas, "replicas", 1, "1, or 3: then three servers in this process are a cluster")
	f.StringVar(&opts.URL, "nats", "", "NATS server to measure, or several with commas, in place of one in this process")
	f.IntVar(&opts.Partitions, "partitions", 0, "into how many partitions the runs are split; 0: 64")
	f.IntVar(&opts.Workers, "workers", 1, "how many workers share the runs")
	f.IntVar(&opts.Functions, "functions", 1, "how many servers share the calls")
	f.BoolVar(&opts.TCP, "tcp", false, "connect to the server of this process over the loopback")
	f.DurationVar(&opts.Lead, "lead", 13*time.Second, "how long before it is due a timer of W6 is set")
	f.DurationVar(&opts.SyncInterval, "sync-interval", 0, "of the server of this process, where it does not always sync")
	f.StringVar(&profile, "cpuprofile", "", "file that gets a profile of this process")
	for _, name := range []string{"lead", "sync-interval", "cpuprofile"} {
		_ = f.MarkHidden(name) // fails only for a flag that is not there
	}
	return cmd
}

// bench measures, and prints each row when it is there.
func (a *app) bench(ctx context.Context, opts bench.Options) error {
	if !a.json {
		fmt.Fprintf(a.out, "%-4s %9s %9s %9s %9s %9s %12s %12s %9s %6s %8s %-7s %s\n", "", "in flight", "runs/s", "steps/s",
			"p50 ms", "p99 ms", "writes/step", "CPU µs/step", "floor/s", "ratio", "RSS MiB", "sync", "mode")
	}
	return bench.Run(ctx, opts, func(r bench.Row) error {
		return a.print(r, fmt.Sprintf("%-4s %9d %9.0f %9.0f %9.2f %9.2f %12.2f %12.0f %9.0f %6.2f %8.0f %-7s %s\n",
			r.Workload, r.InFlight, r.RunsPerSecond, r.StepsPerSecond, r.P50, r.P99, r.WritesPerStep, r.CPU, r.Floor, r.Ratio,
			r.RSS, r.Sync, r.Mode))
	})
}

// profiled does something, and writes a profile of it to a file where one is named.
func profiled(name string, do func() error) (err error) {
	if name == "" {
		return do()
	}
	out, err := os.Create(name)
	if err != nil {
		return usageError("--cpuprofile: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return do()
}
