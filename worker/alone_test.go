package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/worker"
)

// A worker that is alone takes over from one that died at once, however long the
// lease of that one is.
func TestAWorkerThatIsAloneWaitsForNoLease(t *testing.T) {
	s := natstest.New(t)
	lead := func(name string, alone bool) (crash func()) {
		nc := s.Connect()
		w, err := worker.New(nc, worker.Options{Name: name, Lease: time.Hour, Alone: alone, DrainTimeout: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }() // crash waits for it
		select {
		case <-w.Ready():
		case err := <-done:
			t.Fatalf("worker %s did not begin: %v", name, err)
		}
		return func() {
			nc.Close()
			cancel()
			<-done
		}
	}
	lead("first", false)()
	lead("second", true)()
}
