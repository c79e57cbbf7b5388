package machine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// Whoever is to approve finds out what, and others that there is nothing to ask.
func TestHooks16WhySaysWhatIsAsked(t *testing.T) {
	w := newWorld(t, `{"nodes":{
		"ok":{"wait":{"approve":{"refund":"${{ input.amount }}"},"timeout":"1h"}},
		"in":{"wait":{"hook":"t","hold":true}},
		"more":{"wait":{"from":"in"}},
		"by":{"wait":{"name":"by"}}},"output":{"from":"node:ok"}}`)
	w.start(`{"amount":12}`)
	w.owned("in", "t")
	w.deliverHook("t", `1`, "")
	asks := func(w *world) map[drover.NodeID]string {
		of := map[drover.NodeID]string{}
		for _, r := range Why(w.p, w.decode(w.record)) {
			of[r.Node] = string(r.Ask)
		}
		return of
	}
	if got := asks(w); len(got) != 3 || got["ok"] != `{"refund":12}` || got["more"]+got["by"] != "" {
		t.Errorf("it asks %v", got)
	}
	// What is not in the record is not read for it.
	w = newWorld(t, `{"nodes":{"ok":{"wait":{"approve":"${{ input.why }}"}}},"output":{"from":"node:ok"}}`)
	w.start(`{"why":"x","more":"` + strings.Repeat("y", 5000) + `"}`)
	if got := asks(w); got["ok"] != `"${{ input.why }}"` {
		t.Errorf("with an input that is elsewhere it asks %v", got)
	}
	w = newProgram(t, "")
	w.driven().park(asked("ok", `{"wait":{"approve":"Ship it?"}}`, ""))
	if got := asks(w); got["ok"] != `"Ship it?"` {
		t.Errorf("a program asks %v", got)
	}
}

// A delivery that no wait reads says so, and is told of until one does.
func TestPrograms05ADeliveryThatNobodyAwaitsIsKept(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven()
	d.park(asked("paid", `{"wait":{"name":"paid"}}`, ""))
	kept := func(name string) bool {
		t.Helper()
		w.deliver(name, `1`, "")
		reply, ok := w.last.Answer.(drover.DeliverReply)
		if !ok {
			t.Fatalf("answer %+v, refused %v", w.last.Answer, w.last.Refused)
		}
		return reply.Kept
	}
	for i, name := range []string{"piad", "piad", "paid", "paid"} {
		if got, want := kept(name), i != 2; got != want { // the wait takes the first of its name
			t.Errorf("delivery %d, %s: kept is %v", i, name, got)
		}
	}
	got, _ := json.Marshal(UnreadOf(w.s, 5))
	if string(got) != `{"paid":1,"piad":2}` {
		t.Errorf("unread are %s", got)
	}
	if got, _ := json.Marshal(UnreadOf(w.s, 1)); string(got) != `{"piad":2}` {
		t.Errorf("of one name unread are %s", got)
	}
}

// That nobody is there does not hide what whoever was there said.
func TestDelivery12AnAbsentSubscriberHidesNoError(t *testing.T) {
	sub := Subscriber{Notify: drover.Notify{Subject: "a.b"}}
	hear := func(kind EventKind, text string) {
		sub.step(Event{Kind: kind, Now: at(1), Ceil: at(1), ID: "r:terminal:0", Attempt: sub.Tried + 1, Error: drover.Errorf(drover.CodeFailed, "%s", text)})
	}
	want := func(last, failed string) {
		t.Helper()
		got := ""
		if sub.Failed != nil {
			got = sub.Failed.Message
		}
		if sub.Error == nil || sub.Error.Message != last || got != failed {
			t.Errorf("the last error is %v, that of the last attempt %q; want %q and %q", sub.Error, got, last, failed)
		}
	}
	sub.step(Event{Kind: EventEnded, Now: at(0)})
	hear(EventUnmade, "nobody 1")
	want("nobody 1", "")
	hear(EventFailed, "no")
	want("no", "")
	hear(EventUnmade, "nobody 2")
	hear(EventUnmade, "nobody 3")
	want("nobody 3", "no")
	sub.step(Event{Kind: EventReplayed, Now: at(90_000)}) // past its age: it begins anew
	hear(EventUnmade, "nobody 4")
	want("nobody 4", "no")
	s := &State{Run: "r", Status: drover.StatusCompleted, Notify: []Subscriber{sub}}
	if r := Why(nil, s); len(r) != 1 || !strings.Contains(r[0].Text, "the last one failed: nobody 4; the last one that found somebody: no") {
		t.Errorf("why says %+v", r)
	}
	if d, _ := s.DeliveryOf(0); d.LastFailure == nil || d.LastFailure.Message != "no" {
		t.Errorf("it shows %+v", d)
	}
	hear(EventFailed, "no again")
	want("no again", "")
	hear(EventReceived, "")
	if sub.Error != nil || sub.Failed != nil || sub.Absent {
		t.Errorf("delivered: %+v", sub)
	}
	// A record of an earlier version does not say who found nobody.
	sub = Subscriber{Notify: drover.Notify{Subject: "a.b"}, Status: drover.DeliveryPending, Missed: true, Error: drover.Errorf(drover.CodeUnavailable, "nobody")}
	hear(EventUnmade, "nobody 5")
	want("nobody 5", "")
}
