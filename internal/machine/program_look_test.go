package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// nobody says that the latest look found nobody.
func (w *world) nobody() Step { w.t.Helper(); return w.looked(w.s.Program.Looks) }

// looked says so of any look of this drive.
func (w *world) looked(look int) Step {
	w.t.Helper()
	g := w.s.Program
	return w.send(&Command{Verb: drover.VerbLooked, Looked: &drover.LookedMessage{
		Drive: g.Drive, Look: look, Token: Token("s3cret", w.s.lookToken(g.Drive)),
	}})
}

// versioned is a run that waits for a process of version v1.
func versioned(t *testing.T, more string) *world {
	w := newProgram(t, more)
	d := w.driven()
	d.version = "v1"
	d.park(asked("s", `{"sleep":"1h"}`, ""), asked("t", `{"sleep":"9h"}`, ""))
	w.wake()
	w.wantEffects("drive 2 by program.order.v1")
	return w
}

// A run keeps its version as long as somebody serves it, however busy he is.
func TestPrograms12ARunStaysOnAVersionThatIsServed(t *testing.T) {
	w := versioned(t, "")
	if why := Why(w.p, w.s); !strings.Contains(why[0].Text, "in version v1, or in any once nobody has served that for 1m0s") {
		t.Fatalf("%+v", why)
	}
	for range 30 { // with a release in between, and looks whose answers are lost
		w.wake()
		w.wantEffects("look for program.order.v1")
		w.wake()
		w.nobody()
		w.nobody() // twice is once
		w.wake()
		w.nobody()
		w.wake()
	}
	w.wantDrive(DriveQueued)
	if g := w.s.Program; g.Drive != 2 || g.Version != "v1" {
		t.Fatalf("%s", w.record)
	}
	d := w.driven()
	d.version = "v1"
	d.park()
}

func TestPrograms12ARunLeavesAVersionThatNobodyServes(t *testing.T) {
	for more, wait := range map[string]time.Duration{"": time.Minute, `,"version_wait":"90m"`: 90 * time.Minute} {
		w := versioned(t, more)
		w.wake()
		w.nobody()
		w.wake() // the server does not say
		from := w.now
		for range versionLooks - 1 {
			w.wake()
			w.nobody()
			w.wantEffects()
		}
		if why := Why(w.p, w.s); !strings.Contains(why[0].Text, "nobody serves it now") {
			t.Fatalf("%+v", why)
		}
		w.wake()
		w.nobody()
		w.wantEffects("withdraw [program.order.v1]", "drive 3 by program.order")
		if got := w.now.Sub(from).Truncate(time.Second); got < wait || got > wait+wait/versionLooks {
			t.Fatalf("after %s, want %s", got, wait)
		}
		if notes := w.view().Notes; len(notes) != 1 || !strings.Contains(notes[0].Text, "nobody has served version v1 of program order for") {
			t.Fatalf("%+v", notes)
		}
		d := w.driven()
		d.version = "v2"
		d.park()
		w.wake()
		w.wantEffects("drive 4 by program.order.v2")
	}
}

// A version has a run once it has shown that it fits: one that does not, or panics,
// leaves the run as it was, for whoever comes next.
func TestPrograms12AVersionThatDoesNotFitDoesNotHaveTheRun(t *testing.T) {
	w := versioned(t, "")
	for range versionLooks {
		w.wake()
		w.nobody()
	}
	by := func(version string) *driver {
		d := w.driven()
		d.version = version
		return d
	}
	by("v2").say().say().end(drover.DriveBlocked)
	w.tick()
	w.wantEffects("drive 4 by program.order")
	by("v2").end(drover.DrivePanicked)
	w.wake()
	w.wantEffects("drive 5 by program.order")
	by("v1").park()
	w.wake()
	w.wantEffects("drive 6 by program.order.v1")
	by("v2").say().end(drover.DriveBlocked) // it had it of the queue for any
	w.tick()
	w.wantEffects("drive 7 by program.order.v1")
	by("v3").say(stepped("a", `1`)).end(drover.DriveBlocked)
	w.tick()
	w.wantEffects("drive 8 by program.order.v3")
}

