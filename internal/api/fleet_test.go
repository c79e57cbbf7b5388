package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

func (o *owner) fleet() drover.FleetReply {
	o.t.Helper()
	var reply drover.FleetReply
	if err := o.ask("fleet", "", &reply); err != nil {
		o.t.Fatal(err)
	}
	return reply
}

func (o *owner) join(id, info string) {
	o.t.Helper()
	if _, err := o.store.Fleet.Join(o.t.Context(), id, []byte(info), time.Hour); err != nil {
		o.t.Fatal(err)
	}
}

func (o *owner) own(p kv.Partition) {
	o.t.Helper()
	if _, err := o.store.Fleet.Save(o.t.Context(), p); err != nil {
		o.t.Fatal(err)
	}
}

func TestFleetShowsOwnersAndLag(t *testing.T) {
	o := newOwner(t).serve(nil)
	reply := o.fleet()
	if len(reply.Members) != 0 || len(reply.Partitions) != partitions || reply.Partitions[3].Number != 3 || !reply.Partitions[3].Slow {
		t.Errorf("an empty fleet is %+v", reply)
	}
	o.join("w2", `{"name":"beta","since":"2026-01-02T03:04:05Z","leaving":true,"partitions":7}`)
	o.join("w1", `{"name":"gamma","since":"2026-01-02T03:04:05Z"}`)
	o.join("w3", `what another version says`)
	o.own(kv.Partition{Number: 0, Worker: "w1", Epoch: 3})
	o.own(kv.Partition{Number: 1, Worker: "w1", Epoch: 1})
	o.own(kv.Partition{Number: 2, Worker: "gone", Epoch: 9})
	// 20 commands in each of partitions 0 and 1.
	last := map[int]uint64{}
	for i, left := 0, 40; left > 0; i++ {
		run := fmt.Sprint("run", i)
		n := subjects.Partition(run, partitions)
		if n > 1 || last[n] >= 20 {
			continue
		}
		if _, err := o.js.Publish(t.Context(), o.names.In(drover.RunID(run), drover.VerbTick), nil); err != nil {
			t.Fatal(err)
		}
		last[n]++
		left--
	}
	o.bury(drover.DeadLetter{Sequence: 1, Error: drover.Errorf(drover.CodeNotFound, "x")})
	reply = o.fleet()
	if len(reply.Members) != 3 || reply.Dead != 1 {
		t.Fatalf("fleet %+v", reply)
	}
	beta, gamma, w3 := reply.Members[0], reply.Members[1], reply.Members[2]
	if beta.ID != "w2" || !beta.Leaving || beta.Partitions != 0 || gamma.ID != "w1" || gamma.Leaving || gamma.Partitions != 2 || gamma.Since.Year() != 2026 || w3.Name != "w3" {
		t.Errorf("members %+v", reply.Members)
	}
	for n, p := range reply.Partitions {
		want := drover.Partition{Number: n, Slow: n > 1}
		switch n {
		case 0:
			want.Worker, want.Epoch, want.Lag = "w1", 3, 20
		case 1:
			want.Worker, want.Epoch, want.Lag = "w1", 1, 20
		case 2:
			want.Worker, want.Epoch = "gone", 9
		}
		oldest := p.Oldest
		if p.Oldest = nil; p != want || (oldest != nil) != (want.Lag > 0) || oldest != nil && time.Since(*oldest) > patience {
			t.Errorf("partition %+v, oldest %v; want %+v", p, oldest, want)
		}
	}
}

func TestFleetLagCountsFromTheCursor(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.join("w1", `{"name":"a"}`)
	const run = drover.RunID("run1")
	n := subjects.Partition(string(run), partitions)
	var sequences []uint64
	for range 10 {
		ack, err := o.js.Publish(t.Context(), o.names.In(run, drover.VerbTick), nil)
		if err != nil {
			t.Fatal(err)
		}
		sequences = append(sequences, ack.Sequence)
	}
	p := kv.Partition{Number: n, Worker: "w1", Epoch: 1}
	for done, lag := range map[int]uint64{0: 10, 7: 3, 9: 1} {
		p.Cursor = sequences[done]
		saved, err := o.store.Fleet.Save(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		p.Revision = saved.Revision
		if got := o.fleet().Partitions[n]; got.Lag != lag || got.Cursor != p.Cursor || got.Oldest == nil {
			t.Errorf("with the cursor at %d: %+v, want a lag of %d", done, got, lag)
		}
	}
	p.Cursor = sequences[9] + 1
	o.own(p)
	if got := o.fleet().Partitions[n]; got.Lag != 0 || got.Oldest != nil || got.Slow {
		t.Errorf("with the cursor at the end: %+v", got)
	}
	// What counts leaves no consumers behind.
	s, err := o.js.Stream(t.Context(), o.names.Commands())
	if err != nil {
		t.Fatal(err)
	}
	if left := s.CachedInfo().State.Consumers; left != 0 {
		t.Errorf("%d consumers were left behind", left)
	}
}
