package delivery

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// A stream drops what comes again of one run, and takes what comes of the next one
// with its id.
func TestDelivery11AStreamTellsTheLivesOfARunIDApart(t *testing.T) {
	w := newWorld(t, natstest.New(t))
	stream := w.stream("KEPT", "kept")
	old := w.job(drover.Notify{StreamSubject: "kept"})
	outcome := *old.Outcome
	outcome.StartedAt = outcome.StartedAt.Add(time.Millisecond)
	next := *old
	next.Outcome = &outcome
	for _, j := range []*Job{old, old, &next, &next} {
		m, bad := Message(w.d.opts.Names, 1<<20, []*Job{j})
		if bad != nil {
			t.Fatal(bad)
		}
		if _, err := w.nc.RequestMsg(m, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != 2 {
		t.Errorf("the stream has %+v; want one outcome of each", info.State)
	}
}
