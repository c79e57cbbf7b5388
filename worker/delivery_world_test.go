package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

const oneStep = "nodes: {a: {set: {with: 1}}}\noutput: {from: node:a}\n"

// audience is a fleet's subscribers, and what they were told.
type audience struct {
	*client.Client
	t      *testing.T
	server *natstest.Server
	nc     *nats.Conn
	came   chan drover.DeliveryID // everything that somebody was told

	mu     sync.Mutex
	times  map[drover.DeliveryID]int
	bodies map[drover.DeliveryID][]byte
}

func newAudience(t *testing.T, s *natstest.Server) *audience {
	t.Helper()
	nc := s.Connect()
	c, err := client.New(nc, client.Options{Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	return &audience{
		Client: c, t: t, server: s, nc: nc, came: make(chan drover.DeliveryID, 100_000),
		times: map[drover.DeliveryID]int{}, bodies: map[drover.DeliveryID][]byte{},
	}
}

// take takes in what a subscriber is told. The same outcome has the same bytes,
// always.
func (a *audience) take(id string, body []byte) drover.Outcome {
	var o drover.Outcome
	if err := json.Unmarshal(body, &o); err != nil || string(o.DeliveryID) != id {
		a.t.Errorf("delivery %s has the body %.300s: %v", id, body, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if was, ok := a.bodies[o.DeliveryID]; ok && !bytes.Equal(was, body) {
		a.t.Errorf("delivery %s has two bodies:\n%s\n%s", id, was, body)
	}
	a.bodies[o.DeliveryID] = bytes.Clone(body)
	a.times[o.DeliveryID]++
	a.came <- o.DeliveryID
	return o
}

// told gives what came of a delivery, and how often.
func (a *audience) told(id drover.DeliveryID) (o drover.Outcome, times int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if body, ok := a.bodies[id]; ok {
		_ = json.Unmarshal(body, &o) // it was read before
	}
	return o, a.times[id]
}

// listens has a subscriber answer on a subject.
func (a *audience) listens(subject string, answer func(*nats.Msg)) {
	a.t.Helper()
	if _, err := a.nc.Subscribe(subject, answer); err != nil {
		a.t.Fatal(err)
	}
	if err := a.nc.Flush(); err != nil {
		a.t.Fatal(err)
	}
}

// thanks takes a delivery, and gives a receipt.
func (a *audience) thanks(m *nats.Msg) {
	a.take(m.Header.Get(subjects.HeaderDelivery), m.Data)
	_ = m.Respond([]byte("thanks"))
}

func (a *audience) start(run drover.RunID, yaml string, notify ...drover.Notify) {
	a.t.Helper()
	_, err := a.Start(a.t.Context(), drover.StartRequest{RunID: run, Definition: text(a.t, yaml), Notify: notify})
	if err != nil {
		a.t.Fatal(err)
	}
}

// next waits until somebody is told something, but no longer.
func (a *audience) next(within time.Duration) drover.DeliveryID {
	a.t.Helper()
	select {
	case id := <-a.came:
		return id
	case <-time.After(within):
		a.t.Fatalf("nobody was told anything within %s", within)
		return ""
	}
}

// until waits until something holds, which is looked at whenever a run says that
// it has changed. what says how it is.
func (a *audience) until(holds func(ctx context.Context) (ok bool, what string)) {
	a.t.Helper()
	changed := make(chan *nats.Msg, 100_000)
	sub, err := a.nc.ChanSubscribe(subjects.Default().EventAll(), changed)
	if err != nil || a.nc.Flush() != nil {
		a.t.Fatal("no subscription to what runs say after each commit")
	}
	defer func() { _ = sub.Unsubscribe() }()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	for {
		ok, what := holds(ctx)
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			a.t.Fatal(what)
		}
	}
}

// recorded waits until the records say so of all deliveries, and gives them.
func (a *audience) recorded(status drover.DeliveryStatus, ids ...drover.DeliveryID) map[drover.DeliveryID]drover.RunDelivery {
	a.t.Helper()
	all := map[drover.DeliveryID]drover.RunDelivery{}
	for _, id := range ids {
		a.until(func(ctx context.Context) (bool, string) {
			d, err := a.ShowDelivery(ctx, id)
			all[id] = d
			return err == nil && d.Status == status, fmt.Sprintf("delivery %s is not %s: %+v, error %v, last error %v", id, status, d, err, d.LastError)
		})
	}
	return all
}

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// secretsFile is a file with that secret.
func secretsFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(path, []byte("default: "+webhookSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
