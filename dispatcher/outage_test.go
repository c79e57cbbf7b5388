package dispatcher

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/publish"
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
	d, err := New(Options{Names: names, Conn: nc, Publisher: publisher, Values: &values{}})
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
