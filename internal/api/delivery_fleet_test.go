package api_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// With a real worker: a subscriber refuses outcomes for good, which are dead, and
// gets each of them once they are replayed, with the same id and the same bytes.
func TestDelivery12WhatWasRefusedIsReplayed(t *testing.T) {
	const runs = 40
	f := newFleet(t)
	f.put("one", "nodes: {a: {set: {with: 1}}}\noutput: {from: node:a}\n")
	var (
		mu       sync.Mutex
		refusing = true
		refused  = map[string]string{} // bodies by id
		taken    = make(chan [2]string, 10*runs)
	)
	_, err := f.nc.Subscribe("shop.done", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		id := m.Header.Get(subjects.HeaderDelivery)
		reply := nats.NewMsg(m.Reply)
		if refusing {
			refused[id] = string(m.Data)
			reply.Header.Set(subjects.HeaderCode, string(drover.CodeForbidden))
			reply.Data = []byte(`{"code":"forbidden","message":"closed","permanent":true}`)
		} else {
			taken <- [2]string{id, string(m.Data)}
			reply.Data = []byte("thanks")
		}
		_ = m.RespondMsg(reply)
	})
	if err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		_, err := f.Start(t.Context(), drover.StartRequest{RunID: drover.RunID(fmt.Sprint("r", i)), Workflow: "one", Notify: drover.NotifyList{{Subject: "shop.done"}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	dead := func(status drover.DeliveryStatus) []drover.RunDelivery {
		list, err := f.ListDeliveries(t.Context(), drover.DeliveryListRequest{DeliveryFilter: drover.DeliveryFilter{Status: status, To: "shop.done"}})
		if err != nil {
			t.Fatal(err)
		}
		return list.Deliveries
	}
	f.until("all are dead", func() bool { return len(dead(drover.DeliveryDead)) == runs })
	for _, d := range dead(drover.DeliveryDead) {
		if d.Attempts != 1 || d.LastError == nil || d.LastError.Code != drover.CodeForbidden {
			t.Fatalf("delivery %+v", d)
		}
	}
	mu.Lock()
	refusing = false
	mu.Unlock()
	first := drover.DeliveryIDOf("r0", 0)
	if reply, err := f.ReplayDeliveries(t.Context(), drover.ReplayRequest{DeliveryID: first}); err != nil || reply.Replayed != 1 {
		t.Fatalf("one: %+v, error %v", reply, err)
	}
	reply, err := f.ReplayDeliveries(t.Context(), drover.ReplayRequest{DeliveryFilter: drover.DeliveryFilter{Status: drover.DeliveryDead, To: "shop.done"}})
	if err != nil || reply.Matched != runs-1 || reply.Replayed != runs-1 {
		t.Fatalf("all: %+v, error %v", reply, err)
	}
	f.until("none is listed", func() bool { return len(dead("")) == 0 })
	got := map[string]int{}
	for len(taken) > 0 {
		m := <-taken
		if got[m[0]]++; m[1] != refused[m[0]] {
			t.Errorf("%s came as %s, and first as %s", m[0], m[1], refused[m[0]])
		}
	}
	for id := range refused {
		if got[id] != 1 {
			t.Errorf("%s was taken %d times", id, got[id])
		}
	}
	if d, err := f.ShowDelivery(t.Context(), first); err != nil || d.Status != drover.DeliveryDelivered || d.Attempts != 2 || d.Receipt != "thanks" {
		t.Errorf("delivery %+v, error %v", d, err)
	}
}
