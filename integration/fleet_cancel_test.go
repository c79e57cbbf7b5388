package integration_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// Calls that nobody has pulled when they are given up are never performed: neither
// items of a fan-out that failed, nor attempts whose time was up, also where the run
// goes on.
func TestFleetGivesUpCallsThatWaitInTheQueue(t *testing.T) {
	t.Parallel()
	f, _ := dev(t)
	queued := func(run drover.RunID, function drover.FunctionName) uint64 {
		stream, err := f.js.Stream(t.Context(), names.Calls())
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(names.Call(run, function)))
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Subjects[names.Call(run, function)]
	}
	start := func(run drover.RunID, definition string) {
		f.publish(run, drover.VerbStart, drover.StartRequest{Definition: text(definition), Input: []byte(`[1,2,3,4,5]`)})
	}

	start("items", "nodes: {a: {call: f, fanout: {over: run_input}}, b: {wait: {name: go}}}\noutput: {with: [\"${{ nodes.a.output }}\", \"${{ nodes.b.output }}\"]}\n")
	until(t, "five calls", func() bool { return queued("items", "f") == 5 })
	f.failOne("f")
	if o := f.outcome("items"); o.Status != drover.StatusFailed {
		t.Errorf("the run with the items is %s: %v", o.Status, o.Error)
	}
	until(t, "an empty queue", func() bool { return queued("items", "f") == 0 })

	start("late", "nodes: {a: {call: nobody, timeout: 300ms, retry: {max_attempts: 2, initial: 10ms}, on_error: continue}, b: {wait: {name: go}, depends_on: [a], require: terminal}}\noutput: {from: \"node:b\"}\n")
	f.publish("late", drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: number(5)})
	f.completes("late", "5")
	until(t, "a queue without the attempts", func() bool { return queued("late", "nobody") == 0 })
}

// failOne takes one call of a function as an instance does, and says that it failed.
func (f *fleet) failOne(function drover.FunctionName) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	consumer, err := f.js.CreateConsumer(ctx, names.Calls(), jetstream.ConsumerConfig{
		Durable: names.Consumer(function), FilterSubject: names.CallsTo(function), AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	m, err := consumer.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		f.t.Fatal(err)
	}
	id, err := drover.ParseCallID(m.Headers().Get(subjects.HeaderCall))
	if err != nil {
		f.t.Fatal(err)
	}
	f.publish(id.Run, drover.VerbResult, drover.ResultMessage{
		Call: id, Token: m.Headers().Get(subjects.HeaderToken), Instance: "test",
		Error: &drover.Error{Code: drover.CodeFailed, Message: "bad item", Permanent: true},
	})
	if err := m.DoubleAck(ctx); err != nil {
		f.t.Fatal(err)
	}
}
