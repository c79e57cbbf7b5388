package publish

import (
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover/internal/natstest"
)

// The two benchmarks send the same to the same stream, as many in flight.
const inFlight = 4096

func BenchmarkPublisher(b *testing.B) {
	_, _, p := open(b, Options{MaxInFlight: inFlight})
	payload := make([]byte, 200)
	var all sync.WaitGroup
	all.Add(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		p.Publish(&nats.Msg{Subject: "s.x", Data: payload}, func(_ Ack, err error) {
			if err != nil {
				b.Error(err)
			}
			all.Done()
		})
	}
	all.Wait()
}

func BenchmarkPublishMsgAsync(b *testing.B) {
	_, nc, _ := open(b, Options{})
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight))
	if err != nil {
		b.Fatal(err)
	}
	defer js.CleanupPublisher()
	natstest.JetStream(b, nc)
	payload := make([]byte, 200)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: "s.x", Data: payload}); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}
