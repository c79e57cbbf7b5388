package machine

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover"
)

// endProgram ends the run. A process that drives it is told.
func (f *fold) endProgram(final drover.Status, err *drover.Error) {
	g := f.s.Program
	f.nudged = g.State == DriveRunning && !f.recording
	f.end(final, err)
	g.State, g.Due, g.Limit, g.Since = DriveOver, 0, 0, f.now
	f.changed = true
}

// leftDone says in the error of a run that ends without its body that nobody undoes
// what the body did.
func (f *fold) leftDone(err *drover.Error) *drover.Error {
	if !f.s.Program.Acted {
		return err
	}
	e := *err
	e.Message = cut(e.Message, maxTrouble) + "; what its body did, and had not undone by then, stays done: the run's history lists it"
	return &e
}

// stopProgram asks the body to stop: what is open ends, and the body undoes what
// it did, also where it waits. One that did not fit its journal is tried once more,
// at each stop, and ends if it still does not. One whose time is up has only so long
// for that.
func (f *fold) stopProgram(why string, late bool) {
	g := f.s.Program
	if late && !g.Late {
		f.changed = true
		g.Late, g.Limit = true, 0
		if until := after(f.ceil, stopGrace); f.s.Due <= f.now || until < f.s.Due {
			f.s.Due = until
		}
	}
	blocked := g.State == DriveBlocked
	if g.Stop != nil && !blocked {
		return
	}
	if g.Stop == nil {
		g.Stop = &why
		f.write(Line{Kind: drover.EntryStop, ID: why})
		f.closeNodes(drover.Errorf(drover.CodeStopped, "the run was stopped: %s", why))
	}
	if blocked || g.State == DrivePausing {
		g.State, g.Misfit = DriveParked, blocked
	}
	f.tellDriver()
}

// closeNodes ends all that is open.
func (f *fold) closeNodes(why *drover.Error) {
	for i := range f.s.Program.Slots {
		if f.s.Program.Slots[i].taken() && !f.s.Nodes[i].Status.over() {
			f.closeNode(i, why)
		}
	}
}

// closeNode ends a node that nobody waits for any more. Calls are called back,
// children stopped.
func (f *fold) closeNode(i int, why *drover.Error) {
	if at := f.find(i, drover.NoItem); at >= 0 {
		a := f.s.Active[at]
		if a.Kind == ActiveCall || a.Kind == ActiveChild {
			f.recall(f.p.nodes[i], a)
		}
		f.remove(at)
	}
	f.s.Ready = slices.DeleteFunc(f.s.Ready, func(a Active) bool { return a.Node == i })
	f.queue = slices.DeleteFunc(f.queue, func(k int) bool { return k == i })
	f.finish(i, MarkCancelled, Value{}, why)
}

// driveDue does what time asks for of a drive.
func (f *fold) driveDue() {
	g := f.s.Program
	if g.Due == 0 || g.Due > f.now {
		return
	}
	f.changed = true
	if f.look() {
		return
	}
	switch g.State {
	case DriveQueued:
		if g.Keep == "" {
			f.lostMaybe()
		} else { // whoever had the body in memory is silent
			f.vanished()
		}
		return
	case DriveRunning:
		f.note("the process that drove the program was silent for " + driveLease.String() + ": " + g.Instance)
		g.Keep = ""
		f.spent()
	case DrivePausing:
	case DriveParked, DriveBlocked, DriveOver:
		g.Due = 0
		return
	}
	g.State = DriveParked
	f.drive()
}

// spent counts the time of a drive that is over.
func (f *fold) spent() {
	g := f.s.Program
	g.Spent += max(f.now-g.Since, 0)
	g.Since, g.Limit = f.now, 0
}

// programDue does what time asks for of a program, once its nodes have had
// theirs.
func (f *fold) programDue(whole bool) {
	g := f.s.Program
	f.advance()
	switch {
	case len(f.need) > 0 || f.s.Terminal():
		return
	case whole && g.Late:
		f.endProgram(drover.StatusFailed, f.leftDone(f.tooLate()))
		return
	case whole:
		f.stopProgram(fmt.Sprintf("the run took longer than its timeout of %s", f.p.Definition.Timeout), true)
	case g.Limit > 0 && g.Limit <= f.now:
		f.stopProgram(fmt.Sprintf("its body took longer than its compute_timeout of %s", f.p.Definition.ComputeTimeout), true)
	}
	f.driveDue()
}

// tooLate is the error of a run whose time is up.
func (f *fold) tooLate() *drover.Error {
	return drover.Errorf(drover.CodeTimeout, "its time is up, and its body did not end in %s after it was asked to stop: %s", stopGrace, *f.s.Program.Stop)
}
