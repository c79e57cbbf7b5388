package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// A stop ends a run whose body did not fit its journal before, and does not now:
// nothing can undo what it did.
func TestPrograms07StopOfOneThatIsBlocked(t *testing.T) {
	for _, test := range []struct {
		records []drover.Entry
		want    drover.Status
	}{
		{nil, drover.StatusCancelled},
		{[]drover.Entry{stepped("a", `1`)}, drover.StatusCompensationFailed},
		{[]drover.Entry{asked("c", `{"call":"f"}`, "")}, drover.StatusCompensationFailed},
		{[]drover.Entry{
			asked("s", `{"sleep":"1h"}`, ""), asked("w", `{"wait":{"hook":"t"}}`, ""),
			{Kind: drover.EntryValue, ID: "v", Output: raw(`1`)},
			dropped("s"),
			{Kind: drover.EntryStep, ID: "a", Attempt: 1, Error: bad("no")},
		}, drover.StatusCancelled},
	} {
		w := newProgram(t, "")
		w.driven().say(test.records...).end(drover.DriveBlocked)
		w.wantStatus(drover.StatusBlocked)
		w.stop("enough")
		w.wantDrive(DriveQueued)
		w.driven().end(drover.DriveBlocked)
		w.wantStatus(test.want)
		if test.want == drover.StatusCompensationFailed {
			wantWords(t, w.s.Error.Message, "the run was stopped (enough), and what it did could not be undone", "why it ended blocked")
		}
	}
}

// A stop while a release is deployed that does not fit loses nothing: the one that
// fits can undo. Another stop, or force, ends the run.
func TestPrograms07StopMeetsTheWrongRelease(t *testing.T) {
	stopped := func() *world {
		w := newProgram(t, "")
		w.driven().park(stepped("a", `1`), asked("s", `{"sleep":"9h"}`, ""))
		w.stop("enough")
		w.driven().end(drover.DriveBlocked)
		w.wantStatus(drover.StatusBlocked)
		if why := Why(w.p, w.s); !strings.Contains(why[0].Text, "mend it, then send a tick") || !strings.Contains(why[0].Text, "asked to stop: enough") {
			t.Fatalf("%+v", why)
		}
		return w
	}
	undo := drover.Entry{Kind: drover.EntryUndo, ID: "a"}
	w := stopped()
	for range 3 { // it is still the wrong one
		w.tick()
		w.driven().end(drover.DriveBlocked)
		w.wantStatus(drover.StatusBlocked)
	}
	w.tick()
	w.driven().say(undo).end(drover.DriveCompensated)
	w.wantStatus(drover.StatusCompensated)

	w = stopped()
	w.stop("at last")
	w.wantEffects("drive 3 by program.order")
	w.driven().end(drover.DriveBlocked)
	w.wantStatus(drover.StatusCompensationFailed)
	wantWords(t, w.s.Error.Message, "the run was stopped (enough)")

	w = stopped()
	w.stop("at last")
	w.driven().say(undo).end(drover.DriveBlocked) // it fitted meanwhile
	w.wantStatus(drover.StatusBlocked)
	w.send(&Command{Verb: drover.VerbStop, Stop: &drover.StopRequest{Reason: "now", Force: true}})
	w.wantStatus(drover.StatusCancelled)
}

// A run that ends without its body says that what it did stays done, if it did
// anything.
func TestPrograms15ARunSaysWhatIsNotUndone(t *testing.T) {
	for name, end := range map[string]func(w *world, d *driver){
		"it panics for ever": func(w *world, d *driver) {
			for range driveRetries - 1 {
				d.end(drover.DrivePanicked)
				w.wake()
				d = w.driven()
			}
			d.end(drover.DrivePanicked)
		},
		"it is driven for nothing": func(w *world, _ *driver) {
			for w.wake(); !w.s.Terminal(); w.wake() {
				w.driven().say()
			}
		},
		"it is stopped by force": func(w *world, _ *driver) {
			w.send(&Command{Verb: drover.VerbStop, Stop: &drover.StopRequest{Reason: "now", Force: true}})
		},
		"it does not stop in time": func(w *world, d *driver) {
			w.pass(time.Hour).tick()
			w.driven().say()
			w.pass(stopGrace).tick()
		},
		"it begins anew with what does not fit": func(_ *world, d *driver) {
			d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: raw(`5`)}))
		},
		"it begins anew as it is stopped": func(w *world, d *driver) {
			w.stop("enough")
			d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: raw(`{}`)}))
		},
	} {
		const says = "; what its body did, and had not undone by then, stays done"
		for _, did := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				w := newProgram(t, `,"max_drives":3,"timeout":"1h","input_schema":{"type":"object"}`)
				d := w.driven().say()
				if did {
					d.say(stepped("a", `1`))
				}
				end(w, d)
				if !w.s.Terminal() || strings.Contains(w.s.Error.Message, says) != did {
					t.Errorf("it did something: %v; it is %s: %v", did, w.s.Status, w.s.Error)
				}
			})
		}
	}
}

