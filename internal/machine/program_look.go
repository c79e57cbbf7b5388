package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// direct reports whether a process was asked for the drive directly, and has it,
// or may: no queue knows of that. It may be dead.
func (g *Program) direct() bool {
	return g.Keep != "" && (g.State == DriveQueued || g.State == DriveRunning && g.Fence == 1)
}

// watch begins to wait for a word of a process. What was found before does not
// count any more.
func (f *fold) watch() {
	g := f.s.Program
	g.Quiet, g.Heard, g.Missed, g.Due = 0, g.Looks, 0, 0
	switch {
	case g.direct():
		g.Due = after(f.ceil, driveLook)
	case g.State == DriveRunning:
		g.Due = after(f.ceil, driveLease)
	case g.Version != "":
		g.Due = after(f.ceil, f.p.lookPause(0))
	default:
		g.Due = after(f.ceil, driveAgain)
	}
}

// lostMaybe sees to a drive that the queue has for long: it is queued again where it is
// not there any more. A queue may lose what it has, when its server loses power or
// somebody empties it, and nobody else knows that the run waits for it.
func (f *fold) lostMaybe() {
	const most = 3 // doublings
	g := f.s.Program
	g.Looks++
	f.queued = true
	g.Due = after(f.ceil, driveAgain<<min(g.Looks, most))
}

// look has somebody look for the process that a drive is waiting for, and says
// whether it did: for the one that was asked directly, until its lease is over; or
// for any that serves the version of the run, for as long as it takes.
//
// Only that nobody was found is said, so silence means that somebody is there, or
// that nobody knows. The effect may be lost, and so may what comes of it: the next
// look, or the end of the lease, does without.
func (f *fold) look() bool {
	g := f.s.Program
	switch {
	case g.direct() && g.Quiet < directLooks:
		g.Due = after(f.ceil, lookAgain)
	case g.State == DriveQueued && g.Keep == "" && g.Version != "":
		found := g.Looks - g.Heard
		g.Due = after(f.ceil, f.p.lookPause(found))
		f.queued = found >= queuedLooks
	default:
		return false
	}
	g.Looks++
	g.Quiet++
	f.effect(Effect{
		Owed: Owed{Kind: EffectLook, Attempt: g.Drive}, Inbox: g.Keep,
		Call:  &Call{Function: DriveFunction(f.p.Definition.Program, g.Version)},
		Drive: &drover.DriveRequest{RunID: f.s.Run, Program: f.p.Definition.Program, Drive: g.Drive, Look: true},
		Look:  &drover.LookedMessage{Drive: g.Drive, Look: g.Looks, Token: f.token(f.s.lookToken(g.Drive))},
	})
	return true
}

// lookToken is what the token of a look is made of. A process that drives has the
// token of its drive, and not this one.
func (s *State) lookToken(drive int) string { return "look/" + s.driveID(drive).String() }

// looked takes that a look found nobody.
func (f *fold) looked(m *drover.LookedMessage) {
	g := f.s.Program
	switch {
	case g == nil:
		f.refused = drover.Errorf(drover.CodeInvalidRequest, "run %s is no program: nobody looks for who drives it", f.s.Run)
		return
	case !f.fits(f.s.lookToken(m.Drive), m.Token):
		f.refused = drover.Errorf(drover.CodeForbidden, "what a look for drive %d of run %s found does not have the token of the look", m.Drive, f.s.Run)
		return
	}
	f.due(nil)
	if f.s.Terminal() || len(f.need) > 0 {
		return
	}
	if m.Drive == g.Drive && m.Look > g.Heard && m.Look <= g.Looks && g.driving() {
		f.nobody(m.Look)
	}
	f.advance()
}

// nobody counts a look that found nobody.
func (f *fold) nobody(look int) {
	g := f.s.Program
	if look > g.Heard+1 { // somebody was there in between
		g.Missed = 0
	}
	f.changed = true
	g.Heard = look
	g.Missed++
	switch {
	case g.direct() && g.Missed >= directMisses:
		f.vanished()
	case g.direct():
	case g.Missed >= versionLooks:
		f.unserved()
	default:
		g.Due = min(g.Due, after(f.ceil, f.p.lookPause(0)))
	}
}

// vanished gives a drive to another process: the one that was asked directly is
// not there any more, or silent. If it never said anything it may never have had the
// drive, which is in the queue then. So that gets the same drive, and has it once.
func (f *fold) vanished() {
	g := f.s.Program
	f.changed, g.Keep = true, ""
	if g.State == DriveQueued {
		f.queued = true
		f.watch()
		return
	}
	f.note("the process that drove the program is gone: " + g.Instance)
	f.spent()
	g.State, g.Due = DriveParked, 0
	f.drive()
}

