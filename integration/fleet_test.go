package integration_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/subjects"
)

var names = subjects.Default()

// fleet is a server that some process serves, seen from outside.
type fleet struct {
	t   testing.TB
	url string
	nc  *nats.Conn // comes back after every crash of the server
	js  jetstream.JetStream
	*client.Client
}

// dev starts drover dev and connects to it.
func dev(t testing.TB, args ...string) (*fleet, *process) {
	t.Helper()
	address := freeAddress(t)
	p := launch(t, append([]string{"dev", "--data", t.TempDir(), "--listen", address}, args...)...)
	p.line("drover is ready")
	return connect(t, "nats://"+address), p
}

func connect(t testing.TB, url string) *fleet {
	t.Helper()
	f := &fleet{t: t, url: url, nc: dial(t, url)}
	var err error
	if f.js, err = jetstream.New(f.nc); err != nil {
		t.Fatal(err)
	}
	if f.Client, err = client.New(f.nc, client.Options{Patience: patience}); err != nil {
		t.Fatal(err)
	}
	return f
}

// dial opens a connection that ends with the test.
func dial(t testing.TB, url string) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	return nc
}

// serve performs calls in the test's own process until stop, or the end of the
// test.
func (f *fleet) serve(fns ...*function.Function) (stop func()) {
	f.t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := function.NewServer(dial(f.t, f.url), function.Options{Logger: quiet, DrainTimeout: time.Millisecond}, fns...)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }() // stop waits for it
	stop = sync.OnceFunc(func() {
		cancel()
		if err := await(f.t, done, "the end of the functions"); err != nil {
			f.t.Errorf("functions: %v", err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

// publish sends a command, and returns once it is durable.
func (f *fleet) publish(run drover.RunID, verb drover.Verb, payload any) {
	f.t.Helper()
	if err := f.store(run, verb, payload); err != nil {
		f.t.Fatalf("%s of run %s: %v", verb, run, err)
	}
}

// store sends a command until it is durable. Each try has a time of its own: what
// a server had taken when it was killed is never answered. The tries have one id,
// and are one command.
func (f *fleet) store(run drover.RunID, verb drover.Verb, payload any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	id := jetstream.WithMsgID(rand.Text())
	for {
		try, end := context.WithTimeout(ctx, 10*time.Second)
		err := f.tryPublish(try, run, verb, payload, id)
		if end(); err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (f *fleet) tryPublish(ctx context.Context, run drover.RunID, verb drover.Verb, payload any, opts ...jetstream.PublishOpt) error {
	data, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	_, err = f.js.Publish(ctx, names.In(run, verb), data, opts...)
	return err
}

// outcome waits for the end of a run.
func (f *fleet) outcome(run drover.RunID) drover.Outcome {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o, err := f.Wait(ctx, run)
	if err != nil {
		f.t.Fatalf("run %s: %v", run, err)
	}
	return o
}

// completes waits for the end of a run, and demands its result.
func (f *fleet) completes(run drover.RunID, result string) {
	f.t.Helper()
	o := f.outcome(run)
	if o.Status != drover.StatusCompleted || compact(o.Result) != result {
		f.t.Errorf("run %s is %s with the result %s and the error %v; want %s", run, o.Status, o.Result, o.Error, result)
	}
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}

// reasons is what a run waits for.
func (f *fleet) reasons(run drover.RunID) []drover.Reason {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	why, err := f.Why(ctx, run)
	if err != nil {
		f.t.Fatalf("why %s: %v", run, err)
	}
	return why.Reasons
}

// until asks again and again, each time over the wire, until it is so.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// count is how many messages a stream has taken in so far.
func (f *fleet) count(stream string) uint64 {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		f.t.Fatalf("stream %s: %v", stream, err)
	}
	return s.CachedInfo().State.LastSeq
}

// all reads everything that a stream holds.
func (f *fleet) all(stream string) []jetstream.Msg {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := f.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		f.t.Fatalf("stream %s: %v", stream, err)
	}
	left := c.CachedInfo().NumPending
	feed, err := c.Messages()
	if err != nil {
		f.t.Fatalf("stream %s: %v", stream, err)
	}
	defer feed.Stop()
	var msgs []jetstream.Msg
	for ; left > 0; left-- {
		m, err := feed.Next(jetstream.NextContext(ctx))
		if err != nil {
			f.t.Fatalf("stream %s, %d messages are left: %v", stream, left, err)
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// letters are all dead letters.
func (f *fleet) letters() []drover.DeadLetter {
	f.t.Helper()
	var letters []drover.DeadLetter
	for _, m := range f.all(names.DeadLetters()) {
		var l drover.DeadLetter
		if err := json.Unmarshal(m.Data(), &l); err != nil || l.Error == nil {
			f.t.Errorf("dead letter %q: %v", m.Data(), err)
			continue
		}
		letters = append(letters, l)
	}
	return letters
}

// text makes a definition that is YAML the JSON of a request.
func text(yaml string) json.RawMessage {
	data, _ := json.Marshal(yaml)
	return data
}

func number(n int) json.RawMessage { return json.RawMessage(fmt.Sprint(n)) }
