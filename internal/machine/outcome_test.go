package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// everyWay is a subscriber of each kind.
func everyWay() drover.NotifyList {
	return drover.NotifyList{{Subject: "a.b"}, {StreamSubject: "c.d"}, {URL: "https://x.test"}, {Function: "f"}, {Session: "user.a.b", Seal: "seal"}}
}

// wantTold holds that the last step told every subscriber the same, which is
// what was published, but for the id of its delivery.
func (w *world) wantTold(status drover.Status) {
	w.t.Helper()
	w.wantStatus(status)
	published, told := *w.outcome(), 0
	if published.Status != status || published.DeliveryID != drover.DeliveryID(w.run)+":terminal" || (published.Error == nil) != (status == drover.StatusCompleted) {
		w.t.Errorf("published is %s", show(published))
	}
	for _, e := range w.last.Effects {
		if e.Kind != EffectDeliver {
			continue
		}
		want := published
		want.DeliveryID = drover.DeliveryID(fmt.Sprintf("%s:terminal:%d", w.run, e.Index))
		if show(e.Outcome) != show(want) || show(e.Value) != show(w.s.Result) || e.Delivery.ID != want.DeliveryID || e.Attempt != 1 {
			w.t.Errorf("told is %s\nwant    %s", show(e), show(want))
		}
		if e.Delivery.Token != Token("s3cret", string(want.DeliveryID)) || (e.Call != nil) != (e.Delivery.Notify.Function != "") {
			w.t.Errorf("told by %s", show(e))
		}
		told++
	}
	if told != len(w.s.Notify) || told == 0 {
		w.t.Errorf("%d of %d were told", told, len(w.s.Notify))
	}
}

const undoable = `{"nodes":{"a":{"call":"f","compensate":{"call":"u"}},"b":{"call":"g","depends_on":["a"],"retry":{"max_attempts":2,"initial":"1s"}}},"output":{"from":"node:b"}}`

// However a run ends, all that it has to tell are told, and all the same.
func TestDelivery13EveryEndIsTold(t *testing.T) {
	final := drover.Error{Code: "x", Message: "no", Permanent: true}
	for name, c := range map[string]struct {
		text   string
		status drover.Status
		end    func(w *world)
	}{
		"completed": {oneCall, drover.StatusCompleted, func(w *world) { w.ok("a@1", `{"x":1}`) }},
		"failed":    {oneCall, drover.StatusFailed, func(w *world) { w.fail("a@1", final) }},
		"cancelled": {oneCall, drover.StatusCancelled, func(w *world) { w.stop("enough") }},
		"timed out": {`{"timeout":"1m","nodes":{"a":{"wait":{"name":"x"}}},"output":{"from":"node:a"}}`, drover.StatusFailed, func(w *world) { w.pass(time.Minute).tick() }},
		"at once":   {`{"nodes":{"a":{"set":{"with":1}}},"output":{"from":"node:a"}}`, drover.StatusCompleted, func(*world) {}},
		"retried": {undoable, drover.StatusCompleted, func(w *world) {
			w.ok("a@1", `1`)
			w.fail("b@1", drover.Error{Message: "busy"})
			w.pass(2 * time.Second).tick()
			w.ok("b@2", `1`)
		}},
		"compensated": {undoable, drover.StatusCompensated, func(w *world) {
			w.ok("a@1", `1`)
			w.fail("b@1", final)
			w.ok("a/undo@1", `1`)
		}},
		"compensation failed": {undoable, drover.StatusCompensationFailed, func(w *world) {
			w.ok("a@1", `1`)
			w.stop("")
			w.fail("a/undo@1", final)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.text)
			w.startAs(drover.StartRequest{Notify: everyWay(), Tags: map[string]string{"k": "v"}, Workflow: "flow"})
			c.end(w)
			w.wantTold(c.status)
			if o := w.outcome(); o.RunID != "r1" || o.Workflow != "flow" || o.Tags["k"] != "v" || !o.StartedAt.Equal(epoch) || !o.EndedAt.Equal(w.now) {
				t.Errorf("the payload is %s", show(o))
			}
		})
	}
}

const notifying = `{"notify":[{"subject":"all.ends"},{"function":"audit"}],` +
	`"nodes":{"in":{"wait":{"hook":"t","on_unread":"restart"}},"a":{"call":"f","depends_on":["in"]}},"output":{"from":"node:a"}}`

