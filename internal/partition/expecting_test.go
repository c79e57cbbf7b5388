package partition

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// A run that is over is kept for the receipts of its outcome, which come within
// moments as a rule, and is let go when they do not.
func TestARunIsKeptForItsReceipts(t *testing.T) {
	begin := func(t *testing.T) (*driver, *drover.HeardMessage) {
		d := newDriver(t, Options{IdleAfter: 10 * time.Second})
		d.send("r", drover.VerbStart, drover.StartRequest{
			Definition: json.RawMessage(`{"nodes": {"a": {"set": {"with": 1}}}, "output": {"from": "node:a"}}`),
			Notify:     drover.NotifyList{{Subject: "told"}},
		})
		for d.under() != "act" {
			d.end(d.open[0].Kind)
		}
		for _, e := range d.end(OpAct).Effects {
			if e.Delivery != nil {
				return d, &drover.HeardMessage{DeliveryID: e.Delivery.ID, Token: e.Delivery.Token, Attempt: e.Delivery.Attempt}
			}
		}
		t.Fatal("nobody is told")
		return nil, nil
	}
	t.Run("a receipt that comes soon", func(t *testing.T) {
		d, heard := begin(t)
		last := d.send("r", drover.VerbHeard, heard)
		d.want("commit")
		d.settle()
		d.cursor(last + 1)
		if n := len(d.p.runs); n != 0 {
			t.Errorf("%d runs are kept although all is said", n)
		}
	})
	t.Run("one that comes late", func(t *testing.T) {
		d, heard := begin(t)
		d.cursor(2) // nobody waits for the receipt
		d.pass(time.Minute)
		if n := len(d.p.runs); n != 0 {
			t.Errorf("%d runs are kept for a receipt that does not come", n)
		}
		d.send("r", drover.VerbHeard, heard)
		d.want("load")
		d.settle()
	})
	t.Run("a drain", func(t *testing.T) {
		d, _ := begin(t)
		d.p.Drain()
		if n := len(d.p.runs); n != 0 || !d.p.Quiet() {
			t.Errorf("%d runs are kept by a partition that is given back", n)
		}
	})
}
