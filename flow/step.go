package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/droverhq/drover"
)

// policy is when a step is tried again.
type policy struct {
	Retry
	set     bool
	timeout time.Duration
}

// pause is the time before the attempt after one that failed, if there is one.
func (p policy) pause(attempt int, err *drover.Error) (time.Duration, bool) {
	if !p.set || err.Permanent || attempt >= cmp.Or(p.Attempts, 3) {
		return 0, false
	}
	if err.RetryAfter > 0 {
		return time.Duration(err.RetryAfter), true
	}
	most := cmp.Or(p.Max, time.Minute)
	d := float64(cmp.Or(p.Initial, time.Second)) * math.Pow(cmp.Or(p.Factor, 2), float64(attempt-1))
	return max(time.Duration(min(d, float64(most))), time.Millisecond), true
}

// Step does something in this process, once, and gives its result in every drive.
// id is the author's, and no other step or node of the run may have it. fn may
// run at the same time as other steps, and must not use run.
//
// The error is that of the last attempt, as a *drover.Error: those of fn keep
// their code where they have one, see [Fatal] and [RetryAfter]. Where fn gives up
// with the error of its context, as the run is stopped or its branch is cancelled,
// it is the reason of that.
func Step[T any](run *Run, id string, fn func(ctx context.Context) (T, error), opts ...StepOption) (T, error) {
	var none T
	o, err := read(id, opts, "Retry", "Timeout", "Compensate")
	if err != nil {
		return none, err
	}
	compensate, ok := o.compensate.(func(context.Context, T) error)
	if o.compensate != nil && !ok {
		return none, permanent(drover.CodeInvalidRequest, "the compensation of step %q takes another type than the step gives: %T", id, o.compensate)
	}
	raw, err := run.step(id, o.policy, func(ctx context.Context) (json.RawMessage, error) {
		out, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		data, err := encode(out)
		if err != nil {
			return nil, permanent(drover.CodeOf(err, drover.CodeFailed), "the result of step %q cannot be kept: %v", id, err)
		}
		return data, nil
	})
	if err != nil {
		return none, err
	}
	out, err := decode[T](raw)
	if err != nil {
		return none, permanent(drover.CodeConflict, "the journal has a result of step %q that is no %T: %v", id, none, err)
	}
	if ok {
		run.undo.push(undo{id: id, policy: o.policy, work: func(ctx context.Context) error { return compensate(ctx, out) }})
	}
	return out, nil
}

// step asks for a step and waits for it.
func (r *Run) step(id string, p policy, work func(context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	r.b.enter()
	c := r.b.c
	if err := r.b.scope.cancelled(); err != nil {
		return nil, err
	}
	if err := c.use(id, "a step"); err != nil {
		return nil, err
	}
	o := &op{entry: drover.Entry{Kind: drover.EntryStep, ID: id}, scope: r.b.scope, policy: p, attempt: 1, work: work}
	c.steps[id] = o
	c.due = append(c.due, o)
	c.traced(o.entry)
	r.b.await(o)
	return o.output, o.err
}

// stepDone is how an attempt of a step ended.
type stepDone struct {
	o       *op
	attempt int
	output  json.RawMessage
	err     error
	started time.Time
}

// begin sets off the attempts that are due, once the journal has nothing of them.
// What was cancelled before it began fails, as an entry, so that it does in every
// drive at the same place.
func (c *core) begin() {
	if c.held() {
		return
	}
	due := c.due
	c.due = nil
	for _, o := range due {
		if o.over || o.state != stepDue {
			continue
		}
		o.state = stepRunning
		if err := o.scope.cancelled(); err != nil {
			e := *err
			c.queue = append(c.queue, drover.Entry{Kind: drover.EntryStep, ID: o.entry.ID, Attempt: o.attempt, Error: &e})
			continue
		}
		c.begun++
		c.working.Go(func() { c.perform(o) })
	}
}

// perform does one attempt, and tells the loop.
func (c *core) perform(o *op) {
	ctx := c.base
	if o.scope != nil {
		ctx = o.scope.ctx
	}
	d := stepDone{o: o, attempt: o.attempt, started: time.Now()}
	if o.policy.timeout <= 0 {
		c.guard(ctx, &d, func() { c.tell(d) })
		return
	}
	late := permanent(drover.CodeTimeout, "attempt %d of %s %q took longer than %s", o.attempt, o.entry.Kind, o.entry.ID, o.policy.timeout)
	late.Permanent = false
	ctx, cancel := context.WithTimeoutCause(ctx, o.policy.timeout, late)
	defer cancel()
	ended := make(chan stepDone, 1)
	inner := d
	c.working.Go(func() { c.guard(ctx, &inner, func() { ended <- inner }) })
	select {
	case d = <-ended:
	case <-ctx.Done():
		d = c.outOfTime(ctx, d, ended, late)
	}
	c.tell(d)
}

// stepGrace is how long a step whose context has ended is waited for, before the
// next attempt may begin beside it.
const stepGrace = time.Second

// outOfTime is how an attempt ends whose context has.
func (c *core) outOfTime(ctx context.Context, d stepDone, ended <-chan stepDone, late error) stepDone {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return <-ended // it was cancelled, and its own end counts
	}
	grace := time.NewTimer(stepGrace)
	defer grace.Stop()
	select {
	case d = <-ended:
		if d.err != nil {
			d.err = late
		}
	case <-grace.C:
		d.err = late
	}
	return d
}

// guard calls the function of a step, and then whatever happened calls then. What
// panicked is told from here, as nobody may wait for it any more.
func (c *core) guard(ctx context.Context, d *stepDone, then func()) {
	returned := false
	defer func() {
		if v := recover(); !returned {
			err := panicked(fmt.Sprintf("%s %q", d.o.entry.Kind, d.o.entry.ID), v, debug.Stack())
			d.output, d.err = nil, err
			if c.panics != nil {
				c.panics(drover.Entry{Kind: d.o.entry.Kind, ID: d.o.entry.ID, Attempt: d.attempt, Error: err})
			}
		}
		then()
	}()
	d.output, d.err = d.o.work(ctx)
	returned = true
}

func (c *core) tell(d stepDone) {
	select {
	case c.done <- d:
	case <-c.gone:
	}
}

// record makes the record of an attempt.
func (c *core) record(d stepDone) {
	c.begun--
	o := d.o
	e := drover.Entry{Kind: o.entry.Kind, ID: o.entry.ID, Attempt: o.attempt, Output: d.output, Started: &d.started}
	if d.err != nil {
		cancelled := o.scope.cancelled()
		e.Output, e.Error = nil, wire(d.err)
		if cancelled != nil && errors.Is(d.err, context.Canceled) { // why it gave up is known
			why := *cancelled
			e.Error = &why
		}
		pause, again := o.policy.pause(o.attempt, e.Error)
		if again && cancelled == nil {
			e.Kind, e.Pause = drover.EntryAttempt, drover.Duration(pause)
		}
	}
	c.queue = append(c.queue, e)
}
