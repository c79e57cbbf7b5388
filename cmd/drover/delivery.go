package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

func (a *app) deliveryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delivery",
		Short:   "Look at outcomes that somebody was not told, and try again",
		GroupID: groupOperations,
		Long: `A delivery is an outcome on its way to one subscriber. It is tried until there is a receipt, or until its age or
attempts are used up: then it is dead, and kept for as long as a run is kept after its end.`,
		Example: `  drover delivery list --status dead
  drover delivery replay --status dead --to shop.done`,
	}
	cmd.AddCommand(a.deliveryListCommand(), a.deliveryShowCommand(), a.deliveryReplayCommand())
	return cmd
}

// deliveryFilter is what the command line says of which deliveries are meant.
type deliveryFilter struct{ status, run, workflow, to string }

func (d *deliveryFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.status, "status", "", "only in this status: pending or dead")
	f.StringVar(&d.run, "run", "", "only of this run")
	f.StringVar(&d.workflow, "workflow", "", "only of runs of this workflow, of program:NAME, or of program:NAME@VERSION")
	f.StringVar(&d.to, "to", "", "only to this subject, URL without its query, function or session")
}

func (d *deliveryFilter) filter() drover.DeliveryFilter {
	return drover.DeliveryFilter{
		Status: drover.DeliveryStatus(d.status), RunID: drover.RunID(d.run), Workflow: drover.WorkflowName(d.workflow), To: d.to,
	}
}

