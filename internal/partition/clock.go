package partition

import "time"

// clock knows how far the time of the log is ahead of the owner's, or behind it
// where that is negative. Deadlines are times of the log, and the owner has to
// wake runs by its own clock, which may be minutes off.
//
// A message was stored before it was read, so the log is at least so far ahead.
// A tick was stored after it was sent, so the log is at most so far ahead. As
// long as neither says otherwise the clocks are taken to agree. Where they
// contradict each other a clock was set, and the later one is right.
type clock struct {
	least, most       time.Duration
	hasLeast, hasMost bool
}

// ahead is how far the log is ahead.
func (c *clock) ahead() time.Duration {
	switch {
	case c.hasMost && c.most < 0:
		return c.most
	case c.hasLeast && c.least > 0:
		return c.least
	}
	return 0
}

// read notes a message that was stored at one time of the log, and read at one
// of the owner.
func (c *clock) read(stored, now time.Time) {
	d := stored.Sub(now)
	if c.hasLeast && d <= c.least {
		return
	}
	c.least, c.hasLeast = d, true
	if c.hasMost && c.most < d {
		c.most = d
	}
}

// echo notes a message that the owner sent at a time of its own, and that the
// log stored at one of its.
func (c *clock) echo(sent, stored time.Time) {
	d := stored.Sub(sent)
	if c.hasMost && d >= c.most {
		return
	}
	c.most, c.hasMost = d, true
	if c.hasLeast && c.least > d {
		c.least = d
	}
}

// own gives the time of the owner at which the log has a time.
func (c *clock) own(log time.Time) time.Time { return log.Add(-c.ahead()) }

// jump is how far the log must turn out to be ahead for alarms to be set anew.
const jump = 50 * time.Millisecond

// hear learns of the time of the log. Where it is later than was thought, runs
// have to be woken earlier.
func (p *Partition) hear(stored time.Time) {
	before := p.clock.ahead()
	p.clock.read(stored, p.now)
	if p.clock.ahead()-before < jump {
		return
	}
	for r := range p.live() {
		p.arm(r)
	}
}
