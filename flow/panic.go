package flow

import (
	"slices"

	"github.com/droverhq/drover"
)

// burst is a panic of the body that is held: whether it ends the drive, or is the
// error of the run, is known where the journal has no more.
//
// A body that panics is driven again, as another process, or the next moment, may
// do better. In the last drive that it has it is an error like any that the body
// returns: what was done is undone. As a panic need not be the same in every drive,
// the journal says so, by an entry: from there on everything that the body waits for
// fails, in each further drive as well, whether it panics there or not.
type burst struct {
	b    *branch
	err  *drover.Error
	sent bool // its record is queued, or more
}

// end is that of a drive after which another one is to come.
func (x *burst) end() *drover.DriveEnd {
	return &drover.DriveEnd{Status: drover.DrivePanicked, Error: x.err}
}

// held reports whether no branch may go on, as one has panicked.
func (c *core) held() bool { return c.burst != nil && c.failure == nil }

// panicked takes the panic of a branch. Where the journal has more of the body, and
// not that it panicked, what that did cannot be undone by this one.
func (c *core) panicked(b *branch, err *drover.Error) {
	x := &burst{b: b, err: err}
	known := slices.ContainsFunc(c.journal, func(e drover.Entry) bool { return e.Kind == drover.EntryPanic })
	switch {
	case c.failure != nil: // one is enough
		c.after(b)
	case !known && c.passed():
		c.breakOff(x.end())
	default:
		c.burst = x
		c.traced(drover.Entry{Kind: drover.EntryPanic})
	}
}

// tellBurst queues the record of a panic in the last drive, behind all that was
// asked for before it.
func (l *loop) tellBurst() {
	c := l.c
	if !c.held() || c.burst.sent {
		return
	}
	c.burst.sent = true
	l.last = c.burst.err
	c.queue = append(c.queue, drover.Entry{Kind: drover.EntryPanic, Error: c.burst.err})
}

// fails takes the entry of a panic: the body is to end, as after a stop.
func (c *core) fails(e drover.Entry) {
	if c.failure != nil || e.Error == nil {
		c.misfit(e)
		return
	}
	c.failure = e.Error
	switch {
	case c.burst != nil:
		c.after(c.burst.b)
	case c.end != nil: // this time it came to another end
		c.end = nil
		c.after(c.run.b)
	}
	c.cancel(c.root, e.Error, false)
}

// after does what a branch that panicked does not do any more. What comes after the
// first one is done by another.
func (c *core) after(b *branch) {
	if b.op != nil {
		b.scope.end(nil)
		c.resolve(b.op, nil, c.failure)
		return
	}
	run := &Run{undo: c.run.undo}
	run.b = c.fork(c.root, func() {
		c.endBranches(run.b)
		c.end = c.failed(run, c.failure)
		c.ended()
	})
}
