package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

const longWait = `{"nodes":{"w":{"wait":{"name":"go","timeout":"720h"}}},"output":{"from":"node:w"}}`

// unscheduled gives the names of wake-ups that the server was told to forget.
func (d *driver) unscheduled() (names []uint64) {
	d.take()
	for _, op := range d.sent {
		if op.Kind == OpUnschedule {
			names = append(names, op.Seq)
		}
	}
	return names
}

// A run that ends before its wake-up is due leaves the server nothing to remember.
func TestTheTimerOfARunThatIsOverIsForgotten(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", longWait, nil)
	d.settle()
	d.pass(11 * time.Second)
	name := d.end(OpSchedule).Seq
	d.pass(time.Hour) // it is let go, and is loaded anew
	d.deliver("r", "go")
	d.settle()
	d.pass(time.Minute)
	d.settle()
	if got := d.unscheduled(); len(got) != 1 || got[0] != name || len(d.p.runs) > 0 {
		t.Errorf("the server forgets %v, want %d; %d runs are in memory", got, name, len(d.p.runs))
	}
}

// A wake-up that has come is not taken back as its run ends: most runs that sleep end
// by one, and pay nothing for it.
func TestATimerThatHasComeIsNotTakenBack(t *testing.T) {
	for name, pause := range map[string]time.Duration{"in memory": time.Second, "loaded anew": time.Hour} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, Options{})
			d.start("r", `{"nodes":{"s":{"sleep":"`+(11*time.Second+pause).String()+`"}},"output":{"from":"node:s"}}`, nil)
			d.settle()
			d.pass(11 * time.Second)
			d.end(OpSchedule)
			d.pass(pause)
			d.send("r", drover.VerbTick, nil) // the server's
			d.settle()
			if got := d.unscheduled(); len(got) != 0 {
				t.Errorf("the server forgets %v", got)
			}
			if s, err := machine.Decode(d.records["r"].Data); err != nil || !s.Terminal() {
				t.Errorf("the run is %v, %v", s.Status, err)
			}
		})
	}
}

// A timer that has outlived its run is no news to anybody.
func TestATickForNoRunLeavesNoDeadLetter(t *testing.T) {
	d := newDriver(t, Options{})
	d.send("gone", drover.VerbTick, nil)
	d.end(OpLoad)
	d.want("")
	d.cursor(2)
	d.send("gone", drover.VerbStop, nil)
	d.end(OpLoad)
	d.want("dead")
}

// A run whose next commit waits for values, for however long, makes no wake-up
// durable that has come already, again and again.
func TestAWakeUpIsNotMadeDurableWhileACommitIsUnderWay(t *testing.T) {
	d := newDriver(t, Options{})
	input := map[string]any{"n": 7, "pad": strings.Repeat("x", 3000)}
	d.start("r", `{"nodes":{"s":{"sleep":"60s"},"t":{"set":{"with":"${{ input.n }}"},"depends_on":["s"]}},"output":{"from":"node:t"}}`, input)
	d.settle()
	d.pass(30 * time.Second)
	d.settle()
	d.pass(30*time.Second - 200*time.Millisecond)
	d.send("r", drover.VerbTick, nil) // the server's, 200 ms early
	d.end(OpLoad)
	d.pass(200 * time.Millisecond)
	d.end(OpTick)
	d.send("r", drover.VerbTick, nil)
	fetch := d.next(OpFetch)
	writes := 0
	for range 600 {
		d.pass(100 * time.Millisecond)
		for d.under() != "" && writes < 100 {
			d.end(d.open[0].Kind)
			writes++
		}
	}
	if writes > 1 {
		t.Errorf("%d wake-ups were made durable, or sent", writes)
	}
	d.p.Complete(fetch.ID, Result{})
	if s := d.state(d.end(OpCommit).Data); !s.Terminal() {
		t.Errorf("the run is %s", s.Status)
	}
}

// The clock of the owner may be set under it. What it waits for goes on by the time
// that passes, so all of it has that.
func TestAlarmsGoByTheTimeThatPasses(t *testing.T) {
	d := &driver{t: t, now: time.Now(), records: map[drover.RunID]Result{}, plans: map[string]*machine.Plan{}}
	d.own(Options{})
	d.start("r", sleeper, nil)
	d.end(OpCommit)
	d.start("other", sleeper, nil)
	d.fail(OpCommit, errUnknown)
	if len(d.p.alarms) < 3 {
		t.Fatalf("%d alarms are set", len(d.p.alarms))
	}
	for _, a := range d.p.alarms {
		if !strings.Contains(a.at.String(), " m=") {
			t.Errorf("an alarm goes by the clock: %v", a.at)
		}
	}
}
