package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

func (a *app) hookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "hook",
		Short:   "Deliver to hooks, and look at who holds which token",
		GroupID: groupRuns,
		Long: `A hook is a token that one run holds: what is delivered to the token reaches that run, whichever it is.
A token may be any text. Deliveries to a wait by its name are drover deliver.`,
		Example: `  drover hook deliver order:17 '{"paid": true}'
  drover hook list --token-prefix order:`,
	}
	cmd.AddCommand(a.hookListCommand(), a.hookShowCommand(), a.hookDeliverCommand(), a.hookDeliverManyCommand(), a.hookReleaseCommand())
	return cmd
}

// hookFilter is what the command line says of which hooks are meant.
type hookFilter struct {
	tags        []string
	prefix, run string
}

func (h *hookFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&h.tags, "tag", nil, "only hooks with this tag, as key=value; may be given several times")
	f.StringVar(&h.prefix, "token-prefix", "", "only tokens that begin with this")
	f.StringVar(&h.run, "run", "", "only hooks of this run")
}

func (h *hookFilter) filter() (drover.HookFilter, error) {
	tags, err := parseTags(h.tags)
	return drover.HookFilter{Tags: tags, Prefix: h.prefix, RunID: drover.RunID(h.run)}, err
}

func (a *app) hookListCommand() *cobra.Command {
	var (
		which hookFilter
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens that are taken",
		Example: `  drover hook list --tag query=users
  drover hook list --token-prefix order: --json | jq -r '.hooks[].token'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := which.filter()
			if err != nil {
				return err
			}
			return a.withClientInTime(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.ListHooks(ctx, drover.HookListRequest{HookFilter: filter, Limit: limit})
				if err != nil {
					return err
				}
				return a.print(reply, hookTable(&reply, time.Now()))
			})
		},
	}
	which.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most, up to 1000")
	a.conn.flags(cmd, listTime)
	return cmd
}

// hookTable is a list of hooks in columns.
func hookTable(l *drover.HookList, now time.Time) string {
	return columns("TOKEN\tRUN\tNODE\tHELD FOR\tSTATE", l.Hooks, l.More, "a tag, a prefix or a run", func(h *drover.Hook) []any {
		return []any{visible(h.Token, 80), h.RunID, visible(string(h.Node), 40), elapsed(now.Sub(h.Since)), hookState(h)}
	})
}

// hookState says in a word or two what a token is like.
func hookState(h *drover.Hook) string {
	switch {
	case h.Retained != nil:
		return "retained"
	case h.Starting:
		return "starting"
	case h.Public:
		return "held, public"
	}
	return "held"
}

func (a *app) hookShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show TOKEN",
		Short: "Print who holds a token, and what is unread",
		Example: `  drover hook show order:17
  drover hook show order:17 --json | jq .metadata`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				hook, err := c.ShowHook(ctx, args[0])
				if err != nil {
					return err
				}
				return a.print(hook, hookText(&hook))
			})
		},
	}
	a.conn.flags(cmd, answerTime)
	return cmd
}

// hookText is a hook as text.
func hookText(h *drover.Hook) string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("token", "%s", visible(h.Token, 2000))
	line("run", "%s", h.RunID)
	if h.Node != "" {
		line("node", "%s", visible(string(h.Node), 200))
	}
	line("state", "%s", hookState(h))
	line("since", "%s", h.Since.Format(time.RFC3339))
	if h.Until != nil {
		line("until", "%s", h.Until.Format(time.RFC3339))
	}
	if h.Retained != nil {
		line("free at", "%s", h.Retained.Format(time.RFC3339))
	}
	if h.Unread != nil {
		line("unread", "%d", *h.Unread)
	}
	for _, key := range slices.Sorted(maps.Keys(h.Tags)) {
		line("tag", "%s", visible(key+"="+h.Tags[key], 600))
	}
	if len(h.Metadata) > 0 {
		line("metadata", "%s", visible(string(h.Metadata), 5000))
	}
	if len(h.Schema) > 0 {
		line("schema", "%s", visible(string(h.Schema), 5000))
	}
	return b.String()
}

func (a *app) hookReleaseCommand() *cobra.Command {
	req := drover.HookTokenRequest{}
	cmd := &cobra.Command{
		Use:   "release TOKEN",
		Short: "Free a token that nobody can use any more",
		Long: `Release frees a token whose run is gone, or has let go of it. The fleet does that by itself after a while.
With --force it takes the token from a run that holds it: the waits of that run on the hook fail as released.`,
		Example: `  drover hook release order:17
  drover hook release order:17 --force`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Token = args[0]
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				hook, err := c.ReleaseHook(ctx, req)
				if err != nil {
					return err
				}
				had := "nobody"
				if hook.RunID != "" {
					had = "run " + string(hook.RunID)
				}
				return a.print(hook, fmt.Sprintf("%s is free, %s had it\n", visible(hook.Token, 600), had))
			})
		},
	}
	cmd.Flags().BoolVar(&req.Force, "force", false, "also where a run holds the token, or had it retained")
	a.conn.flags(cmd, answerTime)
	return cmd
}
