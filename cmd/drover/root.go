package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// streams are what a command reads from and writes to.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is one call of the program.
type app struct {
	streams
	conn connection
	json bool // results as JSON, one line each
}

// execute runs the program with arguments, and gives its exit status.
func execute(ctx context.Context, args []string, std streams) int {
	a := &app{streams: std}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	return report(std.err, root.ExecuteContext(ctx))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "drover",
		Short: "Durable workflows on NATS JetStream",
		Long: `Drover runs durable workflows on a fleet of workers that needs nothing but NATS JetStream.

To try a workflow on this machine alone:  drover run workflow.yaml
To have a server to play with:            drover dev
To join a fleet on a server of yours:     drover serve --nats nats://host:4222`,
		Version:           version().text(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return readEnvironment(cmd, os.LookupEnv) },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w; see %s --help", err, cmd.CommandPath())
	})
	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print results as JSON, one line each")
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Servers and functions:"},
		&cobra.Group{ID: groupRuns, Title: "Runs:"},
		&cobra.Group{ID: groupDefinitions, Title: "Definitions:"},
		&cobra.Group{ID: groupOperations, Title: "Operations:"},
	)
	root.AddCommand(a.runCommand(), a.devCommand(), a.serveCommand(), a.functionCommand(), a.benchCommand())
	root.AddCommand(a.startCommand(), a.stopCommand(), a.tickCommand(), a.deliverCommand(), a.hookCommand())
	root.AddCommand(a.statusCommand(), a.resultCommand(), a.waitCommand(), a.whyCommand(), a.historyCommand(), a.streamCommand(), a.listCommand())
	root.AddCommand(a.validateCommand(), a.definitionCommand(), a.versionCommand())
	root.AddCommand(a.fleetCommand(), a.deliveryCommand(), a.deadCommand())
	strict(root)
	groupConnection(root)
	return root
}

// The groups of commands in the help.
const (
	groupServe       = "serve"
	groupRuns        = "runs"
	groupDefinitions = "definitions"
	groupOperations  = "operations"
)

// connectionAnnotation marks flags that say how to connect.
const connectionAnnotation = "connection"

// groupConnection has the help of commands show the flags that say how to connect
// after their own, as a group.
func groupConnection(root *cobra.Command) {
	usage := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		group := (&cobra.Command{}).Flags()
		group.SortFlags = false
		for _, name := range connectionFlags {
			f := cmd.Flags().Lookup(name)
			if f == nil || f.Annotations == nil {
				continue
			}
			if _, ok := f.Annotations[connectionAnnotation]; !ok {
				continue
			}
			shown := *f
			group.AddFlag(&shown)
			f.Hidden = true
			defer func() { f.Hidden = false }()
		}
		if err := usage(cmd); err != nil || !group.HasFlags() {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStderr(), "\nConnection flags:\n%s", group.FlagUsages())
		return err
	})
}

// strict makes wrong arguments of every command errors of usage, and a parent
// without a known subcommand one as well.
func strict(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError("%w; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	if cmd.HasSubCommands() && cmd.Run == nil && cmd.RunE == nil {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			hint := ""
			cmd.SuggestionsMinimumDistance = 2
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return usageError("%s has no command %q%s; see %s --help", cmd.CommandPath(), args[0], hint, cmd.CommandPath())
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// envAnnotation names the flags of a command that the environment may set,
// with spaces between.
const envAnnotation = "environment"

// envName is the variable for a flag or a value: drover_nats in upper case.
func envName(name string) string {
	return strings.ToUpper("drover_" + strings.ReplaceAll(name, "-", "_"))
}

// fromEnvironment lets the environment set flags of a command, and says so in
// their help.
func fromEnvironment(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().Lookup(name).Usage += " (" + envName(name) + ")"
	}
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[envAnnotation] += " " + strings.Join(names, " ")
}

// readEnvironment sets the flags that were not given from the environment.
func readEnvironment(cmd *cobra.Command, lookup func(string) (string, bool)) error {
	for name := range strings.FieldsSeq(cmd.Annotations[envAnnotation]) {
		v, ok := lookup(envName(name))
		if !ok || v == "" || cmd.Flags().Changed(name) {
			continue
		}
		if err := cmd.Flags().Set(name, v); err != nil {
			return usageError("%s is %q in the environment: %w", envName(name), v, err)
		}
		cmd.Flags().Lookup(name).Changed = false // it is not on the command line
	}
	return nil
}

// print writes a result: as JSON where that was asked for, else as text.
func (a *app) print(v any, text string) error {
	if !a.json {
		_, err := io.WriteString(a.out, text)
		return err
	}
	return encodeJSON(a.out, v, "")
}

// encodeJSON writes a value as JSON, and a line end.
func encodeJSON(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(v)
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  drover version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version()
			return a.print(v, v.text()+"\n")
		},
	}
}

// build is what the program knows of how it was built.
type build struct {
	Version  string `json:"version"`  // a semantic version, without a v
	Revision string `json:"revision"` // of the source, or "unknown revision"
	Go       string `json:"go"`
}

func (b build) text() string { return fmt.Sprintf("drover %s (%s, %s)", b.Version, b.Revision, b.Go) }

func version() build {
	b := build{Version: "0.0.0-devel", Revision: "unknown revision"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	if v, ok := strings.CutPrefix(info.Main.Version, "v"); ok {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				b.Revision += " with changes"
			}
		}
	}
	return b
}
