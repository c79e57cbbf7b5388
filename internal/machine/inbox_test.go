package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// inbox is a hook whose deliveries a chain of waits reads, each behind a call,
// so that some come too early and some in time. What is left is taken.
func inbox(waits, count int) string {
	var b strings.Builder
	b.WriteString(`{"nodes":{"w0":{"wait":{"hook":"t","hold":true}}`)
	for i := 1; i < waits; i++ {
		fmt.Fprintf(&b, `,"c%d":{"call":"f","depends_on":["w%d"]},"w%d":{"wait":{"from":"w0","count":%d},"depends_on":["c%d"]}`, i, i-1, i, count, i)
	}
	fmt.Fprintf(&b, `,"go":{"wait":{"name":"go"},"depends_on":["w%d"]},"rest":{"release":{"hook":"w0","unread":"take"},"depends_on":["go"]}`, waits-1)
	b.WriteString(`},"output":{"from":"node:rest"}}`)
	return b.String()
}

// TestHooks10TheInboxAgreesWithAQueue holds the order in which deliveries are
// read to that of a plain list, whenever they come, and however they repeat.
func TestHooks10TheInboxAgreesWithAQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 60 {
		waits := 2 + rng.IntN(4)
		w := newWorld(t, inbox(waits, 1+rng.IntN(3)))
		w.startAs(drover.StartRequest{Hooks: [][]string{nil, {"t"}}[rng.IntN(2)]})
		var queue []string
		deliver := func() {
			id := fmt.Sprintf("id-%d", rng.IntN(30))
			payload := `"` + id + `"`
			if rng.IntN(4) == 0 {
				payload = `"` + id + strings.Repeat("x", 2500) + `"`
			}
			w.deliverHook("t", payload, id)
			switch got, accepted := w.last.Answer.(drover.DeliverReply); {
			case accepted && !got.Repeat:
				queue = append(queue, payload)
			case accepted && !slices.Contains(queue, payload):
				t.Fatalf("%s is said to be a repeat", id)
			case !accepted && w.last.Refused.Code != drover.CodeConflict:
				t.Fatal(w.last.Refused)
			}
		}
		for i := 1; len(w.s.Active) > 0 && w.node("go").Status != drover.NodeWaiting; {
			if rng.IntN(3) == 0 && i < waits && w.node(drover.NodeID(fmt.Sprintf("c%d", i))).Status == drover.NodeRunning {
				w.ok(fmt.Sprintf("c%d@1", i), `1`)
				i++
			}
			deliver()
			if rng.IntN(5) == 0 {
				w.owned("w0", "t")
			}
			if len(queue) == 30 && rng.IntN(20) == 0 {
				w.deliverHook("t", `"more"`, "")
				queue = append(queue, `"more"`)
			}
		}
		w.deliver("go", `1`, "")
		if read := w.read(waits); !slices.Equal(read, queue) {
			t.Fatalf("accepted\n%q\nread\n%q", queue, read)
		}
	}
}

// read lists what the waits and the release have read, in their order.
func (w *world) read(waits int) []string {
	w.t.Helper()
	var list []string
	for _, id := range append(slices.Collect(func(yield func(string) bool) {
		for i := range waits {
			if !yield(fmt.Sprintf("w%d", i)) {
				return
			}
		}
	}), "rest") {
		out := w.node(drover.NodeID(id)).Output
		var several []json.RawMessage
		if json.Unmarshal(out, &several) != nil {
			several = []json.RawMessage{out}
		}
		for _, raw := range several {
			list = append(list, string(raw))
		}
	}
	return list
}

func TestHooksAreLimited(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"nodes":{"end":{"wait":{"name":"end"}}`)
	for i := range drover.MaxStartHooks + 1 {
		fmt.Fprintf(&b, `,"n%d":{"wait":{"hook":"t%d","on_unread":"restart"},"on_error":"continue"}`, i, i)
	}
	b.WriteString(`},"output":{"from":"node:end"}}`)
	w := newWorld(t, b.String())
	w.start(`1`)
	failed := 0
	for _, n := range w.view().Nodes {
		if n.Error != nil {
			failed++
			w.wantNode(n.ID, drover.CodeTooLarge, "", "16 hooks")
		}
	}
	if failed != 1 || len(w.s.Hooks) != drover.MaxStartHooks {
		t.Errorf("%d claims failed, %d are there", failed, len(w.s.Hooks))
	}
}

func TestHooks12WhatCameBeforeTheSchemaIsHeldToIt(t *testing.T) {
	w := newWorld(t, `{"nodes":{"pick":{"call":"f"},
		"a":{"wait":{"hook":"${{ input[0] }}","schema":{"type":"integer"}},"depends_on":["pick"],"on_error":"continue"},
		"b":{"wait":{"hook":"${{ input[1] }}","schema":{"type":"string"}},"depends_on":["pick"],"on_error":"continue"}},"output":{"with":["${{ nodes.a.output }}","${{ nodes.b.output }}"]}}`)
	w.startAs(drover.StartRequest{Input: json.RawMessage(`["t","u"]`), Hooks: []string{"t", "u"}})
	w.deliverHook("t", `true`, "")
	w.wantRefused(drover.CodeInvalidInput) // it fits none of the waits
	w.deliverHook("t", `"text"`, "")
	w.deliverHook("u", `"text"`, "")
	w.ok("pick@1", `1`)
	w.wantNode("a", drover.CodeInvalidInput, "", "before node a", "want integer")
	w.wantOutput("b", `"text"`)
}

func TestHeldTellsOfAHook(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.owned("in", "t")
	if unread, until, ok := Held(w.p, w.s, "t"); !ok || unread != 0 || until.Time().Sub(epoch).Minutes() != 1 {
		t.Error(unread, until, ok)
	}
	for range 4 {
		w.deliverHook("t", `1`, "")
	}
	if unread, until, ok := Held(w.p, w.s, "t"); !ok || unread != 2 || until != 0 {
		t.Error(unread, until, ok)
	}
	if _, _, ok := Held(w.p, w.s, "u"); ok {
		t.Error("a token that the run does not have")
	}
}
