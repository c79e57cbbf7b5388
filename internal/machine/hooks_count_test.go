package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func counting(wait string) string {
	return `{"nodes":{"a":{"wait":` + wait + `,"on_error":"continue"}},"output":{"with":["${{ nodes.a.output }}","${{ nodes.a.error?.code }}"]}}`
}

func TestWaitsCollect(t *testing.T) {
	for _, c := range []struct{ wait, deliver, want string }{
		{`{"name":"x","count":3}`, `1 null "c"`, `[[1,null,"c"],null]`},
		{`{"name":"x","count":1}`, `{}`, `[[{}],null]`},
		{`{"name":"x","until":"payload == 0"}`, `3 2 0`, `[[3,2,0],null]`},
		{`{"name":"x","until":"len(payloads) == 2"}`, `3 2`, `[[3,2],null]`},
		{`{"name":"x","until":"payload == 0","count":2}`, `3 2`, `[[3,2],null]`},
		{`{"name":"x","until":"payload.done"}`, `{"done":true}`, `[[{"done":true}],null]`},
		{`{"name":"x","until":"payload.done"}`, `5`, `[null,"expression"]`},
	} {
		w := newWorld(t, counting(c.wait))
		w.start(`1`)
		for _, payload := range strings.Fields(c.deliver) {
			if w.s.Terminal() {
				t.Fatalf("%s ended before %s", c.wait, payload)
			}
			w.deliver("x", payload, "")
		}
		w.wantResult(c.want)
	}
}

// What is unread when the wait begins is read first, and no more than is asked.
func TestHooks10WhatCameBeforeTheWaitIsReadInOrder(t *testing.T) {
	w := newWorld(t, `{"nodes":{"go":{"call":"f"},"a":{"wait":{"name":"x","count":2},"depends_on":["go"]},"b":{"wait":{"name":"x","count":2},"depends_on":["a"]}},
		"output":{"with":["${{ nodes.a.output }}","${{ nodes.b.output }}"]}}`)
	w.start(`1`)
	for i := range 3 {
		w.deliver("x", fmt.Sprint(i), "")
	}
	w.ok("go@1", `1`)
	w.wantOutput("a", `[0,1]`)
	w.deliver("x", `3`, "")
	w.wantResult(`[[0,1],[2,3]]`)
}

func TestWaitsCollectBigPayloads(t *testing.T) {
	w := newWorld(t, counting(`{"name":"x","until":"len(payloads) == 3 && len(payloads[0]) == 5000"}`))
	w.start(`1`)
	big := `"` + strings.Repeat("x", 5000) + `"`
	for range 3 {
		w.deliver("x", big, "")
	}
	w.wantResult(`[[` + big + `,` + big + `,` + big + `],null]`)

	over := newWorld(t, counting(`{"name":"x","count":5}`))
	over.start(`1`)
	for range 2 {
		over.deliver("x", `"`+strings.Repeat("x", drover.MaxValue/2)+`"`, "")
	}
	over.wantNode("a", drover.CodeTooLarge, "", "node a", "2 payloads", "references")

	endless := newWorld(t, counting(`{"name":"x","until":"payload == 1"}`))
	endless.sparing = true
	endless.start(`1`)
	for range drover.MaxUnread + 1 {
		endless.deliver("x", `0`, "")
	}
	endless.wantNode("a", drover.CodeTooLarge, "", "count")
}

func TestHooks14ACountThatIsNotReachedTimesOut(t *testing.T) {
	w := newWorld(t, counting(`{"hook":"t","count":2,"timeout":"1m"}`))
	w.start(`1`)
	w.owned("a", "t")
	w.deliverHook("t", `1`, "")
	w.wantWhy(`hook: node a waits for a delivery to hook "t" since 2030-01-01T00:00:00Z, at the latest until 2030-01-01T00:01:00Z; it has read 1`)
	w.pass(time.Minute).tick()
	w.wantNode("a", drover.CodeTimeout, "", "has read 1 deliver")
}