// A definition may list who is told of all its runs: also of those that nobody
// else could list anybody for.
func TestDelivery13SubscribersOfADefinition(t *testing.T) {
	up := drover.CallID{Run: "up", Node: "n", Attempt: 1}
	w := newWorld(t, notifying)
	w.run = drover.ChildRunID(up)
	w.startAs(drover.StartRequest{Hooks: []string{"t"}, Input: raw(`{"n":1}`), Parent: &drover.Parent{Call: up, Depth: 1}, Notify: drover.NotifyList{{Subject: "mine"}}})
	w.deliverHook("t", `1`, "")
	w.deliverHook("t", `2`, "")
	w.ok("a@1", `1`)
	w.wantTold(drover.StatusCompleted)
	w.effect(EffectTell)
	if got := show(w.view().Deliveries[1].Notify) + show(w.view().Deliveries[2].Notify); got != `{"function":"audit"}{"subject":"mine"}` {
		t.Errorf("told in this order: %s", got)
	}

	// The successor of a run that restarts has the same subscribers, each once.
	e := w.effect(EffectHandOver)
	if show(e.Start.Notify) != `[{"subject":"mine"}]` {
		t.Errorf("the successor gets %s, beside those of its definition", show(e.Start.Notify))
	}
	next := newWorld(t, notifying)
	next.run = e.To
	next.startAs(*e.Start)
	next.deliverHook("t", `2`, "")
	next.ok("a@1", `1`)
	next.wantTold(drover.StatusCompleted)
	if len(next.s.Notify) != 3 {
		t.Errorf("the successor tells %d", len(next.s.Notify))
	}
}

func TestSubscribersAreLimitedTogether(t *testing.T) {
	w := newWorld(t, notifying)
	many := make(drover.NotifyList, drover.MaxSubscribers-1)
	for i := range many {
		many[i].Subject = fmt.Sprintf("s.%d", i)
	}
	w.startAs(drover.StartRequest{Notify: many})
	w.wantRefused(drover.CodeTooLarge, "101 subscribers", "2 of them by its definition", "100")
	w.startAs(drover.StartRequest{Notify: many[1:]})
	w.wantDeliveries(strings.TrimSpace(strings.Repeat("none ", 100)))
}

// A crash between the end of the run and the receipt: what is owed is made again
// of the record, with the same id, token and bytes, and again until it is heard.
func TestDelivery11WhatIsLostIsMadeAgain(t *testing.T) {
	w := newWorld(t, oneCall).over(everyWay()...)
	first := map[int]string{}
	for _, e := range w.last.Effects {
		if e.Kind == EffectDeliver {
			first[e.Index] = show(e)
		}
	}
	for range 5 { // five workers, each of which dies before it hears
		w.next()
		if len(w.last.Effects) == 0 {
			t.Fatal("nothing is tried again")
		}
		for _, e := range w.last.Effects {
			if e.Kind == EffectDeliver && show(e) != first[e.Index] {
				t.Errorf("delivery %d comes again as\n%s\nand was\n%s", e.Index, show(e), first[e.Index])
			}
		}
	}
	for i := range everyWay() {
		if again, ok := Redeliver(w.decode(w.record), i, w.now.Add(time.Hour)); ok != (i != 3) || ok && show(again) != first[i] {
			t.Errorf("delivery %d is made again of the record as\n%s\nand was\n%s", i, show(again), first[i])
		}
		w.hear(i, 1, "", nil)
		if _, ok := Redeliver(w.s, i, w.now.Add(time.Hour)); ok {
			t.Errorf("delivery %d is made again although it was heard", i)
		}
	}
	w.wantDeliveries("delivered@1 delivered@1 delivered@1 delivered@1 delivered@1")
	for _, i := range []int{-1, 5} {
		if _, ok := Redeliver(w.s, i, w.now.Add(time.Hour)); ok {
			t.Errorf("there is no delivery %d", i)
		}
	}
}

// What is owed and was overtaken since is not made again.
func TestDelivery11WhatWasOvertakenIsNotMadeAgain(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Subject: "a"}, drover.Notify{Function: "f", MaxAge: drover.Duration(time.Minute)})
	owed := []Owed{
		{Kind: EffectDeliver, Attempt: 1},
		{Kind: EffectDeliver, Attempt: 2},
		{Kind: EffectDeliver, Index: 7, Attempt: 1},
		{Kind: EffectDeliver, Index: -1, Attempt: 1},
		{Kind: EffectList},
		{Kind: EffectUnlist},
		{Kind: EffectList, Index: 9},
		{Kind: EffectUnlist, Index: -1},
		{Kind: EffectWithdraw, Index: 1, Attempt: 1},
		{Kind: EffectWithdraw, Index: 9, Attempt: 1},
	}
	want := func(text string) {
		t.Helper()
		effects, err := Effects(w.p, w.decode(w.record), owed, nil)
		if err != nil || showEffects(effects) != text {
			t.Errorf("made again is %s (%v), want %s", showEffects(effects), err, text)
		}
	}
	want("deliver 0@1, unlist 0")
	w.hear(0, 1, "", bad("away"))
	want("deliver 0@2, list 0")
	w.pass(time.Minute).tick()
	want("deliver 0@2, list 0, withdraw f r1/_outcome#1@1")
	w.hear(0, 2, "", nil)
	want("unlist 0, withdraw f r1/_outcome#1@1")
}
