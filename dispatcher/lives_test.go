package dispatcher

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// A run id may be used anew once its run was removed. What is published of the new
// run is no repeat of what was published of the old one, however late that was: a
// stream that took it for one would drop it, and nobody would be told, or asked.
func TestDelivery11TheLivesOfARunIDAreToldApart(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	lives := []time.Time{time.UnixMilli(1000), time.UnixMilli(1001)}
	for _, started := range lives {
		done := deliverEffect("", 0)
		done.Kind, done.Delivery, done.Outcome.StartedAt = machine.EffectDone, nil, started
		drive := machine.Effect{
			Owed: machine.Owed{Kind: machine.EffectDrive, Attempt: 1}, Run: run,
			Call: &machine.Call{
				ID: drover.CallID{Run: run, Node: "_drive", Item: drover.NoItem, Attempt: 1}, Function: "program.p", Token: "tok",
			},
			Drive: &drover.DriveRequest{RunID: run, Program: "p", Drive: 1, Token: "tok", Started: started},
		}
		for range 2 { // after a crash, say
			f.perform(d, done, drive)
		}
	}
	if n := f.count(f.names.Outcomes(), ">"); n != len(lives) {
		t.Errorf("%d outcomes of %d lives", n, len(lives))
	}
	if n := f.count(f.names.Calls(), ">"); n != len(lives) {
		t.Errorf("%d drives of %d lives", n, len(lives))
	}
}
