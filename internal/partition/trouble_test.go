package partition

import (
	"errors"
	"testing"
	"time"
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
