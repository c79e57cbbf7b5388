package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

// served are the programs that this process serves.
type served struct {
	programs    programs
	prefix      string
	concurrency int           // calls of each at the same time
	drain       time.Duration // how long calls may run on at the end
	log         zerolog.Logger
	running     herd
}

// server makes the server of the programs.
func (s *served) server(nc *nats.Conn) (*function.Server, error) {
	var fns []*function.Function
	for _, p := range s.programs.sorted() {
		p.herd = &s.running
		fns = append(fns, function.Raw(string(p.name), func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
			out, err := p.do(ctx, in)
			if err != nil {
				s.failed(function.Info(ctx), err)
			}
			return out, err
		}))
	}
	return function.NewServer(nc, function.Options{
		Prefix: s.prefix, Concurrency: s.concurrency, DrainTimeout: s.drain, Logger: forFunctions(s.log),
	}, fns...)
}

// failed logs a call that failed, in one line.
func (s *served) failed(call function.Call, err error) {
	s.log.Info().Str("function", string(call.Function)).Str("call", call.ID.String()).
		Str("error", shorten(err.Error(), 500)).Msg("a call failed")
}

func (a *app) functionCommand() *cobra.Command {
	var (
		log logs
		s   = served{programs: programs{}}
	)
	cmd := &cobra.Command{
		Use:     "function NAME -- COMMAND [ARG...]",
		Short:   "Serve a function with a command",
		GroupID: groupServe,
		Long: `Function makes any program a function of the fleet, until it gets SIGINT or SIGTERM.

For each call the command runs once: it gets the input as JSON on standard input, and what it writes to
standard output is the output, as JSON, or else as text; nothing is null. Standard error is its log.
More than 1 MiB is an error, too_large, after which no other attempt is made.
Exit status 0 is success, and anything else a failed attempt, with the last line of the log as its message:
  65  the input is at fault: no other attempt is made
  75  something was not there yet: the error's code is unavailable
The environment has ` + envName("function") + `, ` + envName("run") + `, ` + envName("call") + `, ` + envName("attempt") + ` and ` + envName("deadline") + `.
` + envName("call") + ` is that of one attempt: what comes before its @ is the same for all of them.
When a call is cancelled or its deadline passes, the command and all that it started get SIGTERM, and SIGKILL 2 s later.`,
		Example: `  drover function text.count -- wc -w
  drover function thumbnail --concurrency 4 -- ./thumbnail.py --size 200
  drover function shout -- sh -c 'tr a-z A-Z'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash != 1 || len(args) < 2 {
				return errors.New("a name, then --, then a command must be given")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.programs.put(args[0], args[1:], ""); err != nil {
				return err
			}
			if _, err := exec.LookPath(args[1]); err != nil {
				return usageError("the command of function %s cannot be run: %w", args[0], err)
			}
			logger, err := log.logger(a.err)
			if err != nil {
				return err
			}
			s.log, s.prefix = logger, a.conn.prefix
			return a.serveFunctions(cmd.Context(), &s, args[0])
		},
	}
	cmd.Flags().IntVar(&s.concurrency, "concurrency", 16, "calls at the same time")
	cmd.Flags().DurationVar(&s.drain, "drain", 30*time.Second, "how long calls may run on after SIGTERM")
	fromEnvironment(cmd, "concurrency", "drain")
	log.flags(cmd, "info")
	a.conn.flags(cmd, 0)
	return cmd
}

// serveFunctions waits for the server, and serves until it is asked to end. A
// second signal ends the calls that still run.
func (a *app) serveFunctions(ctx context.Context, s *served, name string) error {
	defer s.running.kill()
	return untilInterrupted(ctx, "function "+name, func(ctx context.Context) error {
		nc, err := a.conn.await(ctx, s.log)
		if nc == nil {
			return err
		}
		defer nc.Close()
		server, err := s.server(nc)
		if err != nil {
			return err
		}
		var telling sync.WaitGroup
		defer telling.Wait()
		ctx, end := context.WithCancel(ctx)
		defer end()
		telling.Go(func() {
			select {
			case <-server.Ready():
				if ctx.Err() == nil {
					s.log.Info().Str("function", name).Str("server", nc.ConnectedUrlRedacted()).Msg("serving")
				}
			case <-ctx.Done():
			}
		})
		return server.Run(ctx)
	}, s.log)
}

// untilInterrupted runs a part until the first signal asks it to end. The
// second one does not wait for that.
func untilInterrupted(ctx context.Context, name string, run func(context.Context) error, log zerolog.Logger) error {
	signals := catchInterrupts()
	defer signals.release()
	parts := newCrew()
	parts.start(ctx, name, run)
	select {
	case err := <-parts.failed:
		return errors.Join(err, parts.stop())
	case <-ctx.Done():
		return parts.stop()
	case <-signals.first:
		log.Info().Msg("draining; a second signal ends at once")
	}
	var stopped sync.WaitGroup
	ended := make(chan error, 1)
	stopped.Go(func() { ended <- parts.stop() })
	select {
	case err := <-ended:
		return err
	case <-signals.second:
		return &exitError{status: exitKilled, err: fmt.Errorf("%s was killed before it had drained", name)}
	}
}

// missing are the functions that a definition calls, its own children with it,
// and that nobody here serves.
func missing(def *drover.Definition, have programs) []drover.FunctionName {
	need := map[drover.FunctionName]bool{}
	calls(def, need)
	var names []drover.FunctionName
	for name := range need {
		if have[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// calls collects the functions that a definition calls.
func calls(def *drover.Definition, into map[drover.FunctionName]bool) {
	for _, step := range def.Nodes {
		if step.Call != "" {
			into[step.Call] = true
		}
		if step.Agent != nil {
			into["agent"] = true
		}
		if step.Compensate != nil {
			into[step.Compensate.Call] = true
		}
		if step.Run != nil && step.Run.Definition != nil {
			calls(step.Run.Definition, into)
		}
	}
}
