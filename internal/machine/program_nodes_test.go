package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestPrograms04WaitsOfTheirOwn(t *testing.T) {
	t.Run("a deadline does not move on later drives", func(t *testing.T) {
		w := newProgram(t, "")
		w.driven().park(asked("a", `{"wait":{"name":"a","timeout":"1h"}}`, ""), asked("b", `{"wait":{"name":"b"}}`, ""))
		w.pass(50*time.Minute).deliver("b", `1`, "")
		w.driven().park()
		w.wake()
		if got := w.now.Sub(epoch); got != time.Hour {
			t.Fatal(got)
		}
		w.wantJournal("node a", "node b", "ended b 1", "ended a !timeout")
	})
	t.Run("nothing and an empty payload differ", func(t *testing.T) {
		w := newProgram(t, "")
		w.driven().park(asked("a", `{"wait":{"name":"a","timeout":"1h"}}`, ""))
		w.deliver("a", `null`, "")
		w.wantJournal("ended a")
	})
	t.Run("sleep", func(t *testing.T) {
		w := newProgram(t, "")
		w.driven().park(asked("a", `{"sleep":"10s"}`, ""), asked("b", `{"sleep":{"until":"'2030-01-01T00:01:00Z'"}}`, ""))
		w.wake()
		w.wantJournal("ended a")
		w.driven().park()
		w.wake()
		if got := w.now.Sub(epoch); got != time.Minute {
			t.Fatal(got)
		}
	})
}

func TestPrograms05DeliveriesBeforeTheirWait(t *testing.T) {
	w := newProgram(t, "")
	w.deliver("x", `1`, "one")
	w.deliver("x", `2`, "two")
	w.deliver("x", `2`, "two")
	if !w.last.Answer.(drover.DeliverReply).Repeat {
		t.Fatal("an id makes a repeat harmless")
	}
	d := w.driven().say(asked("a", `{"wait":{"name":"x"}}`, ""))
	w.wantJournal("node a", "ended a 1")
	if len(d.reply.New) != 2 {
		t.Fatalf("%+v", d.reply)
	}
	// One that is given up has read nothing, or what it read stays in the journal.
	d.say(asked("n", `{"wait":{"name":"y"}}`, ""), dropped("n"), dropped("a"))
	w.deliver("y", `3`, "")
	d.say(asked("b", `{"wait":{"name":"x"}}`, ""), asked("c", `{"wait":{"name":"y"}}`, ""))
	w.wantJournal("node n", "cancel n", "cancel a", "node b", "node c", "ended b 2", "ended c 3")
	// What was there is held to the schema that comes with the wait.
	w.deliver("z", `"no"`, "")
	d.say(asked("z", `{"wait":{"name":"z","schema":{"type":"number"}}}`, ""))
	w.wantJournal("node z", "ended z !invalid_input")
	d.complete(`1`)
}

// A wait that collects gives back what it has read, when it is given up.
func TestProgramsGiveBackWhatAWaitCollected(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven().say(asked("a", `{"wait":{"name":"x","count":3}}`, ""))
	w.deliver("x", `1`, "")
	w.deliver("x", `2`, "")
	d.say(dropped("a"))
	if len(w.s.Unread) != 2 || w.s.Inline != len(`{"order":7}12`) {
		t.Fatalf("%+v, %d bytes", w.s.Unread, w.s.Inline)
	}
	d.say(asked("b", `{"wait":{"name":"x"}}`, ""))
	w.wantJournal("node b", "ended b 1")
}

