package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
)

// runOptions are the flags of drover run.
type runOptions struct {
	request
	functions    []string
	file         string
	data         string
	listen       string
	concurrency  int
	quiet        bool
	allowPrivate bool
	secrets      string
	log          logs
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:     "run FILE",
		Short:   "Run a workflow on this machine alone, and print its outcome",
		GroupID: groupRuns,
		Long: `Run starts a server, a worker and the functions of the workflow in one process, and ends them when the run is over.

Functions are commands: those of the file functions.yaml beside the workflow, where there is one, and those
given with --function. See drover function --help for what a command gets and gives.

The outcome is printed as JSON; progress goes to standard error. Ctrl-C stops the run, a second one kills it.
With --data and --run, a run that was killed goes on where it was when the same command is given again.

Exit status: 0 completed, 1 failed, 2 usage, or what is asked for is invalid or too large, 3 cancelled,
4 compensated, 5 compensation failed, 130 killed by a second Ctrl-C, or interrupted before it had begun.`,
		Example: `  drover run workflow.yaml --input '{"topic": "cats"}'
  drover run workflow.yaml --function 'text.count=wc -w' --function 'text.upper=tr a-z A-Z'
  drover run workflow.yaml --data ./state --run nightly-1
  drover run workflow.yaml --run letter-1 --listen 127.0.0.1:4222
  drover run workflow.yaml --json | jq .result`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), args[0], &o) },
	}
	o.request.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&o.functions, "function", nil, "function as name=command; may be given several times")
	f.StringVar(&o.file, "functions", "", "file of functions; "+functionsFile+" beside the workflow where it is not given")
	f.StringVar(&o.data, "data", "", "folder that keeps the run; a temporary one where it is not given")
	f.StringVar(&o.listen, "listen", "", "host:port for clients that deliver to the run or serve it; nobody can connect where it is not given")
	f.IntVar(&o.concurrency, "concurrency", 16, "calls of each function at the same time")
	f.BoolVar(&o.allowPrivate, "allow-private", false, allowPrivate)
	f.StringVar(&o.secrets, "webhook-secrets", "", webhookSecrets)
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	o.log.flags(cmd, "warn")
	return cmd
}

// run runs a workflow from the file to its outcome.
func (a *app) run(ctx context.Context, file string, o *runOptions) error {
	req, fns, err := a.prepare(file, o)
	if err != nil {
		return err
	}
	log, err := o.log.logger(a.err)
	if err != nil {
		return err
	}
	signals := catchInterrupts()
	defer signals.release()
	// At the end the run is over or killed, and no call matters any more.
	fns.log, fns.concurrency, fns.drain = log, o.concurrency, time.Millisecond
	fleet, err := startLocal(ctx, localOptions{
		data: o.data, listen: o.listen, served: fns,
		interrupt: signals.first, allowPrivate: o.allowPrivate, webhookSecrets: o.secrets, log: log,
	})
	if err != nil {
		return err
	}
	outcome, err := a.follow(ctx, fleet, req, a.progress(o.quiet), signals)
	if err != nil {
		fns.running.kill()
	}
	if stopped := fleet.stop(); stopped != nil {
		log.Warn().Err(stopped).Msg("not all ended well")
	}
	if err != nil {
		return err
	}
	return a.outcome(outcome)
}

// prepare reads and checks all that can be checked before a server runs.
func (a *app) prepare(file string, o *runOptions) (drover.StartRequest, *served, error) {
	req, err := o.make(a.in)
	if err != nil {
		return req, nil, err
	}
	def, wire, err := a.loadDefinition(file)
	if err != nil {
		return req, nil, err
	}
	req.Definition = wire
	all, from, err := programsFor(file, o.file, o.functions)
	if err != nil {
		return req, nil, err
	}
	if lacking := missing(def, all); len(lacking) > 0 && o.listen == "" {
		return req, nil, nobodyServes(lacking, from)
	}
	if req.RunID == "" && req.IdempotencyKey == "" {
		req.RunID = drover.RunID("r_" + strings.ToLower(rand.Text()[:12]))
	}
	if o.concurrency < 1 {
		return req, nil, usageError("--concurrency %d must be at least 1", o.concurrency)
	}
	a.warn(def.Warnings())
	return req, &served{programs: all}, nil
}

// nobodyServes says which functions the workflow would wait for in vain.
func nobodyServes(names []drover.FunctionName, from string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "the workflow calls %s that nobody serves here:", plural(len(names), "function"))
	for _, n := range names {
		fmt.Fprintf(&b, "\n  %s", n)
	}
	if from == "" {
		from = functionsFile + " beside the workflow"
	}
	fmt.Fprintf(&b, "\nadd them to %s, or give --function '%s=command', or --listen where others serve them", from, names[0])
	return usageError("%s", b.String())
}

// progress shows runs on standard error.
func (a *app) progress(quiet bool) progress {
	if quiet {
		return silent{}
	}
	return progressOn(a.err)
}

type silent struct{}

func (silent) show(*drover.Run) {}
func (silent) tick()            {}
func (silent) close()           {}

// redraw is how often times on a terminal go on.
const redraw = 100 * time.Millisecond

var errKilled = errors.New("killed; the run goes on when it is started again with the same --data and --run")

// follow starts a run and shows it until it is over. The first interrupt stops
// the run, the second gives up on it.
func (a *app) follow(ctx context.Context, l *local, req drover.StartRequest, p progress, signals *interrupts) (*drover.Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reply, err := l.client.Start(ctx, req)
	if err != nil {
		return nil, err
	}
	if !reply.Created {
		fmt.Fprintf(a.err, "run %s goes on\n", reply.RunID)
	}
	f := watch(ctx, l.client, reply.RunID)
	defer f.wait()
	defer cancel()
	defer p.close()
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	first := signals.first
	for {
		select {
		case run := <-f.runs:
			p.show(run)
		case <-ticker.C:
			p.tick()
		case end := <-f.end:
			return end.outcome, end.err
		case <-first:
			first = nil
			fmt.Fprintf(a.err, "stopping run %s; a second Ctrl-C kills it\n", reply.RunID)
			f.stop(ctx)
		case <-signals.second:
			return nil, &exitError{status: exitKilled, err: errKilled}
		case err := <-l.failed:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
