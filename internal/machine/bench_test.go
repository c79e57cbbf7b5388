package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// chain is a definition of n calls, one after the other.
func chain(n int) string {
	var b strings.Builder
	b.WriteString(`{"nodes":{"n00":{"call":"f"}`)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, `,"n%02d":{"call":"f","input":{"from":"node:n%02d"}}`, i, i-1)
	}
	fmt.Fprintf(&b, `},"output":{"from":"node:n%02d"}}`, n-1)
	return b.String()
}

// list is a JSON array of n numbers.
func list(n int) string {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	data, _ := json.Marshal(items)
	return string(data)
}

const fanText = `{"nodes":{"a":{"call":"f","fanout":{"over":"run_input"}}},"output":{"from":"node:a"}}`

// BenchmarkStep is a command of a run of ten steps, applied and encoded.
func BenchmarkStep(b *testing.B) {
	p := compileText(b, chain(10))
	b.ReportAllocs()
	steps := 0
	for steps < b.N {
		var s *State
		command := func(c *Command) {
			steps++
			c.Seq, c.At, c.Run = uint64(steps), epoch, "r1"
			step, err := Apply(p, s, c, nil)
			if err != nil || step.Refused != nil {
				b.Fatal(err, step.Refused)
			}
			s = step.State
			s.Owed = Compact(step.Effects)
			if _, err := Encode(s); err != nil {
				b.Fatal(err)
			}
		}
		command(&Command{Verb: drover.VerbStart, Start: &Start{StartRequest: drover.StartRequest{Input: json.RawMessage(`{"topic":"rivers"}`)}, Secret: "s", Hash: p.Hash}})
		for i := range 10 {
			id := drover.CallID{Run: "r1", Node: p.nodes[i].id, Item: drover.NoItem, Attempt: 1}
			command(&Command{Verb: drover.VerbResult, Result: &drover.ResultMessage{
				Call: id, Token: Token("s", id.String()), Output: json.RawMessage(`{"answer":42,"text":"a hundred bytes or so of what a function says when it is done with what it had to do"}`), Instance: "host-1",
			}})
		}
		if s.Status != drover.StatusCompleted {
			b.Fatal(s.Status)
		}
	}
}

// BenchmarkFanout is one result of a fan-out of 1,000, applied and encoded.
func BenchmarkFanout(b *testing.B) {
	const n = 1000
	p := compileText(b, fanText)
	input := json.RawMessage(list(n))
	b.ReportAllocs()
	steps := 0
	for steps < b.N {
		var s *State
		command := func(c *Command) {
			steps++
			c.Seq, c.At, c.Run = uint64(steps), epoch, "r1"
			puts := map[string]json.RawMessage{"r1.input": input}
			step, err := Apply(p, s, c, func(k string) (json.RawMessage, bool) { return puts[k], true })
			if err != nil || step.Refused != nil {
				b.Fatal(err, step.Refused)
			}
			s = step.State
			if _, err := Encode(s); err != nil {
				b.Fatal(err)
			}
		}
		command(&Command{Verb: drover.VerbStart, Start: &Start{StartRequest: drover.StartRequest{Input: input}, Secret: "s", Hash: p.Hash}})
		for i := range n {
			id := drover.CallID{Run: "r1", Node: "a", Item: i, Attempt: 1}
			command(&Command{Verb: drover.VerbResult, Result: &drover.ResultMessage{
				Call: id, Token: Token("s", id.String()), Output: json.RawMessage(`{"answer":42}`), Instance: "host-1",
			}})
		}
		if s.Status != drover.StatusCompleted {
			b.Fatal(s.Status)
		}
	}
}
