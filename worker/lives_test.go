package worker_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// A run that has the id of one that was removed a moment ago tells everybody how it
// ended: no stream takes that for a repeat of what the old one told.
func TestDelivery11ARunWithTheIDOfOneThatWasJustRemovedIsTold(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "one")
	a := newAudience(t, s)
	kept, err := s.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept.>"}})
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.JetStream().Stream(t.Context(), subjects.Default().Outcomes())
	if err != nil {
		t.Fatal(err)
	}
	const echo = "nodes: {a: {set: {with: '${{ input }}'}}}\noutput: {from: node:a}\n"
	for n, input := range []string{`"old"`, `"new"`} {
		_, err := a.Start(t.Context(), drover.StartRequest{
			RunID: "r", Definition: text(t, echo), Input: []byte(input), Notify: drover.NotifyList{{StreamSubject: "kept.r"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		a.recorded(drover.DeliveryDelivered, drover.DeliveryIDOf("r", 0))
		for _, stream := range []jetstream.Stream{done, kept} {
			m, err := last(t, stream, uint64(n+1))
			var o drover.Outcome
			if err != nil || json.Unmarshal(m, &o) != nil || string(o.Result) != input {
				t.Errorf("%s has %s, error %v; want one more, of %s", stream.CachedInfo().Config.Name, m, err, input)
			}
		}
		retire(t, s, "r")
	}
}

// last gives the message of a stream with a number, once it is there.
func last(t *testing.T, stream jetstream.Stream, sequence uint64) ([]byte, error) {
	t.Helper()
	c, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: sequence,
	})
	if err != nil {
		return nil, err
	}
	m, err := c.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		return nil, err
	}
	return m.Data(), nil
}
