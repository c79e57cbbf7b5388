package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/droverhq/drover"

	"github.com/droverhq/drover/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// run runs a workflow, and reads its outcome where there is one.
func run(t *testing.T, args ...string) (int, drover.Outcome, string) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	status, out, err := cli(t, "", append([]string{"run"}, args...)...)
	var o drover.Outcome
	if out != "" {
		if err := json.Unmarshal([]byte(out), &o); err != nil {
			t.Errorf("printed %q, which is no outcome: %v", out, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("%v was left behind", left)
	}
	return status, o, err
}

// The README promises that this needs no flag.
func TestExampleLicences(t *testing.T) {
	texts, err := filepath.Abs("../../examples/licences/texts")
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(map[string]string{"folder": texts})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--input", string(input)}} {
		status, o, stderr := run(t, append([]string{"../../examples/licences/workflow.yaml"}, args...)...)
		if status != 0 || o.Status != drover.StatusCompleted {
			t.Fatalf("exit status %d, outcome %+v\n%s", status, o, stderr)
		}
		var result struct {
			Texts, Words int
			MostCommon   []struct{ Word string } `json:"most_common"`
		}
		if err := json.Unmarshal(o.Result, &result); err != nil {
			t.Fatal(err)
		}
		if result.Texts < 3 || result.Words < 100 || len(result.MostCommon) != 10 || result.MostCommon[0].Word != "the" {
			t.Errorf("the result is %s", o.Result)
		}
		if !strings.Contains(stderr, "count done (") {
			t.Errorf("the progress is %q", stderr)
		}
	}
}

// A definition of the iii workflow worker runs as it is, with an agent that
// only plays one.
func TestExampleAgentsRunsUnchanged(t *testing.T) {
	status, o, stderr := run(t, "../../examples/agents/headlines.json", "--input", `{"about": "the harbour"}`, "--quiet")
	if status != 0 || stderr != "" || !strings.Contains(string(o.Result), "Nothing happened, three times") {
		t.Errorf("exit status %d, result %s, on standard error %q", status, o.Result, stderr)
	}
}

func TestRunExitsWithTheOutcome(t *testing.T) {
	const undone = `
input_schema: {type: [object, "null"]}
nodes:
  book: {call: ok, compensate: {call: undo}}
  pay: {call: bad, depends_on: [book]}
output: {from: node:pay}
`
	for _, c := range []struct {
		name   string
		args   []string
		status int
		is     drover.Status // "" where there is no outcome
		says   string
	}{
		{"completed", []string{"--function", "bad=cat"}, exitCompleted, drover.StatusCompleted, ""},
		{"compensated", nil, exitCompensated, drover.StatusCompensated, "no money"},
		{"compensation failed", []string{"--function", "undo=exit 1"}, exitCompensationFailed, drover.StatusCompensationFailed, "no money"},
		{"an input that does not fit", []string{"--input", "7"}, exitUsage, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, t.TempDir(), "w.yaml", undone)
			args := append([]string{file, "--function", "ok=cat", "--function", "undo=cat", "--function", "bad=echo no money >&2; exit 65"}, c.args...)
			status, o, stderr := run(t, args...)
			if status != c.status || o.Status != c.is {
				t.Fatalf("exit status %d, outcome %s; want %d, %s\n%s", status, o.Status, c.status, c.is, stderr)
			}
			if c.says != "" && (o.Error == nil || !strings.Contains(o.Error.Error(), c.says)) {
				t.Errorf("the error is %v, want one that says %q", o.Error, c.says)
			}
		})
	}
}

func TestFirstInterruptStopsTheRun(t *testing.T) {
	p, started := endless(t, "")
	functions := write(t, t.TempDir(), functionsFile, "f: "+mustJSON(t, p.command)+"\n")
	file := write(t, t.TempDir(), "w.yaml", "nodes: {a: {call: f}}\noutput: {from: node:a}\n")
	pids := make(chan []int, 1)
	go func() {
		pids <- started()
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	}()
	status, o, stderr := run(t, file, "--functions", functions)
	if status != exitCancelled || o.Status != drover.StatusCancelled || !strings.Contains(stderr, "stopping run") {
		t.Errorf("exit status %d, outcome %s, standard error %q", status, o.Status, stderr)
	}
	gone(t, <-pids)
}

func TestSecondInterruptKills(t *testing.T) {
	// The compensation goes on for ever, so that the stopped run does not end.
	p, started := endless(t, "trap '' TERM;")
	functions := write(t, t.TempDir(), functionsFile, "undo: "+mustJSON(t, p.command)+"\nok: cat\nbad: exit 65\n")
	file := write(t, t.TempDir(), "w.yaml", `
nodes:
  a: {call: ok, compensate: {call: undo}}
  b: {call: bad, depends_on: [a]}
output: {from: node:b}
`)
	pids := make(chan []int, 1)
	go func() {
		pids <- started()
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	status, o, stderr := run(t, file, "--functions", functions)
	if status != exitKilled || o.Status != "" || !strings.Contains(stderr, "killed") {
		t.Errorf("exit status %d, outcome %s, standard error %q", status, o.Status, stderr)
	}
	gone(t, <-pids)
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestRunGoesOnWithItsData(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	log := filepath.Join(t.TempDir(), "log")
	file := write(t, t.TempDir(), "w.yaml", "nodes: {a: {call: f}}\noutput: {from: node:a}\n")
	args := []string{file, "--data", data, "--run", "r1", "--function", "f=echo called >>" + log + "; echo 7"}
	for _, says := range []string{"a done", "run r1 goes on"} {
		status, o, stderr := run(t, args...)
		if status != 0 || string(o.Result) != "7" || !strings.Contains(stderr, says) {
			t.Fatalf("exit status %d, result %s, standard error %q", status, o.Result, stderr)
		}
	}
	if calls, err := os.ReadFile(log); err != nil || string(calls) != "called\n" {
		t.Errorf("the function was called %q times (%v): a run that is over must not begin again", calls, err)
	}
}

func TestDataFolderIsForOneProcess(t *testing.T) {
	l := &local{crew: newCrew()}
	dir := t.TempDir()
	if err := l.lock(dir); err != nil {
		t.Fatal(err)
	}
	file := write(t, t.TempDir(), "w.yaml", "nodes: {a: {set: {with: 1}}}\noutput: {from: node:a}\n")
	status, _, stderr := run(t, file, "--data", dir)
	if status != exitFailed || !strings.Contains(stderr, "another drover uses the data folder") {
		t.Errorf("exit status %d, standard error %q", status, stderr)
	}
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := run(t, file, "--data", dir); status != 0 {
		t.Errorf("exit status %d after the other had ended, standard error %q", status, stderr)
	}
}