// As long as somebody serves the version it is looked at more and more rarely; once
// nobody is found, as often as at first, and each look counts for itself, however
// late it comes.
func TestPrograms12LooksBecomeRare(t *testing.T) {
	for more, want := range map[string]string{
		"":                      "20s 40s 1m20s 2m0s 2m0s",
		`,"version_wait":"6s"`:  "2s 4s 8s 16s 32s",
		`,"version_wait":"90m"`: "30m0s 30m0s 30m0s 30m0s 30m0s",
	} {
		w := versioned(t, more)
		pause := func() time.Duration { return w.s.Program.Due.Time().Sub(w.now) }
		w.wake()
		least := pause()
		var got []string
		for range 5 {
			got = append(got, pause().String())
			w.wake()
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: the pauses are %s, want %s", more, got, want)
		}
		w.nobody()
		if pause() > least {
			t.Errorf("%s: the next look is in %s, and nobody is there", more, pause())
		}
		look := w.s.Program.Looks
		w.wake()
		w.wake()
		w.looked(look + 1) // what the server said of two looks comes at once
		w.wantEffects()
		w.looked(look + 2)
		w.wantEffects("withdraw [program.order.v1]", "drive 3 by program.order")
	}
}

// Who was asked directly, and dies, is missed after some seconds; not if he was not
// found just once. Who is there, or does not answer, has the time that every process
// has.
func TestPrograms03AProcessThatWasAskedDirectlyIsLookedFor(t *testing.T) {
	kept := func() *world {
		w := newProgram(t, "")
		d := w.driven()
		d.keep = "_INBOX.kept"
		d.park(asked("s", `{"sleep":"1h"}`, ""))
		return w.wake()
	}
	look := func(w *world) {
		t.Helper()
		w.wake()
		w.wantEffects("look for drive 2 at _INBOX.kept")
	}
	t.Run("it is gone before it says anything", func(t *testing.T) {
		w := kept()
		idle := w.s.Program.Idle
		look(w)
		if e := w.effect(EffectLook); !e.Drive.Look || e.Drive.Drive != 2 || e.Drive.Token != "" || e.Drive.Journal != nil || !e.Value.zero() {
			t.Fatalf("%s", show(e))
		}
		w.nobody()
		w.wantEffects()
		look(w)
		w.nobody() // it may never have had the drive: then that is in the queue, and is not to be there twice
		w.wantEffects("drive 2 by program.order")
		// He may have it nevertheless, and record until another one has taken it: so that
		// one is not to begin with what the journal was.
		if e := w.effect(EffectDrive); e.Inbox != "" || e.Drive.Journal != nil || !e.Drive.Partial || e.Drive.Look {
			t.Fatalf("%s", show(e))
		}
		if got := w.now.Sub(epoch); got != time.Hour+driveLook+lookAgain || w.s.Program.Idle != idle {
			t.Fatalf("after %s, %d drives without progress", got, w.s.Program.Idle)
		}
		w.driven().park(asked("t", `{"sleep":"1h"}`, ""))
	})
	t.Run("it is gone after that", func(t *testing.T) {
		w := kept()
		d := w.driven()
		d.keep = "_INBOX.kept"
		for range 5 { // it says something in time
			d.say()
			w.pass(10 * time.Second).tick()
			w.wantEffects()
		}
		look(w)
		w.nobody()
		w.wantEffects()
		look(w)
		w.nobody()
		w.wantEffects("drive 3 by program.order")
		if notes := w.view().Notes; len(notes) != 1 || notes[0].Text != "the process that drove the program is gone: proc-1" {
			t.Fatalf("%+v", notes)
		}
		d.refused(drover.CodeFenced, stepped("a", `1`))
	})
	t.Run("it connects anew", func(t *testing.T) {
		w := kept()
		d := w.driven()
		d.keep = "_INBOX.kept"
		d.say()
		for range 4 {
			look(w)
			first := w.s.Program.Looks
			w.nobody()
			w.nobody() // the same look
			look(w)    // it is there
			d.say()
			w.looked(first)
			w.looked(first + 1) // late: it has spoken since
			w.wantEffects()
			w.wantDrive(DriveRunning)
		}
	})
	t.Run("it is there, and hangs", func(t *testing.T) {
		for _, spoke := range []bool{false, true} {
			w := kept()
			from := w.now
			if d := w.driven(); spoke {
				d.keep = "_INBOX.kept"
				d.say()
			}
			look(w)
			w.nobody()
			look(w)
			look(w)
			w.nobody() // in a row is what counts
			w.wantEffects()
			w.wake()
			w.wantEffects(map[bool]string{false: "drive 2 by program.order", true: "drive 3 by program.order"}[spoke])
			if got := w.now.Sub(from); got != driveLease {
				t.Fatal(got)
			}
		}
	})
}

