package partition

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

var errUnknown = drover.Errorf(drover.CodeUnavailable, "nobody knows what became of it")

func TestWhatWaitsIsFoldedIntoOneCommit(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(5), nil)
	d.want("commit")
	for _, name := range []string{"go1", "go2", "go3"} {
		d.deliver("r", name)
	}
	d.want("commit") // the first is still under way
	d.end(OpCommit)
	d.want("commit")
	if op := d.end(OpCommit); d.state(op.Data).Applied != 4 {
		t.Errorf("the second commit applied %d, want all that waited", d.state(op.Data).Applied)
	}
	d.want("")
}

func TestABatchHasABound(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(2), nil)
	for range maxBatch + 10 {
		d.send("r", drover.VerbDeliver, drover.DeliverRequest{Name: "go1"})
	}
	d.end(OpCommit)
	if op := d.end(OpCommit); d.state(op.Data).Applied != 1+maxBatch {
		t.Errorf("applied %d", d.state(op.Data).Applied)
	}
	d.end(OpCommit)
}

func TestNothingIsPerformedBeforeItsCommit(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", afterWait, nil)
	d.want("commit")
	d.fail(OpCommit, ErrBusy)
	d.want("")
	d.pass(time.Second)
	d.want("commit")
	d.fail(OpCommit, errUnknown)
	d.pass(time.Second)
	d.want("load")
	d.end(OpLoad) // there is none
	d.want("commit")
	d.end(OpCommit)
	d.want("act")
	if got := calls(d.end(OpAct).Effects); got != "r/a@1" {
		t.Errorf("performed %q", got)
	}
}

func TestABusyCommitIsTriedAgainAsItIs(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", afterWait, nil)
	first := d.fail(OpCommit, ErrBusy)
	d.deliver("r", "go") // does not join
	d.pass(10 * time.Second)
	again := d.end(OpCommit)
	if string(first.Data) != string(again.Data) || first.Revision != again.Revision {
		t.Error("another write was tried after a busy one")
	}
	d.settle()
}

func TestARefusalIsADeadLetterBeforeAnythingLaterIsCommitted(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(3), nil)
	d.deliver("r", "go1")
	bad := d.deliver("r", "nothing")
	d.deliver("r", "go2")
	d.end(OpCommit)
	if op := d.end(OpCommit); d.state(op.Data).Applied != 2 {
		t.Fatalf("applied %d, want what was before the refusal", d.state(op.Data).Applied)
	}
	d.want("dead")
	if op := d.fail(OpDead, errUnknown); op.Message.Seq != bad || op.Err == nil || len(op.Message.Data) == 0 {
		t.Errorf("dead letter %+v", op)
	}
	d.want("")
	d.pass(time.Second)
	d.cursor(bad)
	d.end(OpDead)
	d.want("commit")
	d.end(OpCommit)
	d.want("")
}

func TestAnAnswerIsGivenInPlaceOfADeadLetter(t *testing.T) {
	d := newDriver(t, Options{})
	d.p.Receive(Message{Seq: 1, At: d.now, Run: "r", Verb: "stop", Reply: "inbox"})
	d.end(OpLoad)
	d.want("")
	if len(d.sent) != 1 || d.sent[0].Reply != "inbox" || d.sent[0].Err.Code != drover.CodeNotFound {
		t.Errorf("sent %+v", d.sent)
	}
	d.cursor(2)
}

func TestGarbageStopsNobody(t *testing.T) {
	d := newDriver(t, Options{})
	d.send("a b", "start", []byte("{"))
	d.send("r", "start", []byte("{"))
	d.send("r", "explode", nil)
	d.send("", "", nil)
	d.start("other", waits(1), nil)
	d.end(OpCommit)
	d.settle()
	d.cursor(6)
}

func TestAConflictIsSettledByTheRecord(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", afterWait, nil)
	d.end(OpCommit)
	d.end(OpAct)
	d.deliver("r", "go")
	mine := d.next(OpCommit)
	// Another owner folded the same command, and died before it acted.
	d.happen(mine)
	d.p.Complete(mine.ID, Result{Err: ErrConflict})
	d.want("load")
	d.end(OpLoad)
	d.want("act") // what the other owed, once; nothing is folded again
	if got := calls(d.end(OpAct).Effects); got != "r/b@1" {
		t.Errorf("performed %q", got)
	}
	d.want("")
	d.cursor(2) // until the next wake-up is durable
	d.pass(time.Minute)
	d.end(OpSchedule)
	d.cursor(3)
}

