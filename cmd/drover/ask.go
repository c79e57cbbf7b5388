package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// aboutRun makes a command about one run.
func (a *app) aboutRun(cmd *cobra.Command, do func(ctx context.Context, c *client.Client, run drover.RunID, rest []string) error) *cobra.Command {
	cmd.GroupID = groupRuns
	if cmd.Args == nil {
		cmd.Args = cobra.ExactArgs(1)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := drover.ParseRunID(args[0])
		if err != nil {
			return err
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error { return do(ctx, c, id, args[1:]) })
	}
	a.conn.flags(cmd, answerTime)
	return cmd
}

func (a *app) stopCommand() *cobra.Command {
	var (
		reason string
		force  bool
	)
	cmd := a.aboutRun(&cobra.Command{
		Use:   "stop RUN",
		Short: "Stop a run: its calls are cancelled, and what it did is compensated",
		Long: `Stop ends the calls of a run, stops its children, and has what it did compensated. A program is asked to stop: its
body undoes what it did, for which a process has to serve it. --force ends it at once, and nothing is undone.`,
		Example: `  drover stop r_2f6c1e --reason 'ordered by mistake'
  drover stop r_2f6c1e --force`,
	}, func(ctx context.Context, c *client.Client, run drover.RunID, _ []string) error {
		stop := c.Stop
		if force {
			stop = c.ForceStop
		}
		reply, err := stop(ctx, run, reason)
		if err != nil {
			return err
		}
		said := string(reply.Status)
		if !reply.Status.Terminal() {
			said = "was asked to stop, and is " + said
		}
		return a.print(reply, fmt.Sprintf("%s %s\n", reply.RunID, said))
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for its outcome")
	cmd.Flags().BoolVar(&force, "force", false, "end a program at once: its body undoes nothing")
	return cmd
}

// meant names the token that a delivery was meant for which named the node in place
// of it, or nothing: what is kept for a wait answers no approval.
func meant(ctx context.Context, c *client.Client, req *drover.DeliverRequest) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	why, err := c.Why(ctx, req.RunID)
	if err != nil {
		return ""
	}
	for _, r := range why.Reasons {
		if r.Waiting == "hook" && string(r.Node) == req.Name {
			return fmt.Sprintf("node %s waits for a token, and not for that: drover hook deliver %s PAYLOAD\n", r.Node, quoted(r.On))
		}
	}
	return ""
}

func (a *app) tickCommand() *cobra.Command {
	return a.aboutRun(&cobra.Command{
		Use:   "tick RUN...",
		Short: "Make runs look at their deadlines now",
		Long: `Tick makes runs look at their deadlines, which they do by themselves as well. A program that is blocked is driven
again.`,
		Example: `  drover tick r_2f6c1e
  drover list --status blocked --json | jq -r '.runs[].run_id' | xargs drover tick`,
		Args: cobra.MinimumNArgs(1),
	}, func(ctx context.Context, c *client.Client, run drover.RunID, rest []string) error {
		runs := []drover.RunID{run}
		for _, arg := range rest {
			id, err := drover.ParseRunID(arg)
			if err != nil {
				return err
			}
			runs = append(runs, id)
		}
		for _, run := range runs {
			if err := a.tick(ctx, c, run); err != nil {
				return err
			}
		}
		return nil
	})
}

// ticked is what a run was like when it was ticked.
type ticked struct {
	RunID  drover.RunID  `json:"run_id"`
	Status drover.Status `json:"status"`
}

// tick ticks one run, unless it is over.
func (a *app) tick(ctx context.Context, c *client.Client, run drover.RunID) error {
	was, err := c.Status(ctx, drover.RunRequest{RunID: run, Brief: true})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s is over (%s): a tick changes nothing\n", run, was.Run.Status)
	if !was.Run.Status.Terminal() {
		if err := c.Tick(ctx, run); err != nil {
			return err
		}
		text = fmt.Sprintf("%s ticked, it was %s\n", run, was.Run.Status)
	}
	return a.print(ticked{run, was.Run.Status}, text)
}

func (a *app) deliverCommand() *cobra.Command {
	var id string
	cmd := a.aboutRun(&cobra.Command{
		Use:   "deliver RUN NAME [PAYLOAD]",
		Short: "Deliver a payload to a wait of a run",
		Long: `Deliver feeds the wait with this name. It returns once the delivery is durable and in the order of the run.
The payload is JSON, @file, or - for standard input; null where it is not given.`,
		Example: `  drover deliver r_2f6c1e approved '{"by": "kim"}' --id mail-17`,
		Args:    cobra.RangeArgs(2, 3),
	}, func(ctx context.Context, c *client.Client, run drover.RunID, rest []string) error {
		req := drover.DeliverRequest{RunID: run, Name: rest[0], ID: id}
		if len(rest) == 2 {
			var err error
			if req.Payload, err = readJSON("the payload", rest[1], a.in); err != nil {
				return err
			}
		}
		reply, err := c.Deliver(ctx, req)
		if err != nil {
			return err
		}
		text := "delivered\n"
		switch {
		case reply.Repeat:
			text = "delivered before, nothing changed\n"
		case reply.Kept:
			text = fmt.Sprintf("delivered: no wait named %s is open now, and it is kept for the next one\n", quoted(req.Name))
			if !a.json {
				text += meant(ctx, c, &req)
			}
		}
		return a.print(reply, text)
	})
	cmd.Flags().StringVar(&id, "id", "", "makes a repeat of this delivery harmless")
	return cmd
}

func (a *app) statusCommand() *cobra.Command {
	var values bool
	cmd := a.aboutRun(&cobra.Command{
		Use:   "status RUN",
		Short: "Print a run and its nodes",
		Example: `  drover status r_2f6c1e
  drover status r_2f6c1e --values --json | jq .run.nodes`,
	}, func(ctx context.Context, c *client.Client, run drover.RunID, _ []string) error {
		reply, err := c.Status(ctx, drover.RunRequest{RunID: run, Values: values})
		if err != nil {
			return err
		}
		return a.print(reply, painterFor(a.out).tree(&reply.Run, time.Now()))
	})
	cmd.Flags().BoolVar(&values, "values", false, "with values that are big, and every item of fan-outs (with --json)")
	return cmd
}

func (a *app) resultCommand() *cobra.Command {
	var (
		node string
		item int
	)
	cmd := a.aboutRun(&cobra.Command{
		Use:   "result RUN",
		Short: "Print the result of a run, or the output of one of its nodes",
		Long: `Result prints the value as JSON, also while the run goes on and after it failed.
It exits with 1 where there is none.`,
		Example: `  drover result r_2f6c1e
  drover result r_2f6c1e --node draft --item 3`,
		PreRunE: func(*cobra.Command, []string) error {
			if item >= 0 && node == "" {
				return usageError("--item %d is an item of a node: give --node as well", item)
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, run drover.RunID, _ []string) error {
		req := drover.RunRequest{RunID: run, Node: drover.NodeID(node)}
		if item >= 0 {
			req.Item = &item
		}
		reply, err := c.Result(ctx, req)
		if err != nil {
			return err
		}
		return a.result(&reply)
	})
	cmd.Flags().StringVar(&node, "node", "", "the output of this node")
	cmd.Flags().IntVar(&item, "item", -1, "the output of this item of a fan-out, from 0")
	return cmd
}

// result prints a value, or says why there is none. An error of the run is not
// one of whoever asked, whatever its code.
func (a *app) result(r *drover.ResultReply) error {
	var err error
	switch {
	case r.Output != nil:
		if !a.json {
			return encodeJSON(a.out, r.Output, "  ")
		}
		return encodeJSON(a.out, r, "")
	case r.Error != nil && r.Node != nil:
		err = fmt.Errorf("node %s of run %s is %s: %w", r.Node.ID, r.RunID, r.Node.Status, r.Error)
	case r.Error != nil:
		err = fmt.Errorf("run %s is %s: %w", r.RunID, r.Status, r.Error)
	case r.Node != nil:
		err = drover.Errorf(drover.CodeNotFound, "node %s is %s and has no output", r.Node.ID, r.Node.Status)
	default:
		err = drover.Errorf(drover.CodeNotFound, "run %s is %s and has no result", r.RunID, r.Status)
	}
	if a.json {
		if err := encodeJSON(a.out, r, ""); err != nil {
			return err
		}
	}
	return &exitError{status: exitFailed, err: err}
}

func (a *app) listCommand() *cobra.Command {
	var (
		req              drover.ListRequest
		status, workflow string
		tags             []string
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		GroupID: groupRuns,
		Example: `  drover list --status running
  drover list --workflow naming --tag customer=7 --limit 20
  drover list --workflow program:order
  drover list --workflow program:order@v1 --open`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.Status, req.Workflow = drover.Status(status), drover.WorkflowName(workflow)
			var err error
			if req.Tags, err = parseTags(tags); err != nil {
				return err
			}
			return a.withClientInTime(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.List(ctx, req)
				if err != nil {
					return err
				}
				return a.print(reply, table(&reply, time.Now()))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&status, "status", "", "only runs in this status: running, waiting, completed, failed, cancelled,\ncompensated, compensation_failed, or blocked")
	f.BoolVar(&req.Open, "open", false, "only runs that are not over")
	f.StringVar(&workflow, "workflow", "", "only runs of this workflow, of program:NAME, or of program:NAME@VERSION")
	f.StringArrayVar(&tags, "tag", nil, "only runs with this tag, as key=value; may be given several times")
	f.IntVar(&req.Limit, "limit", 100, "how many at most, up to 1000")
	a.conn.flags(cmd, listTime)
	return cmd
}

// table is a list of runs in columns.
func table(l *drover.ListReply, now time.Time) string {
	return columns("RUN\tWORKFLOW\tSTATUS\tCREATED\tTOOK", l.Runs, l.More, "a status, a workflow or a tag", func(r *drover.Run) []any {
		return []any{r.ID, workflowOf(r), r.Status, elapsed(now.Sub(r.CreatedAt)) + " ago", took(&r.CreatedAt, r.EndedAt, now)}
	})
}

// workflowOf names what a run runs: its workflow, or its program as a start has it,
// with the version that it stays on.
func workflowOf(r *drover.Run) string {
	switch {
	case r.Workflow != "" || r.Program == nil:
		return string(r.Workflow)
	case r.Program.Version != "":
		return "program:" + r.Program.Name + "@" + r.Program.Version
	}
	return "program:" + r.Program.Name
}

// pretty is JSON on several lines, for people.
func pretty(raw json.RawMessage) string {
	var b strings.Builder
	if err := encodeJSON(&b, raw, "  "); err != nil {
		return string(raw) + "\n"
	}
	return b.String()
}
