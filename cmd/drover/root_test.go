package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
)

// cli runs the program in this process.
func cli(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	status = execute(t.Context(), args, streams{in: strings.NewReader(stdin), out: &out, err: &err})
	return status, out.String(), err.String()
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"lst"}, `no command "lst"; did you mean list?`},
		{[]string{"definition", "pt"}, `no command "pt"; did you mean get or put?`},
		{[]string{"run"}, "usage: drover run FILE"},
		{[]string{"run", "a", "b"}, "usage: drover run FILE"},
		{[]string{"run", "/nowhere.yaml"}, "/nowhere.yaml"},
		{[]string{"list", "--lmit", "3"}, "unknown flag: --lmit; see drover list --help"},
		{[]string{"list", "--tag", "x"}, `--tag "x" is not key=value`},
		{[]string{"status"}, "usage: drover status RUN"},
		{[]string{"status", "a.b"}, `run id "a.b"`},
		{[]string{"wait", "a b"}, `run id "a b"`},
		{[]string{"function", "f", "cat"}, "a name, then --, then a command"},
		{[]string{"function", "--", "cat"}, "a name, then --, then a command"},
		{[]string{"function", "_http", "--", "cat"}, "begins with _"},
		{[]string{"function", "f", "--", "nosuchcmd", "-x"}, `the command of function f cannot be run: exec: "nosuchcmd"`},
		{[]string{"serve", "--nats", "nats://:x:y"}, "is no URL of a NATS server"},
		{[]string{"list", "--timeout", "-1s"}, "--timeout -1s must not be negative"},
		{[]string{"wait", "r_1", "--timeout", "-1s"}, "--timeout -1s must not be negative"},
		{[]string{"start"}, "exactly one of a file, a program, --workflow and --hash, not 0"},
		{[]string{"start", "x.yaml", "--workflow", "y"}, "exactly one of a file, a program, --workflow and --hash, not 2"},
		{[]string{"start", "--workflow", "y", "--run", "a", "--key", "b"}, "--run and --key both name the run"},
		{[]string{"start", "--workflow", "y", "--input", "{"}, "--input is no JSON: {"},
		{[]string{"start", "--workflow", "y", "--input", "@/nowhere.json"}, "/nowhere.json"},
		{[]string{"result", "r", "--item", "2"}, "give --node as well"},
		{[]string{"serve", "--log-format", "xml"}, `--log-format "xml"`},
		{[]string{"serve", "--log-level", "loud"}, `--log-level "loud"`},
		{[]string{"serve", "--retention", "soon"}, `--retention "soon"`},
		{[]string{"serve", "--creds", "a", "--nkey", "b"}, "--creds and --nkey are two identities"},
		{[]string{"serve", "--tls-cert", "a"}, "--tls-cert and --tls-key go together"},
		{[]string{"dev", "--sync", "never"}, `--sync "never"`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			status, out, err := cli(t, "", c.args...)
			if status != exitUsage || !strings.Contains(err, c.says) {
				t.Errorf("exit status %d, and on standard error %q; want %d and %q", status, err, exitUsage, c.says)
			}
			if out != "" {
				t.Errorf("standard output carries %q, it is for results", out)
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	status, out, err := cli(t, "", "list", "--nats", "nats://127.0.0.1:1")
	if status != exitFailed || out != "" || !strings.Contains(err, "no NATS server answers at nats://127.0.0.1:1") {
		t.Errorf("exit status %d, %q, %q", status, out, err)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		if !cmd.HasParent() {
			return
		}
		if cmd.Example == "" || !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long) {
			if len([]rune(line)) > 121 {
				t.Errorf("%s: a line of %d columns in its help", cmd.CommandPath(), len([]rune(line)))
			}
		}
	}
	check((&app{streams: streams{out: io.Discard, err: io.Discard}}).root())
}

func TestExitStatuses(t *testing.T) {
	for status, want := range map[drover.Status]int{
		drover.StatusCompleted: 0, drover.StatusFailed: 1, drover.StatusCancelled: 3,
		drover.StatusCompensated: 4, drover.StatusCompensationFailed: 5, drover.StatusRunning: 1,
	} {
		if got := report(io.Discard, ended(status)); got != want {
			t.Errorf("a run that is %s exits with %d, want %d", status, got, want)
		}
	}
	for err, want := range map[error]int{
		errors.New("x"): 1,
		drover.Errorf(drover.CodeUnavailable, "x"):           1,
		drover.Errorf(drover.CodeNotFound, "x"):              1,
		drover.Errorf(drover.CodeInvalidInput, "x"):          2,
		drover.Errorf(drover.CodeInvalidDefinition, "x"):     2,
		fmt.Errorf("y: %w", usageError("x")):                 2,
		&exitError{status: exitKilled, err: errors.New("x")}: 130,
	} {
		var told strings.Builder
		if got := report(&told, err); got != want || !strings.Contains(told.String(), "x") {
			t.Errorf("%v exits with %d and says %q, want %d", err, got, told.String(), want)
		}
	}
}