func TestWhatHasHappenedIsNotRepeatedAfterAnUnknownCommit(t *testing.T) {
	for name, happened := range map[string]bool{"it was not written": false, "it was written": true} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, Options{})
			d.start("r", afterWait, nil)
			d.end(OpCommit)
			d.end(OpAct) // a
			d.deliver("r", "go")
			op := d.next(OpCommit)
			if happened {
				d.happen(op)
			}
			d.p.Complete(op.ID, Result{Err: errUnknown})
			d.pass(time.Second)
			d.end(OpLoad)
			if !happened {
				d.want("commit")
				d.end(OpCommit)
			}
			if got := calls(d.end(OpAct).Effects); got != "r/b@1" {
				t.Errorf("performed %q", got)
			}
			d.want("")
		})
	}
}

func TestWhatIsUnderWayIsNotRepeatedAfterAnUnknownCommit(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", afterWait, nil)
	d.end(OpCommit)
	act := d.next(OpAct) // the queue is slow
	d.deliver("r", "go")
	d.fail(OpCommit, errUnknown)
	d.pass(time.Second)
	d.end(OpLoad)
	d.want("commit")
	if op := d.end(OpCommit); len(d.state(op.Data).Owed) != 2 {
		t.Errorf("the record owes %+v, want both calls", d.state(op.Data).Owed)
	}
	d.want("") // acts of a run happen in order
	d.pass(time.Minute)
	d.cursor(1)
	d.p.Complete(act.ID, Result{})
	if got := calls(d.end(OpAct).Effects); got != "r/b@1" {
		t.Errorf("performed %q", got)
	}
}

func TestAnActIsRepeatedUntilItHasHappened(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", afterWait, nil)
	d.end(OpCommit)
	for range 5 {
		if got := calls(d.fail(OpAct, errUnknown).Effects); got != "r/a@1" {
			t.Errorf("performed %q", got)
		}
		d.cursor(1)
		d.pass(10 * time.Second)
		if strings.Contains(d.under(), "schedule") {
			d.end(OpSchedule)
		}
	}
	d.end(OpAct)
	d.cursor(2)
}

func TestOnlyTheCulpritOfAnImpossibleCommitIsBuried(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(4), nil)
	d.deliver("r", "go1")
	bad := d.deliver("r", "go2")
	d.deliver("r", "go3")
	d.end(OpCommit)
	for {
		d.take()
		if d.under() == "" {
			break
		}
		op := d.open[0]
		switch {
		case op.Kind == OpDead:
			if op.Message.Seq != bad || op.Err.Code != drover.CodeTooLarge {
				t.Errorf("buried command %d: %v", op.Message.Seq, op.Err)
			}
			d.end(OpDead)
		case op.Kind == OpCommit && d.has(op, 2):
			d.fail(OpCommit, ErrImpossible)
		default:
			d.end(op.Kind)
		}
	}
	s := d.state(d.records["r"].Data)
	if s.Applied != 4 || s.Nodes[1].Status != machine.MarkDone || s.Nodes[2].Status == machine.MarkDone || s.Nodes[3].Status != machine.MarkDone {
		t.Errorf("applied %d, nodes %+v", s.Applied, s.Nodes)
	}
	d.cursor(5)
}

// has reports whether a commit has a node done.
func (d *driver) has(op *Op, node int) bool {
	return d.state(op.Data).Nodes[node].Status == machine.MarkDone
}

func TestTheCursorWaitsForTheWakeUp(t *testing.T) {
	d := newDriver(t, Options{CoverAfter: 10 * time.Second})
	d.start("r", afterWait, nil)
	d.cursor(1)
	d.end(OpCommit)
	d.cursor(1)
	d.end(OpAct)
	d.cursor(1)
	d.pass(9 * time.Second)
	d.want("")
	d.pass(time.Second)
	d.want("schedule")
	d.cursor(1)
	if op := d.fail(OpSchedule, errUnknown); !op.At.Equal(epoch.Add(time.Hour - 300*time.Millisecond)) {
		t.Errorf("a wake-up at %v", op.At)
	}
	d.pass(time.Second)
	d.end(OpSchedule)
	d.cursor(2)
}

// The answer of the server may be slower than the wake-up itself.
func TestAWakeUpThatHasComeIsNotCountedOn(t *testing.T) {
	d := newDriver(t, Options{CoverAfter: 10 * time.Second})
	d.start("r", `{"nodes":{"s":{"sleep":"12s"}},"output":{"from":"node:s"}}`, nil)
	d.end(OpCommit)
	d.pass(10 * time.Second)
	d.want("schedule")
	d.pass(1800 * time.Millisecond)
	d.send("r", drover.VerbTick, nil) // 200 ms early
	d.end(OpSchedule)
	d.pass(time.Second)
	d.want("schedule tick")
}

