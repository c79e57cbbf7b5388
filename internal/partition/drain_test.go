package partition

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// A hand-over may wait for the fold of the successor, whose partition may be the
// very one that drains: it is left to the next owner, who finds its command.
func TestADrainDoesNotWaitForAHandOver(t *testing.T) {
	d := newDriver(t, Options{})
	d.send("r", drover.VerbStart, drover.StartRequest{Hooks: []string{"t"}, Definition: json.RawMessage(
		`{"nodes":{"in":{"wait":{"hook":"t","on_unread":"restart"}},"w":{"wait":{"name":"go"}}},"output":{"from":"node:w"}}`)})
	for range 2 {
		d.send("r", drover.VerbDeliver, drover.DeliverRequest{Hook: "t", Claim: 1})
	}
	d.settle()
	last := d.deliver("r", "go")
	d.end(OpCommit)
	act := d.next(OpAct)
	if !handsOver(act.Effects) {
		t.Fatalf("the effects are %+v", act.Effects)
	}
	if d.p.Quiet() {
		t.Error("it is quiet although nobody drains it")
	}
	d.start("other", afterWait, nil)
	d.end(OpCommit)
	other := d.next(OpAct)
	d.p.Drain()
	d.p.Advance(d.now)
	d.end(OpSchedule)
	if d.p.Quiet() {
		t.Error("it is quiet while effects that are no hand-over are under way")
	}
	d.p.Complete(other.ID, Result{})
	if !d.p.Quiet() {
		t.Error("it waits for the hand-over")
	}
	d.cursor(last)
	d.p.Complete(act.ID, Result{Err: errUnknown})
	if !d.p.Quiet() {
		t.Error("it waits for the next attempt to hand over")
	}
	d.pass(time.Second)
	d.end(OpAct)
	if !d.p.Quiet() {
		t.Error("it is not quiet in the end")
	}
	d.cursor(last + 2)

	d.own(Options{Cursor: last}) // or the next owner finds the command, and what is owed
	d.seq = last - 1
	d.deliver("r", "go")
	d.end(OpLoad)
	if e := d.end(OpAct).Effects; !handsOver(e) {
		t.Errorf("the next owner performs %+v", e)
	}
}

func TestDrainLeavesNothingToRepeat(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", afterWait, nil)
	d.start("s", sleeper, nil)
	d.end(OpCommit)
	d.end(OpCommit)
	act := d.next(OpAct)
	d.p.Drain()
	d.p.Advance(d.now)
	d.end(OpSchedule)
	d.end(OpSchedule)
	d.want("")
	if d.p.Quiet() {
		t.Error("it is quiet while effects are under way")
	}
	d.p.Complete(act.ID, Result{Err: errUnknown})
	d.want("")
	if d.p.Quiet() {
		t.Error("it is quiet while effects have not happened")
	}
	d.pass(time.Second)
	d.end(OpAct)
	if !d.p.Quiet() || len(d.p.runs) != 0 {
		t.Errorf("quiet %v, %d runs are left", d.p.Quiet(), len(d.p.runs))
	}
	d.cursor(3)
}

// A record that is overdue when it is read, as one of an earlier version, is left
// to the next owner with one wake-up, that the server sends at once.
func TestADrainLeavesWhatIsOverdue(t *testing.T) {
	d, heard := telling(t)
	d.settle()
	rec := d.records["r"]
	s, err := machine.Decode(rec.Data)
	if err != nil {
		t.Fatal(err)
	}
	s.Notify[0].Next = s.Now
	if rec.Data, err = machine.Encode(s); err != nil {
		t.Fatal(err)
	}
	d.records["r"] = rec
	d.own(Options{Cursor: 2})
	d.send("r", drover.VerbDeliver, drover.DeliverRequest{Name: "nobody"}) // which is refused, and has the record read
	d.p.Drain()
	scheduled := 0
	for range 20 {
		for d.under() != "" {
			if d.end(d.open[0].Kind).Kind == OpSchedule {
				scheduled++
			}
		}
		d.pass(10 * time.Second)
	}
	if scheduled != 1 || !d.p.Quiet() {
		t.Errorf("%d wake-ups, quiet: %t; of %s", scheduled, d.p.Quiet(), heard.DeliveryID)
	}
}
