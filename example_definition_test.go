package drover_test

import (
	"errors"
	"fmt"

	"github.com/droverhq/drover"
)

func ExampleParseDefinition() {
	d, err := drover.ParseDefinition([]byte(`
name: naming
nodes:
  plan:
    call: llm.plan
  draft:
    call: llm.draft
    fanout: {over: node:plan.names, max_parallel: 8}
  pick:
    set:
      with: {best: "${{ first(nodes.draft.output) }}"}
output: {from: node:pick}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, hash, _ := d.Canonical()
	fmt.Println(d.Name, d.Nodes["draft"].Kind(), d.Nodes["pick"].Kind())
	fmt.Println(len(text), hash[:8])
	// Output:
	// naming call set
	// 234 72144546
}

func ExampleParseDefinition_problems() {
	_, err := drover.ParseDefinition([]byte(`{
  "nodes": {
    "plan": {"call": "llm.plan", "retry": {"max_attempts": 0}},
    "draft": {"call": "llm.draft", "inptu": {"from": "node:plan"}}
  }
}`))
	fmt.Println(err)
	// Output:
	// the definition has 3 problems
	//   nodes.plan.retry.max_attempts (line 3): 0 is out of range; write a number from 1 to 1000
	//   nodes.draft.inptu (line 4): the key "inptu" is not known here; did you mean input?
	//   output (line 1): "output" is missing; add output: {from: node:<id>}
}

func ExampleError() {
	_, err := drover.ParseDefinition([]byte(`nodes: {a: {call: f}}`))
	fmt.Println(errors.Is(err, drover.CodeInvalidDefinition))

	var e *drover.Error
	if errors.As(err, &e) {
		for _, p := range e.Problems {
			fmt.Println(p.Place, "|", p.Fix)
		}
	}
	// Output:
	// true
	// output | add output: {from: node:<id>}
}

func ExampleDefinition_Validate() {
	d := &drover.Definition{
		Nodes: map[drover.NodeID]*drover.Step{
			"wait":  {Wait: &drover.Wait{Name: "approved"}},
			"write": {Call: "letters.write", DependsOn: []drover.NodeID{"waits"}},
		},
		Output: &drover.Source{From: drover.Refs{Names: []string{"node:write"}}},
	}
	fmt.Println(d.Validate())
	// Output:
	// the definition has a problem
	//   nodes.write.depends_on[0]: there is no node "waits"; did you mean wait?
}

func ExampleParseRef() {
	ref, err := drover.ParseRef("node:plan.names.0")
	fmt.Println(ref.Kind, ref.Node, ref.Path, err)
	// Output: node plan [names 0] <nil>
}
