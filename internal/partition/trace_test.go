package partition

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// lose has the log lose its end: the next command gets the sequence after a last
// one, and another owner reads the log.
func (d *driver) lose(last uint64) {
	d.t.Helper()
	d.settle()
	d.seq = last
	d.own(Options{Cursor: last + 1})
	d.pass(time.Minute)
}

func missing() error { return drover.Errorf(drover.CodeNotFound, "no such command") }

// A record that has survived more than the log ignores nothing that the log got
// since, although it has seen the sequences before.
func TestACommandAfterALossOfTheLogIsFolded(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(3), nil)
	d.seq = 90
	d.deliver("r", "go1")
	d.deliver("r", "go2") // 92
	d.lose(80)
	d.deliver("r", "go0") // 81, 11 before what the record has seen
	d.end(OpLoad)
	if op := d.next(OpTrace); op.Seq != 92 || op.Run != "r" || !op.At.Equal(epoch) {
		t.Fatalf("it looks for command %d at %v", op.Seq, op.At)
	} else {
		d.p.Complete(op.ID, Result{Err: missing()})
	}
	s := d.state(d.end(OpCommit).Data)
	if s.Status != drover.StatusCompleted || s.Position() != 81 || s.Applied <= 92 {
		t.Errorf("the run is %s at %d, applied %d", s.Status, s.Position(), s.Applied)
	}
	d.settle()
	d.cursor(82)

	d.own(Options{Cursor: 81}) // the next owner repeats nothing, and looks for nothing
	d.p.Receive(Message{Seq: 81, At: d.now, Run: "r", Verb: "deliver", Data: []byte(`{"name":"go0"}`)})
	d.end(OpLoad)
	d.end(OpAct) // the outcome is owed still, as far as the record knows
	d.want("")
	d.cursor(82)
}

// A command that stands in the log before the one that the record has seen last is
// no other one, whatever its time.
func TestAClockOfTheLogThatWentBackRepeatsNothing(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(2), nil)
	d.deliver("r", "go1")
	d.settle()
	d.own(Options{Cursor: 2})
	d.p.Receive(Message{Seq: 2, At: d.now.Add(time.Minute), Run: "r", Verb: "deliver", Data: []byte(`{"name":"go0"}`)})
	d.end(OpLoad)
	d.end(OpTrace)
	if got := d.under(); got == "commit" {
		t.Error("it was folded once more")
	}
}

// Values keep to their sequences: none is stored under the key of another that the
// lost end of the log has left behind.
func TestAValueAfterALossOfTheLogHasAKeyOfItsOwn(t *testing.T) {
	d := newDriver(t, Options{})
	big, err := json.Marshal(string(make([]byte, 4<<10)))
	if err != nil {
		t.Fatal(err)
	}
	key := func() string {
		d.send("r", drover.VerbDeliver, drover.DeliverRequest{Name: "go0", Payload: big})
		for d.under() == "load" || d.under() == "trace" {
			if d.under() == "load" {
				d.end(OpLoad)
			} else {
				d.fail(OpTrace, missing())
			}
		}
		op := d.end(OpCommit)
		if len(op.Puts) != 1 {
			t.Fatalf("%d values are stored", len(op.Puts))
		}
		return op.Puts[0].Key
	}
	d.start("r", `{"nodes":{"w":{"wait":{"name":"go0","count":3}}},"output":{"from":"node:w"}}`, nil)
	d.settle()
	first := key()
	d.lose(1)
	if second := key(); first == second || first != subjects.DeliveredKey("r", 2) {
		t.Errorf("the keys are %s and %s", first, second)
	}
}