func TestProgramsHoldHooks(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven().say(asked("h", `{"wait":{"hook":"order-7","hold":true}}`, ""))
	w.wantEffects("claim order-7 for r1/h")
	w.owned("h", "order-7")
	d.park(asked("p", `{"wait":{"from":"h"}}`, ""), asked("q", `{"wait":{"from":"h"}}`, ""))
	for _, payload := range []string{`1`, `2`, `3`, `4`} {
		w.deliverHook("order-7", payload, "")
	}
	w.wantJournal("ended h 1", "ended p 2", "ended q 3")
	if ids := w.s.Program.OpenNodes(); len(ids) != 1 || ids[0] != "h" || len(w.s.Unread) != 1 {
		t.Fatalf("%v %+v", ids, w.s.Unread)
	}
	d = w.driven().say(asked("r", `{"wait":{"from":"h"}}`, ""), asked("s", `{"wait":{"from":"h"}}`, ""))
	w.wantJournal("node s", "ended r 4")
	d.say(dropped("s"))
	w.deliverHook("order-7", `5`, "")
	d.say(asked("u", `{"wait":{"from":"h"}}`, ""))
	w.wantJournal("ended u 5")
	d.say(asked("v", `{"wait":{"from":"h"}}`, ""), asked("end", `{"release":{"hook":"h","unread":"take"}}`, ""))
	w.wantJournal("node v", "node end", "ended v !released", "ended end []")
	w.wantEffects("release order-7 of r1/h")
	if len(w.s.Hooks) != 0 || len(w.s.Program.OpenNodes()) != 0 {
		t.Fatalf("%s", w.record)
	}
	d.refused(drover.CodeNotFound, asked("x", `{"wait":{"from":"h"}}`, ""))
	// The id of a hook that is over is no other's, and one that is given up is free.
	d.say(asked("g", `{"wait":{"hook":true,"hold":true}}`, ""), asked("gg", `{"wait":{"from":"g"}}`, ""))
	d.say(dropped("g"))
	w.wantJournal("cancel g", "ended gg !released")
	d.say(asked("t", `{"wait":{"hook":"taken"}}`, ""))
	w.taken("t", "taken", false)
	w.wantJournal("node t", "ended t !conflict")
	d.complete(`1`)
}

func TestProgramsAskPeople(t *testing.T) {
	w := newProgram(t, "")
	w.driven().park(asked("ok", `{"wait":{"approve":"Ship it?","timeout":"1h"}}`, ""))
	token := w.node("ok").Hook
	w.owned("ok", token)
	w.deliverHook(token, `"maybe"`, "")
	w.wantRefused(drover.CodeInvalidInput)
	w.deliverHook(token, `true`, "")
	w.wantJournal(`node ok "`+token+`"`, `ended ok {"approved":true}`)
	w.wantEffects("release "+token+" of r1/ok", "drive 2 by program.order")
}

// A child is started once, whatever crashes, and its end comes by the log.
func TestPrograms06Children(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven()
	first := d.request(nil, asked("c", `{"run":{"definition":{"program":"sub"}}}`, `{"a":1}`), asked("d", `{"run":{"workflow":"sub","detach":true}}`, `2`))
	d.send(first)
	w.wantEffects("start c@1", "start d@1")
	if e := w.effect(EffectStart); string(e.Start.Definition) != `{"program":"sub"}` || string(e.Value.JSON) != `{"a":1}` || e.Start.Parent.Depth != 1 {
		t.Fatalf("%s", show(e))
	}
	detached := drover.ChildRunID(w.call("d@1"))
	w.wantJournal("node c", "node d", `ended d {"run_id":"`+string(detached)+`"}`)
	w.record1(first)
	w.wantEffects()
	for _, d := range []*driver{w.driven(), w.driven()} { // crashes
		d.say(stepped("a", `1`))
		for _, e := range w.last.Effects {
			if e.Kind == EffectStart {
				t.Fatal("a second child")
			}
		}
	}
	w.s.Owed = nil // they happened
	w.driven().park()
	w.child("c@1", drover.StatusCompleted, `"done"`, nil)
	w.wantJournal(`ended c "done"`)
	w.wantEffects("drive 2 by program.order")
	w.child("c@1", drover.StatusCompleted, `"done"`, nil)
	w.wantJournal(`ended c "done"`)
	w.driven().park(asked("e", `{"run":{"workflow":"sub"},"timeout":"1h"}`, ""))
	w.child("e@1", drover.StatusFailed, "", bad("no"))
	w.wantJournal("node e", "ended e !child")
}