// What a wait has collected and does not give is unread again, in its order.
func TestHooks16WhatWasCollectedInVainIsHandedBack(t *testing.T) {
	const hooked = `{"hook":"t","count":3,"timeout":"1m","on_unread":"restart"}`
	stopped := newWorld(t, `{"nodes":{"a":{"wait":`+hooked+`}},"output":{"from":"node:a"}}`)
	stopped.start(`1`)
	stopped.owned("a", "t")
	stopped.deliverHook("t", `1`, "")
	stopped.deliverHook("t", `2`, "")
	stopped.stop("enough")
	if got := unreadPayloads(stopped.s); got != `1 2` {
		t.Errorf("a stopped run has unread %s", got)
	}
	if stopped.s.successor() != "" {
		t.Error("a run that has given nothing of what it read has a successor")
	}

	late := newWorld(t, `{"nodes":{
		"a":{"wait":{"name":"x","count":3,"timeout":"1m"},"on_error":"continue"},
		"b":{"wait":{"name":"x"},"depends_on":["a"]},
		"c":{"wait":{"name":"x"},"depends_on":["b"]}},
		"output":{"with":["${{ nodes.b.output }}","${{ nodes.c.output }}"]}}`)
	late.start(`1`)
	late.deliver("x", `1`, "")
	late.deliver("x", `2`, "")
	late.pass(time.Minute).tick()
	late.wantResult(`[1,2]`)

	beside := newWorld(t, `{"nodes":{
		"a":{"wait":{"name":"x","count":3,"timeout":"1m"},"on_error":"continue"},
		"b":{"wait":{"name":"x","count":2}}},
		"output":{"from":"node:b"}}`)
	beside.start(`1`)
	beside.deliver("x", `1`, "")
	beside.deliver("x", `2`, "")
	beside.pass(time.Minute).tick()
	beside.wantResult(`[1,2]`)

	const held = `{"nodes":{"in":{"wait":{"hook":"t","hold":true}},"go":{"wait":{"name":"go"}},
		"a":{"wait":{"from":"in","count":3},"on_error":"continue"},
		"r":{"release":{"hook":"in","unread":"take"},"depends_on":["go"]}},"output":{"from":"node:r"}}`
	taken := newWorld(t, held)
	taken.start(`1`)
	taken.owned("in", "t")
	for _, payload := range []string{`0`, `1`, `2`} {
		taken.deliverHook("t", payload, "")
	}
	taken.deliver("go", `null`, "")
	taken.wantResult(`[1,2]`)

	drained := newWorld(t, strings.Replace(held, "take", "drain", 1))
	drained.start(`1`)
	drained.owned("in", "t")
	for _, payload := range []string{`0`, `1`} {
		drained.deliverHook("t", payload, "")
	}
	drained.deliver("go", `null`, "")
	drained.wantNode("r", drover.CodeUnread, "", "1 deliver")
}

// unreadPayloads lists what is unread.
func unreadPayloads(s *State) string {
	var list []string
	for i := range s.Unread {
		list = append(list, string(s.Unread[i].Payload.JSON))
	}
	return strings.Join(list, " ")
}

// restarting reads one delivery, then others as long as it works.
const restarting = `{"nodes":{
	"in":{"wait":{"hook":"t","on_unread":"restart"}},
	"side":{"wait":{"hook":"u","on_unread":"restart"},"on_error":"continue"},
	"work":{"call":"f","depends_on":["in"],"compensate":{"call":"undo"}},
	"fail":{"call":"g","depends_on":["work"]},
	"never":{"wait":{"name":"x"},"depends_on":["side"]}
},"output":{"from":"node:fail"}}`

