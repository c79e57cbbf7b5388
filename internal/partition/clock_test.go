package partition

import (
	"testing"
	"time"
)

// skewed lives through a run whose wake-up is due 5 s after its start, with an
// owner whose clock is so far behind that of the log. It gives how many ticks
// were sent, and how late the run ended, by the log.
func skewed(t *testing.T, skew time.Duration) (ticks int, late time.Duration) {
	t.Helper()
	d := newDriver(t, Options{CoverAfter: time.Hour})
	d.skew = skew
	begun := d.now
	d.start("r", sleeper, nil)
	d.end(OpCommit)
	for d.now.Before(begun.Add(20 * time.Minute)) {
		at, ok := d.p.Next()
		if !ok {
			break
		}
		d.pass(max(at.Sub(d.now), 0))
		if d.under() != "tick" {
			continue
		}
		d.end(OpTick)
		ticks++
		d.pass(time.Millisecond)
		d.send("r", "tick", nil)
		if d.under() == "commit" {
			d.end(OpCommit)
			return ticks, d.now.Sub(begun) - 5*time.Second
		}
	}
	t.Fatalf("the run did not end; %d ticks", ticks)
	return 0, 0
}

func TestClocksThatDisagree(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Second, -time.Second, 5 * time.Minute, -5 * time.Minute, 40 * time.Hour, -40 * time.Hour} {
		ticks, late := skewed(t, skew)
		if ticks > 3 {
			t.Errorf("the log is %v ahead: %d ticks for one wake-up", skew, ticks)
		}
		if late < 0 || late > time.Second {
			t.Errorf("the log is %v ahead: the run was woken %v late", skew, late)
		}
	}
}

func TestAClockThatIsSetIsBelieved(t *testing.T) {
	var c clock
	now := epoch
	c.read(now.Add(5*time.Minute), now) // the owner was behind
	if c.ahead() != 5*time.Minute {
		t.Fatalf("ahead %v", c.ahead())
	}
	c.read(now, now) // its clock was set, or the message is old: nothing follows
	if c.ahead() != 5*time.Minute {
		t.Errorf("ahead %v after an old message", c.ahead())
	}
	c.echo(now, now.Add(time.Millisecond)) // it was set
	if c.ahead() != time.Millisecond {
		t.Errorf("ahead %v after a tick", c.ahead())
	}
	c.echo(now, now.Add(-5*time.Minute)) // it was set forward
	if c.ahead() != -5*time.Minute {
		t.Errorf("ahead %v", c.ahead())
	}
	c.read(now, now) // and back
	if c.ahead() != 0 {
		t.Errorf("ahead %v", c.ahead())
	}
}

// Old messages are what an owner reads first. They must not make it believe
// that its clock is ahead.
func TestABacklogDelaysNoWakeUp(t *testing.T) {
	d := newDriver(t, Options{})
	d.skew = -time.Hour
	d.start("r", sleeper, nil)
	d.end(OpCommit)
	d.p.Advance(d.now)
	d.want("tick")
}

// An owner that learns that its clock is behind wakes the runs that are late.
func TestWhatIsLateIsWokenWhenThatIsKnown(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", sleeper, nil)
	d.end(OpCommit)
	d.want("")
	d.skew = 5 * time.Minute
	d.start("other", waits(1), nil)
	d.end(OpCommit)
	d.pass(0)
	d.want("tick")
}

// A run whose wake-up changes nothing, for it cannot be committed, costs a
// message each time.
func TestTicksThatChangeNothingBecomeRare(t *testing.T) {
	d := newDriver(t, Options{CoverAfter: time.Hour})
	d.start("r", sleeper, nil)
	d.end(OpCommit)
	ticks, end := 0, d.now.Add(5*time.Minute)
	for d.now.Before(end) {
		at, ok := d.p.Next()
		if !ok {
			t.Fatal("nothing is due any more")
		}
		d.pass(max(at.Sub(d.now), 0))
		for d.under() != "" {
			switch op := d.open[0]; op.Kind {
			case OpTick:
				d.end(OpTick)
				ticks++
				d.send("r", "tick", nil)
			case OpCommit:
				d.fail(OpCommit, ErrImpossible)
			default:
				d.end(op.Kind)
			}
		}
	}
	if ticks > 80 {
		t.Errorf("%d ticks in 5 minutes", ticks)
	}
}

// Ticks of others neither hurry the owner nor hold it back.
func TestTicksOfOthersDelayNoWakeUp(t *testing.T) {
	d := newDriver(t, Options{CoverAfter: time.Hour})
	d.start("r", sleeper, nil)
	d.end(OpCommit)
	for range 40 {
		d.send("r", "tick", nil)
		d.pass(100 * time.Millisecond)
	}
	d.want("")
	d.pass(time.Second)
	d.want("tick")
}
