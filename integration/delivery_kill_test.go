package integration_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// Workers are killed while runs end and subscribers of every kind are told. Each
// is told of every run, with the same bytes each time, and the records know.
func TestDelivery11WorkersAreKilled(t *testing.T) {
	t.Parallel()
	runs, kills := 200, 6
	if testing.Short() {
		runs, kills = 60, 2
	}
	h, c := newDelivering(t, natstest.New(t, natstest.Listen()).URL(), 3)
	h.stores()
	chance := rand.New(rand.NewPCG(choose(t), 11))
	for i := range runs {
		h.start(h.notify)
		if kills > 0 && i >= runs/(kills+1) && chance.IntN(runs/kills) == 0 {
			kills--
			c.kill(c.oldest())
			c.hire()
		}
	}
	for ; kills > 0; kills-- {
		c.kill(c.oldest())
		c.hire()
		h.hears(min(h.heard()+runs/4, runs*len(kinds)))
	}
	h.hears(runs * len(kinds))
	h.delivered(true)
	h.storedOnce()
}

// The server is killed while subscribers are told.
func TestDelivery07ServerIsKilled(t *testing.T) {
	t.Parallel()
	runs, kills := 200, 4
	if testing.Short() {
		runs, kills = 60, 2
	}
	p := newPlant(t)
	p.server.line(ready)
	h, _ := newDelivering(t, p.url(), 2)
	h.stores()
	for i := range runs {
		h.start(h.notify)
		if i%(runs/kills) == runs/kills/2 {
			p.server.kill()
			p.up()
			p.server.line(ready)
		}
	}
	h.hears(runs * len(kinds))
	h.delivered(false) // an attempt may fail on its way to the server
}

// A subscriber is away while 400 runs end and the workers are killed, one after
// the other. When it is back all that it missed arrives.
func TestDelivery10SubscriberComesBackToOtherWorkers(t *testing.T) {
	t.Parallel()
	runs := 400
	if testing.Short() {
		runs = 100
	}
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	h := &hearers{fleet: f, times: map[drover.DeliveryID]int{}, bodies: map[drover.DeliveryID][]byte{}, more: make(chan struct{}, 1)}
	h.notify = drover.NotifyList{{Subject: "hear.it", Timeout: drover.Duration(time.Second)}, {StreamSubject: "hear.stored", Timeout: drover.Duration(time.Second)}}
	c := newCrew(f, 2)
	f.serve(functionsOf(newTally())...)
	for range runs {
		h.start(h.notify)
	}
	for _, run := range h.runs {
		f.completes(run, "4")
	}
	until(t, "a list of all deliveries", func() bool {
		list, err := f.ListDeliveries(t.Context(), drover.DeliveryListRequest{Limit: 1000})
		return err == nil && (list.More || len(list.Deliveries) == runs*len(h.notify))
	})
	for range 2 {
		c.kill(c.oldest())
		c.hire()
		c.settled()
	}
	for _, run := range h.runs {
		for i := range h.notify {
			if d, err := f.ShowDelivery(t.Context(), drover.DeliveryIDOf(run, i)); err != nil || d.Status != drover.DeliveryPending || d.Attempts != 0 {
				t.Errorf("while nobody is there: %+v, error %v", d, err)
			}
		}
	}
	returned := time.Now()
	h.stores()
	h.listen(dial(t, f.url))
	h.hears(1)
	first := time.Since(returned)
	h.hears(runs * len(h.notify))
	t.Logf("the first came after %s, the last after %s", first, time.Since(returned))
	if first > 5*time.Second {
		t.Errorf("the first came after %s", first)
	}
	h.delivered(true)
	h.storedOnce()
}