// The server wakes a run a little early and not to the millisecond; the owner
// does the rest, and the command of the server is done only when that has come.
func TestAParkedRunIsWokenAtItsDeadline(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", `{"nodes":{"s":{"sleep":"1h"}},"output":{"from":"node:s"}}`, nil)
	d.end(OpCommit)
	d.pass(30 * time.Second)
	d.end(OpSchedule)
	d.pass(30 * time.Second)
	d.cursor(2)
	if d.p.runs["r"] != nil {
		t.Fatal("a parked run is still in memory")
	}
	d.pass(time.Hour - time.Minute - 200*time.Millisecond)
	d.send("r", drover.VerbTick, nil) // the server's, 200 ms early
	d.end(OpLoad)
	d.want("")
	d.cursor(2)
	d.pass(199 * time.Millisecond)
	d.want("")
	d.pass(time.Millisecond)
	d.end(OpTick)
	d.send("r", drover.VerbTick, nil)
	if s := d.state(d.next(OpCommit).Data); s.Status != drover.StatusCompleted {
		t.Errorf("at its deadline the run is %s", s.Status)
	}
}

func TestAStuckRunHoldsTheCursorAndNoMemory(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("stuck", afterWait, nil)
	d.end(OpCommit)
	d.next(OpAct) // never ends
	for range 1000 {
		d.start("quick", `{"nodes":{"s":{"set":{"with":1}}},"output":{"from":"node:s"}}`, nil)
		d.settle()
	}
	d.cursor(1)
	n := 0
	for it := d.p.order.first; it != nil; it = it.after {
		n++
	}
	if n != 1 || len(d.p.runs) != 1 {
		t.Errorf("%d commands and %d runs are kept, one is not done", n, len(d.p.runs))
	}
}

func TestAParkedRunIsLetGoAndRepeatsNothing(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("stuck", afterWait, nil) // the cursor stays here
	d.end(OpCommit)
	d.next(OpAct)
	d.start("r", afterWait, nil)
	d.end(OpCommit)
	d.end(OpAct)
	d.pass(time.Minute)
	d.end(OpSchedule)
	d.end(OpSchedule)
	d.pass(time.Minute)
	if d.p.runs["r"] != nil {
		t.Fatal("a parked run is still in memory")
	}
	d.deliver("r", "go")
	d.end(OpLoad)
	d.end(OpCommit)
	if got := calls(d.end(OpAct).Effects); got != "r/b@1" {
		t.Errorf("performed %q", got)
	}
}

func TestTheNextOwnerRepeatsWhatIsOwedAndFoldsNothingTwice(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", afterWait, nil)
	d.deliver("r", "go")
	d.end(OpCommit)
	d.end(OpCommit)
	// It dies before it acts. The log is read again.
	cursor := d.p.Cursor()
	d.own(Options{Cursor: cursor})
	d.seq = 0
	d.start("r", afterWait, nil)
	d.deliver("r", "go")
	d.fail(OpCommit, ErrConflict)
	d.end(OpLoad)
	if got := calls(d.end(OpAct).Effects); got != "r/a@1 r/b@1" {
		t.Errorf("performed %q", got)
	}
	d.want("")
}

func TestWhatCameBeforeIsIgnored(t *testing.T) {
	d := newDriver(t, Options{Cursor: 5})
	for _, seq := range []uint64{1, 4, 6, 6, 5, 2} {
		d.p.Receive(Message{Seq: seq, At: d.now, Run: "r", Verb: "stop"})
	}
	d.end(OpLoad)
	if op := d.end(OpDead); op.Message.Seq != 6 {
		t.Errorf("buried %d", op.Message.Seq)
	}
	d.settle()
	d.cursor(7)
}

func TestEndsThatNobodyAwaitsAreIgnored(t *testing.T) {
	d := newDriver(t, Options{})
	d.p.Complete(17, Result{Err: errors.New("what")})
	d.start("r", waits(1), nil)
	op := d.next(OpCommit)
	d.p.Complete(op.ID, d.happen(op))
	d.p.Complete(op.ID, Result{Err: ErrConflict})
	d.want("")
}

func TestARecordThatCannotBeReadHoldsOnlyItsRun(t *testing.T) {
	d := newDriver(t, Options{})
	d.records["r"] = Result{Data: []byte("of another version"), Revision: 1}
	d.deliver("r", "go")
	for range 10 {
		d.end(OpLoad)
		d.pass(10 * time.Second)
	}
	d.start("other", waits(1), nil)
	d.end(OpCommit)
	d.cursor(1)
	if d.p.Quiet() {
		t.Error("it is quiet although a command is not done")
	}
}

// A child may outlive the record of its parent: what it says then is done with, and
// is no dead letter.
func TestAChildOfARunThatIsGoneIsDoneWith(t *testing.T) {
	d := newDriver(t, Options{})
	call := drover.CallID{Run: "r", Node: "c", Item: drover.NoItem, Attempt: 1}
	d.send("r", drover.VerbChild, drover.ChildMessage{Call: call, Token: "t", Child: drover.ChildRunID(call), Status: drover.StatusCompleted})
	d.want("load")
	d.end(OpLoad) // there is none
	d.want("")
	if d.p.Cursor() != 2 {
		t.Errorf("the cursor is at %d", d.p.Cursor())
	}
}
