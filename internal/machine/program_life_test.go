package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestPrograms07Stop(t *testing.T) {
	open := []drover.Entry{asked("c", `{"run":{"workflow":"sub"}}`, ""), asked("f", `{"call":"f"}`, ""), asked("h", `{"wait":{"hook":"t","hold":true}}`, "")}
	ended := []string{"stop enough", "ended c !stopped", "ended f !stopped", "ended h !stopped"}
	t.Run("of one that is parked", func(t *testing.T) {
		w := newProgram(t, "")
		w.driven().park(open...)
		w.stop("enough")
		w.wantJournal(ended...)
		w.wantEffects("stop c@1", "cancel f@1", "release t of r1/h", "drive 2 by program.order")
		e := w.effect(EffectDrive)
		if *e.Drive.Stop != "enough" || len(e.Drive.Journal) != 7 {
			t.Fatalf("%s", show(e))
		}
		w.stop("twice")
		w.wantEffects()
		d := w.driven().say(drover.Entry{Kind: drover.EntryUndo, ID: "a"}, asked("u", `{"call":"undo"}`, ""))
		w.ok("u@1", `1`)
		d.say().end(drover.DriveCompensated)
		w.wantStatus(drover.StatusCompensated)
	})
	t.Run("of one that is driven", func(t *testing.T) {
		w := newProgram(t, "")
		d := w.driven().say(open...)
		w.stop("enough")
		w.wantEffects("stop c@1", "cancel f@1", "release t of r1/h", "nudge proc-1")
		if d.say(); d.reply.Stop == nil || *d.reply.Stop != "enough" || len(d.reply.New) != 4 {
			t.Fatalf("%+v", d.reply)
		}
		d.end(drover.DriveCancelled)
		w.wantStatus(drover.StatusCancelled)
		w.wantEffects("done")
	})
	t.Run("of one that is queued", func(t *testing.T) {
		w := newProgram(t, "")
		w.stop("enough")
		w.wantEffects()
		d := w.driven()
		d.have = 0
		if d.say(); len(d.reply.New) != 1 || d.reply.Stop == nil {
			t.Fatalf("%+v", d.reply)
		}
		d.end(drover.DriveCompensationFailed)
		w.wantStatus(drover.StatusCompensationFailed)
	})
	t.Run("of one that is blocked, or pauses", func(t *testing.T) {
		for _, end := range []drover.DriveStatus{drover.DriveBlocked, drover.DrivePanicked} {
			w := newProgram(t, "")
			w.driven().end(end)
			w.stop("enough")
			w.wantEffects("drive 2 by program.order")
			w.driven().end(drover.DriveCancelled)
			w.wantStatus(drover.StatusCancelled)
		}
	})
}

func TestProgramsThatAreStoppedAtOnce(t *testing.T) {
	force := func(w *world) {
		w.send(&Command{Verb: drover.VerbStop, Stop: &drover.StopRequest{Reason: "now", Force: true}})
		w.wantStatus(drover.StatusCancelled)
		w.wantDrive(DriveOver)
	}
	w := newProgram(t, "")
	force(w)
	w.wantEffects("withdraw [program.order]", "done")
	w = newProgram(t, "")
	d := w.driven().say(asked("c", `{"run":{"workflow":"sub"}}`, ""), asked("f", `{"call":"f"}`, ""))
	w.stop("softly")
	force(w)
	w.wantEffects("done", "nudge proc-1")
	if d.say(); d.reply.Status != drover.StatusCancelled || d.reply.Driving {
		t.Fatalf("%+v", d.reply)
	}
	d.refused(drover.CodeFenced, stepped("a", `1`))
	w = newProgram(t, "")
	w.driven().park(asked("c", `{"run":{"workflow":"sub"}}`, ""), asked("f", `{"call":"f"}`, ""))
	force(w)
	w.wantEffects("withdraw [f]", "stop c@1", "done")
}

