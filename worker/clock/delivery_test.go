package clock_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// A delivery that was given up is listed with its reason, and keeps its run for
// a whole retention after that. Then it goes with the run, and leaves nothing.
func TestDelivery12ADeadDeliveryExtendsTheRetention(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		const retention = 5 * time.Minute
		defer work(t, s, retention)()
		nc := s.Connect()
		c, err := client.New(nc, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{}, 2)
		if _, err := nc.Subscribe(names.DoneAll(), func(*nats.Msg) { done <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		js := s.JetStream()
		const short = "nodes: {a: {set: {with: 1}}}\noutput: {from: node:a}\n"
		start(t, js, "heard", short, nil)
		start(t, js, "dead", short, drover.NotifyList{{Subject: "nobody", MaxAge: drover.Duration(3 * time.Minute)}})
		<-done
		<-done
		time.Sleep(4 * time.Minute)
		list, err := c.ListDeliveries(t.Context(), drover.DeliveryListRequest{})
		if err != nil || len(list.Deliveries) != 1 || list.Deliveries[0].Status != drover.DeliveryDead || list.Deliveries[0].LastError == nil || list.Deliveries[0].Attempts != 0 {
			t.Fatalf("listed %+v, error %v", list, err)
		}
		id := list.Deliveries[0].ID
		there := func(run drover.RunID) bool {
			_, err := c.Status(t.Context(), drover.RunRequest{RunID: run})
			return err == nil
		}
		time.Sleep(3 * time.Minute) // 7 after its end, 4 after its death
		if there("heard") || !there("dead") {
			t.Errorf("a run that was heard is there: %v; one whose delivery died: %v", there("heard"), there("dead"))
		}
		if d, err := c.ShowDelivery(t.Context(), id); err != nil || d.Status != drover.DeliveryDead {
			t.Errorf("delivery %+v, error %v", d, err)
		}
		time.Sleep(3 * time.Minute) // 7 after its death
		if there("dead") {
			t.Error("a run whose delivery died is there after its retention")
		}
		stream, err := js.Stream(t.Context(), subjects.BucketStream(names.Deliveries()))
		if err != nil {
			t.Fatal(err)
		}
		if left := stream.CachedInfo().State.Msgs; left != 0 {
			t.Errorf("%d keys are left of the list", left)
		}
	})
}
