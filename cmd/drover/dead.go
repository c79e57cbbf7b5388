package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

func (a *app) deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dead",
		Short:   "Look at commands that could not be folded, and put them into the log again",
		GroupID: groupOperations,
		Long: `A dead letter is a command that could not be folded into its run, and whose sender asked for no answer.
It never stops others. The newest are kept, 64 MiB of them.

With the verb program.drive it is the last drive of a program whose body broke each time: its run has failed, and
the letter has the error with its stack. There is nothing to requeue.`,
		Example: `  drover dead list
  drover dead requeue 1042`,
	}
	cmd.AddCommand(a.deadListCommand(), a.deadShowCommand(), a.deadRequeueCommand())
	return cmd
}

func (a *app) deadListCommand() *cobra.Command {
	var (
		req  drover.DeadListRequest
		code string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Example: `  drover dead list --verb start --code invalid_definition
  drover dead list --verb drive
  drover dead list --run letter-1 --json | jq '.letters[].sequence'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.Code = drover.Code(code)
			return a.withClientInTime(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.ListDead(ctx, req)
				if err != nil {
					return err
				}
				return a.print(reply, deadTable(&reply, time.Now()))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.RunID, "run", "", "only of this run, as it was spelled")
	f.StringVar(&req.Verb, "verb", "", "only of this verb, like start, result or drive")
	f.StringVar(&code, "code", "", "only with this code of error")
	f.IntVar(&req.Limit, "limit", 100, "how many at most, up to 1000")
	a.conn.flags(cmd, listTime)
	return cmd
}

// deadTable is a list of dead letters in columns.
func deadTable(l *drover.DeadList, now time.Time) string {
	return columns("SEQUENCE\tRUN\tVERB\tBYTES\tAGE\tERROR", l.Letters, l.More, "a run, a verb or a code", func(d *drover.DeadLetter) []any {
		age := ""
		if d.At != nil {
			age = elapsed(now.Sub(*d.At))
		}
		return []any{d.Sequence, visible(d.RunID, 40), visible(d.Verb, 20), d.Bytes, age, deadReason(d.Error)}
	})
}

func deadReason(e *drover.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Code) + ": " + visible(e.Message, 100)
}

// visible makes text of a stranger fit for a terminal: one line, cut to so many
// characters.
func visible(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most-3]) + "..."
	}
	return s
}

func (a *app) deadShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show SEQUENCE",
		Short: "Print a dead letter with its payload",
		Example: `  drover dead show 1042
  drover dead show 1042 --json | jq -r .payload | base64 -d`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sequence, err := parseSequence(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				letter, err := c.ShowDead(ctx, sequence)
				if err != nil {
					return err
				}
				return a.print(letter, deadLetter(&letter))
			})
		},
	}
	a.conn.flags(cmd, answerTime)
	return cmd
}

func parseSequence(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, usageError("%q is no sequence of a dead letter: drover dead list shows them", s)
	}
	return n, nil
}

// deadLetter is a dead letter as text.
func deadLetter(d *drover.DeadLetter) string {
	var b strings.Builder
	fmt.Fprintf(&b, "sequence  %d\nrun       %s\nverb      %s\n", d.Sequence, visible(d.RunID, 200), visible(d.Verb, 200))
	if d.At != nil {
		fmt.Fprintf(&b, "at        %s\n", d.At.Format(time.RFC3339))
	}
	if d.Error != nil {
		fmt.Fprintf(&b, "error     %s: %s\n", d.Error.Code, visible(d.Error.Message, 2000))
		for line := range strings.Lines(d.Error.Stack) {
			fmt.Fprintf(&b, "          %s\n", visible(strings.TrimRight(strings.ReplaceAll(line, "\t", "  "), "\n"), 200))
		}
		for _, p := range d.Error.Problems {
			fmt.Fprintf(&b, "          %s\n", visible(p.String(), 500))
		}
	}
	fmt.Fprintf(&b, "payload   %d bytes\n", d.Bytes)
	if len(d.Payload) == 0 {
		return b.String()
	}
	text := string(d.Payload)
	if !utf8.Valid(d.Payload) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }) {
		text = strconv.QuoteToASCII(text)
	}
	return b.String() + "\n" + strings.TrimRight(text, "\n") + "\n"
}

func (a *app) deadRequeueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "requeue SEQUENCE...",
		Short: "Put commands of dead letters into the logs of their runs again",
		Long: `Requeue publishes the command once more, and removes the letter when that is durable. A command that cannot be
folded this time either becomes a new letter. One that never could, whatever its run is like, is refused.`,
		Example: `  drover dead requeue 1042
  drover dead list --code not_found --json | jq '.letters[].sequence' | xargs drover dead requeue`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []uint64
			for _, arg := range args {
				sequence, err := parseSequence(arg)
				if err != nil {
					return err
				}
				all = append(all, sequence)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				for _, sequence := range all {
					reply, err := c.RequeueDead(ctx, sequence)
					if err != nil {
						return err
					}
					if err := a.print(reply, fmt.Sprintf("%s of run %s is command %d now\n", reply.Verb, reply.RunID, reply.Sequence)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	a.conn.flags(cmd, answerTime)
	return cmd
}
