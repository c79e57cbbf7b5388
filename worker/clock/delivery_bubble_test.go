package clock_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

const (
	missed  = 400
	minute  = time.Minute + 138*time.Millisecond
	soon    = time.Second // after its return a subscriber is told by then
	oneStep = "nodes: {a: {set: {with: 1}}}\noutput: {from: node:a}\n"
)

// inboxOf is a subscriber that was away.
type inboxOf struct {
	t    *testing.T
	mu   sync.Mutex
	got  map[string]int
	body map[string][]byte
	came chan string
}

func newInbox(t *testing.T) *inboxOf {
	return &inboxOf{t: t, got: map[string]int{}, body: map[string][]byte{}, came: make(chan string, 10*missed)}
}

func (b *inboxOf) take(m *nats.Msg) {
	id := m.Header.Get(subjects.HeaderDelivery)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got[id]++
	if was, ok := b.body[id]; ok && !bytes.Equal(was, m.Data) {
		b.t.Errorf("delivery %s has two bodies:\n%s\n%s", id, was, m.Data)
	}
	b.body[id] = m.Data
	b.came <- id
}

// comesBack has the subscriber be there, and answer.
type comesBack func(t *testing.T, nc *nats.Conn, b *inboxOf)

func listens(t *testing.T, nc *nats.Conn, b *inboxOf) {
	t.Helper()
	if _, err := nc.Subscribe("app.told", func(m *nats.Msg) {
		b.take(m)
		_ = m.Respond([]byte("thanks"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func createsItsStream(t *testing.T, nc *nats.Conn, b *inboxOf) {
	t.Helper()
	if _, err := nc.Subscribe("app.told", b.take); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TOLD", Subjects: []string{"app.told"}}); err != nil {
		t.Fatal(err)
	}
}

// A subscriber is away for a minute, in which the outcomes of 400 runs wait for
// it. When it comes back all arrive, each once, the first within a second; and
// that is what the records count.
func TestDelivery10FourHundredOutcomesWaitForASubscriber(t *testing.T) {
	for _, who := range []struct {
		name   string
		notify drover.Notify
		back   comesBack
	}{
		{"a subject", drover.Notify{Subject: "app.told"}, listens},
		{"a stream that does not exist yet", drover.Notify{StreamSubject: "app.told"}, createsItsStream},
	} {
		for _, fleet := range []string{"the same worker", "another worker", "nobody works meanwhile"} {
			t.Run(who.name+", "+fleet, func(t *testing.T) {
				natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
					away(t, s, who.notify, who.back, fleet)
				})
			})
		}
	}
}

func away(t *testing.T, s *natstest.Server, to drover.Notify, back comesBack, fleet string) {
	end := work(t, s, time.Hour)
	defer func() { end() }()
	nc := s.Connect()
	run(t, s, nc, to)
	b := newInbox(t)
	var returned time.Time
	switch fleet {
	case "the same worker":
		time.Sleep(minute)
		returned = time.Now()
		back(t, nc, b)
	case "another worker":
		time.Sleep(minute / 2)
		end()
		end = work(t, s, time.Hour)
		time.Sleep(minute / 2)
		returned = time.Now()
		back(t, nc, b)
	default:
		time.Sleep(minute / 2)
		end()
		time.Sleep(minute / 2)
		back(t, nc, b)
		end = work(t, s, time.Hour)
		returned = time.Now()
	}
	<-b.came
	first := time.Since(returned)
	for range missed - 1 {
		<-b.came
	}
	t.Logf("the first came after %s, the last after %s", first, time.Since(returned))
	if first > soon {
		t.Errorf("the first came after %s", first)
	}
	time.Sleep(10 * time.Second) // whatever else may come
	wantOnce(t, nc, b)
}

// run has all the runs end.
func run(t *testing.T, s *natstest.Server, nc *nats.Conn, to drover.Notify) {
	t.Helper()
	done := make(chan struct{}, missed)
	sub, err := nc.Subscribe(names.DoneAll(), func(*nats.Msg) { done <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	js := s.JetStream()
	for i := range missed {
		start(t, js, fmt.Sprint("r", i), oneStep, drover.NotifyList{to})
	}
	for range missed {
		<-done
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
}

// wantOnce demands that everything was delivered in one attempt each, and that
// nothing is on the list any more.
func wantOnce(t *testing.T, nc *nats.Conn, b *inboxOf) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := client.New(nc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range missed {
		id := drover.DeliveryIDOf(drover.RunID(fmt.Sprint("r", i)), 0)
		if n := b.got[string(id)]; n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
		d, err := c.ShowDelivery(t.Context(), id)
		if err != nil || d.Status != drover.DeliveryDelivered || d.Attempts != 1 || d.Receipt == "" {
			t.Errorf("delivery %s: %+v, error %v", id, d.Delivery, err)
		}
	}
	list, err := c.ListDeliveries(t.Context(), drover.DeliveryListRequest{})
	if err != nil || len(list.Deliveries) > 0 {
		t.Errorf("listed %+v, error %v", list, err)
	}
}
