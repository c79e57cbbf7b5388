package drover_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func problemsOf(t *testing.T, err error) []drover.Problem {
	t.Helper()
	var e *drover.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %v, of type %T", err, err)
	}
	return e.Problems
}

// One answer of all problems for each file of testdata/problems, in the .txt
// beside it.
func TestDefinitions01EveryProblemInOneAnswer(t *testing.T) {
	files, err := filepath.Glob("testdata/problems/*.[jy]*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = drover.ParseDefinition(data)
			got := fmt.Sprintln(err)
			golden := strings.TrimSuffix(file, filepath.Ext(file)) + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestDefinitions01ThreeProblemsAreThree(t *testing.T) {
	_, err := drover.ParseDefinition([]byte(`{"nodes": {"a": {"cal": "f"}, "b": {"call": "f", "timeout": "1h", "retries": {}}}, "output": {}}`))
	if problems := problemsOf(t, err); len(problems) != 3 {
		t.Errorf("three problems are told as\n%v", err)
	}
}

// A word that is told to be another is one problem: what it would give is not
// told to be missing as well.
func TestDefinitions01OneMistakeIsOneProblem(t *testing.T) {
	for _, c := range []struct{ node, fix string }{
		{`{"call": "f", "with": {"a": 1}}`, "move it to nodes.x.input.with"},
		{`{"call": "f", "input": {"a": 1}}`, "put it under with: nodes.x.input.with.a"},
		{`{"set": {"a": 1}}`, "put it under with: nodes.x.set.with.a"},
		{`{"call": "f", "input": {"form": "node:up"}}`, "did you mean from? Data goes under with"},
		{`{"with": 1}`, "move it to nodes.x.set.with or nodes.x.input.with"},
		{`{"url": "https://example.com"}`, "move it to nodes.x.http.url"},
		{`{"uses": "f"}`, "did you mean call?"},
		{`{"wait": {"nmae": "ok"}}`, "did you mean name?"},
		{`{"call": "f", "fanout": {"items": [1]}}`, "did you mean over?"},
		{`{"run": {"name": "w"}}`, "did you mean workflow?"},
		{`{"set": "${{ input.a }}"}`, "write {with: ...}"},
	} {
		_, err := drover.ParseDefinition([]byte(with(c.node)))
		if problems := problemsOf(t, err); len(problems) != 1 || !strings.Contains(problems[0].Fix, c.fix) {
			t.Errorf("%s\n got %v\nwant %s", c.node, err, c.fix)
		}
	}
}

// with gives a definition with a node x.
func with(node string) string {
	return `{"nodes": {"up": {"call": "f", "output": {"type": "json"}}, "x": ` + node + `}, "output": {"from": "node:x"}}`
}

func TestDefinitions03EachProblem(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown node read", with(`{"call": "f", "input": {"from": "node:upp"}}`), `nodes.x.input.from (line 1): there is no node "upp"; did you mean up?`},
		{"unknown node in a list", with(`{"call": "f", "input": {"from": ["node:up", "node:y"]}}`), `nodes.x.input.from[1]`},
		{"unknown node needed", with(`{"call": "f", "depends_on": ["y"]}`), `nodes.x.depends_on[0] (line 1): there is no node "y"`},
		{"unknown node in an expression", with(`{"call": "f", "when": "nodes.y.output"}`), `there is no node "y"`},
		{"circle", with(`{"call": "f", "depends_on": ["x"]}`), `in a circle: x -> x`},
		{"no output", `{"nodes": {"a": {"call": "f"}}}`, `output (line 1): "output" is missing`},
		{"output names no node", `{"nodes": {"a": {"call": "f"}}, "output": {"from": "run_input"}}`, `output.from (line 1): "run_input" names no node`},
		{"output names an unknown node", `{"nodes": {"a": {"call": "f"}}, "output": {"from": "node:b"}}`, `output.from (line 1): there is no node "b"`},
		{"output of several nodes", `{"nodes": {"a": {"call": "f"}}, "output": {"from": ["node:a"]}}`, `several nodes go into with`},
		{"reserved character", `{"nodes": {"a": {"call": "f"}, "a#1": {"call": "f"}}, "output": {"from": "node:a"}}`, `node id "a#1" must not contain "#"`},
		{"two kinds", with(`{"call": "f", "set": {"with": 1}}`), `the node has 2 kinds: call, set`},
		{"no kind", with(`{"when": "true"}`), `nodes.x (line 1): the node has no kind`},
		{"item outside", with(`{"call": "f", "input": {"from": "fanout_item"}}`), `fanout_item is there only within a fan-out`},
		{"item in an expression outside", with(`{"call": "f", "input": {"with": "${{ item }}"}}`), `item is there only within a fan-out`},
		{"item in when", with(`{"call": "f", "fanout": {"over": "run_input"}, "when": "item == 1"}`), `item is there only within a fan-out`},
		{"no array by schema", `{"input_schema": {"type": "object", "properties": {"n": {"type": "number"}}}, "nodes": {"x": {"call": "f", "fanout": {"over": "run_input.n"}}}, "output": {"from": "node:x"}}`, `input_schema says that "run_input.n" is a number`},
		{"no array, as it is text", `{"nodes": {"a": {"call": "f", "output": {"type": "text"}}, "x": {"call": "f", "fanout": {"over": "node:a"}}}, "output": {"from": "node:x"}}`, `node a declares that "node:a" is text`},
		{"no array, as it sleeps", `{"nodes": {"a": {"sleep": "1s"}, "x": {"call": "f", "fanout": {"over": "node:a"}}}, "output": {"from": "node:x"}}`, `is null, as it sleeps`},
		{"no array by the delivery", `{"nodes": {"a": {"wait": {"name": "w", "schema": {"type": "object"}}}, "x": {"call": "f", "fanout": {"over": "node:a.result"}}}, "output": {"from": "node:x"}}`, ``},
		{"result is the output itself", `{"nodes": {"a": {"call": "f", "output": {"type": "json", "schema": {"type": "object", "properties": {"n": {"type": "array"}}, "additionalProperties": false}}}, "x": {"call": "f", "fanout": {"over": "node:a.result.n"}}}, "output": {"from": "node:x"}}`, ``},
		{"neither result nor the output", `{"nodes": {"a": {"call": "f", "output": {"type": "json", "schema": {"type": "object", "properties": {"n": {"type": "array"}}, "additionalProperties": false}}}, "x": {"call": "f", "fanout": {"over": "node:a.result.m"}}}, "output": {"from": "node:x"}}`, `missing: there is no key "m", but n`},
		{"over an item", with(`{"call": "f", "fanout": {"over": "fanout_item"}}`), `cannot go over its own item`},
		{"over text around an expression", with(`{"call": "f", "fanout": {"over": "a ${{ input }}"}}`), `text with expressions in it is no array`},
		{"over no reference", with(`{"call": "f", "fanout": {"over": "up.names"}}`), `"up.names" is no reference`},
		{"contract without a type", with(`{"call": "f", "output": {"schema": {}}}`), `nodes.x.output.type (line 1): "type" is missing`},
		{"timeout out of range", with(`{"call": "f", "timeout": "366d"}`), `"366d" is out of range; write 1ms to 365d`},
		{"version wait too short", `{"program": "p", "version_wait": "5s"}`, `version_wait (line 1): the duration "5s" is out of range; write 6s to 365d`},
		{"version wait", `{"program": "p", "version_wait": "6s"}`, ``},
		{"timeout negative", with(`{"call": "f", "timeout": "-1s"}`), `out of range`},
		{"sleep out of range", with(`{"sleep": "0s"}`), `nodes.x.sleep (line 1): the duration "0s" is out of range`},
		{"duration without a unit", with(`{"call": "f", "timeout": 30}`), `it is a number, and must be text; write it like 90s`},
		{"attempts out of range", with(`{"call": "f", "retry": {"max_attempts": 1001}}`), `write a number from 1 to 1000`},
		{"attempts broken", with(`{"call": "f", "retry": {"max_attempts": 1.5}}`), `1.5 is no whole number`},
		{"factor out of range", with(`{"call": "f", "retry": {"factor": 101}}`), `write a number from 1 to 100`},
		{"parallel out of range", with(`{"call": "f", "fanout": {"over": "run_input", "max_parallel": 50001}}`), `write a number from 1 to 50000`},
		{"number beyond all", with(`{"call": "f", "retry": {"max_attempts": 1e999}}`), `out of range`},
		{"blank", with(`{"call": " "}`), `nodes.x.call (line 1): it is blank`},
		{"null", with(`{"call": "f", "retry": null}`), `it has no value`},
		{"reserved function", with(`{"call": "_notify"}`), `belong to Drover`},
		{"bad function", with(`{"call": "a..b"}`), `function name "a..b"`},
		{"bad subject", with(`{"request": "a.*.b"}`), `no subject that can be published on`},
		{"bad url", with(`{"http": {"url": "example.com"}}`), `no URL of HTTP`},
		{"sleep fans out", with(`{"sleep": "1s", "fanout": {"over": "run_input"}}`), `a sleep node has no fanout`},
		{"wait fans out", with(`{"wait": {"name": "n"}, "fanout": {"over": "run_input"}}`), `a wait node has no fanout`},
		{"set fans out", with(`{"set": {"with": "${{ item }}"}, "fanout": {"over": "run_input"}}`), ``},
		{"set retries", with(`{"set": {"with": 1}, "retry": {}}`), `a set node has no retry`},
		{"heartbeat of a request", with(`{"request": "a.b", "heartbeat": "5s"}`), `a request node has no heartbeat`},
		{"compensated wait", with(`{"wait": {"name": "n"}, "compensate": {"call": "g"}}`), `a wait node has no compensate`},
		{"compensation of an item reads the fan-out", with(`{"call": "f", "fanout": {"over": "run_input"}, "compensate": {"call": "g", "input": {"from": "node:x"}}}`), `cannot read x itself`},
		{"compensation of an item reads the fan-out by expression", with(`{"call": "f", "fanout": {"over": "run_input"}, "compensate": {"call": "g", "input": {"with": "${{ nodes.x.output }}"}}}`), `cannot read x itself`},
		{"a node with a compensation reads itself", with(`{"call": "f", "input": {"with": "${{ nodes.x.output }}"}, "compensate": {"call": "g", "input": {"with": "${{ nodes.x.output }}"}}}`), `x -> x`},
		{"require", with(`{"call": "f", "require": "done"}`), `"done" is not known here; write succeeded or terminal`},
		{"on_error", with(`{"call": "f", "on_error": "ignore"}`), `write fail or continue`},
		{"empty list", with(`{"call": "f", "input": {"from": []}}`), `the list is empty`},
		{"from and with", with(`{"call": "f", "input": {"from": "node:up", "with": null}}`), `it has from and with`},
		{"duplicate key", with(`{"call": "f", "input": {"with": {"a": {"b": 1, "b": 2}}}}`), `nodes.x.input.with.a.b (line 1): the key "b" is there already`},
		{"in a child", with(`{"run": {"definition": {"nodes": {"c": {"call": ""}}, "output": {"from": "node:c"}}}}`), `nodes.x.run.definition.nodes.c.call (line 1): it is blank`},
		{"expression in a child", with(`{"run": {"definition": {"nodes": {"c": {"call": "f", "when": "nodes.up.output"}}, "output": {"from": "node:c"}}}}`), `nodes.x.run.definition.nodes.c.when (line 1)`},
		{"schema", with(`{"call": "f", "output": {"type": "json", "schema": {"type": "x"}}}`), `nodes.x.output.schema (line 1): the schema is no JSON Schema`},
		{"remote schema", with(`{"wait": {"name": "n", "schema": {"$ref": "http://example.com"}}}`), `cannot refer to http://example.com`},
		{"when in braces", with(`{"call": "f", "when": "${{ nodes.up.output.go }}"}`), ``},
		{"no object", `[1]`, `it is a list, and must be an object`},
		{"no JSON", "{\n\"nodes\": {,}}", `(top) (line 2): this is no JSON`},
		{"after JSON", `{} x`, `this is no JSON`},
		{"no UTF-8", "{\n\n\"\xff\": 1}", `(top) (line 3): this is no UTF-8`},
		{"empty", ``, `it is empty, and must be an object`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := drover.ParseDefinition([]byte(c.text))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case c.want != "" && (!errors.Is(err, drover.CodeInvalidDefinition) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v\nwant %s", err, c.want)
			case c.want != "" && len(problemsOf(t, err)) != 1:
				t.Errorf("one problem is told as %v", err)
			}
		})
	}
}

