package worker_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
)

const parked = `
nodes: {w: {wait: {name: go}}}
output: {from: node:w}
`

// beginNew replaces the log by one that has nothing, as a server does that lost its
// power before it had synced any of it, or that got a backup.
func beginNew(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if err := js.DeleteStream(t.Context(), subjects.Default().Commands()); err != nil {
		t.Fatal(err)
	}
	if _, err := topology.Ensure(t.Context(), js, subjects.Default(), topology.Settings{}); err != nil {
		t.Fatal(err)
	}
}

// parkedRuns starts runs that wait, and moves the cursors past their commands.
func parkedRuns(t *testing.T, js jetstream.JetStream, done <-chan drover.Outcome) {
	t.Helper()
	for _, run := range []string{"a", "b", "c", "d"} {
		publish(t, js, run, drover.VerbStart, drover.StartRequest{Definition: text(t, parked)})
		for range 5 {
			publish(t, js, run, drover.VerbDeliver, drover.DeliverRequest{Name: "nothing that it waits for"})
		}
	}
	for _, run := range []drover.RunID{"a", "b", "c", "d"} { // an answer comes once all before it is folded
		inbox := js.Conn().NewInbox()
		answers, err := js.Conn().SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		m := &nats.Msg{Subject: subjects.Default().In(run, drover.VerbTick), Header: nats.Header{subjects.HeaderReply: {inbox}}}
		if _, err = js.PublishMsg(t.Context(), m); err == nil {
			_, err = answers.NextMsg(patience)
		}
		if err != nil {
			t.Fatalf("run %s: %v", run, err)
		}
	}
	publish(t, js, "last", drover.VerbStart, drover.StartRequest{Definition: text(t, "nodes: {a: {set: {with: 1}}}\noutput: {from: node:a}\n")})
	<-done
}

// goOn sends to runs from before the loss, and to new ones.
func goOn(t *testing.T, js jetstream.JetStream) (runs map[drover.RunID]bool) {
	t.Helper()
	runs = map[drover.RunID]bool{"a": true, "b": true, "c": true, "d": true, "e": true, "f": true}
	for _, run := range []string{"e", "f"} {
		publish(t, js, run, drover.VerbStart, drover.StartRequest{Definition: text(t, parked)})
	}
	for run := range runs {
		publish(t, js, string(run), drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: []byte(`"` + run + `"`)})
	}
	return runs
}

// ended waits until runs have ended as they should.
func ended(t *testing.T, runs map[drover.RunID]bool, done <-chan drover.Outcome) {
	t.Helper()
	late := time.After(patience)
	for len(runs) > 0 {
		select {
		case o := <-done:
			if o.Status != drover.StatusCompleted || string(o.Result) != `"`+string(o.RunID)+`"` {
				t.Errorf("run %s is %s: %s %v", o.RunID, o.Status, o.Result, o.Error)
			}
			delete(runs, o.RunID)
		case <-late:
			t.Fatalf("commands that were acknowledged after the loss are ignored: %v did not end", runs)
		}
	}
}

// The log has lost its end while cursors and records have not. What is acknowledged
// afterwards has sequences that they have seen before, and is done nevertheless.
func TestCommandsAfterALossOfTheLogAreDone(t *testing.T) {
	for name, others := range map[string]int{"that is behind the cursors": 0, "that is past them again": 40} {
		t.Run(name, func(t *testing.T) {
			s := natstest.New(t)
			js := s.JetStream()
			done := outcomes(t, s)
			first := begin(t, s, "first")
			parkedRuns(t, js, done)
			first.end(t)
			beginNew(t, js)
			runs := goOn(t, js)
			for range others {
				publish(t, js, "x", drover.VerbTick, nil)
			}
			begin(t, s, "second")
			ended(t, runs, done)
		})
	}
	t.Run("under a worker", func(t *testing.T) {
		s := natstest.New(t)
		js := s.JetStream()
		done := outcomes(t, s)
		begin(t, s, "only")
		parkedRuns(t, js, done)
		beginNew(t, js)
		ended(t, goOn(t, js), done)
	})
}