// unserved has a run leave its version, as nobody was found who serves it for as
// long as its definition says.
func (f *fold) unserved() {
	g := f.s.Program
	f.note(fmt.Sprintf("nobody has served version %s of program %s for %s: any version may go on", g.Version, f.p.Definition.Program, f.p.versionWait()))
	f.s.Recall = []drover.FunctionName{DriveFunction(f.p.Definition.Program, g.Version)}
	f.withdraw()
	g.Version, g.State, g.Due = "", DriveParked, 0
	f.drive()
}

// withdrawn reports whether what was taken back may be taken back once more: no drive
// is queued that would go with it.
func (f *fold) withdrawn() bool {
	g := f.s.Program
	return g == nil || g.State != DriveQueued || !slices.Contains(f.s.Recall, DriveFunction(f.p.Definition.Program, g.Version))
}

// versionWait is how long a run waits for a process of its version where none is
// there.
func (p *Plan) versionWait() time.Duration {
	if d := time.Duration(p.Definition.VersionWait); d > 0 {
		return d
	}
	return versionWait
}

// lookPause is the time to the next look for who serves a version: longer each
// time that somebody was there.
func (p *Plan) lookPause(found int) time.Duration {
	const most = 7 // doublings
	least := max(p.versionWait()/versionLooks, oftenestLook)
	return max(least, min(least<<min(found, most), rarestLook))
}

// maxDrives is how often a program may be driven without progress.
func (p *Plan) maxDrives() int {
	if n := p.Definition.MaxDrives; n > 0 {
		return n
	}
	return usualDrives
}

// handedAgain counts a drive that was handed out before, to a process that is gone: it
// is one more without progress. It is false where that was one too many, and the
// run is over.
func (f *fold) handedAgain(m *drover.RecordRequest) bool {
	const first = 2 // by the queue
	g := f.s.Program
	if m.Fence <= max(g.Fence, first) {
		return true
	}
	if most := f.p.maxDrives(); g.Idle >= most {
		f.poisoned(f.noProgress(most))
		return false
	}
	g.Idle++
	f.takenOver(m)
	return true
}

// takenOver notes that a process has the drive that another one had. Of one drive the
// latest note stays, so that a body that kills all of its processes leaves room for
// others.
func (f *fold) takenOver(m *drover.RecordRequest) {
	g := f.s.Program
	about := fmt.Sprintf("drive %d was taken over by ", g.Drive)
	text := about + m.Instance
	if g.State == DriveRunning {
		text += fmt.Sprintf(", as %s was gone or silent", g.Instance)
	}
	if last := len(f.s.Notes) - 1; last >= 0 && strings.HasPrefix(f.s.Notes[last].Text, about) {
		f.s.Notes = f.s.Notes[:last]
	}
	f.note(text + "; " + f.s.without(f.p))
}

// noProgress is the error of a program that is driven for nothing.
func (f *fold) noProgress(most int) *drover.Error {
	text := "its process dies or hangs each time"
	if f.s.Program.Generation > 0 {
		text += ", or its body begins anew and does nothing"
	}
	if by := f.s.Program.Instance; by != "" {
		text += "; the last one was " + by
	}
	return drover.Errorf(drover.CodeTimeout, "program %s was driven %d times without progress: %s", f.p.Definition.Program, most, text)
}

// poisoned ends a run whose body breaks each time, and puts its last drive aside
// for whoever looks for such.
func (f *fold) poisoned(err *drover.Error) {
	f.s.Program.Letter = f.seq
	f.endProgram(drover.StatusFailed, f.leftDone(err))
	f.effect(f.letter())
}

// letter is the effect that keeps the last drive as a dead letter.
func (f *fold) letter() Effect {
	g := f.s.Program
	payload, _ := json.Marshal(&drover.DeadDrive{ // text and numbers
		Program: f.p.Definition.Program, Version: g.Version, Drive: g.Drive, Generation: g.Generation,
		Instance: g.Instance, Records: g.Records, Entries: g.Entries,
	})
	return Effect{
		Owed: Owed{Kind: EffectLetter}, Run: f.s.Run,
		Letter: &drover.DeadLetter{Sequence: g.Letter, RunID: string(f.s.Run), Verb: drover.LetterDrive, Error: f.s.Error, Payload: payload},
	}
}
