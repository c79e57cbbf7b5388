package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// checked is what validate found in one file.
type checked struct {
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Hash     drover.Hash      `json:"hash,omitempty"`
	Nodes    int              `json:"nodes,omitempty"`
	Error    string           `json:"error,omitempty"` // where it is no list of problems
	Problems []drover.Problem `json:"problems,omitempty"`
	Warnings []drover.Problem `json:"warnings,omitempty"` // of a valid one
}

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "validate FILE...",
		Short:   "Check definitions, without a server",
		GroupID: groupDefinitions,
		Long: `Validate prints every problem with its line and its fix, and exits with 2 where there is one. A warning is no problem.
A file called - is standard input.`,
		Example: `  drover validate workflow.yaml
  drover validate workflows/*.yaml --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			bad := 0
			for _, file := range args {
				c, err := a.check(file)
				if err != nil {
					return err
				}
				if !c.Valid {
					bad++
				}
				if err := a.print(c, c.text()); err != nil {
					return err
				}
			}
			if bad > 0 {
				return &exitError{status: exitUsage}
			}
			return nil
		},
	}
}

// check checks one definition; its error is that of reading the file.
func (a *app) check(file string) (checked, error) {
	c := checked{File: file}
	raw, err := readSource(file, a.in)
	if err != nil {
		return c, err
	}
	def, err := drover.ParseDefinition(raw)
	if err == nil {
		_, c.Hash, err = def.Canonical()
	}
	if err != nil {
		var e *drover.Error
		if errors.As(err, &e) && len(e.Problems) > 0 {
			c.Problems = e.Problems
		} else {
			c.Error = err.Error()
		}
		return c, nil
	}
	c.Valid, c.Nodes, c.Warnings = true, len(def.Nodes), def.Warnings()
	return c, nil
}

// text tells of a file in the way of compilers: file, line, problem.
func (c checked) text() string {
	if c.Error != "" {
		return fmt.Sprintf("%s: %s\n", c.File, c.Error)
	}
	var b strings.Builder
	if c.Valid {
		fmt.Fprintf(&b, "%s: valid, %s, hash %s\n", c.File, plural(c.Nodes, "node"), c.Hash)
	}
	list := func(problems []drover.Problem, kind string) {
		for _, p := range problems {
			place := c.File
			if p.Line > 0 {
				place += fmt.Sprintf(":%d", p.Line)
				p.Line = 0
			}
			fmt.Fprintf(&b, "%s: %s%s\n", place, kind, p)
		}
	}
	list(c.Problems, "")
	list(c.Warnings, "warning: ")
	return b.String()
}

func (a *app) definitionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "definition",
		Short:   "Store, show and list definitions",
		GroupID: groupDefinitions,
		Example: `  drover definition put workflow.yaml
  drover definition get naming
  drover definition list`,
	}
	cmd.AddCommand(a.putCommand(), a.getCommand(), a.definitionsCommand())
	return cmd
}

func (a *app) putCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "put FILE",
		Short: "Store a definition, and let its name point to it",
		Long: `Put stores the definition under its hash, and registers it under the name that it holds, or under --name.
Runs that go on keep the definition that they began with.`,
		Example: "  drover definition put workflow.yaml --name naming",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			def, wire, err := a.loadDefinition(args[0])
			if err != nil {
				return err
			}
			req := drover.DefinitionRequest{Name: drover.WorkflowName(name), Definition: wire}
			if req.Name == "" {
				req.Name = def.Name
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.PutDefinition(ctx, req)
				if err != nil {
					return err
				}
				return a.print(reply, strings.TrimSpace(fmt.Sprintf("%s %s", reply.Hash, reply.Name))+"\n")
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name to register it under; the name within the definition where it is not given")
	a.conn.flags(cmd, answerTime)
	return cmd
}

func (a *app) getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get NAME|HASH",
		Short: "Print a stored definition as JSON",
		Example: `  drover definition get naming
  drover definition get 5c3f... --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := drover.DefinitionRequest{Name: drover.WorkflowName(args[0])}
			if hash, err := drover.ParseHash(args[0]); err == nil {
				req = drover.DefinitionRequest{Hash: hash}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.GetDefinition(ctx, req)
				if err != nil {
					return err
				}
				return a.print(reply, pretty(reply.Definition))
			})
		},
	}
	a.conn.flags(cmd, answerTime)
	return cmd
}

func (a *app) definitionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the registered names",
		Example: "  drover definition list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				reply, err := c.ListDefinitions(ctx)
				if err != nil {
					return err
				}
				var b strings.Builder
				w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "NAME\tHASH")
				for _, d := range reply.Definitions {
					fmt.Fprintf(w, "%s\t%s\n", d.Name, d.Hash)
				}
				_ = w.Flush() // into memory
				return a.print(reply, b.String())
			})
		},
	}
	a.conn.flags(cmd, answerTime)
	return cmd
}
