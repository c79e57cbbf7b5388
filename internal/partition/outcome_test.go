package partition

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// telling has a run end that tells somebody, and gives what is heard of that.
func telling(t *testing.T) (*driver, *drover.HeardMessage) {
	d := newDriver(t, Options{CoverAfter: 10 * time.Second, IdleAfter: time.Second})
	d.send("r", drover.VerbStart, drover.StartRequest{
		Definition: json.RawMessage(`{"nodes": {"a": {"set": {"with": 1}}}, "output": {"from": "node:a"}}`),
		Notify:     drover.NotifyList{{Subject: "told"}},
	})
	for d.under() != "act" {
		d.end(d.open[0].Kind)
	}
	for _, e := range d.end(OpAct).Effects {
		if e.Kind == machine.EffectDeliver {
			return d, &drover.HeardMessage{DeliveryID: e.Delivery.ID, Token: e.Delivery.Token, Attempt: e.Delivery.Attempt}
		}
	}
	t.Fatal("nobody is told")
	return nil, nil
}

// A run that is over is kept until its deliveries are heard of, or the time at
// which they are tried again is durable: nothing is ever without a wake-up.
func TestDelivery10ARunThatIsOverIsWokenForItsDeliveries(t *testing.T) {
	t.Run("a receipt that comes soon", func(t *testing.T) {
		d, heard := telling(t)
		d.cursor(1) // the start is not done with: a new owner has to see to the delivery
		d.pass(5 * time.Second)
		d.want("")
		last := d.send("r", drover.VerbHeard, heard)
		d.want("commit") // the record is in memory still
		d.settle()
		d.cursor(last + 1)
		if n := len(d.p.runs); n != 0 {
			t.Errorf("%d runs are kept although all is said", n)
		}
	})
	t.Run("one that comes late", func(t *testing.T) {
		d, heard := telling(t)
		d.pass(10 * time.Second)
		d.want("schedule")
		if op := d.end(OpSchedule); op.Run != "r" || op.At.After(epoch.Add(drover.DefaultReceiptTime+5*time.Second)) {
			t.Errorf("woken at %s", op.At)
		}
		d.pass(time.Second)
		d.cursor(2)
		if n := len(d.p.runs); n != 0 {
			t.Errorf("%d runs are kept for a receipt that does not come", n)
		}
		d.send("r", drover.VerbHeard, heard)
		d.want("load")
		d.settle()
		d.cursor(3)
	})
	t.Run("one that never comes", func(t *testing.T) {
		d, _ := telling(t)
		d.pass(10 * time.Second)
		d.end(OpSchedule)
		d.pass(10 * time.Second)
		d.send("r", drover.VerbTick, nil) // by the server
		d.end(OpLoad)
		for d.under() != "act" {
			d.end(d.open[0].Kind)
		}
		if effects := d.end(OpAct).Effects; len(effects) != 1 || effects[0].Kind != machine.EffectDeliver || effects[0].Attempt != 1 {
			t.Errorf("performed is %s", calls(effects))
		}
	})
	t.Run("a drain", func(t *testing.T) {
		d, _ := telling(t)
		d.p.Drain()
		d.p.Advance(d.now)
		d.want("schedule")
		d.settle()
		if n := len(d.p.runs); n != 0 || !d.p.Quiet() {
			t.Errorf("%d runs are kept by a partition that is given back", n)
		}
		d.cursor(2)
	})
}

// A new owner reads the command of the end again where its delivery may not have
// been made, and makes it again as it was.
func TestDelivery11ANewOwnerDeliversWhatIsOwed(t *testing.T) {
	d, heard := telling(t)
	d.own(Options{})
	d.p.Receive(Message{Seq: 1, At: epoch, Run: "r", Verb: "start", Data: []byte(`{"definition":{"nodes": {"a": {"set": {"with": 1}}}, "output": {"from": "node:a"}},"notify":{"subject":"told"}}`)})
	for d.under() != "act" {
		d.end(d.open[0].Kind)
	}
	for _, e := range d.end(OpAct).Effects {
		if e.Kind == machine.EffectDeliver {
			if e.Delivery.ID != heard.DeliveryID || e.Delivery.Token != heard.Token || e.Delivery.Attempt != heard.Attempt {
				t.Errorf("delivered is %+v, and was %+v", e.Delivery, heard)
			}
			return
		}
	}
	t.Error("nobody is told")
}