// A run that left its version, and was taken up by it again, has its drive back
// after a crash, and not purged with what was taken back.
func TestPrograms12WhatWasTakenBackTakesNoNewDriveWithIt(t *testing.T) {
	w := versioned(t, "")
	for range versionLooks {
		w.wake()
		w.nobody()
	}
	w.wantEffects("withdraw [program.order.v1]", "drive 3 by program.order")
	owed := w.s.Owed
	again := func() string {
		t.Helper()
		effects, err := Effects(w.p, w.decode(w.record), append(owed, w.s.Owed...), nil)
		if err != nil {
			t.Fatal(err)
		}
		return showEffects(effects)
	}
	d := w.driven()
	d.version = "v1"
	d.say()
	if got := again(); got != "withdraw [program.order.v1]" {
		t.Fatalf("made again: %s", got)
	}
	d.park()
	w.wake()
	w.wantEffects("drive 4 by program.order.v1")
	if got := again(); got != "drive 4 by program.order.v1" {
		t.Fatalf("made again: %s", got)
	}
}

// Nobody but who was asked to look may say what he found.
func TestPrograms12LooksHaveATokenOfTheirOwn(t *testing.T) {
	w := versioned(t, "")
	w.wake()
	m := *w.effect(EffectLook).Look
	for _, token := range []string{"", Token("s3cret", w.s.driveID(2).String())} {
		forged := m
		forged.Token = token
		w.send(&Command{Verb: drover.VerbLooked, Looked: &forged})
		w.wantRefused(drover.CodeForbidden, "does not have the token of the look")
	}
	old := m
	old.Look = 0
	w.send(&Command{Verb: drover.VerbLooked, Looked: &old})
	w.wantEffects()
	if w.s.Program.Missed != 0 {
		t.Fatal("an older look counts")
	}
	other := newWorld(t, oneCall)
	other.start(`1`)
	other.send(&Command{Verb: drover.VerbLooked, Looked: &m})
	other.wantRefused(drover.CodeInvalidRequest, "no program")
}

// A process that dies in each drive is handed the same drive again and again, by
// the queue. Each time counts.
func TestPrograms11DeathsAreCounted(t *testing.T) {
	w := newProgram(t, `,"max_drives":3`)
	d := w.driven()
	d.fence = 2
	for range 5 { // what comes of it begins the count anew
		d.say(stepped(fmt.Sprint("a", d.fence), `1`))
		d.fence++
		d.say()
		d.fence++
		d.say()
	}
	d.fence++
	d.instance = "proc-9"
	d.say()
	if why := Why(w.p, w.s); !strings.Contains(why[0].Text, "; 3 drives of at most 3 without progress") {
		t.Fatalf("%+v", why)
	}
	const note = "drive 1 was taken over by proc-9, as proc-1 was gone or silent; 3 drives of at most 3 without progress"
	if notes := w.view().Notes; len(notes) != 1 || notes[0].Text != note {
		t.Fatalf("%+v", notes)
	}
	d.fence++
	if d.say(); d.reply.Driving || d.reply.Status != drover.StatusFailed {
		t.Fatalf("%+v", d.reply)
	}
	w.wantStatus(drover.StatusFailed)
	wantWords(t, w.s.Error.Message, "program order was driven 3 times without progress", "its process dies or hangs each time", "the last one was proc-9")
	w.wantEffects("done", "letter")
}

// What ends a run as its body breaks each time is kept as a dead letter, once.
func TestPrograms15WhatBreaksForEverIsADeadLetter(t *testing.T) {
	w := newProgram(t, `,"retry":{"max_attempts":2,"initial":"10s"}`)
	w.driven().end(drover.DrivePanicked)
	w.wantEffects()
	w.wake()
	w.driven().say(stepped("a", `1`)).end(drover.DrivePanicked) // it came further
	w.wake()
	w.driven().end(drover.DrivePanicked)
	w.wantStatus(drover.StatusFailed)
	w.wantEffects("done", "letter")
	e := w.effect(EffectLetter)
	want := `{"program":"order","drive":3,"instance":"proc-1","records":1,"entries":1}`
	if l := e.Letter; l.Sequence != w.s.Applied || l.RunID != "r1" || l.Verb != drover.LetterDrive || !strings.HasPrefix(l.Error.Message, "why it ended panicked; what its body did, ") || string(l.Payload) != want {
		t.Fatalf("%+v %s", l, l.Payload)
	}
	w = newProgram(t, "")
	w.driven().end(drover.DriveFailed) // an error of the body is none
	w.wantEffects("done")
}
