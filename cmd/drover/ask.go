package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
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
		return a.print(reply, fmt.Sprintf("%s %s\n", reply.RunID, reply.Status))
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for its outcome")
	cmd.Flags().BoolVar(&force, "force", false, "end a program at once: its body undoes nothing")
	return cmd
}

func (a *app) tickCommand() *cobra.Command {
	return a.aboutRun(&cobra.Command{
		Use:     "tick RUN",
		Short:   "Make a run look at its deadlines now",
		Example: "  drover tick r_2f6c1e",
	}, func(ctx context.Context, c *client.Client, run drover.RunID, _ []string) error {
		return c.Tick(ctx, run)
	})
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
		if reply.Repeat {
			text = "delivered before, nothing changed\n"
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
	case r.Error != nil:
		err = r.Error
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

func (a *app) whyCommand() *cobra.Command {
	return a.aboutRun(&cobra.Command{
		Use:     "why RUN",
		Short:   "Say what a run is waiting for",
		Example: "  drover why r_2f6c1e",
	}, func(ctx context.Context, c *client.Client, run drover.RunID, _ []string) error {
		reply, err := c.Why(ctx, run)
		if err != nil {
			return err
		}
		return a.print(reply, why(&reply))
	})
}

// why tells the reasons as sentences, one a line, and what helps.
func why(r *drover.WhyReply) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s is %s\n", r.RunID, r.Status)
	if len(r.Reasons) == 0 && r.Status.Terminal() {
		b.WriteString("  it waits for nothing: it is over, and everyone was told\n")
	}
	for _, reason := range r.Reasons {
		fmt.Fprintf(&b, "  %s\n", reason.Text)
		switch reason.Waiting {
		case "drive":
			if r.Status == drover.StatusBlocked {
				fmt.Fprintf(&b, "    drover history %s\n    drover tick %s\n", r.RunID, r.RunID)
			}
		case "delivery":
			fmt.Fprintf(&b, "    drover deliver %s %s '{\"any\": \"JSON\"}'\n", r.RunID, quoted(reason.On))
		case "hook":
			fmt.Fprintf(&b, "    drover hook deliver %s '{\"any\": \"JSON\"}'\n", quoted(reason.On))
		case "subscriber":
			if reason.Until == "" { // given up
				fmt.Fprintf(&b, "    drover delivery replay --run %s --to %s\n", r.RunID, quoted(reason.On))
			}
		}
	}
	return b.String()
}

// quoted makes one word of a text for the shell.
func quoted(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.:/@", r)
	}
	if s != "" && s[0] != '-' && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
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
  drover list --workflow naming --tag customer=7 --limit 20`,
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
	f.StringVar(&workflow, "workflow", "", "only runs of this workflow")
	f.StringArrayVar(&tags, "tag", nil, "only runs with this tag, as key=value; may be given several times")
	f.IntVar(&req.Limit, "limit", 100, "how many at most, up to 1000")
	a.conn.flags(cmd, listTime)
	return cmd
}

// table is a list of runs in columns.
func table(l *drover.ListReply, now time.Time) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tWORKFLOW\tSTATUS\tCREATED\tTOOK")
	for i := range l.Runs {
		r := &l.Runs[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s ago\t%s\n", r.ID, r.Workflow, r.Status,
			elapsed(now.Sub(r.CreatedAt)), took(&r.CreatedAt, r.EndedAt, now))
	}
	_ = w.Flush() // into memory
	if l.More {
		b.WriteString("there are more: raise --limit, or ask for a status, a workflow or a tag\n")
	}
	return b.String()
}

// pretty is JSON on several lines, for people.
func pretty(raw json.RawMessage) string {
	var b strings.Builder
	if err := encodeJSON(&b, raw, "  "); err != nil {
		return string(raw) + "\n"
	}
	return b.String()
}
