package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// history is what there is to tell of a program.
type history struct {
	Run     drover.Run      `json:"run"`
	Journal []drover.Entry  `json:"journal"`
	Reasons []drover.Reason `json:"reasons"`
}

func (a *app) historyCommand() *cobra.Command {
	var from int
	cmd := a.aboutRun(&cobra.Command{
		Use:   "history RUN",
		Short: "Print the journal of a program: what its body did, and what it waits for",
		Long: `History prints the entries of the journal, oldest first: steps with what they gave, what the body asked for and how
that ended; then what was noted of its drives, and what it waits for, or how it ended.`,
		Example: `  drover history r_2f6c1e
  drover history r_2f6c1e --from 100 --json | jq '.journal[] | select(.kind == "step")'`,
		PreRunE: func(*cobra.Command, []string) error {
			if from < 1 {
				return usageError("--from %d must be the number of an entry, from 1", from)
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, run drover.RunID, _ []string) error {
		status, err := c.Status(ctx, drover.RunRequest{RunID: run, Brief: true})
		if err != nil {
			return err
		}
		journal, err := c.Journal(ctx, run, from)
		if err != nil {
			return err
		}
		why, err := c.Why(ctx, run)
		if err != nil {
			return err
		}
		h := history{Run: status.Run, Journal: journal.Journal, Reasons: why.Reasons}
		if a.json {
			return encodeJSON(a.out, h, "")
		}
		return a.print(h, painterFor(a.out).history(&h, time.Now()))
	})
	cmd.Flags().IntVar(&from, "from", 1, "the first entry")
	return cmd
}

// noteWidth is how much of a note or a reason is shown: all of it, as the end says
// what to do.
const noteWidth = 4 << 10

// history is a program with its journal as text.
func (p painter) history(h *history, now time.Time) string {
	var b strings.Builder
	b.WriteString(p.head(&h.Run, now))
	b.WriteString(p.program(h.Run.Program, now))
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for i := range h.Journal {
		e := &h.Journal[i]
		at := ""
		if e.At != nil {
			at = e.At.Format("2006-01-02 15:04:05.000")
		}
		fmt.Fprintf(w, "  %d\t%s\t%s\t%s\t%s\n", e.Number, at, e.Kind, named(e), said(e))
	}
	_ = w.Flush() // into memory
	for line := range strings.Lines(table.String()) {
		b.WriteString(p.line([2]string{"", strings.TrimRight(line, "\n")}))
	}
	if slices.ContainsFunc(h.Journal, func(e drover.Entry) bool { return e.Error != nil && e.Error.Stack != "" }) {
		b.WriteString(p.line([2]string{"2", "  what panicked: --json has the stack"}))
	}
	for _, note := range h.Run.Notes {
		b.WriteString(p.line([2]string{"2", fmt.Sprintf("  noted %s: %s", note.At.Format("2006-01-02 15:04:05"), visible(note.Text, noteWidth))}))
	}
	for _, reason := range h.Reasons {
		b.WriteString(p.line([2]string{"2", "  waits: "}, [2]string{"", visible(reason.Text, noteWidth)}))
	}
	b.WriteString(p.ending(&h.Run))
	return b.String()
}

// ending is the line of how a run ended, or nothing.
func (p painter) ending(run *drover.Run) string {
	if !run.Status.Terminal() {
		return ""
	}
	at, why := "", ""
	if run.EndedAt != nil {
		at = run.EndedAt.Format("2006-01-02 15:04:05.000") + "  "
	}
	if run.Error != nil {
		why = fmt.Sprintf("  %s: %s", run.Error.Code, visible(run.Error.Message, 500))
	}
	return p.line([2]string{"", "  over " + at}, [2]string{statusColor(run.Status), string(run.Status)}, [2]string{"", why})
}

// named is what an entry is about.
func named(e *drover.Entry) string {
	switch {
	case e.Kind == drover.EntryStop:
		return "" // it has the reason in the place of an id
	case e.Attempt > 1 || e.Kind == drover.EntryAttempt:
		return fmt.Sprintf("%s, attempt %d", visible(e.ID, 100), e.Attempt)
	}
	return visible(e.ID, 100)
}

// said is what an entry says, on one line.
func said(e *drover.Entry) string {
	const width = 100
	var parts []string
	if e.Kind == drover.EntryStop {
		parts = append(parts, e.ID)
	}
	if len(e.Step) > 0 {
		parts = append(parts, string(e.Step))
	}
	if len(e.Output) > 0 {
		parts = append(parts, string(e.Output))
	}
	if e.Error != nil {
		parts = append(parts, "failed: "+e.Error.Error())
	}
	if e.Pause > 0 {
		parts = append(parts, "next attempt in "+time.Duration(e.Pause).String())
	}
	return visible(strings.Join(parts, "; "), width)
}

// program is the line of how far the body of a program is, and why it was asked
// to stop.
func (p painter) program(v *drover.ProgramView, now time.Time) string {
	if v == nil {
		return ""
	}
	text := "body " + v.State
	if v.Since != nil && v.State != "over" {
		text += " for " + took(v.Since, nil, now)
	}
	text += fmt.Sprintf(", drive %d, journal of %d", v.Drive, v.Entries)
	if v.Generation > 0 {
		text += fmt.Sprintf(", begun anew %d×", v.Generation)
	}
	if v.Version != "" {
		text += ", version " + visible(v.Version, 60)
	}
	if v.Instance != "" {
		text += ", at " + visible(v.Instance, 60)
	}
	line := p.line([2]string{"2", "  " + text})
	if v.Stop != nil {
		line += p.line([2]string{"33", "  asked to stop: "}, [2]string{"", visible(*v.Stop, 200)})
	}
	return line
}
