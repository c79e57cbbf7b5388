package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

func (a *app) fleetCommand() *cobra.Command {
	var slow bool
	cmd := &cobra.Command{
		Use:     "fleet",
		Short:   "Show the workers, and how far each partition has come",
		GroupID: groupOperations,
		Long: `Fleet shows who serves, and the partitions: their owner, its epoch, the cursor (everything before it is done), and
the lag: how many commands lie after the cursor, and how old the first of them is.
A busy partition has a lag of a few seconds, as a cursor waits for short runs to end. Older ones are marked slow,
and so are partitions that no worker who lives owns.`,
		Example: `  drover fleet
  drover fleet --slow
  drover fleet --json | jq '.partitions[] | select(.lag > 0)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClientInTime(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.Fleet(ctx)
				if err != nil {
					return err
				}
				return a.print(reply, fleetText(&reply, slow, time.Now()))
			})
		},
	}
	cmd.Flags().BoolVar(&slow, "slow", false, "only partitions that are slow (not with --json)")
	a.conn.flags(cmd, answerTime)
	return cmd
}

// fleetText is a fleet in two tables, and a line that sums it up.
func fleetText(r *drover.FleetReply, onlySlow bool, now time.Time) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKER\tNAME\tUP\tPARTITIONS\t")
	for _, m := range r.Members {
		note := ""
		if m.Leaving {
			note = "leaving"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", m.ID, visible(m.Name, 40), elapsed(now.Sub(m.Since)), m.Partitions, note)
	}
	_ = w.Flush() // into memory
	b.WriteString("\n")
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tOWNER\tEPOCH\tCURSOR\tLAG\tOLDEST\t")
	slow, lag := 0, uint64(0)
	for _, p := range r.Partitions {
		lag += p.Lag
		note, oldest := "", "-"
		if p.Oldest != nil {
			oldest = elapsed(now.Sub(*p.Oldest))
		}
		if p.Slow {
			slow++
			note = "slow"
		}
		if p.Slow || !onlySlow {
			fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%d\t%s\t%s\n", p.Number, cmp.Or(p.Worker, "nobody"), p.Epoch, p.Cursor, p.Lag, oldest, note)
		}
	}
	_ = w.Flush() // into memory
	fmt.Fprintf(&b, "\n%s, %s, %d of them slow, %s behind, %s\n", plural(len(r.Members), "worker"),
		plural(len(r.Partitions), "partition"), slow, plural(int(lag), "command"), plural(int(r.Dead), "dead letter"))
	return trimLines(b.String())
}

// trimLines takes the blanks off the ends of lines.
func trimLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}