func TestDefinitions02UnknownKeys(t *testing.T) {
	for place, text := range map[string]string{
		"x":                       `{"x": 1, "nodes": {"a": {"call": "f"}}, "output": {"from": "node:a"}}`,
		"nodes.a.x":               `{"nodes": {"a": {"call": "f", "x": 1}}, "output": {"from": "node:a"}}`,
		"nodes.a.input.x":         `{"nodes": {"a": {"call": "f", "input": {"with": 1, "x": 1}}}, "output": {"from": "node:a"}}`,
		"nodes.a.retry.x":         `{"nodes": {"a": {"call": "f", "retry": {"x": 1}}}, "output": {"from": "node:a"}}`,
		"nodes.a.agent.output.x":  `{"nodes": {"a": {"agent": {"model": "m", "output": {"type": "text", "x": 1}}}}, "output": {"from": "node:a"}}`,
		"nodes.a.http.x":          `{"nodes": {"a": {"http": {"url": "http://x", "x": 1}}}, "output": {"from": "node:a"}}`,
		"nodes.a.compensate.x":    `{"nodes": {"a": {"call": "f", "compensate": {"call": "g", "x": 1}}}, "output": {"from": "node:a"}}`,
		"output.x":                `{"nodes": {"a": {"call": "f"}}, "output": {"from": "node:a", "x": 1}}`,
		"default_functions.x":     `{"default_functions": {"x": 1}, "nodes": {"a": {"call": "f"}}, "output": {"from": "node:a"}}`,
		"nodes.a.wait.x":          `{"nodes": {"a": {"wait": {"name": "n", "x": 1}}}, "output": {"from": "node:a"}}`,
		"nodes.a.fanout.x":        `{"nodes": {"a": {"call": "f", "fanout": {"over": "run_input", "x": 1}}}, "output": {"from": "node:a"}}`,
		"nodes.a.agent.functions": `{"nodes": {"a": {"agent": {"model": "m", "functions": "x"}}}, "output": {"from": "node:a"}}`,
	} {
		_, err := drover.ParseDefinition([]byte(text))
		if problems := problemsOf(t, err); len(problems) != 1 || problems[0].Place != place {
			t.Errorf("%s: %v", place, err)
		}
	}

	t.Run("of a start request are a warning", func(t *testing.T) {
		warnings := drover.StartWarnings([]byte("{\"workflow\": \"w\",\n\"inptu\": 1, \"zzz\": {}}"))
		if fmt.Sprint(warnings) != `[inptu (line 2): the key "inptu" is not known, and was ignored; did you mean input? zzz (line 2): the key "zzz" is not known, and was ignored]` {
			t.Error(warnings)
		}
		if warnings := drover.StartWarnings([]byte(`{"run_id": "r", "definition": {}, "hash": "h", "workflow": "w", "input": 1, "idempotency_key": "k", "notify": {}, "tags": {}, "parent": {}}`)); warnings != nil {
			t.Error(warnings)
		}
		if warnings := drover.StartWarnings([]byte(`nope`)); warnings != nil {
			t.Error(warnings)
		}
	})
}

