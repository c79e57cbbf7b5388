package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFunctionsOfAFile(t *testing.T) {
	for _, c := range []struct{ name, text, want, err string }{
		{name: "a line is for the shell", text: "text.count: wc -w", want: "text.count: sh -c|wc -w"},
		{name: "a list is a program with arguments", text: "f: [wc, -l, 3]", want: "f: wc|-l|3"},
		{name: "JSON is YAML", text: `{"f": ["a b"]}`, want: "f: a b"},
		{name: "an empty file has none", text: "", want: ""},
		{name: "a name that belongs to Drover", text: "_http: cat", err: `begins with _`},
		{name: "a name that is none", text: "'a b': cat", err: `function name "a b"`},
		{name: "a blank command", text: "f: ' '", err: "function f: the command must be"},
		{name: "an empty list", text: "f: []", err: "function f: the command must be"},
		{name: "a map", text: "f: {command: cat}", err: "function f: the command must be"},
		{name: "no map at all", text: "- f", err: "is not a map from function name to command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, t.TempDir(), functionsFile, c.text)
			all := programs{}
			err := all.load(file)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), file) {
					t.Errorf("error %v, want one that names the file and says %q", err, c.err)
				}
				if status := report(&strings.Builder{}, err); status != exitUsage {
					t.Errorf("exit status %d, want %d", status, exitUsage)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range all.sorted() {
				line := strings.Join(p.command, "|")
				got = append(got, string(p.name)+": "+strings.Replace(line, "sh|-c|", "sh -c|", 1))
			}
			if text := strings.Join(got, "\n"); text != c.want {
				t.Errorf("read %q, want %q", text, c.want)
			}
		})
	}
}

func TestFunctionsOfAWorkflow(t *testing.T) {
	dir := t.TempDir()
	workflow := filepath.Join(dir, "workflow.yaml")
	other := write(t, t.TempDir(), "other.yaml", "c: c-other")

	all, from, err := programsFor(workflow, "", []string{"a=x"})
	if err != nil || from != "" || len(all) != 1 {
		t.Errorf("without a file: %v from %q, %v", all, from, err)
	}
	beside := write(t, dir, functionsFile, "a: a-file\nb: b-file")
	all, from, err = programsFor(workflow, "", []string{"a=a-flag=1"})
	if err != nil || from != beside {
		t.Fatalf("from %q, %v; want %q", from, err, beside)
	}
	if got := all["a"].command[2]; got != "a-flag=1" {
		t.Errorf("a is %q: the command line must win over the file", got)
	}
	if got := all["b"].command[2]; got != "b-file" {
		t.Errorf("b is %q, want that of the file", got)
	}
	all, _, err = programsFor(workflow, other, nil)
	if err != nil || !slices.Equal(slices.Collect(maps.Keys(all)), []drover.FunctionName{"c"}) {
		t.Errorf("a file that was asked for gave %v, %v; want only its own", all, err)
	}
	for _, arg := range []string{"", "a", "a=", "=x", "a b=x", "_a=x"} {
		if _, _, err := programsFor("workflow.yaml", "", []string{arg}); report(&strings.Builder{}, err) != exitUsage {
			t.Errorf("--function %q gave %v, want an error of usage", arg, err)
		}
	}
}

func TestFunctionsThatNobodyServes(t *testing.T) {
	def := &drover.Definition{Nodes: map[drover.NodeID]*drover.Step{
		"a": {Call: "one"},
		"b": {Call: "two", Compensate: &drover.Compensate{Call: "undo.two"}},
		"c": {Agent: &drover.Agent{}},
		"d": {Sleep: &drover.Sleep{}},
		"e": {Run: &drover.RunStep{Definition: &drover.Definition{Nodes: map[drover.NodeID]*drover.Step{"x": {Call: "child"}}}}},
		"f": {Run: &drover.RunStep{Workflow: "registered"}},
	}}
	got := missing(def, programs{"two": {}})
	want := []drover.FunctionName{"agent", "child", "one", "undo.two"}
	if !slices.Equal(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	text := nobodyServes(got, "").Error()
	for _, name := range want {
		if !strings.Contains(text, "\n  "+string(name)) {
			t.Errorf("%q does not name %s", text, name)
		}
	}
}
