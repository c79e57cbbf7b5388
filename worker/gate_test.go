package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
)

// An owner whose runs have all the memory that they may takes no more commands, but
// for one now and then: it may be what they wait for.
func TestAnOwnerWithoutRoomTakesACommandNowAndThen(t *testing.T) {
	o := &owner{w: &Worker{}, room: newGate(1 << 20), saved: time.Now()}
	o.p = partition.New(partition.Options{
		Memory: 1, Secret: newSecret, Plan: func(*drover.StartRequest, drover.Hash) *machine.Plan { return nil },
	})
	o.p.Advance(time.Now())
	o.held.Cursor = o.p.Cursor()
	for n := uint64(1); o.p.Room() > 0; n++ {
		o.p.Receive(partition.Message{Seq: n, At: time.Now(), Run: fmt.Sprint("r", n), Verb: "tick"})
	}
	if o.patience() > trickleEvery {
		t.Errorf("it sleeps for %v", o.patience())
	}
	o.trickled = time.Now().Add(time.Hour) // just now
	o.makeRoom(load{})
	if !o.room.full() {
		t.Error("a command may pass although there is no room for its run")
	}
	o.trickled = time.Time{}
	o.makeRoom(load{})
	if o.room.full() || o.trickled.IsZero() {
		t.Error("nothing may pass, after a while")
	}
	o.room.enter(1)
	if !o.room.full() {
		t.Error("more than one may pass")
	}
}
