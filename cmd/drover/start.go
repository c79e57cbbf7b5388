package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// request is what the command line says of a run to start.
type request struct {
	input string // JSON, @file or -
	run   string
	key   string
	tags  []string
	told  hearers // only where someone else can listen
}

// hearers are whom the command line has told the outcome.
type hearers struct {
	subjects, streams, urls, functions []string
	inline                             bool
}

func (h *hearers) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&h.subjects, "notify", nil, "subject that is told the outcome; may be given several times, as may the next three")
	f.StringArrayVar(&h.streams, "notify-stream", nil, "subject of a stream that gets the outcome")
	f.StringArrayVar(&h.urls, "notify-url", nil, "URL that gets the outcome as a signed POST")
	f.StringArrayVar(&h.functions, "notify-function", nil, "function that is called with the outcome")
	f.BoolVar(&h.inline, "inline", false, "tell those only where nobody who waits, as --wait does, takes the outcome")
}

// list gives the subscribers.
func (h *hearers) list() (drover.NotifyList, error) {
	var list drover.NotifyList
	for _, subject := range h.subjects {
		list = append(list, drover.Notify{Subject: subject, Inline: h.inline})
	}
	for _, subject := range h.streams {
		list = append(list, drover.Notify{StreamSubject: subject, Inline: h.inline})
	}
	for _, url := range h.urls {
		list = append(list, drover.Notify{URL: url, Inline: h.inline})
	}
	for _, function := range h.functions {
		list = append(list, drover.Notify{Function: drover.FunctionName(function), Inline: h.inline})
	}
	if h.inline && len(list) == 0 {
		return nil, usageError("--inline is for those who are told: give --notify, --notify-stream, --notify-url or --notify-function")
	}
	return list, nil
}

func (r *request) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.input, "input", "", "input: JSON, @file, or - for standard input")
	f.StringVar(&r.run, "run", "", "id of the run; made up where it is not given")
	f.StringVar(&r.key, "key", "", "idempotency key: two starts with one key are one run")
	f.StringArrayVar(&r.tags, "tag", nil, "tag as key=value; may be given several times")
}

// make is the request, but for what to run.
func (r *request) make(stdin io.Reader) (drover.StartRequest, error) {
	req := drover.StartRequest{IdempotencyKey: r.key}
	if r.run != "" && r.key != "" {
		return req, usageError("--run and --key both name the run: give one")
	}
	if r.run != "" {
		id, err := drover.ParseRunID(r.run)
		if err != nil {
			return req, err
		}
		req.RunID = id
	}
	var err error
	if req.Input, err = readJSON("--input", r.input, stdin); err != nil {
		return req, err
	}
	if req.Notify, err = r.told.list(); err != nil {
		return req, err
	}
	req.Tags, err = parseTags(r.tags)
	return req, err
}

// parseTags reads key=value.
func parseTags(args []string) (map[string]string, error) {
	if len(args) == 0 {
		return nil, nil
	}
	tags := map[string]string{}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return nil, usageError("--tag %q is not key=value", arg)
		}
		tags[key] = value
	}
	return tags, nil
}

// loadDefinition reads a definition and checks it, so that all its problems
// are told with their lines before anything is sent.
func (a *app) loadDefinition(file string) (*drover.Definition, json.RawMessage, error) {
	raw, err := readSource(file, a.in)
	if err != nil {
		return nil, nil, err
	}
	def, err := drover.ParseDefinition(raw)
	if err != nil {
		return nil, nil, &exitError{status: exitUsage, err: fmt.Errorf("%s: %w", file, err)}
	}
	wire, err := definitionJSON(raw)
	return def, wire, err
}

// definitionOf gives the definition in a file, or that of program:NAME.
func (a *app) definitionOf(arg string) (json.RawMessage, error) {
	name, ok := strings.CutPrefix(arg, "program:")
	if !ok {
		_, raw, err := a.loadDefinition(arg)
		if _, bad := drover.ParseWorkflowName(arg); errors.Is(err, fs.ErrNotExist) && bad == nil {
			err = usageError("%w; it is a file: a registered workflow is --workflow %s, and a program is program:%s", err, arg, arg)
		}
		return raw, err
	}
	def := &drover.Definition{Program: name}
	if name == "" {
		return nil, usageError("program: has no name: write program:order, say")
	}
	if err := def.Validate(); err != nil {
		return nil, usageError("%s: %w", arg, err)
	}
	return json.Marshal(map[string]string{"program": name})
}

// readSource reads a file, or standard input for -.
func readSource(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return readArg("-", stdin)
	}
	return readFile(file)
}