func (w *world) wantHanded(payloads ...string) {
	w.t.Helper()
	e := w.effect(EffectHandOver)
	if e.To != drover.SuccessorID("r1") || show(e.Start.Hooks) != `["t"]` || show(e.ClaimIDs) != `["r1/in"]` || e.Start.Hash != w.p.Hash ||
		e.Start.Parent != nil || string(e.Value.JSON) != `{"n":1}` || len(e.Start.Notify) != 1 || e.Start.Tags["k"] != "v" || e.Start.Workflow != "leader" {
		w.t.Errorf("%s", show(e))
	}
	var got []string
	for i, d := range e.Deliveries {
		if got = append(got, string(orNull(d.Payload.JSON))); d.ID != fmt.Sprintf("r1/%d", i+1) || d.Token != "t" {
			w.t.Errorf("%+v", d)
		}
	}
	if show(got) != show(payloads) {
		w.t.Errorf("handed over %q, want %q", got, payloads)
	}
}

func TestHooks16WhatIsUnreadStartsTheSuccessor(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"completed":   func(w *world) { w.ok("work@1", `1`); w.ok("fail@1", `1`) },
		"cancelled":   func(w *world) { w.stop("") },
		"failed":      func(w *world) { w.fail("work@1", drover.Error{Message: "no", Permanent: true}) },
		"compensated": func(w *world) { w.ok("work@1", `1`); w.fail("fail@1", drover.Error{Message: "no", Permanent: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, restarting)
			w.startAs(drover.StartRequest{
				Workflow: "leader", Input: json.RawMessage(`{"n":1}`), Tags: map[string]string{"k": "v"}, Notify: drover.NotifyList{{Subject: "a.b"}},
			})
			w.owned("in", "t")
			w.owned("side", "u")
			w.deliverHook("t", `1`, "")
			w.deliverHook("t", `2`, "two")
			w.deliver("x", `"stays"`, "")
			w.deliverHook("t", `3`, "")
			end(w)
			w.wantHanded(`2`, `3`)
			handed := show(w.effect(EffectRelease))
			if !strings.Contains(handed, `"r1/side"`) {
				t.Errorf("what nothing was read of is released: %s", handed)
			}
			w.deliverHook("t", `4`, "")
			w.wantRefused(drover.CodeNotFound, "run s_")
			if w.last.Refused.Run != drover.SuccessorID("r1") {
				t.Errorf("%+v", w.last.Refused)
			}
			if name == "compensated" {
				w.ok("work/undo@1", `1`)
			} else {
				w.hear(0, 1, "ok", nil)
			}
			w.wantStatus(drover.Status(name))
			if r := w.view(); r.Unread != 3 || r.Successor != drover.SuccessorID("r1") {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestHooks16WhatIsUnreadIsCounted(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.owned("in", "t")
	for range 4 {
		w.deliverHook("t", `1`, "")
	}
	w.deliver("go", `1`, "")
	if o := w.outcome(); o.Unread != 2 || o.Successor != "" {
		t.Errorf("%+v", o)
	}
	// A run that has read nothing has no successor: it would have one without end.
	idle := newWorld(t, restarting)
	idle.startAs(drover.StartRequest{Hooks: []string{"t"}})
	idle.stop("")
	idle.wantEffects("release t of r1/in", "release u of r1/side", "done")
}

// A delivery that comes when the run is to end by its timeout is refused, so
// that the outcome is the same whenever it is made.
func TestHooks16NothingJoinsAnOutcome(t *testing.T) {
	w := newWorld(t, `{"timeout":"1m","nodes":{"in":{"wait":{"hook":"t","hold":true}},"go":{"wait":{"name":"go","count":2},"depends_on":["in"]}},"output":{"from":"node:go"}}`)
	w.start(`1`)
	w.owned("in", "t")
	w.deliverHook("t", `1`, "")
	w.pass(time.Minute).deliverHook("t", `2`, "")
	w.wantRefused(drover.CodeNotFound)
	w.deliver("go", `2`, "")
	w.wantRefused(drover.CodeTerminal)
	w.tick()
	w.wantEffects("release t of r1/in", "done")
	if o := w.outcome(); o.Unread != 0 || o.Error.Code != drover.CodeTimeout {
		t.Errorf("%+v", o)
	}
}

func TestHooks18ARunHoldsWhatItsStartBrought(t *testing.T) {
	w := newWorld(t, `{"nodes":{"first":{"call":"f"},"in":{"wait":{"hook":"t","schema":{"type":"integer"}},"depends_on":["first"],"on_error":"continue"}},"output":{"from":"node:in"}}`)
	w.startAs(drover.StartRequest{Hooks: []string{"t", "x", "t"}})
	w.wantEffects("call first@1", "claim t for r1/", "claim x for r1/")
	w.deliverHook("t", `"no number"`, "")
	w.wantRefused(drover.CodeInvalidInput, "node in")
	w.deliverHook("t", `5`, "a")
	w.deliverHook("t", `6`, "b")
	if len(w.s.Unread) != 2 {
		t.Fatalf("%+v", w.s.Unread)
	}
	w.ok("first@1", `1`)
	w.wantOutput("in", `5`)
	w.wantEffects("release t of r1/in", "release x of r1/", "done")
	if o := w.outcome(); o.Unread != 1 {
		t.Errorf("%+v", o)
	}
	w.startAs(drover.StartRequest{Hooks: []string{"other"}})
	if got, ok := w.last.Answer.(drover.StartReply); !ok || got.Created || w.last.Refused != nil {
		t.Errorf("a start with other hooks: %+v", w.last)
	}
}

func TestHooks18WhatWasBroughtIsAdoptedAtOnce(t *testing.T) {
	w := newWorld(t, held)
	w.startAs(drover.StartRequest{Hooks: []string{"t"}})
	w.wantEffects("claim t for r1/in")
	w.deliverHook("t", `1`, "")
	w.wantOutput("in", `1`)
	w.taken("", "t", true) // whoever took it had read the claim of the start
	w.wantNode("two", drover.CodeConflict, "other")
}

// What a start brought and its first wait left is read by the next one that
// holds the token, and not before it does.
func TestHooks18NothingIsReadBeforeTheTokenIsHeldAgain(t *testing.T) {
	w := newWorld(t, `{"nodes":{"go":{"call":"f"},"a":{"wait":{"hook":"t"},"depends_on":["go"]},"b":{"wait":{"hook":"t"},"depends_on":["a"]}},"output":{"from":"node:b"}}`)
	w.startAs(drover.StartRequest{Hooks: []string{"t"}})
	w.deliverHook("t", `1`, "")
	w.deliverHook("t", `2`, "")
	w.ok("go@1", `1`)
	w.wantEffects("release t of r1/a", "claim t for r1/b")
	w.wantWhy(`hook: node b waits for token "t" to be claimed since 2030-01-01T00:00:00Z; 1 unread`)
	// A sender who has read the new claim comes before the answer: what is there is first.
	w.deliverHook("t", `3`, "")
	w.wantRefused(drover.CodeNotFound)
	w.owned("b", "t")
	w.wantResult(`2`)
}

func TestHooks22TheRunAnswers(t *testing.T) {
	w := newWorld(t, `{"nodes":{"in":{"wait":{"hook":true,"hold":true,"public":true,"respond":{"run":true}}},"more":{"wait":{"from":"in","count":2}},
		"one":{"respond":{"to":"in","with":{"got":"${{ nodes.in.output }}"}}},"two":{"respond":{"to":"more","status":202}},
		"end":{"wait":{"name":"end"},"depends_on":["one","two"]}},"output":{"from":"node:end"}}`)
	w.start(`1`)
	c := w.effect(EffectClaim).Claim
	if !c.Public || !c.Answer.Run {
		t.Errorf("%+v", c)
	}
	ask := func(payload, inbox string) {
		w.hookFrom(drover.DeliverRequest{Hook: c.Token, Claim: 7, Payload: json.RawMessage(payload), Respond: inbox})
	}
	ask(`5`, "inbox.1")
	w.wantEffects("respond 200 to inbox.1")
	if e := w.last.Effects[0]; string(e.Value.JSON) != `{"got":5}` {
		t.Errorf("%s", e.Value.JSON)
	}
	ask(`6`, "inbox.2")
	w.wantEffects()
	ask(`7`, "") // the latest one has nobody who waits
	w.wantEffects()
	w.wantOutput("two", `null`)
}
