package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

const (
	validDefinition = `name: greet
nodes:
  hello:
    call: text.hello
output: {from: node:hello}
`
	brokenDefinition = `name: greet
nodes:
  hello:
    call: text.hello
    tiemout: 3s
output: {from: node:hallo}
`
)

func TestValidate(t *testing.T) {
	dir := t.TempDir()
	good := write(t, dir, "good.yaml", validDefinition)
	bad := write(t, dir, "bad.yaml", brokenDefinition)
	none := write(t, dir, "none.yaml", "")

	status, out, err := cli(t, "", "validate", good)
	if status != 0 || err != "" || !strings.HasPrefix(out, good+": valid, 1 node, hash ") {
		t.Errorf("a valid file: exit status %d, %q, %q", status, out, err)
	}
	status, out, err = cli(t, "", "validate", good, bad, none)
	if status != exitUsage || err != "" {
		t.Errorf("a broken file: exit status %d, standard error %q", status, err)
	}
	if !strings.Contains(out, bad+":5: nodes.hello.tiemout: ") || !strings.Contains(out, "\n"+none+":") {
		t.Errorf("the broken files are told as %q, want each problem with its file and line", out)
	}
	status, out, _ = cli(t, brokenDefinition, "validate", "--json", "-")
	var c checked
	if err := json.Unmarshal([]byte(out), &c); err != nil || status != exitUsage || c.Valid || len(c.Problems) == 0 || c.Problems[0].Line != 5 {
		t.Errorf("as JSON: exit status %d, %q (%v)", status, out, err)
	}
	if status, _, err = cli(t, "", "validate", "/nowhere.yaml"); status != exitUsage || !strings.Contains(err, "/nowhere.yaml") {
		t.Errorf("a file that is not there: exit status %d, %q", status, err)
	}
}

func TestWarningsAreTold(t *testing.T) {
	file := write(t, t.TempDir(), "idle.yaml", "nodes:\n  a: {set: {with: 1}}\n  b: {set: {with: 2}}\noutput: {from: node:a}\n")
	status, out, err := cli(t, "", "validate", file)
	if status != 0 || err != "" || !strings.Contains(out, ": valid, 2 nodes") || !strings.Contains(out, file+": warning: nodes.b: the output needs this node in no way") {
		t.Errorf("validate: exit status %d, %q, %q", status, out, err)
	}
	status, out, err = cli(t, "", "validate", "--json", file)
	if status != 0 || !strings.Contains(out, `"warnings":[{"place":"nodes.b"`) {
		t.Errorf("validate: exit status %d, %q, %q", status, out, err)
	}
	status, _, err = run(t, file)
	if status != 0 || !strings.Contains(err, "drover: warning: nodes.b: ") {
		t.Errorf("run: exit status %d, %q", status, err)
	}
}

func TestBrokenDefinitionsAreNotSent(t *testing.T) {
	bad := write(t, t.TempDir(), "bad.yaml", brokenDefinition)
	for _, args := range [][]string{
		{"start", bad, "--nats", "nats://127.0.0.1:1"},
		{"definition", "put", bad, "--nats", "nats://127.0.0.1:1"},
		{"run", bad},
	} {
		status, out, err := cli(t, "", args...)
		if status != exitUsage || out != "" || !strings.Contains(err, bad) || !strings.Contains(err, "(line 5)") {
			t.Errorf("%v: exit status %d, %q, %q", args, status, out, err)
		}
	}
}

func TestDefinitionPut(t *testing.T) {
	good := write(t, t.TempDir(), "good.yaml", validDefinition)
	for name, args := range map[string][]string{"greet": nil, "other": {"--name", "other"}} {
		f := newFleet(t)
		f.answers("definition.put", drover.DefinitionReply{Name: drover.WorkflowName(name), Hash: "abc"})
		status, out, err := f.cli("", append([]string{"definition", "put", good}, args...)...)
		if status != 0 || out != "abc "+name+"\n" || err != "" {
			t.Errorf("exit status %d, %q, %q", status, out, err)
		}
		var req drover.DefinitionRequest
		if err := json.Unmarshal([]byte(f.got("definition.put")), &req); err != nil || string(req.Name) != name {
			t.Errorf("asked %s (%v), want the name %s", f.got("definition.put"), err, name)
		}
		var text string
		if err := json.Unmarshal(req.Definition, &text); err != nil || text != validDefinition {
			t.Errorf("the definition was sent as %s, want the text of the file", req.Definition)
		}
	}
}

func TestRunRefusesWhatNobodyServes(t *testing.T) {
	good := write(t, t.TempDir(), "good.yaml", validDefinition)
	status, out, err := cli(t, "", "run", good)
	if status != exitUsage || out != "" || !strings.Contains(err, "--function 'text.hello=command'") {
		t.Errorf("exit status %d, %q, %q", status, out, err)
	}
}
