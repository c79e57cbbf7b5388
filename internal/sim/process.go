package sim

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/droverhq/drover"
)

// process is plain blocking code that goes on one call at a time. Between any
// two calls, and while one is on its way, it may be ended.
type process struct {
	w    *World
	name string
	host *owner // whose crash ends it; nil: it is a process of its own, which may crash too
	next func() (struct{}, bool)
	stop func()
	over bool
	end  func(killed bool)
}

var errKilled = errors.New("killed")

// spawn begins a process. do makes all its calls through what it is given; end
// is told when it is over.
func (w *World) spawn(name string, host *owner, do func(*calls), end func(killed bool)) *process {
	p := &process{w: w, name: name, host: host, end: end}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		c := &calls{w: w, p: p, skew: w.skew(host)}
		c.yield = func() bool {
			c.killed = c.killed || !yield(struct{}{})
			return !c.killed
		}
		do(c)
	})
	w.processes = append(w.processes, p)
	w.soon(p.step)
	return p
}

// skew is how far the clock of a process is ahead of the log's.
func (w *World) skew(host *owner) time.Duration {
	if host != nil {
		return host.skew
	}
	return time.Duration(w.rng.IntN(3)-1) * w.faults.Skew
}

// step lets a process go on until its next call.
func (p *process) step() {
	if p.over {
		return
	}
	killed := p.host != nil && p.host.gone || p.host == nil && p.w.chance(p.w.faults.Crash)
	if killed && p.w.chance(0.5) {
		p.finish(true)
		return
	}
	_, more := p.next() // one that was killed has had this call on its way
	if killed || !more {
		p.finish(killed)
	}
}

func (p *process) finish(killed bool) {
	p.over = true
	p.stop()
	p.w.processes = slices.DeleteFunc(p.w.processes, func(q *process) bool { return p == q })
	if p.end != nil {
		p.end(killed)
	}
}

// calls is what a process sees of the world.
type calls struct {
	w      *World
	p      *process
	skew   time.Duration
	yield  func() bool
	killed bool
}

func (c *calls) clock() time.Time { return c.w.now.Add(c.skew) }

// pause lets time pass. It is false where the process has been ended.
func (c *calls) pause(d time.Duration) bool {
	if c.killed {
		return false
	}
	c.w.at(c.w.now.Add(d), c.p.step)
	return c.yield()
}

// call makes one call, which may fail before or after it has happened.
func call[T any](c *calls, do func() (T, error)) (T, error) {
	var none T
	if !c.pause(c.w.latency()) {
		return none, errKilled
	}
	if c.w.chance(c.w.faults.Fail) {
		return none, drover.Errorf(drover.CodeUnavailable, "it did not happen")
	}
	v, err := do()
	c.w.follow("%s: %.200s %v", c.p.name, fmt.Sprint(v), err)
	if c.w.chance(c.w.faults.Unknown) {
		return none, drover.Errorf(drover.CodeUnavailable, "it may have happened")
	}
	return v, err
}