func (a *app) startCommand() *cobra.Command {
	var (
		req            request
		workflow, hash string
		wait           bool
	)
	cmd := &cobra.Command{
		Use:     "start [FILE | program:NAME]",
		Short:   "Start a run, and print its id",
		GroupID: groupRuns,
		Long: `Start asks the fleet for a run of the definition in a file, of one that is stored already, or of a program that some
process serves.
It returns once the start is durable. Whom --notify and the like name is told when the run ends; with --inline only
where --wait does not take the outcome, as when it is interrupted, which the run outlives.
--wait waits for the outcome, prints it as JSON, and exits as drover run does.
With --wait, a --timeout that is given is for all of it; without one it waits for ever.`,
		Example: `  drover start workflow.yaml --input '{"topic": "cats"}'
  drover start --workflow naming --input @input.json --key order-4711
  drover start program:order --input '{"item": 7}'
  drover start --workflow naming --notify orders.done --tag customer=7
  drover start workflow.yaml --wait --timeout 10m
  drover start workflow.yaml --wait --timeout 1m --notify-url https://example.com/done --inline`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			start, err := req.make(a.in)
			if err != nil {
				return err
			}
			start.Workflow, start.Hash = drover.WorkflowName(workflow), drover.Hash(hash)
			if count := len(args) + count(workflow) + count(hash); count != 1 {
				return usageError("give exactly one of a file, a program, --workflow and --hash, not %d", count)
			}
			if len(args) == 1 {
				if start.Definition, err = a.definitionOf(args[0]); err != nil {
					return err
				}
			}
			ctx := cmd.Context()
			if wait && cmd.Flags().Changed("timeout") {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, a.conn.timeout, errNotOver(start.RunID, a.conn.timeout))
				defer cancel()
			}
			return a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
				return a.start(ctx, c, start, wait)
			})
		},
	}
	req.flags(cmd)
	req.told.flags(cmd)
	cmd.Flags().StringVar(&workflow, "workflow", "", "name of a registered definition")
	cmd.Flags().StringVar(&hash, "hash", "", "hash of a stored definition")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the outcome")
	a.conn.flags(cmd, answerTime)
	return cmd
}

func count(s string) int {
	if s == "" {
		return 0
	}
	return 1
}

func (a *app) start(ctx context.Context, c *client.Client, req drover.StartRequest, wait bool) error {
	waiter := client.NewWaiter()
	if wait {
		req.Hold = &drover.HoldRequest{Waiter: waiter}
	}
	reply, err := c.Start(ctx, req)
	if err != nil {
		return err
	}
	a.warn(reply.Warnings)
	if !wait {
		return a.print(reply, string(reply.RunID)+"\n")
	}
	fmt.Fprintln(a.err, "run", reply.RunID)
	if reply.Inline {
		return a.awaited(ctx, func() (drover.Outcome, error) { return c.Take(ctx, reply.RunID, waiter) })
	}
	return a.await(ctx, c, reply.RunID)
}

// await prints the outcome of a run when it has one.
func (a *app) await(ctx context.Context, c *client.Client, id drover.RunID) error {
	return a.awaited(ctx, func() (drover.Outcome, error) { return c.Wait(ctx, id) })
}

// awaited prints the outcome that comes of waiting. One that is there although it
// could not be taken is printed as well.
func (a *app) awaited(ctx context.Context, wait func() (drover.Outcome, error)) error {
	outcome, err := wait()
	switch {
	case outcome.Status.Terminal():
		if err != nil {
			fmt.Fprintln(a.err, "drover: warning: others may be told as well: "+err.Error())
		}
		return a.outcome(&outcome)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// errNotOver is why waiting for a run ends before the run does.
func errNotOver(id drover.RunID, after time.Duration) error {
	if id == "" {
		return drover.Errorf(drover.CodeTimeout, "the run is not over after %s", after)
	}
	return drover.Errorf(drover.CodeTimeout, "run %s is not over after %s", id, after)
}

func (a *app) warn(problems []drover.Problem) {
	for _, p := range problems {
		fmt.Fprintln(a.err, "drover: warning: "+p.String())
	}
}

// outcome prints the outcome of a run, and ends the program with its status.
func (a *app) outcome(o *drover.Outcome) error {
	indent := "  "
	if a.json {
		indent = ""
	}
	if err := encodeJSON(a.out, o, indent); err != nil {
		return err
	}
	return ended(o.Status)
}

func (a *app) waitCommand() *cobra.Command {
	var wait connection
	cmd := &cobra.Command{
		Use:     "wait RUN",
		Short:   "Wait until a run is over, and print its outcome",
		GroupID: groupRuns,
		Long: `Wait returns when the run is over, prints the outcome as JSON, and exits with
0 completed, 1 failed, 3 cancelled, 4 compensated, 5 compensation failed.`,
		Example: `  drover wait r_2f6c1e
  drover wait r_2f6c1e --timeout 10m && echo done`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := drover.ParseRunID(args[0])
			if err != nil {
				return err
			}
			if wait.timeout < 0 {
				return usageError("--timeout %s must not be negative", wait.timeout)
			}
			ctx := cmd.Context()
			if wait.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, wait.timeout, errNotOver(id, wait.timeout))
				defer cancel()
			}
			return a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
				return a.await(ctx, c, id)
			})
		},
	}
	a.conn.flags(cmd, 0)
	cmd.Flags().DurationVar(&wait.timeout, "timeout", 0, "how long to wait at most; 0: no limit")
	return cmd
}