func TestPrograms10TimeoutsOfBothKinds(t *testing.T) {
	t.Run("of the wall clock, for a parked body", func(t *testing.T) {
		w := newProgram(t, `,"timeout":"1h"`)
		w.driven().park(asked("s", `{"sleep":"5h"}`, ""))
		w.wake()
		w.wantJournal("stop the run took longer than its timeout of 1h0m0s", "ended s !stopped")
		w.driven().end(drover.DriveCancelled)
		w.wantStatus(drover.StatusFailed)
		if w.s.Error.Code != drover.CodeTimeout {
			t.Fatal(w.s.Error)
		}
	})
	t.Run("and the body does not end", func(t *testing.T) {
		w := newProgram(t, `,"timeout":"1h"`)
		w.driven().park(asked("s", `{"sleep":"5h"}`, ""))
		w.pass(30 * time.Minute).stop("enough")
		d := w.driven().say()
		for w.pass(20 * time.Second); w.now.Sub(epoch) < time.Hour; w.pass(20 * time.Second) {
			d.say()
		}
		d.say()
		if !w.s.Program.Late || w.s.Due != Millis(w.now.UnixMilli())+60_000 {
			t.Fatalf("%s", w.record)
		}
		w.pass(20 * time.Second)
		d.say()
		w.pass(40 * time.Second)
		d.say()
		w.wantStatus(drover.StatusFailed)
		wantWords(t, w.s.Error.Message, "did not end in 1m0s after it was asked to stop: enough")
	})
	t.Run("of computing, where waiting is free", func(t *testing.T) {
		w := newProgram(t, `,"compute_timeout":"1m"`)
		d := w.driven().say()
		w.pass(25 * time.Second)
		d.park(asked("s", `{"sleep":"5h"}`, ""))
		w.wake()
		d = w.driven().say()
		w.pass(25 * time.Second)
		d.say()
		w.wake()
		if got := w.now.Sub(epoch); got != 5*time.Hour+time.Minute {
			t.Fatal(got)
		}
		w.wantEffects("nudge proc-1")
		w.wantJournal("stop its body took longer than its compute_timeout of 1m0s")
		d.say()
		if *d.reply.Stop == "" {
			t.Fatal(d.reply)
		}
		d.end(drover.DriveCompensated)
		w.wantStatus(drover.StatusCompensated)
	})
}

// Drives are counted as long as nothing comes of them.
func TestPrograms11ACapOnDrives(t *testing.T) {
	w := newProgram(t, `,"max_drives":3`)
	d := w.driven()
	for i := range 10 { // a long life
		d = w.driven().park(asked(fmt.Sprintf("s%d", i), `{"sleep":"1s"}`, ""))
		w.wake()
	}
	for range 2 { // a loop
		w.driven().say()
		w.wake()
	}
	w.wantDrive(DriveQueued)
	w.driven().say()
	w.wake()
	w.wantStatus(drover.StatusFailed)
	wantWords(t, w.s.Error.Message, "program order was driven 3 times without progress")
	_ = d
}

func TestPrograms12ABodyThatDoesNotFit(t *testing.T) {
	w := newProgram(t, "")
	w.driven().say(stepped("a", `1`), asked("s", `{"sleep":"1h"}`, "")).end(drover.DriveBlocked)
	w.wantStatus(drover.StatusBlocked)
	if why := Why(w.p, w.s); why[0].Waiting != "drive" || !strings.Contains(why[0].Text, "mend it, then send a tick; why it ended blocked") {
		t.Fatalf("%+v", why)
	}
	w.deliver("x", `1`, "")
	w.wake() // its own
	w.wantStatus(drover.StatusBlocked)
	w.wantJournal("ended s")
	for range 200 {
		w.tick()
		w.wantEffects(fmt.Sprintf("drive %d by program.order", w.s.Program.Drive))
		w.driven().end(drover.DriveBlocked)
	}
	w.tick()
	w.driven().complete(`1`)
}

func TestPrograms15PanicsAreTriedAgain(t *testing.T) {
	w := newProgram(t, `,"retry":{"max_attempts":2,"initial":"10s"}`)
	w.driven().end(drover.DrivePanicked)
	w.wantDrive(DrivePausing)
	w.wantStatus(drover.StatusWaiting)
	if why := Why(w.p, w.s); !strings.Contains(why[0].Text, "drive 1 failed: why it ended panicked; the next one comes at") {
		t.Fatalf("%+v", why)
	}
	w.wake()
	w.driven().say(stepped("a", `1`)).end(drover.DrivePanicked) // it came further
	w.wake()
	w.wantEffects("drive 3 by program.order")
	w.driven().end(drover.DrivePanicked)
	w.wantStatus(drover.StatusFailed)
	w = newProgram(t, "")
	for range 2 {
		w.driven().end(drover.DrivePanicked)
		w.wake()
	}
	w.driven().end(drover.DrivePanicked)
	w.wantStatus(drover.StatusFailed)
}

