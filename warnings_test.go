package drover_test

import (
	"os"
	"testing"

	"github.com/droverhq/drover"
)

func TestWarnings(t *testing.T) {
	parse := func(text string) *drover.Definition {
		t.Helper()
		d, err := drover.ParseDefinition([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		name, text string
		places     []string
	}{
		{"all that is read is needed", `
nodes:
  by_from: {call: f}
  by_list: {call: f}
  by_with: {call: f}
  by_over: {call: f}
  by_over_expression: {call: f}
  by_when: {call: f}
  by_depends: {call: f}
  by_undo: {call: f}
  by_until: {call: f}
  by_url: {call: f}
  by_child: {call: f}
  by_set: {call: f}
  a: {call: f, input: {from: node:by_from.x}, when: nodes.by_when.output, depends_on: [by_depends]}
  b: {call: f, input: {from: [node:a, node:by_list]}, fanout: {over: node:by_over}}
  c: {call: f, input: {with: ["${{ nodes.by_with.output }}", "${{ nodes.b.output }}"]}, fanout: {over: "${{ nodes.by_over_expression.output }}"},
    compensate: {call: g, input: {from: node:by_undo}}}
  d: {sleep: {until: nodes.by_until.output}, depends_on: [c]}
  e: {http: {url: "https://example.com/${{ nodes.by_url.output }}"}, depends_on: [d]}
  f: {run: {workflow: w, input: {from: node:by_child}}, depends_on: [e]}
  g: {set: {with: "${{ nodes.by_set.output }}"}, depends_on: [f]}
output: {with: {last: "${{ nodes.g.status }}"}}`, nil},
		{"a node that nobody reads, and what only that reads", `
nodes:
  first: {call: f}
  mail: {call: f, input: {from: node:plan}}
  plan: {call: f, depends_on: [first]}
  report: {call: f, depends_on: [first]}
output: {from: node:report}`, []string{"nodes.mail", "nodes.plan"}},
		{"in a child", `
nodes:
  a:
    run:
      definition:
        nodes: {x: {call: f}, y: {call: f, depends_on: [x]}}
        output: {from: node:x}
output: {from: node:a}`, []string{"nodes.a.run.definition.nodes.y"}},
		{"an output of nothing", `{"nodes": {"a": {"call": "f"}}, "output": {"with": 1}}`, []string{"nodes.a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			warnings := parse(c.text).Warnings()
			if len(warnings) != len(c.places) {
				t.Fatalf("warnings of %v are told as %v", c.places, warnings)
			}
			for i, w := range warnings {
				if w.Place != c.places[i] || w.Message == "" || w.Fix == "" {
					t.Errorf("the warning of %s is %v", c.places[i], w)
				}
			}
		})
	}

	for _, file := range []string{"testdata/iii/headlines.json", "examples/greet/workflow.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if warnings := parse(string(data)).Warnings(); warnings != nil {
			t.Errorf("%s: %v", file, warnings)
		}
	}

	broken := &drover.Definition{Nodes: map[drover.NodeID]*drover.Step{"a": nil, "b": {When: "((", Input: &drover.Source{}}}}
	if warnings := broken.Warnings(); len(warnings) != 2 {
		t.Errorf("the warnings of what is no definition are %v", warnings)
	}
}
