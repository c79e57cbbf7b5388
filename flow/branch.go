package flow

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/droverhq/drover"
)

// branch is one line of execution of a body: a goroutine that runs only while it
// has the baton. Whoever has it, the loop or one branch, may use all of core.
type branch struct {
	c       *core
	scope   *scope
	body    func()
	op      *op // that others wait for; nil: the first branch
	resume  chan struct{}
	started bool
	ready   bool // it is in core.ready
	over    bool
}

// unwind is what blocked branches panic with when their body is dropped.
type unwind struct{}

// scope is a part of a body that can be cancelled as a whole. What is asked for
// in one that was fails with its error.
type scope struct {
	parent *scope
	err    *drover.Error // it was cancelled
	ctx    context.Context
	end    context.CancelCauseFunc
}

func newScope(parent *scope, ctx context.Context) *scope { //nolint:revive // the scope comes first
	s := &scope{parent: parent}
	s.ctx, s.end = context.WithCancelCause(ctx)
	return s
}

// cancelled gives the error of the scope, or of one around it.
func (s *scope) cancelled() *drover.Error {
	for ; s != nil; s = s.parent {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

func (s *scope) within(outer *scope) bool {
	for ; s != nil; s = s.parent {
		if s == outer {
			return true
		}
	}
	return false
}

// fork makes a branch, that begins in its turn.
func (c *core) fork(s *scope, body func()) *branch {
	b := &branch{c: c, scope: s, body: body, resume: make(chan struct{})}
	c.branches = append(c.branches, b)
	c.wake(b)
	return b
}

// wake gives a branch a turn.
func (c *core) wake(b *branch) {
	if !b.ready && !b.over {
		b.ready = true
		c.ready = append(c.ready, b)
	}
}

// settle runs branches one at a time until all are blocked or over.
func (c *core) settle() {
	for len(c.ready) > 0 && c.broken == nil && !c.held() {
		b := c.ready[0]
		c.ready = c.ready[1:]
		b.ready = false
		if !b.over {
			c.hand(b)
		}
	}
}

// hand gives the baton to a branch, and waits for it to come back.
func (c *core) hand(b *branch) {
	c.current.Store(b)
	if b.started {
		b.resume <- struct{}{}
	} else {
		b.started = true
		go b.main()
	}
	<-c.baton
	c.current.Store(nil)
	if b.over {
		c.branches = slices.DeleteFunc(c.branches, func(o *branch) bool { return o == b })
		if c.idle != nil && len(c.branches) == 1 {
			c.wake(c.idle)
		}
	}
}

// main is the goroutine of a branch.
func (b *branch) main() {
	c, returned := b.c, false
	defer func() {
		v := recover()
		if _, dropped := v.(unwind); !returned && !dropped && !c.dead {
			c.panicked(b, panicked("program "+c.def.name, v, debug.Stack()))
		}
		b.over = true
		c.baton <- struct{}{}
	}()
	b.body()
	returned = true
}

// block gives the baton back until the branch has a turn again.
func (b *branch) block() {
	b.c.baton <- struct{}{}
	<-b.resume
	b.alive()
}

// alive unwinds a branch whose body was dropped.
func (b *branch) alive() {
	if b.c.dead {
		panic(unwind{})
	}
}

// enter holds that whoever uses a Run is its branch.
func (b *branch) enter() {
	if b.c.current.Load() != b {
		panic(fmt.Sprintf("flow: a Run of program %s is used outside of its branch: by a step, or by a goroutine that is not of Go or Parallel", b.c.def.name))
	}
	b.alive()
}

// await blocks until something that is asked for is over.
func (b *branch) await(o *op) {
	for !o.over {
		o.waiters = append(o.waiters, b)
		b.block()
	}
}

// share is await for what may be asked for by another branch: it ends as well
// when this one is cancelled.
func (b *branch) share(over func() bool, list ...*op) error {
	for !over() {
		if err := b.scope.cancelled(); err != nil {
			return err
		}
		for _, o := range list {
			o.waiters = append(o.waiters, b)
		}
		b.block()
	}
	return nil
}

// destroy unwinds all branches. Their defers run, one branch at a time, the
// latest first.
func (c *core) destroy() {
	c.dead = true
	c.endBase()
	close(c.gone)
	for _, b := range slices.Backward(slices.Clone(c.branches)) {
		if b.started && !b.over {
			c.hand(b)
		}
	}
}

// breakOff has the drive end at once.
func (c *core) breakOff(end *drover.DriveEnd) {
	if c.broken == nil {
		c.broken = end
	}
}
