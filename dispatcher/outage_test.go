package dispatcher

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/kv/kvtest"
	"github.com/droverhq/drover/subjects"
)

func TestOutageEndsABatchOnceAndTheRepeatHeals(t *testing.T) {
	f := newFleet(t)
	nc := f.server.Connect()
	publisher, err := publish.New(nc, publish.Options{Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(publisher.Close)
	d, _ := f.dispatcher(func(o *Options) { o.Publisher, o.Conn = publisher, nc })
	done := deliverEffect("", 0)
	done.Kind, done.Delivery = machine.EffectDone, nil
	withdraw := machine.Effect{Owed: machine.Owed{Kind: machine.EffectWithdraw}, Run: run, Functions: []drover.FunctionName{"f"}}
	f.server.Stop()
	ends := make(chan error, 2)
	batch := []machine.Effect{callEffect("g", "1"), done, withdraw}
	d.Perform(batch, func(err error) { ends <- err })
	f.server.Start()
	tries := 0
	for err := range ends {
		tries++
		if err == nil {
			break
		}
		if !errors.Is(err, drover.CodeUnavailable) {
			t.Errorf("error %v", err)
		}
		d.Perform(batch, func(err error) { ends <- err })
	}
	if n := f.count(f.names.Outcomes(), ">"); n != 1 || len(ends) != 0 {
		t.Errorf("%d outcomes after %d tries", n, tries)
	}
}

// failing is a Publisher that tells when it fails.
type failing struct {
	Publisher
	failed chan error
}

func (p *failing) Publish(msg *nats.Msg, done func(publish.Ack, error)) {
	p.Publisher.Publish(msg, func(ack publish.Ack, err error) {
		if err != nil {
			select {
			case p.failed <- err:
			default:
			}
		}
		done(ack, err)
	})
}

func TestDelivery07ReceiptIsStoredAlthoughTheServerWasAway(t *testing.T) {
	f := newFleet(t)
	nc := f.server.Connect(nats.ReconnectBufSize(-1)) // else what is sent meanwhile may still arrive
	publisher, err := publish.New(nc, publish.Options{Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(publisher.Close)
	fails := &failing{publisher, make(chan error, 1)}
	d, _ := f.dispatcher(func(o *Options) {
		o.Publisher, o.Conn = fails, nc
		o.Secrets = func(string) [][]byte { return [][]byte{[]byte("0123456789abcdef01234567")} }
	})
	posts := make(chan struct{}, 10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.server.Stop()
		posts <- struct{}{}
	}))
	defer web.Close()
	e := deliverEffect("", 1)
	e.Delivery.Notify = drover.Notify{URL: web.URL}
	f.perform(d, e)
	await(t, posts, "the outcome")
	await(t, fails.failed, "a receipt that is not stored")
	f.server.Start()
	h := decode[drover.HeardMessage](t, f.commands(run, drover.VerbHeard).next())
	if h.Error != nil || h.DeliveryID != "r1:terminal:0" || h.Attempt != 1 {
		t.Errorf("heard %+v, %v", h, h.Error)
	}
	if len(posts) > 0 {
		t.Error("it was posted again")
	}
}

// What nobody has answered when Run ends is made again: calls come out of the
// queue, deliveries out of the records.
func TestShutdownInTheMiddleLosesNothing(t *testing.T) {
	f := newFleet(t)
	asked := make(chan *nats.Msg, 100)
	if _, err := f.nc.ChanSubscribe("app.*", asked); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	impatient := func(o *Options) { o.DrainTimeout = time.Millisecond }
	d, stop := f.dispatcher(impatient)
	const n = 20
	for i := range n {
		call := callEffect(subjects.FunctionRequest, `{"subject":"app.svc"}`)
		call.Call.ID.Attempt = i + 1
		told := deliverEffect(fmt.Sprintf("app.%d", i), 1)
		told.Delivery.ID = drover.DeliveryIDOf(run, i)
		f.perform(d, told, call)
	}
	for range 2 * n {
		await(t, asked, "a request")
	}
	stop()
	if in := f.count(f.names.Commands(), ">"); in != 0 {
		t.Errorf("%d commands, although nobody has answered", in)
	}
	if left := f.count(f.names.Calls(), ">"); left != n {
		t.Errorf("%d calls are left in the queue, want %d", left, n)
	}
	ends := make(chan error, 1)
	d.Perform([]machine.Effect{deliverEffect("app.1", 2)}, func(err error) { ends <- err })
	if err := await(t, ends, "the end of an effect"); err == nil {
		t.Error("an effect after the end is no error, and would be forgotten")
	}
	d.heard(run, drover.HeardMessage{DeliveryID: "r1:terminal:0", Token: "dtok", Attempt: 1}) // nothing waits for it

	f.dispatcher(impatient)
	results := f.commands(run, drover.VerbResult)
	for range n {
		_ = await(t, asked, "a request").Respond([]byte(`"yes"`))
	}
	for range n {
		if r := decode[drover.ResultMessage](t, results.next()); string(r.Output) != `"yes"` {
			t.Errorf("result %s", spell(r))
		}
	}
	f.settled()
}

// Who shuts down a worker whose server is away does not wait for receipts to be
// stored.
func TestShutdownDoesNotWaitForTheServer(t *testing.T) {
	f := newFleet(t)
	nc := f.server.Connect()
	publisher, err := publish.New(nc, publish.Options{Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(publisher.Close)
	d, stop := f.dispatcher(func(o *Options) { o.Publisher, o.Conn, o.DrainTimeout = publisher, nc, time.Millisecond })
	f.server.Stop()
	d.heard(run, drover.HeardMessage{DeliveryID: "r1:terminal:0", Token: "dtok", Attempt: 1})
	stop()
	f.server.Start()
}

func BenchmarkPerform(b *testing.B) {
	s := natstest.New(b)
	nc := s.Connect()
	js := natstest.JetStream(b, nc)
	names := subjects.Default()
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: names.Calls(), Subjects: []string{names.CallAll()}}); err != nil {
		b.Fatal(err)
	}
	publisher, err := publish.New(nc, publish.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer publisher.Close()
	d, err := New(Options{
		Names: names, Conn: nc, Publisher: publisher, Values: &values{}, Runs: states{},
		Deliveries: kvtest.NewMemory().Deliveries, Partitions: partitions, Owns: func(int) bool { return true },
	})
	if err != nil {
		b.Fatal(err)
	}
	go d.queue.work()
	defer d.queue.close()
	effects := []machine.Effect{callEffect("f", `{"topic":"something of a usual length","n":12}`)}
	var all sync.WaitGroup
	b.ReportAllocs()
	for i := range b.N {
		effects := slices.Clone(effects)
		effects[0].Run = drover.RunID("r" + strconv.Itoa(i))
		all.Add(1)
		d.Perform(effects, func(err error) {
			if err != nil {
				b.Error(err)
			}
			all.Done()
		})
	}
	all.Wait()
}
