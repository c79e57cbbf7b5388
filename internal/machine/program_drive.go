package machine

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// driveEnds ends a drive. One that wants to park although there is news goes on.
func (f *fold) driveEnds(m *drover.RecordRequest, own int) {
	end := m.End
	err := clip(end.Error)
	if err == nil {
		err = drover.Errorf(drover.CodeFailed, "program %s ended %s, and did not say why", f.p.Definition.Program, end.Status)
	}
	f.changed = true
	switch end.Status {
	case drover.DriveWaiting:
		f.park(m.Have + own)
	case drover.DriveCompleted:
		f.s.Result = f.keep(compact(end.Result), subjects.ResultKey(f.s.Run))
		f.endProgram(drover.StatusCompleted, nil)
	case drover.DriveFailed:
		f.endProgram(drover.StatusFailed, err)
	case drover.DriveCancelled:
		f.cancelled(err)
	case drover.DriveCompensated:
		f.endProgram(drover.StatusCompensated, err)
	case drover.DriveCompensationFailed:
		f.endProgram(drover.StatusCompensationFailed, err)
	case drover.DrivePanicked:
		f.panicked(err)
	case drover.DriveBlocked:
		f.blocked(err)
	case drover.DriveAgain:
		f.beginAnew(end.Input)
	}
}

// blocked keeps a run whose body does not fit the journal, until somebody has
// mended that: also one that was asked to stop, as what it did is to be undone. One
// that was blocked then as well ends.
func (f *fold) blocked(err *drover.Error) {
	g := f.s.Program
	switch {
	case g.Stop == nil || !g.Misfit:
		f.spent()
		g.State, g.Due, g.Keep, g.Trouble = DriveBlocked, 0, "", cut(err.Message, maxTrouble)
		f.note("the body does not fit the journal: " + err.Message)
	case !g.Acted:
		f.cancelled(err)
	default:
		e := *err
		e.Message = cut(fmt.Sprintf("the run was stopped (%s), and what it did could not be undone, as its body does not fit the journal: %s", *g.Stop, err.Message), maxTrouble)
		f.endProgram(drover.StatusCompensationFailed, &e)
	}
}

// maxTrouble is how much is kept of what a drive said of itself, in bytes.
const maxTrouble = 2 << 10

// park lets go of the process, unless there is something that it does not know.
func (f *fold) park(known int) {
	g := f.s.Program
	if known < g.Entries {
		return
	}
	if !f.waiting() {
		f.endProgram(drover.StatusFailed, drover.Errorf(drover.CodeFailed,
			"program %s wants to wait, and there is nothing that it waits for", f.p.Definition.Program))
		return
	}
	f.spent()
	g.State, g.Due, g.Known = DriveParked, 0, g.Entries
}

// waiting reports whether anything is open.
func (f *fold) waiting() bool {
	for i := range f.s.Program.Slots {
		if f.s.Program.Slots[i].taken() && !f.s.Nodes[i].Status.over() {
			return true
		}
	}
	return false
}

// cancelled ends a run whose body has stopped. One that was asked to because its
// time was up has failed.
func (f *fold) cancelled(err *drover.Error) {
	if g := f.s.Program; g.Late {
		f.endProgram(drover.StatusFailed, drover.Errorf(drover.CodeTimeout, "%s", *g.Stop))
		return
	}
	f.endProgram(drover.StatusCancelled, err)
}

// panicked has the body driven again after a pause, as often as the definition
// says.
func (f *fold) panicked(err *drover.Error) {
	g := f.s.Program
	f.spent()
	g.Failed++
	pause, again := f.p.driveRetry().pause(f.s.driveID(g.Drive+1), g.Failed, err, byError)
	if !again {
		f.poisoned(err)
		return
	}
	f.note("drive " + strconv.Itoa(g.Drive) + " failed: " + err.Message)
	g.State, g.Due, g.Keep, g.Trouble = DrivePausing, after(f.ceil, pause), "", cut(err.Message, maxTrouble)
}

// driveRetry is how often a body may panic in a row.
func (p *Plan) driveRetry() policy {
	if retry := newPolicy(p.Definition.Retry); retry.set {
		return retry
	}
	return newPolicy(&drover.Retry{MaxAttempts: driveRetries})
}

// lastDrive reports whether no other drive follows where the body panics in this one,
// as things stand: the process has to undo then what the body did, as nobody else
// will. Each record begins the counting anew.
func (f *fold) lastDrive() bool {
	g := f.s.Program
	_, again := f.p.driveRetry().pause(f.s.driveID(g.Drive+1), g.Failed+1, &drover.Error{}, byError)
	return !again || g.Idle >= f.p.maxDrives()
}

// beginAnew has the body begin with another input and an empty journal. What it
// waited for ends, and its tokens are free; deliveries that nothing has read stay.
func (f *fold) beginAnew(input json.RawMessage) {
	g := f.s.Program
	if g.Stop != nil { // it came after the last look of the body, and must not be lost with the journal
		f.cancelled(f.leftDone(drover.Errorf(drover.CodeStopped, "the run was stopped: %s", *g.Stop)))
		return
	}
	if bad := f.p.CheckInput(f.s.Run, input); bad != nil {
		f.endProgram(drover.StatusFailed, f.leftDone(bad))
		return
	}
	why := drover.Errorf(drover.CodeStopped, "the body began anew")
	f.hush = -1 // its journal is gone
	f.closeNodes(why)
	for at := len(f.s.Hooks) - 1; at >= 0; at-- {
		if f.s.Hooks[at].Node > 0 {
			f.release(at, why)
		}
	}
	f.hush = 0
	f.vacate()
	f.spent()
	for i := range g.Slots { // of children that may not have been started
		g.Slots[i].Older++
	}
	stored := g.Stored || len(f.puts) > 0
	*g = Program{
		Generation: g.Generation + 1, Began: f.seq, Inherited: f.s.inherited(), Slots: g.Slots, Drive: g.Drive, Idle: g.Idle, Version: "", Spent: g.Spent, Stop: g.Stop, Late: g.Late,
		State: DriveParked, Since: f.now,
	}
	f.s.Calls = 0
	f.s.Inline = f.s.inlined()
	f.s.Input = f.keep(compact(input), f.s.lineKey(0))
	if stored {
		f.effect(f.forgetEffect(g.Generation))
	}
	f.drive()
}