func TestPrograms09CallsAreTriedAgain(t *testing.T) {
	w := newProgram(t, "")
	w.driven().park(asked("f", `{"call":"f","timeout":"10s","retry":{"max_attempts":3,"initial":"5s"},"output":{"type":"text"}}`, `{"in":1}`))
	w.fail("f@1", *bad("no"))
	w.wantDrive(DriveParked)
	w.wake()
	if e := w.effect(EffectCall); string(e.Value.JSON) != `{"in":1}` || e.Attempt != 2 {
		t.Fatalf("%s", show(e))
	}
	w.wake()
	w.wantEffects("cancel f@2")
	w.wake()
	w.ok("f@3", `"fine"`)
	w.wantJournal("node f", `ended f "fine"`)
	d := w.driven().say(asked("g", `{"call":"g","timeout":"10s"}`, ""), dropped("g"), asked("h", `{"call":"h"}`, ""))
	w.wantEffects("call h@1")
	d.say(dropped("h"))
	w.wantEffects("cancel h@1")
	w.ok("h@1", `1`)
	w.wantJournal("cancel h")
}

func TestProgramsMakeRequests(t *testing.T) {
	w := newProgram(t, "")
	w.driven().park(
		asked("r", `{"request":"billing.charge","timeout":"5s"}`, `{"sum":3}`), asked("h", `{"http":{"url":"https://x.test/a"}}`, `{"b":"${{ 1 }}"}`),
		asked("i", `{"http":{"url":"https://x.test/a"}}`, ""), asked("a", `{"agent":{"model":"m"}}`, `"hello"`))
	want := map[drover.NodeID]string{
		"r": `{"subject":"billing.charge","payload":{"sum":3},"timeout":"5s"}`,
		"h": `{"method":"POST","url":"https://x.test/a","body":{"b":"${{ 1 }}"}}`,
		"i": `{"method":"GET","url":"https://x.test/a"}`,
	}
	for _, e := range w.last.Effects {
		if got := string(e.Value.JSON); e.Node == "a" && !strings.Contains(got, `\"hello\"`) || e.Node != "a" && got != want[e.Node] {
			t.Errorf("%s gets %s", e.Node, got)
		}
	}
	w.ok("h@1", `{"status":200}`)
	w.wantJournal(`ended h {"status":200}`)
}

// The pause before the next attempt of a step is the machine's: the process may
// be gone meanwhile.
func TestPrograms09PausesAreDurable(t *testing.T) {
	w := newProgram(t, "")
	failed := func(id string, attempt int, pause time.Duration) drover.Entry {
		started := epoch.Add(-time.Second)
		return drover.Entry{Kind: drover.EntryAttempt, ID: id, Attempt: attempt, Error: bad("no"), Pause: drover.Duration(pause), Started: &started}
	}
	d := w.driven().say(failed("a", 1, time.Minute))
	d.refused(drover.CodeInvalidRequest, failed("a", 2, time.Minute))
	d.park(failed("b", 1, 0))
	if why := showWhy(Why(w.p, w.s)); !strings.Contains(why, "node a@pause2 sleeps until 2030-01-01T00:01:00Z") {
		t.Fatal(why)
	}
	w.wake()
	w.wantJournal("attempt a@1 !x", "attempt b@1 !x", "ended b@2")
	if got := w.now.Sub(epoch); got != time.Millisecond {
		t.Fatal(got)
	}
	w.driven().park()
	w.wake()
	if got := w.now.Sub(epoch); got != time.Minute {
		t.Fatal(got)
	}
	d = w.driven()
	w.wantJournal("ended a@2")
	d.say(failed("a", 2, 1<<62), stepped("b", `1`))
	w.wantJournal("attempt a@2 !x", "step b 1")
}
