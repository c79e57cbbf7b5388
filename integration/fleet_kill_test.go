package integration_test

import (
	"testing"

	"github.com/droverhq/drover/internal/natstest"
)

// Workers are killed one after another, each with hundreds of runs in flight,
// and others take their place. Every run ends as it should, has one outcome, and
// its subscriber is told.
func TestFleetWorkersAreKilled(t *testing.T) {
	t.Parallel()
	inFlight, kills := 500, 6
	if testing.Short() {
		inFlight, kills = 100, 2
	}
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	c := newCrew(f, 3)
	w := newToil(f)
	enough := w.beneath(inFlight)
	for range kills {
		w.goesOn(inFlight / 4)
		dead := c.oldest()
		had := owned(f.placed(), dead)
		c.kill(dead)
		c.hire()
		if now := c.settled(); !passedOn(had, now) {
			t.Errorf("worker %s had %v, and now it is %v", dead, had, now)
		}
	}
	enough()
	w.allTold()
	w.check()
	t.Logf("%d kills, %d runs", kills, len(w.runs))
}
