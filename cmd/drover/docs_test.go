package main

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The table of docs/operations.md has every flag that the environment may set,
// with its default, and no other.
func TestConfigurationIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{} // by flag
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 6 && strings.HasPrefix(cells[1], " `--") {
			rows[strings.Trim(cells[1], " `-")] = cells
		}
	}
	known := map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for name := range strings.FieldsSeq(cmd.Annotations[envAnnotation]) {
			known[name] = true
			row, flag := rows[name], cmd.Flags().Lookup(name)
			if row == nil {
				t.Errorf("docs/operations.md has no --%s, which %s has", name, cmd.CommandPath())
				continue
			}
			if want := " `" + envName(name) + "` "; row[2] != want {
				t.Errorf("--%s comes from %s, and docs/operations.md says%s", name, envName(name), row[2])
			}
			unset := slices.Contains([]string{"", "0", "false"}, flag.DefValue)
			if value := strings.TrimSuffix(flag.DefValue, "0s"); !unset && !strings.Contains(row[3], value) {
				t.Errorf("--%s of %s is %s by default, and docs/operations.md says%s", name, cmd.CommandPath(), flag.DefValue, row[3])
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{streams: streams{out: io.Discard, err: io.Discard}}).root())
	for name := range rows {
		if !known[name] {
			t.Errorf("docs/operations.md has --%s, which no command takes from the environment", name)
		}
	}
}

// The tables of docs/reference.md have every exit status, and no other.
func TestExitStatusesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Exit statuses\n")
	var rows []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.Trim(cells[1], " 0123456789") == "" {
			rows = append(rows, strings.TrimSpace(cells[1]))
		}
	}
	var want []string
	for _, status := range []int{
		exitCompleted, exitFailed, exitUsage, exitCancelled, exitCompensated, exitCompensationFailed, exitKilled, exitBadInput, exitTemporary,
	} {
		want = append(want, strconv.Itoa(status))
	}
	if !slices.Equal(rows, want) {
		t.Errorf("docs/reference.md has the exit statuses %v, and there are %v", rows, want)
	}
}
