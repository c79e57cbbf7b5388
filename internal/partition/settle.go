package partition

import (
	"time"

	"github.com/droverhq/drover/internal/machine"
)

// settle finishes commands that need nothing more, sets the next alarm, and
// lets go of a run that needs no memory.
//
// One open command is enough to have the next owner load the run, so only the
// last one has to wait until the wake-up of the run is durable.
func (p *Partition) settle(r *run) {
	if p.runs[r.id] != r {
		return
	}
	p.weigh(r)
	p.cover(r)
	for len(r.open) > 0 {
		it := r.open[0]
		if !it.folded || it.acting != nil && !it.acting.done {
			break
		}
		if len(r.open) == 1 && (r.busy || !r.covered()) {
			break
		}
		r.open = r.open[1:]
		p.done(it)
	}
	if p.idle(r) {
		return
	}
	p.arm(r)
}

// covered reports whether the run needs no wake-up but those that are durable.
// A wake-up at or before the present of the run has come already.
func (r *run) covered() bool {
	if r.state == nil {
		return r.known
	}
	deadline := r.state.Deadline()
	return deadline == 0 || deadline == r.overdue || r.timer > r.state.Now && r.timer <= deadline
}

// cover notes since when a wake-up is in memory only.
func (p *Partition) cover(r *run) {
	switch {
	case r.state == nil || r.covered():
		r.uncovered = time.Time{}
	case r.uncovered.IsZero():
		r.uncovered = p.now
	}
}

// idle lets go of a run that nothing is asked of, and reports whether it did.
func (p *Partition) idle(r *run) bool {
	if r.busy || len(r.open) > 0 || len(r.owing) > 0 || r.burying > 0 || r.covering {
		r.idleSince = time.Time{}
		return false
	}
	if r.idleSince.IsZero() {
		r.idleSince = p.now
		r.shed(maxIdle)
	}
	if p.crowded() {
		r.shed(0)
		p.weigh(r)
	}
	kept := r.state != nil && !r.state.Terminal() && !p.drain && !p.crowded() && p.now.Before(r.idleSince.Add(p.opts.IdleAfter))
	if kept || !r.covered() {
		return false
	}
	delete(p.runs, r.id)
	p.kept -= r.weight
	p.pressing -= r.pressing
	if r.state != nil && r.state.Position() >= p.Cursor() {
		p.acted[r.id] = r.state.Position()
	}
	*r = run{id: r.id} // what has still to end holds on to it for a while
	return true
}

// arm sets the alarm of a run, where there is none that is as early.
func (p *Partition) arm(r *run) {
	at := p.wake(r)
	if at.IsZero() || !r.alarm.IsZero() && !at.Before(r.alarm) {
		return
	}
	r.alarm = at
	id := r.id
	p.alarms.add(at, func() {
		r := p.runs[id] // by its name: an alarm may be long after the run was let go
		if r == nil {
			return
		}
		if !r.alarm.After(at) {
			r.alarm = time.Time{}
		}
		p.ring(r)
	})
}

// wake is when the run must be looked at again; zero: never.
func (p *Partition) wake(r *run) time.Time {
	var at time.Time
	earlier := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if !r.uncovered.IsZero() && r.state != nil {
		if !r.ticking {
			earlier(p.tickAt(r))
		}
		if r.covers() {
			earlier(p.coverAt(r))
		}
	}
	if !r.idleSince.IsZero() {
		earlier(r.idleSince.Add(p.opts.IdleAfter))
	}
	return at
}

// covers reports whether the wake-up of an uncovered run may be made durable. While
// it waits for its next commit that is the one that its next state needs: the last
// command is not done before.
func (r *run) covers() bool { return !r.covering && !r.busy }

// tickAt is when the run is to be woken through the log. Like all alarms it goes by
// the owner's present, which no clock that is set moves: else one that was set
// before that could hide those behind it.
func (p *Partition) tickAt(r *run) time.Time {
	at := p.now.Add(p.clock.own(r.state.Deadline().Time()).Sub(p.now))
	if at.Before(r.tickAfter) {
		return r.tickAfter
	}
	return at
}

// coverAt is when the wake-up of an uncovered run is to be made durable.
func (p *Partition) coverAt(r *run) time.Time {
	switch {
	case p.drain:
		return p.now
	case p.crowded():
		return r.uncovered.Add(min(hurryAfter, p.opts.CoverAfter))
	}
	return r.uncovered.Add(p.opts.CoverAfter)
}

// ring does what is due for a run.
func (p *Partition) ring(r *run) {
	if !r.uncovered.IsZero() && r.state != nil {
		if !r.ticking && !p.now.Before(p.tickAt(r)) {
			p.tick(r)
		}
		if r.covers() && !p.now.Before(p.coverAt(r)) {
			p.schedule(r)
		}
	}
	p.settle(r)
}

// tick wakes the run through the log.
func (p *Partition) tick(r *run) {
	r.ticking, r.tickSent = true, p.now
	p.do(&Op{Kind: OpTick, Run: r.id}, func(res Result) {
		if res.Err != nil {
			p.opts.Report(r.id, OpTick, res.Err)
			r.ticking, r.tickAfter = false, p.now.Add(pause(r.early))
			r.early++
			p.settle(r)
		}
	})
}

// ticked notes that a tick has come: the run's own, or what looks like it. One
// that changes nothing came too early, or cannot be committed; the next one
// comes after a pause that grows, for each costs a message.
func (p *Partition) ticked(r *run, stored time.Time) {
	if !r.ticking {
		return
	}
	p.clock.echo(r.tickSent, stored)
	r.ticking, r.tickAfter = false, p.now.Add(pause(r.early))
	r.early++
}

// headStart is how much earlier than its deadline a parked run is woken: the
// server looks for schedules that are due four times a second, and the owner,
// which has the run in memory by then, wakes it in time to the millisecond.
const headStart = machine.Millis(300)

// schedule makes the next wake-up durable.
func (p *Partition) schedule(r *run) {
	r.covering = true
	at := r.state.Deadline()
	if early := at - headStart; early > r.state.Now && p.clock.own(early.Time()).After(p.now) {
		at = early
	}
	op := Op{Kind: OpSchedule, Run: r.id, At: at.Time(), Seq: r.state.Applied}
	p.insist(op, func() {
		r.covering = false
		if p.drain && r.state != nil && at <= r.state.Now {
			r.overdue = at // the server sends it at once, and nobody here receives it any more
		}
		switch {
		case at <= r.heard: // it may have come already, and have found nothing due
		case r.timer == 0 || at < r.timer || r.state == nil || r.timer <= r.state.Now:
			r.timer, r.timed = at, op.Seq
		}
		p.settle(r)
	})
}
