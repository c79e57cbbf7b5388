package integration_test

import (
	"context"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// Every worker is asked to end and replaced, with hundreds of runs in flight.
// Nobody notices: no request fails, no call comes twice, nothing is given up.
func TestFleetRollingRestart(t *testing.T) {
	t.Parallel()
	inFlight, stops := 500, 6
	if testing.Short() {
		inFlight, stops = 100, 3
	}
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	c := newCrew(f, 3, patient...)
	w := newToil(f)
	publish, starts := w.start, 0
	w.start = func(ctx context.Context, req drover.StartRequest) error {
		if starts++; starts%20 != 0 {
			return publish(ctx, req)
		}
		_, err := f.Start(context.WithoutCancel(ctx), req) // which waits for the owner of the run
		if err != nil {
			t.Errorf("run %s: %v", req.RunID, err)
		}
		return err
	}
	enough := w.beneath(inFlight)
	for range stops {
		w.goesOn(inFlight / 4)
		c.ask(c.oldest())
		c.hire()
		c.settled()
	}
	enough()
	c.undisturbed()
	w.allTold()
	w.check() // and no dead letters
	for _, id := range w.calls.keys() {
		if n := len(w.calls.of(id)); n != 1 || !strings.HasSuffix(id, "@1") {
			t.Errorf("call %s came %d times, although nothing crashed", id, n)
		}
	}
	for run := range w.runs {
		if n := len(w.told.of(string(run))); n != 1 {
			t.Errorf("the outcome of run %s was told %d times, although nothing crashed", run, n)
		}
	}
	t.Logf("%d workers ended, %d runs", stops, len(w.runs))
}
