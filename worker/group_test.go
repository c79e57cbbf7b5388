package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// Runs end as they should where writes share a sync, also over the end of the
// server, and batches are what they are written in.
func TestWritesShareASync(t *testing.T) {
	s := natstest.New(t, natstest.With(func(o *server.Options) { o.SyncAlways = true }))
	beginOn(t, s.Connect(), worker.Options{Name: "one", GroupWrites: true})
	var c counter
	ctx, cancel := context.WithCancel(context.Background())
	fns, err := function.NewServer(s.Connect(), function.Options{GroupWrites: true}, c.function())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- fns.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	js := s.JetStream()
	const runs = 300
	for i := range runs {
		if i == runs/2 {
			<-js.PublishAsyncComplete()
			s.Restart() // while they run
		}
		data, _ := json.Marshal(stepsFrom(t, "0"))
		if _, err := js.PublishAsync(subjects.Default().In(drover.RunID(fmt.Sprintf("r%d", i)), drover.VerbStart), data); err != nil {
			t.Fatal(err)
		}
	}
	kept(t, s, runs)
	for _, stream := range []string{subjects.BucketStream(subjects.Default().Runs()), subjects.Default().Outcomes()} {
		if n := batched(t, js, stream); n == 0 {
			t.Errorf("nothing in %s was written in a batch", stream)
		}
	}
}

// batched is how many messages of a stream were written in batches.
func batched(t *testing.T, js jetstream.JetStream, stream string) int {
	t.Helper()
	c, err := js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for left := c.CachedInfo().NumPending; left > 0; left-- {
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Headers().Get(subjects.HeaderBatch) != "" {
			n++
		}
	}
	return n
}
