package worker_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// The timer of a run that ends before it is due is replaced by nothing, so that the
// server does not remember it for as long as the run might have waited.
func TestATimerGoesWithTheEndOfItsRun(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream()
	beginOn(t, s.Connect(), worker.Options{CoverAfter: time.Millisecond})
	timers, err := js.OrderedConsumer(t.Context(), subjects.Default().Commands(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjects.Default().TimersOf("r")},
	})
	if err != nil {
		t.Fatal(err)
	}
	next := func() jetstream.Msg {
		m, err := timers.Next(jetstream.FetchMaxWait(patience))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	publish(t, js, "r", drover.VerbStart, drover.StartRequest{Definition: text(t, "nodes: {w: {wait: {name: go, timeout: 720h}}}\noutput: {from: node:w}\n")})
	set := next()
	if set.Headers().Get(subjects.HeaderSchedule) == "" {
		t.Fatalf("the timer has the headers %v", set.Headers())
	}
	publish(t, js, "r", drover.VerbDeliver, drover.DeliverRequest{Name: "go"})
	gone := next()
	if gone.Subject() != set.Subject() || gone.Headers().Get(subjects.HeaderSchedule) != "" {
		t.Fatalf("%s has the headers %v, after the timer %s", gone.Subject(), gone.Headers(), set.Subject())
	}
	stream, err := js.Stream(t.Context(), subjects.Default().Commands())
	if err != nil {
		t.Fatal(err)
	}
	meta, err := set.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.GetMsg(t.Context(), meta.Sequence.Stream); err == nil {
		t.Error("the timer is there still")
	}
}
