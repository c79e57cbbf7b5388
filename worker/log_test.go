package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/worker"
)

// lines is a log whose messages can be waited for.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	var line struct{ Message string }
	if json.Unmarshal(p, &line) == nil {
		l <- line.Message
	}
	return len(p), nil
}

// until gives the messages up to one.
func (l lines) until(t *testing.T, message string) []string {
	t.Helper()
	var got []string
	for timeout := time.After(time.Minute); ; {
		select {
		case line := <-l:
			if got = append(got, line); line == message {
				return got
			}
		case <-timeout:
			t.Fatalf("the log has no %q, but %q", message, got)
		}
	}
}

// An operator sees that a worker has joined and what its share is, in one line
// each, and that it lost its lease and is back.
func TestAWorkerTellsOfItsShare(t *testing.T) {
	s := natstest.New(t)
	log := make(lines, 1000)
	nc := s.Connect()
	ctx, cancel := context.WithCancel(context.Background())
	w := newWorker(t, nc, worker.Options{Name: "a", Logger: zerolog.New(log).Level(zerolog.InfoLevel), Settings: topology.Settings{Partitions: 8}})
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if got := log.until(t, "owns 8 of 8 partitions"); !slices.Equal(got, []string{"joined the fleet", "owns 8 of 8 partitions"}) {
		t.Errorf("the log says %q", got)
	}
	b := beginOn(t, s.Connect(), worker.Options{Name: "b"})
	if got := log.until(t, "owns 4 of 8 partitions"); len(got) != 1 {
		t.Errorf("the log says %q when another worker has joined", got)
	}
	b.end(t)
	log.until(t, "owns 8 of 8 partitions")
	// One that thinks it is alone ends the lease of the others.
	beginOn(t, s.Connect(), worker.Options{Name: "c", Alone: true})
	log.until(t, "rejoined the fleet")
	log.until(t, "owns 4 of 8 partitions")
}