func TestEnvironmentSetsFlags(t *testing.T) {
	vars := map[string]string{"DROVER_NATS": "nats://there:4222", "DROVER_TLS_CA": "ca.pem", "DROVER_CONCURRENCY": "many", "DROVER_OTHER": "x"}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	cmd := &cobra.Command{Use: "test"}
	flags := cmd.Flags()
	url := flags.String("nats", "default", "server")
	ca := flags.String("tls-ca", "default", "file")
	creds := flags.String("creds", "default", "file")
	other := flags.String("other", "default", "not for the environment")
	fromEnvironment(cmd, "nats", "tls-ca", "creds")
	if err := flags.Parse([]string{"--tls-ca", "given.pem"}); err != nil {
		t.Fatal(err)
	}
	if err := readEnvironment(cmd, lookup); err != nil {
		t.Fatal(err)
	}
	if *url != "nats://there:4222" || *ca != "given.pem" || *creds != "default" || *other != "default" {
		t.Errorf("nats %s, tls-ca %s, creds %s, other %s", *url, *ca, *creds, *other)
	}
	if flags.Changed("nats") || !flags.Changed("tls-ca") {
		t.Error("a flag counts as given on the command line where it is, and only there")
	}
	if usage := flags.Lookup("nats").Usage; usage != "server (DROVER_NATS)" {
		t.Errorf("the help says %q", usage)
	}
	flags.Int("concurrency", 1, "calls")
	fromEnvironment(cmd, "concurrency")
	if err := readEnvironment(cmd, lookup); report(io.Discard, err) != exitUsage || !strings.Contains(err.Error(), `DROVER_CONCURRENCY is "many"`) {
		t.Errorf("a variable that is no number gave %v", err)
	}
}

func TestVersion(t *testing.T) {
	status, out, _ := cli(t, "", "version")
	if status != 0 || !strings.HasPrefix(out, "drover ") {
		t.Errorf("exit status %d, %q", status, out)
	}
	if status, flag, _ := cli(t, "", "--version"); status != 0 || flag != out {
		t.Errorf("exit status %d, %q", status, flag)
	}
	status, out, _ = cli(t, "", "version", "--json")
	if status != 0 || !strings.HasPrefix(out, `{"version":"`) || strings.Count(out, "\n") != 1 {
		t.Errorf("exit status %d, %q", status, out)
	}
}

func TestReadJSON(t *testing.T) {
	dir := t.TempDir()
	yaml := write(t, dir, "in.yaml", "topic: cats\n")
	text := write(t, dir, "in.json", `{"topic": "cats"}`)
	for _, c := range []struct{ arg, want string }{
		{"", ""}, {`{"a":1}`, `{"a":1}`}, {"@" + text, `{"topic": "cats"}`}, {"@" + yaml, `{"topic": "cats"}`}, {"-", "[1]"},
	} {
		got, err := readJSON("--input", c.arg, strings.NewReader("[1]"))
		if err != nil || strings.TrimSpace(string(got)) != c.want {
			t.Errorf("%s gave %q, %v; want %q", c.arg, got, err, c.want)
		}
	}
}

func TestHelpOfListNamesTheStatuses(t *testing.T) {
	_, out, _ := cli(t, "", "list", "--help")
	for _, status := range []drover.Status{
		drover.StatusRunning, drover.StatusWaiting, drover.StatusBlocked, drover.StatusCompleted, drover.StatusFailed,
		drover.StatusCancelled, drover.StatusCompensated, drover.StatusCompensationFailed,
	} {
		if !strings.Contains(out, string(status)) {
			t.Errorf("the help of list does not name %s", status)
		}
	}
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"ship": "ship", "a.b-1": "a.b-1", "ship it": "'ship it'", "": "''", "it's": `'it'\''s'`, "--id": "'--id'", "$x": "'$x'",
	} {
		if got := quoted(in); got != want {
			t.Errorf("%q is quoted as %s, want %s", in, got, want)
		}
	}
}