func TestDefinitions04Limits(t *testing.T) {
	t.Run("nodes", func(t *testing.T) {
		var b strings.Builder
		for i := range drover.MaxNodes + 1 {
			fmt.Fprintf(&b, `"n%d": {"call": "f"},`, i)
		}
		text := `{"nodes": {` + b.String() + `"last": {"call": "f"}}, "output": {"from": "node:last"}}`
		_, err := drover.ParseDefinition([]byte(text))
		if problems := problemsOf(t, err); len(problems) != 1 || !strings.Contains(problems[0].Message, "there are 10002 nodes, and may be 10000") {
			t.Errorf("got %.300v", err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		text := `{"nodes": {"a": {"set": {"with": "` + strings.Repeat("x", drover.MaxDefinition) + `"}}}, "output": {"from": "node:a"}}`
		if _, err := drover.ParseDefinition([]byte(text)); !errors.Is(err, drover.CodeTooLarge) {
			t.Errorf("got %.300v", err)
		}
	})
	t.Run("bytes by aliases", func(t *testing.T) {
		text := "x: &a0 [a,b,c,d,e,f,g,h]\n"
		for i := range 30 {
			text += fmt.Sprintf("x%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i, i+1, i, i, i, i)
		}
		if _, err := drover.ParseDefinition([]byte(text)); !errors.Is(err, drover.CodeTooLarge) {
			t.Errorf("got %.300v", err)
		}
	})
	t.Run("runs within runs", func(t *testing.T) {
		nested := func(depth int) []byte {
			text := `{"nodes": {"a": {"call": "f"}}, "output": {"from": "node:a"}}`
			for range depth {
				text = `{"nodes": {"a": {"run": {"definition": ` + text + `}}}, "output": {"from": "node:a"}}`
			}
			return []byte(text)
		}
		if _, err := drover.ParseDefinition(nested(drover.MaxDepth)); err != nil {
			t.Error(err)
		}
		_, err := drover.ParseDefinition(nested(drover.MaxDepth + 2))
		if problems := problemsOf(t, err); len(problems) != 1 || problems[0].Message != "definitions are nested deeper than 8" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nesting", func(t *testing.T) {
		aliases := "a0: &a0 x\n"
		for i := range 300 {
			aliases += fmt.Sprintf("a%d: &a%d [*a%d]\n", i+1, i+1, i)
		}
		for _, text := range []string{
			with(`{"set": {"with": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}`),
			aliases,
			"a: " + strings.Repeat("[", 20_000),
			strings.Repeat("- ", 20_000),
			strings.Repeat("? ", 20_000),
			"a: " + strings.Repeat("!!str ", 20_000) + "x",
		} {
			if _, err := drover.ParseDefinition([]byte(text)); !errors.Is(err, drover.CodeInvalidDefinition) || !strings.Contains(err.Error(), "nested deeper") && !strings.Contains(err.Error(), "no YAML") {
				t.Errorf("%.20s: got %.300v", text, err)
			}
		}
	})
	t.Run("problems", func(t *testing.T) {
		_, err := drover.ParseDefinition([]byte(`{"nodes": {"a": {"call": "f", "depends_on": [` + strings.Repeat(`"y",`, 300) + `"y"]}}, "output": {"from": "node:a"}}`))
		if problems := problemsOf(t, err); len(problems) != 100 || !strings.Contains(err.Error(), "and 201 more that are not listed") {
			t.Errorf("got %.300v", err)
		}
	})
}

func TestParseDefinitionOfIII(t *testing.T) {
	data, err := os.ReadFile("testdata/iii/headlines.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := drover.ParseDefinition(data)
	if err != nil {
		t.Fatal(err)
	}
	draft := d.Nodes["draft"]
	if draft.Fanout.Over != "node:outline.result.sections" || draft.Agent.Functions.Allow[0] != "docs::*" ||
		!d.Nodes["final"].Input.From.List || d.Nodes["outline"].Input.Template != "List the sections." {
		t.Errorf("it is read as %+v", d)
	}
}

func TestValidateByHand(t *testing.T) {
	d := &drover.Definition{
		Nodes:  map[drover.NodeID]*drover.Step{"a": {Call: "f", Timeout: drover.Duration(1)}, "b": nil},
		Output: &drover.Source{From: drover.Refs{Names: []string{"node:a"}}},
	}
	err := d.Validate()
	if problems := problemsOf(t, err); len(problems) != 2 || problems[0].Line != 0 {
		t.Errorf("got %v", err)
	}
	d.Nodes = map[drover.NodeID]*drover.Step{"a": {Call: "f"}}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	d.InputSchema = []byte(`{`)
	if err := d.Validate(); !errors.Is(err, drover.CodeInvalidDefinition) {
		t.Errorf("got %v", err)
	}
}

func TestParseRef(t *testing.T) {
	for _, c := range []struct{ text, spelled, err string }{
		{"run_input", "run_input", ""},
		{"workflow.input", "run_input", ""},
		{"workflow.input.a.0", "run_input.a.0", ""},
		{"run_input.a", "run_input.a", ""},
		{"fanout_item", "fanout_item", ""},
		{"fanout_item.name", "fanout_item.name", ""},
		{"node:plan", "node:plan", ""},
		{"node:plan.names.0", "node:plan.names.0", ""},
		{"node:", "", "node id"},
		{"node:a b", "", "node id"},
		{"node:a..b", "", "empty key"},
		{"node:a.", "", "empty key"},
		{"workflow", "", "is no reference"},
		{"workflow.inputs", "", "is no reference"},
		{"plan", "", "is no reference"},
		{"", "", "is no reference"},
	} {
		ref, err := drover.ParseRef(c.text)
		if c.err == "" && (err != nil || ref.String() != c.spelled) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q gives %v, %v", c.text, ref, err)
		}
	}
}

func TestDefinitions05SourceWithoutInputIsValid(t *testing.T) {
	d, err := drover.ParseDefinition([]byte(`{"nodes": {"a": {"call": "f"}}, "output": {"from": "node:a"}}`))
	if err != nil || d.Nodes["a"].Input != nil {
		t.Errorf("%+v %v", d, err)
	}
}

func BenchmarkParseDefinition(b *testing.B) {
	data, err := os.ReadFile("testdata/valid/everything.yaml")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := drover.ParseDefinition(data); err != nil {
			b.Fatal(err)
		}
	}
}
