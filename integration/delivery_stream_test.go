package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// However a run ends, and whatever it is, its end is in the stream of outcomes, as
// its subscribers are told it. Who consumes that durably from before the first run,
// and who begins after the last, both get all.
func TestDelivery03EveryEndIsInTheStream(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 2)
	w, _ := newProgrammed(f, 1)
	before := f.consumes("before")
	w.breeds = append(append([]breed{}, breeds...), programBreeds...)
	w.breeds = append(w.breeds, breed{
		name: "failed", input: `1`, status: drover.StatusFailed, says: "no room",
		definition: "nodes: {a: {call: refuse}}\noutput: {from: node:a}",
	})
	for i := range w.breeds {
		b := &w.breeds[i]
		run := drover.RunID(fmt.Sprintf("%s-%d", b.name, i))
		f.publish(run, drover.VerbStart, drover.StartRequest{
			Definition: text(b.definition), Input: json.RawMessage(b.input),
			Notify: drover.NotifyList{{Subject: told}}, Tags: map[string]string{"breed": b.name},
		})
		w.runs[run] = b
		if b.then != nil {
			w.follow(t.Context(), run, b)
		}
	}
	w.settle()
	w.check()
	var runs []drover.Run
	until(t, "the end of all runs, also of those that are started by others", func() bool {
		reply, err := f.List(t.Context(), drover.ListRequest{Limit: 1000})
		runs = reply.Runs
		for i := range runs {
			if !runs[i].Status.Terminal() {
				return false
			}
		}
		return err == nil && len(runs) > len(w.runs)
	})
	first, second := f.gets(before, len(runs)), f.gets(f.consumes("after"), len(runs))
	statuses := map[drover.Status]int{}
	for i := range runs {
		id := string(runs[i].ID)
		var o drover.Outcome
		data := first.same(t, id)
		if err := json.Unmarshal([]byte(data), &o); err != nil || o.Status != runs[i].Status || o.DeliveryID != drover.DeliveryID(id+":terminal") {
			t.Errorf("run %s is %s, and in the stream it is %q: %v", id, runs[i].Status, data, err)
		}
		if other := second.same(t, id); other != data {
			t.Errorf("run %s was in the stream\n%s\nand is\n%s", id, data, other)
		}
		statuses[o.Status]++
	}
	for _, status := range []drover.Status{drover.StatusCompleted, drover.StatusFailed, drover.StatusCancelled, drover.StatusCompensated} {
		if statuses[status] == 0 {
			t.Errorf("no run is %s: %v", status, statuses)
		}
	}
}

// consumes makes a durable consumer of all outcomes.
func (f *fleet) consumes(name string) jetstream.Consumer {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := f.js.CreateConsumer(ctx, names.Outcomes(), jetstream.ConsumerConfig{
		Durable: name, FilterSubject: names.DoneAll(), AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// gets takes the outcomes of so many runs from a consumer, by run.
func (f *fleet) gets(c jetstream.Consumer, runs int) *tally {
	f.t.Helper()
	got := newTally()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	feed, err := c.Messages()
	if err != nil {
		f.t.Fatal(err)
	}
	defer feed.Stop()
	for got.len() < runs {
		m, err := feed.Next(jetstream.NextContext(ctx))
		if err != nil {
			f.t.Fatalf("outcomes of %d of %d runs came: %v", got.len(), runs, err)
		}
		var o drover.Outcome
		if err := json.Unmarshal(m.Data(), &o); err != nil || m.Subject() != names.Done(o.Workflow, o.RunID) || m.Headers().Get(subjects.HeaderMessageID) != subjects.MessageID(string(o.DeliveryID), o.StartedAt) {
			f.t.Errorf("on %s there is %q with %v: %v", m.Subject(), m.Data(), m.Headers(), err)
		}
		got.add(string(o.RunID), string(m.Data()))
		if err := m.Ack(); err != nil {
			f.t.Error(err)
		}
	}
	return got
}