func (a *app) deliveryListCommand() *cobra.Command {
	var (
		which deliveryFilter
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List deliveries that did not succeed at once, and are pending or dead",
		Example: `  drover delivery list --status dead --to shop.done
  drover delivery list --json | jq -r '.deliveries[].delivery_id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClientInTime(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.ListDeliveries(ctx, drover.DeliveryListRequest{DeliveryFilter: which.filter(), Limit: limit})
				if err != nil {
					return err
				}
				return a.print(reply, deliveryTable(&reply, time.Now()))
			})
		},
	}
	which.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most, up to 1000")
	a.conn.flags(cmd, listTime)
	return cmd
}

// deliveryTable is a list of deliveries in columns.
func deliveryTable(l *drover.DeliveryList, now time.Time) string {
	const head, ask = "DELIVERY\tTO\tSTATUS\tATTEMPTS\tFOR\tNEXT\tERROR", "a status, a run, a workflow or a subscriber"
	return columns(head, l.Deliveries, l.More, ask, func(d *drover.RunDelivery) []any {
		age := elapsed(now.Sub(d.RunEnded))
		return []any{d.ID, visible(d.Notify.To(), 60), d.Status, d.Attempts, age, nextIn(d.NextAt, now), deadReason(d.LastError)}
	})
}

// nextIn says when the next attempt comes.
func nextIn(at *time.Time, now time.Time) string {
	switch {
	case at == nil:
		return "-"
	case !at.After(now):
		return "now"
	}
	return "in " + elapsed(at.Sub(now))
}

func (a *app) deliveryShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show DELIVERY",
		Short: "Print how far a delivery is, in whatever status",
		Example: `  drover delivery show letter-1:terminal:0
  drover delivery show letter-1:terminal:0 --json | jq .last_error`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseDelivery(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				d, err := c.ShowDelivery(ctx, id)
				if err != nil {
					return err
				}
				return a.print(d, deliveryText(&d))
			})
		},
	}
	a.conn.flags(cmd, answerTime)
	return cmd
}

func parseDelivery(s string) (drover.DeliveryID, error) {
	if _, _, err := drover.ParseDeliveryID(s); err != nil {
		return "", usageError("%w: drover delivery list shows them", err)
	}
	return drover.DeliveryID(s), nil
}

// deliveryText is a delivery as text.
func deliveryText(d *drover.RunDelivery) string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", what, fmt.Sprintf(format, args...))
	}
	at := func(what string, t *time.Time) {
		if t != nil {
			line(what, "%s", t.Format(time.RFC3339))
		}
	}
	line("delivery", "%s", d.ID)
	line("to", "%s %s", strings.ReplaceAll(d.Notify.Kind(), "_", " "), visible(d.Notify.To(), 2000))
	line("run", "%s, %s at %s", d.RunID, d.Outcome, d.RunEnded.Format(time.RFC3339))
	if d.Workflow != "" {
		line("workflow", "%s", d.Workflow)
	}
	line("status", "%s", d.Status)
	line("attempts", "%d", d.Attempts)
	at("since", d.Since)
	at("next at", d.NextAt)
	at("ended at", d.EndedAt)
	if d.LastError != nil {
		line("error", "%s: %s", d.LastError.Code, visible(d.LastError.Message, 2000))
	}
	if d.LastFailure != nil {
		line("before", "%s: %s", d.LastFailure.Code, visible(d.LastFailure.Message, 2000))
	}
	if d.Receipt != "" {
		line("receipt", "%s", visible(d.Receipt, 2000))
	}
	if d.Status == drover.DeliveryDead {
		fmt.Fprintf(&b, "\nto try again: drover delivery replay %s\n", d.ID)
	}
	return b.String()
}

func (a *app) deliveryReplayCommand() *cobra.Command {
	var which deliveryFilter
	cmd := &cobra.Command{
		Use:   "replay [DELIVERY...]",
		Short: "Try to deliver again at once: these, or all that a filter chooses",
		Long: `Replay has deliveries that are pending or dead tried again at once. Dead ones get a new life: all their attempts, and
all their age. Subscribers get the same bytes with the same id. With a filter, what drover delivery list shows with it
is replayed.`,
		Example: `  drover delivery replay letter-1:terminal:0
  drover delivery replay --status dead --to shop.done`,
		RunE: func(cmd *cobra.Command, args []string) error {
			reqs, err := replays(args, which.filter())
			if err != nil {
				return err
			}
			return a.withClientInTime(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				for i := range reqs {
					if err := a.replay(ctx, c, reqs[i]); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	which.flags(cmd)
	a.conn.flags(cmd, listTime)
	return cmd
}

// replays makes the requests of a command line, which names deliveries or has a
// filter.
func replays(args []string, filter drover.DeliveryFilter) ([]drover.ReplayRequest, error) {
	filtered := filter != drover.DeliveryFilter{}
	switch {
	case filtered && len(args) > 0:
		return nil, usageError("a delivery and a filter are two ways to say which: give one of them")
	case filtered:
		return []drover.ReplayRequest{{DeliveryFilter: filter}}, nil
	case len(args) == 0:
		return nil, usageError("which deliveries? name them, or give --status, --run, --workflow or --to")
	}
	reqs := make([]drover.ReplayRequest, len(args))
	for i, arg := range args {
		id, err := parseDelivery(arg)
		if err != nil {
			return nil, err
		}
		reqs[i].DeliveryID = id
	}
	return reqs, nil
}

// replay asks for one replay, and tells what came of it. That some could not be
// asked for fails the command.
func (a *app) replay(ctx context.Context, c *client.Client, req drover.ReplayRequest) error {
	reply, err := c.ReplayDeliveries(ctx, req)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d of %s tried again\n", reply.Replayed, deliveries(reply.Matched))
	switch {
	case req.DeliveryID != "" && reply.Replayed > 0:
		text = fmt.Sprintf("%s is tried again\n", req.DeliveryID)
	case req.DeliveryID == "" && reply.Matched == 0: // as nothing is dead, say, which is good
		text = "no delivery matches that is pending or dead: nothing is tried again\n"
	case req.DeliveryID != "":
		text = fmt.Sprintf("%s is neither pending nor dead: nothing is tried again\n", req.DeliveryID)
	}
	if err := a.print(reply, text); err != nil || len(reply.Errors) == 0 {
		return err
	}
	failed := make([]error, len(reply.Errors))
	for i, e := range reply.Errors {
		failed[i] = e
	}
	return &exitError{status: exitFailed, err: errors.Join(failed...)}
}

// deliveries counts.
func deliveries(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}