// A child that is abandoned is not stopped with its parent, nor when that does not
// wait for it any more. All others are.
func TestPrograms07AnAbandonedChildGoesOn(t *testing.T) {
	open := []drover.Entry{
		asked("mine", `{"run":{"workflow":"sub"}}`, ""), asked("other", `{"run":{"workflow":"sub","abandon":true}}`, ""),
		asked("late", `{"run":{"workflow":"sub","abandon":true},"timeout":"1m","retry":{"max_attempts":1}}`, ""), asked("lost", `{"run":{"workflow":"sub","abandon":true}}`, ""),
	}
	w := newProgram(t, "")
	d := w.driven().say(open...).say(dropped("lost"))
	w.wantEffects()
	d.park()
	w.wake()
	w.wantEffects("drive 2 by program.order")
	w.wantJournal("ended late !timeout")
	w.driven().park()
	w.stop("enough")
	w.wantJournal("stop enough", "ended mine !stopped", "ended other !stopped")
	w.wantEffects("stop mine@1", "drive 3 by program.order")
	w.driven().end(drover.DriveCancelled)
	w.wantStatus(drover.StatusCancelled)

	nodes := newWorld(t, `{"nodes":{"mine":{"run":{"workflow":"sub"}},"other":{"run":{"workflow":"sub","abandon":true}}},
		"output":{"with":["${{ nodes.mine.output }}","${{ nodes.other.output }}"]}}`)
	nodes.start(`1`)
	nodes.stop("enough")
	nodes.wantEffects("stop mine@1", "done")
}

// An abandoned child is started, whatever becomes of its parent in the same moment.
func TestPrograms07AnAbandonedChildIsStarted(t *testing.T) {
	other := asked("other", `{"run":{"workflow":"sub","abandon":true}}`, "")
	w := newProgram(t, "")
	w.driven().end(drover.DriveFailed, other)
	w.wantStatus(drover.StatusFailed)
	w.wantEffects("start other@1", "done")

	w = newProgram(t, "")
	d := w.driven().say(other, dropped("other"))
	w.wantEffects("start other@1")
	w.wantJournal("node other", "cancel other")
	w.s.Owed = nil // it happened
	if d.say(stepped("a", `1`)); len(w.s.Program.Slots) != 0 {
		t.Fatalf("%s", w.record)
	}

	w = newProgram(t, "")
	d = w.driven()
	d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: raw(`1`)}, other))
	w.wantEffects("start other@1", "drive 2 by program.order")

	nodes := newWorld(t, `{"nodes":{"other":{"run":{"workflow":"sub","abandon":true}},"zbad":{"call":"f","input":{"with":"${{ input.x.y }}"}}},
		"output":{"with":["${{ nodes.other.output }}","${{ nodes.zbad.output }}"]}}`)
	nodes.start(`{"x":1}`)
	nodes.wantStatus(drover.StatusFailed)
	nodes.wantEffects("start other@1", "done")
}

// So it is where the worker dies between the record of its start and that start,
// and its parent is over, or waits for it no more, by then.
func TestPrograms07AnAbandonedChildIsStartedAfterACrash(t *testing.T) {
	started := func(w *world, owed []Owed) {
		t.Helper()
		effects, err := Effects(w.p, w.decode(w.record), owed, nil)
		if err != nil || !slices.Contains(effectNames(effects), "start other@1") {
			t.Fatalf("made again: %s (%v) of\n%s", showEffects(effects), err, w.record)
		}
	}
	other := asked("other", `{"run":{"workflow":"sub","abandon":true}}`, "")
	for name, next := range map[string]func(*driver){
		"it ends":                  func(d *driver) { d.end(drover.DriveFailed) },
		"it is stopped":            func(d *driver) { d.w.stop("enough") },
		"it is stopped at once":    func(d *driver) { d.w.send(&Command{Verb: drover.VerbStop, Stop: &drover.StopRequest{Force: true}}) },
		"it does not wait for it":  func(d *driver) { d.say(dropped("other")); d.w.wantEffects() },
		"its body began anew":      func(d *driver) { d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: raw(`1`)})) },
		"it waits for longer yet":  func(d *driver) { d.park() },
		"nothing is said for long": func(d *driver) { d.w.pass(time.Hour).tick() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newProgram(t, "")
			d := w.driven().say(other)
			owed := w.s.Owed
			next(d)
			started(w, owed)
		})
	}
	nodes := newWorld(t, `{"nodes":{"other":{"run":{"workflow":"sub","abandon":true}}},"output":{"from":"node:other"}}`)
	nodes.start(`1`)
	owed := nodes.s.Owed
	nodes.stop("enough")
	started(nodes, owed)
}
