package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// begins is what the command line says of the run to start where nobody holds
// a token.
type begins struct {
	request
	file, workflow, hash string
}

func (s *begins) flags(cmd *cobra.Command) {
	s.request.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.file, "start", "", "file of the definition to start where nobody holds the token, or - for standard input")
	f.StringVar(&s.workflow, "workflow", "", "or the name of a registered one")
	f.StringVar(&s.hash, "hash", "", "or the hash of a stored one")
}

// ask is the start, or nil where nothing is to be started.
func (s *begins) ask(a *app) (*drover.StartRequest, error) {
	switch n := count(s.file) + count(s.workflow) + count(s.hash); {
	case n > 1:
		return nil, usageError("give at most one of --start, --workflow and --hash, not %d", n)
	case n == 0 && (s.input != "" || s.run != "" || s.key != "" || len(s.tags) > 0):
		return nil, usageError("--input, --run, --key and --tag are of a run to start: give --start, --workflow or --hash as well")
	case n == 0:
		return nil, nil
	}
	start, err := s.make(a.in)
	if err != nil {
		return nil, err
	}
	start.Workflow, start.Hash = drover.WorkflowName(s.workflow), drover.Hash(s.hash)
	if s.file != "" {
		_, start.Definition, err = a.loadDefinition(s.file)
	}
	return &start, err
}

func (a *app) hookDeliverCommand() *cobra.Command {
	var (
		req   drover.HookRequest
		start begins
	)
	cmd := &cobra.Command{
		Use:   "deliver TOKEN [PAYLOAD]",
		Short: "Deliver to the run that holds a token, or start one that does",
		Long: `Deliver returns once the run that holds the token has the payload. Where nobody holds it nothing is stored, and it
exits with 1; but with --start, --workflow or --hash it starts a run that holds the token from its first moment.
The payload is JSON, @file, or - for standard input; null where it is not given.`,
		Example: `  drover hook deliver order:17 '{"paid": true}' --id mail-17
  drover hook deliver thread:9 '"hello"' --workflow answer-thread --input '{"thread": 9}'`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Start, err = start.ask(a); err != nil {
				return err
			}
			req.Token = args[0]
			if len(args) == 2 {
				if req.Payload, err = readJSON("the payload", args[1], a.in); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.DeliverHook(ctx, req)
				if err != nil {
					return err
				}
				return a.print(reply, deliveredText(&reply))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.ID, "id", "", "makes a repeat of this delivery harmless")
	f.BoolVar(&req.Async, "async", false, "do not wait until the run has taken it; what it refuses is a dead letter")
	start.flags(cmd)
	a.conn.flags(cmd, answerTime)
	return cmd
}

func deliveredText(r *drover.HookReply) string {
	switch {
	case r.Repeat:
		return fmt.Sprintf("delivered before to %s, nothing changed\n", r.RunID)
	case r.Started:
		return fmt.Sprintf("started %s, and delivered to it\n", r.RunID)
	case r.Async:
		return fmt.Sprintf("on its way to %s\n", r.RunID)
	}
	return fmt.Sprintf("delivered to %s\n", r.RunID)
}

func (a *app) hookDeliverManyCommand() *cobra.Command {
	var (
		which hookFilter
		id    string
	)
	cmd := &cobra.Command{
		Use:   "deliver-many [PAYLOAD]",
		Short: "Deliver to every hook with a tag, a prefix or a run",
		Long: `Deliver-many delivers to each hook that fits, tells those that did not take it, and exits with 1 where there are some.
At least one of --tag, --token-prefix and --run must be given. Give an --id: it makes it harmless to try again.
With --json it prints one line for each hook, as its delivery ends.`,
		Example: `  drover hook deliver-many '{"changed": "users"}' --tag query=users
  drover hook deliver-many --token-prefix order: --id nightly-7 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := which.filter()
			if err != nil {
				return err
			}
			req := drover.HookManyRequest{HookFilter: filter, ID: id}
			if len(args) == 1 {
				if req.Payload, err = readJSON("the payload", args[0], a.in); err != nil {
					return err
				}
			}
			return a.withClientInTime(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.deliverMany(ctx, c, req) })
		},
	}
	which.flags(cmd)
	cmd.Flags().StringVar(&id, "id", "", "makes a repeat of these deliveries harmless")
	a.conn.flags(cmd, listTime)
	return cmd
}

// deliverMany delivers to many hooks, and tells how it went as it goes.
func (a *app) deliverMany(ctx context.Context, c *client.Client, req drover.HookManyRequest) error {
	matched, failed := 0, 0
	for r, err := range c.DeliverHooks(ctx, req) {
		if err != nil {
			return err
		}
		matched++
		text := ""
		if r.Error != nil {
			failed++
			text = fmt.Sprintf("%s: %s\n", visible(r.Token, 100), visible(r.Error.Message, 300))
		}
		if err := a.print(r, text); err != nil {
			return err
		}
	}
	if !a.json {
		fmt.Fprintf(a.out, "delivered to %d of %s\n", matched-failed, plural(matched, "hook"))
	}
	if failed > 0 {
		return &exitError{status: exitFailed}
	}
	return nil
}
