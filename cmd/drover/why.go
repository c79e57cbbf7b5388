package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

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
	if r.Error != nil {
		fmt.Fprintf(&b, "  %s: %s\n", r.Error.Code, visible(r.Error.Message, 1000))
	}
	if len(r.Reasons) == 0 && r.Status.Terminal() {
		told := "everyone was told"
		if r.Subscribers == 0 {
			told = "nobody was to be told"
		}
		b.WriteString("  it waits for nothing: it is over, and " + told + "\n")
	}
	for i := range r.Reasons {
		fmt.Fprintf(&b, "  %s\n%s", r.Reasons[i].Text, helps(r, &r.Reasons[i]))
	}
	left := r.Unread
	for _, of := range slices.Sorted(maps.Keys(r.UnreadOf)) {
		fmt.Fprintf(&b, "  %s to %s that no wait has read\n", deliveries(r.UnreadOf[of]), visible(quoted(of), 100))
		left -= r.UnreadOf[of]
	}
	if left > 0 {
		fmt.Fprintf(&b, "  %s to others that no wait has read\n", deliveries(left))
	}
	return b.String()
}

// helps says what helps against a reason: commands, one a line.
func helps(r *drover.WhyReply, reason *drover.Reason) string {
	switch {
	case reason.Waiting == "drive" && r.Status == drover.StatusBlocked:
		return fmt.Sprintf("    drover history %s\n    drover tick %s\n", r.RunID, r.RunID)
	case reason.Waiting == "delivery":
		return fmt.Sprintf("    drover deliver %s %s '{\"any\": \"JSON\"}'\n", r.RunID, quoted(reason.On))
	case reason.Waiting == "hook" && len(reason.Ask) > 0:
		return fmt.Sprintf("    it asks: %s\n    drover hook deliver %s true\n", visible(string(reason.Ask), 300), quoted(reason.On))
	case reason.Waiting == "hook":
		return fmt.Sprintf("    drover hook deliver %s '{\"any\": \"JSON\"}'\n", quoted(reason.On))
	case reason.Waiting == "subscriber" && reason.Until == "": // given up
		return fmt.Sprintf("    drover delivery replay --run %s --to %s\n", r.RunID, quoted(reason.On))
	}
	return ""
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
