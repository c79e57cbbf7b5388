package partition

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// TestARecordThatStaysUnreadableFreesTheCursor: what waits for it becomes dead
// letters in the end, and the record stays as it is.
func TestARecordThatStaysUnreadableFreesTheCursor(t *testing.T) {
	d := newDriver(t, Options{})
	d.records["r"] = Result{Data: []byte("of another version"), Revision: 1}
	d.deliver("r", "go")
	reads := 0
	for d.under() == "load" {
		if reads++; reads > 10*hopeless {
			t.Fatal("it is read for ever")
		}
		d.end(OpLoad)
		d.pass(longPause)
	}
	if reads < hopeless {
		t.Errorf("it was given up after %d reads", reads)
	}
	d.end(OpDead)
	d.cursor(2)
	if string(d.records["r"].Data) != "of another version" {
		t.Errorf("the record is %q", d.records["r"].Data)
	}
}

// TestATickForARecordThatIsGivenUpIsALetter: the timer of such a run is its only
// way on once the record is mended.
func TestATickForARecordThatIsGivenUpIsALetter(t *testing.T) {
	d := newDriver(t, Options{})
	d.records["r"] = Result{Data: []byte("of another version"), Revision: 1}
	d.send("r", drover.VerbTick, nil)
	for reads := 0; d.under() == "load"; d.pass(longPause) {
		if reads++; reads > 10*hopeless {
			t.Fatal("it is read for ever")
		}
		d.end(OpLoad)
	}
	d.send("r", drover.VerbTick, nil) // while the first letter is on its way
	d.end(OpDead)
	d.end(OpDead)
	d.cursor(3)
}

// TestCommitsThatFailBackOff: a store that can be read but not written is not
// written to all the time.
func TestCommitsThatFailBackOff(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(1), nil)
	commits := 0
	for end := d.now.Add(5 * time.Minute); d.now.Before(end); d.pass(firstPause) {
		switch d.under() {
		case "commit":
			commits++
			d.fail(OpCommit, errors.New("no room"))
		case "load":
			d.end(OpLoad)
		}
	}
	if commits < 10 || commits > 100 {
		t.Errorf("%d commits were tried in five minutes", commits)
	}
}

// TestARecordThatCannotBeReadHoldsNoGate: what waits for it does not count as
// queued, however big; where there is too much of it, it becomes dead letters
// sooner, and what comes soon afterwards at once.
func TestARecordThatCannotBeReadHoldsNoGate(t *testing.T) {
	d := newDriver(t, Options{})
	d.records["r"] = Result{Data: []byte("of another version"), Revision: 1}
	big := drover.DeliverRequest{Name: "go", Payload: json.RawMessage(`"` + strings.Repeat("x", 1<<20-9) + `"`)}
	d.send("r", drover.VerbDeliver, big)
	d.end(OpLoad)
	d.send("r", drover.VerbDeliver, big)
	if n, bytes := d.p.Queued(); n != 0 || bytes != 0 {
		t.Errorf("%d commands with %d bytes hold others back", n, bytes)
	}
	d.send("r", drover.VerbDeliver, big)
	d.pass(longPause)
	d.end(OpLoad)
	d.want("dead dead dead")
	d.settle()
	d.cursor(4)

	d.deliver("r", "go")
	d.end(OpLoad)
	d.want("dead")
	d.settle()
	if n, bytes := d.p.Queued(); n != 0 || bytes != 0 || d.p.parked != 0 {
		t.Errorf("%d commands with %d bytes count, and %d bytes wait", n, bytes, d.p.parked)
	}

	rec := newDriver(t, Options{}) // a binary that can read it is asked in the end
	rec.start("r", waits(1), nil)
	rec.settle()
	good := rec.records["r"]
	d.plans = rec.plans
	d.pass(givenUp)
	d.deliver("r", "go0")
	d.end(OpLoad)
	d.pass(time.Second)
	d.records["r"] = good
	d.end(OpLoad)
	if op := d.next(OpCommit); d.state(op.Data).Status != drover.StatusCompleted {
		t.Error("it is not gone on with")
	}
	if n, _ := d.p.Queued(); n != 1 {
		t.Errorf("%d commands are queued", n)
	}
}

// TestAPlanThatCannotBeMadeIsGivenUp: an error of the definition does not pass.
func TestAPlanThatCannotBeMadeIsGivenUp(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(1), nil)
	d.settle()
	d.own(Options{Cursor: 2})
	d.far = true
	d.deliver("r", "go0")
	for range hopeless + 1 {
		d.end(OpLoad)
		d.fail(OpResolve, drover.Errorf(drover.CodeTooLarge, "it has too many nodes"))
		d.pass(longPause)
	}
	d.want("dead")
}
