// Package functiontest plays a worker for tests of functions: it has the
// streams, queues calls, and reads their results.
package functiontest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// Patience is how long a test waits for what must come.
const Patience = time.Minute

// Fleet is a server whose worker is the test. Its methods fail the test where
// something goes wrong.
type Fleet struct {
	T       testing.TB
	Server  *natstest.Server
	Conn    *nats.Conn
	JS      jetstream.JetStream
	Names   subjects.Names
	Results jetstream.MessagesContext // nil until SetUp
}

// New makes a fleet without streams: no worker was there yet.
func New(t testing.TB) *Fleet {
	t.Helper()
	return On(t, natstest.New(t))
}

// On makes a fleet on a server that runs.
func On(t testing.TB, s *natstest.Server) *Fleet {
	t.Helper()
	f := &Fleet{T: t, Server: s, Conn: s.Connect(), Names: subjects.Default()}
	f.JS = natstest.JetStream(t, f.Conn)
	return f
}

// SetUp makes the streams.
func (f *Fleet) SetUp() *Fleet {
	f.T.Helper()
	for _, cfg := range []jetstream.StreamConfig{
		{Name: f.Names.Calls(), Subjects: []string{f.Names.CallAll()}, Retention: jetstream.WorkQueuePolicy, AllowAtomicPublish: true},
		{Name: f.Names.Commands(), Subjects: []string{f.Names.InAll()}, AllowAtomicPublish: true},
	} {
		if _, err := f.JS.CreateStream(f.T.Context(), cfg); err != nil {
			f.T.Fatal(err)
		}
	}
	c, err := f.JS.OrderedConsumer(f.T.Context(), f.Names.Commands(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		f.T.Fatal(err)
	}
	if f.Results, err = c.Messages(); err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(f.Results.Stop)
	return f
}

// Serve runs a server until stop is called, or the test ends.
func (f *Fleet) Serve(opts function.Options, fns ...*function.Function) (stop func() error) {
	f.T.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s, err := function.NewServer(f.Server.Connect(), opts, fns...)
	if err != nil {
		f.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() error {
		cancel()
		stopped = true
		return Await(f.T, ended, "the end of the server")
	}
	f.T.Cleanup(func() {
		if !stopped {
			_ = stop()
		}
	})
	if f.Results != nil {
		Await(f.T, s.Ready(), "a server that is ready")
	}
	return stop
}

// Queue queues a call, with headers that are given in pairs.
func (f *Fleet) Queue(id, fn, input string, headers ...string) {
	f.T.Helper()
	call, err := drover.ParseCallID(id)
	if err != nil {
		f.T.Fatal(err)
	}
	m := nats.NewMsg(f.Names.Call(call.Run, drover.FunctionName(fn)))
	m.Data = []byte(input)
	m.Header.Set(subjects.HeaderCall, id)
	m.Header.Set(subjects.HeaderToken, "token of "+id)
	m.Header.Set(subjects.HeaderDeadline, time.Now().Add(time.Hour).Format(time.RFC3339Nano))
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	if _, err := f.JS.PublishMsg(f.T.Context(), m); err != nil {
		f.T.Fatal(err)
	}
}

// Next is the next result or heartbeat.
func (f *Fleet) Next() drover.ResultMessage {
	f.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	m, err := f.Results.Next(jetstream.NextContext(ctx))
	if err != nil {
		f.T.Fatalf("no result: %v", err)
	}
	var r drover.ResultMessage
	if err := json.Unmarshal(m.Data(), &r); err != nil {
		f.T.Fatal(err)
	}
	if r.Token != "token of "+r.Call.String() || m.Subject() != f.Names.In(r.Call.Run, drover.VerbResult) {
		f.T.Errorf("result %+v on %s", r, m.Subject())
	}
	return r
}

// Queued is how many calls are in the queue, taken ones included.
func (f *Fleet) Queued() uint64 {
	f.T.Helper()
	s, err := f.JS.Stream(f.T.Context(), f.Names.Calls())
	if err != nil {
		f.T.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// Drained waits until the queue is empty. Acks are not awaited by anyone, so
// there is no event to wait for but the state of the stream.
func (f *Fleet) Drained() {
	f.T.Helper()
	Until(f.T, "an empty queue", func() bool { return f.Queued() == 0 })
}

// Until asks the server, each time over the wire, until it is so.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// Await receives what must come.
func Await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		t.Fatalf("gave up waiting for %s", what)
		panic("unreachable")
	}
}
