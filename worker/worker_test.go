package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// member is a worker under test.
type member struct {
	*worker.Worker
	nc   *nats.Conn
	stop context.CancelFunc
	done chan error
}

// begin starts a worker with a connection of its own, and waits until it owns
// its share. The test waits for its end.
func begin(t *testing.T, s *natstest.Server, name string) *member {
	t.Helper()
	return beginOn(t, s.Connect(), worker.Options{Name: name})
}

// end stops a worker as an operator does, once.
func (m *member) end(t *testing.T) {
	t.Helper()
	m.stop()
	if m.done == nil {
		return
	}
	if err := <-m.done; err != nil && !m.nc.IsClosed() {
		t.Errorf("worker %s: %v", m.ID(), err)
	}
	m.done = nil
}

// publish sends a command, durably.
func publish(t *testing.T, js jetstream.JetStream, run string, verb drover.Verb, payload any) {
	t.Helper()
	data, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), subjects.Default().In(drover.RunID(run), verb), data); err != nil {
		t.Fatal(err)
	}
}

// serve runs functions until the test ends.
func serve(t *testing.T, s *natstest.Server, fns ...*function.Function) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	nc := s.Connect()
	go func() { done <- function.Serve(ctx, nc, fns...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// outcomes gives every outcome that is published from now on.
func outcomes(t *testing.T, s *natstest.Server) <-chan drover.Outcome {
	t.Helper()
	got := make(chan drover.Outcome, 10_000)
	_, err := s.Connect().Subscribe(subjects.Default().DoneAll(), func(m *nats.Msg) {
		var o drover.Outcome
		if err := json.Unmarshal(m.Data, &o); err != nil {
			t.Error(err)
		}
		got <- o
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const steps = `
nodes:
  a: {call: step}
  b: {call: step, input: {from: node:a}}
  c: {call: step, input: {from: node:b}}
output: {from: node:c}
`

func text(t *testing.T, yaml string) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(yaml)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// counter is a function that adds one, and counts how often each call came.
type counter struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *counter) function() *function.Function {
	c.calls = map[string]int{}
	return function.New("step", func(ctx context.Context, n int) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[function.Info(ctx).ID.String()]++
		return n + 1, nil
	})
}

func TestARunGoesFromStartToNotification(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "one")
	var c counter
	serve(t, s, c.function())
	done := outcomes(t, s)
	told := make(chan *nats.Msg, 1)
	nc := s.Connect()
	if _, err := nc.Subscribe("told", func(m *nats.Msg) { _ = m.Respond([]byte("thanks")); told <- m }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	publish(t, s.JetStream(), "r1", drover.VerbStart, drover.StartRequest{
		Definition: text(t, steps), Input: json.RawMessage("1"), Notify: drover.NotifyList{{Subject: "told"}},
	})
	o := <-done
	if o.RunID != "r1" || o.Status != drover.StatusCompleted || string(o.Result) != "4" {
		t.Errorf("outcome %+v, result %s", o, o.Result)
	}
	m := <-told
	if id := m.Header.Get(subjects.HeaderDelivery); id != "r1:terminal:0" {
		t.Errorf("delivery %q", id)
	}
}

func TestWorkersShareAndHandOver(t *testing.T) {
	s := natstest.New(t)
	first := begin(t, s, "first")
	begin(t, s, "second")
	var c counter
	serve(t, s, c.function())
	done := outcomes(t, s)
	js := s.JetStream()
	const runs = 300
	for i := range runs {
		publish(t, js, fmt.Sprintf("r%d", i), drover.VerbStart,
			drover.StartRequest{Definition: text(t, steps), Input: json.RawMessage("0")})
		switch i {
		case 100:
			begin(t, s, "third")
		case 200:
			first.end(t)
		}
	}
	ended := map[drover.RunID]int{}
	for len(ended) < runs {
		o := <-done
		ended[o.RunID]++
		if o.Status != drover.StatusCompleted || string(o.Result) != "3" {
			t.Errorf("run %s: %+v", o.RunID, o)
		}
	}
	for run, n := range ended {
		if n != 1 {
			t.Errorf("run %s has %d outcomes", run, n)
		}
	}
	for call, n := range c.calls {
		if n != 1 {
			t.Errorf("call %s was made %d times, although nobody crashed", call, n)
		}
	}
}

func TestACrashedWorkerIsReplaced(t *testing.T) {
	s := natstest.New(t)
	first := begin(t, s, "first")
	begin(t, s, "second")
	var c counter
	serve(t, s, c.function())
	done := outcomes(t, s)
	js := s.JetStream()
	const runs = 100
	for i := range runs {
		publish(t, js, fmt.Sprintf("r%d", i), drover.VerbStart,
			drover.StartRequest{Definition: text(t, steps), Input: json.RawMessage("0")})
		if i == 50 {
			first.nc.Close() // it can neither finish nor say good-bye
		}
	}
	ended := map[drover.RunID]drover.Outcome{}
	for len(ended) < runs {
		o := <-done
		if was, ok := ended[o.RunID]; ok && string(was.Result) != string(o.Result) {
			t.Errorf("run %s has two outcomes: %+v and %+v", o.RunID, was, o)
		}
		ended[o.RunID] = o
		if string(o.Result) != "3" {
			t.Errorf("run %s: %+v", o.RunID, o)
		}
	}
}