// A body that begins anew has a journal of its own, and no id of the one before.
func TestProgramsBeginAnew(t *testing.T) {
	w := newProgram(t, `,"input_schema":{"type":"object"}`)
	ids := map[string]bool{}
	seeds := map[string]bool{}
	for generation := range 3 {
		for _, e := range w.last.Effects {
			if e.Kind == EffectDrive {
				seeds[e.Drive.Seed] = true
				if got := string(w.value(e.Value)); generation > 0 && got != fmt.Sprintf(`{"n":%d}`, generation-1) {
					t.Fatal(got)
				}
			}
		}
		d := w.driven().say(stepped("big", string(quoted(3000+generation))), asked("c", `{"run":{"workflow":"sub"}}`, ""), asked("f", `{"call":"f"}`, string(quoted(4000+generation))))
		for _, e := range w.last.Effects {
			id := string(e.To)
			if e.Call != nil {
				id = e.Call.ID.String()
			}
			if ids[id] {
				t.Fatalf("%s is there twice", id)
			}
			ids[id] = true
		}
		w.ok(fmt.Sprintf("%s@1", w.s.nodeID("f")), string(quoted(5000+generation)))
		d.say(asked("h", `{"wait":{"hook":"t","hold":true}}`, ""))
		if step := d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: raw(fmt.Sprintf(`{"n":%d}`, generation))})); step.Refused != nil {
			t.Fatal(step.Refused)
		}
		w.wantEffects("stop "+string(drover.NodeID([]string{"c", "c~2", "c~3"}[generation]))+"@1", "release t of r1/"+[]string{"h", "h~2", "h~3"}[generation], fmt.Sprintf("forget before %d", generation+1), fmt.Sprintf("drive %d by program.order", generation+2))
		if g := w.s.Program; g.Entries != 0 || len(g.Slots) != 0 || g.Generation != generation+1 || len(w.s.Hooks) != 0 {
			t.Fatalf("%s", w.record)
		}
	}
	if len(seeds) != 3 {
		t.Fatal("what is random must not come again")
	}
	d := w.driven()
	d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: raw(`5`)}))
	w.wantStatus(drover.StatusFailed)
}

// The process is told when it has the last drive, and what it says then is undone by
// the body, as any failure.
func TestPrograms15TheLastDriveSaysSo(t *testing.T) {
	broke := drover.Entry{Kind: drover.EntryPanic, Error: &drover.Error{Code: drover.CodePanic, Message: "oh no", Stack: "main.go:7"}}
	w := newProgram(t, `,"retry":{"max_attempts":2,"initial":"10s"}`)
	last := func(want bool) {
		t.Helper()
		if e := w.effect(EffectDrive); e.Drive.Last != want {
			t.Fatalf("%s", show(e))
		}
	}
	last(false)
	w.driven().say(stepped("a", `1`)).end(drover.DrivePanicked)
	w.wake()
	last(true)
	d := w.driven().say()
	if !d.reply.Last {
		t.Fatalf("%+v", d.reply)
	}
	if d.say(stepped("b", `2`)); d.reply.Last { // it came further, and may break once more
		t.Fatalf("%+v", d.reply)
	}
	d.end(drover.DrivePanicked)
	w.wake()
	last(true)
	d = w.driven()
	d.refused(drover.CodeInvalidRequest, drover.Entry{Kind: drover.EntryPanic})
	d.refused(drover.CodeInvalidRequest, drover.Entry{Kind: drover.EntryPanic, ID: "a", Error: broke.Error})
	d.say(broke)
	w.wantJournal("step a 1", "step b 2", "panic  !panic")
	w.wake() // its process dies
	w.driven().say(drover.Entry{Kind: drover.EntryUndo, ID: "b"}, drover.Entry{Kind: drover.EntryUndo, ID: "a"}).end(drover.DriveCompensated)
	w.wantStatus(drover.StatusCompensated)
	if w.s.Program.Letter != 0 || strings.Contains(w.s.Error.Message, "stays done") {
		t.Fatalf("%s", w.record)
	}
	wantWords(t, w.s.Notes[2].Text, "drive 3 failed, the last one that it may: oh no; it undoes what it did")

	w = newProgram(t, `,"retry":{"max_attempts":1}`)
	last(true)
	w.driven().end(drover.DrivePanicked) // one that does not know of it
	w.wantStatus(drover.StatusFailed)
	if w.s.Program.Letter == 0 {
		t.Fatalf("%s", w.record)
	}

	w = newProgram(t, `,"max_drives":2,"retry":{"max_attempts":50}`)
	last(false)
	d = w.driven().say()
	d.fence = 3 // its process died
	if d.say(); !d.reply.Last {
		t.Fatalf("%+v", d.reply)
	}
}
