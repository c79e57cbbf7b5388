package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
)

// looked counts how often a record is read.
type looked struct {
	states
	times atomic.Int64
}

func (l *looked) Load(ctx context.Context, run drover.RunID) (*machine.State, error) {
	l.times.Add(1)
	return l.states.Load(ctx, run)
}

// However many deliveries a target has that are dead, or in a queue, what waits is
// found at once: the list says which they are, and their records are not read.
func TestDelivery10DeadOnesDelayNobody(t *testing.T) {
	const dead = 2000
	f := newFleet(t)
	runs := &looked{states: f.runs}
	d, _ := f.dispatcher(func(o *Options) { o.Runs = runs })
	to, call := drover.Notify{Subject: "app.done"}, drover.Notify{Function: "app.told"}
	var effects []machine.Effect
	list := func(run drover.RunID, n drover.Notify, status drover.DeliveryStatus) {
		f.runs[run] = ended(run, n, status)
		e := listEffect(machine.EffectList, n, run, 0)
		e.Delivery.Dead = status == drover.DeliveryDead
		effects = append(effects, e)
	}
	for i := range dead {
		list(drover.RunID(fmt.Sprint("dead", i)), to, drover.DeliveryDead)
	}
	for i := range 100 {
		list(drover.RunID(fmt.Sprint("queued", i)), call, drover.DeliveryPending)
	}
	list("replayed", to, drover.DeliveryPending)
	effects[len(effects)-1].Delivery.Dead = true // so far
	list("waits", to, drover.DeliveryPending)
	f.perform(d, effects...)

	var found []drover.RunID
	visit := func(run drover.RunID, _ int) bool {
		found = append(found, run)
		return true
	}
	if err := d.Listed(t.Context(), delivery.Target(&to), visit); err != nil || !slices.Equal(found, []drover.RunID{"waits"}) {
		t.Errorf("%d are found of one that waits, error %v", len(found), err)
	}
	got := f.listener("app.done")
	if err := d.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id := await(t, got, "the delivery").Header.Get("Drover-Delivery"); id != "waits:terminal:0" {
		t.Errorf("told of %s", id)
	}
	if n := runs.times.Load(); n > 10 {
		t.Errorf("%d records were read to find one delivery", n)
	}

	// One that is replayed waits again, and is found; its record decides then.
	f.perform(d, listEffect(machine.EffectList, to, "replayed", 0))
	found = nil
	if err := d.Listed(t.Context(), delivery.Target(&to), visit); err != nil || !slices.Contains(found, "replayed") {
		t.Errorf("after a replay %v are found, error %v", found, err)
	}
}

// Keys of an earlier version say nothing, and those of an owner that came late what
// is not so any more: each costs the record once, and then the list says what it is.
func TestDelivery10HintsThatSayNothingAreMended(t *testing.T) {
	f := newFleet(t)
	runs := &looked{states: f.runs}
	mended := make(chan error, 100)
	d, _ := f.dispatcher(func(o *Options) { o.Runs, o.Deliveries = runs, listing{o.Deliveries, mended} })
	to, call := drover.Notify{Subject: "app.done"}, drover.Notify{Function: "app.told"}
	want := map[string]kv.Hint{}
	list := func(run drover.RunID, n drover.Notify, status drover.DeliveryStatus, says, then kv.Hint) {
		t.Helper()
		f.runs[run] = ended(run, n, status)
		key := delivery.Key(&n, d.opts.Partitions, run, 0)
		d.opts.Deliveries.List(key, says, func(error) {})
		if err := await(t, mended, "a key"); err != nil {
			t.Fatal(err)
		}
		want[key] = then
	}
	list("dead1", to, drover.DeliveryDead, "", kv.HintDead)
	list("dead2", to, drover.DeliveryDead, kv.HintWaits, kv.HintDead)
	list("queued", call, drover.DeliveryPending, "", kv.HintQueued)
	list("dead3", call, drover.DeliveryDead, "what", kv.HintDead)
	for round := range 3 {
		if err := d.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range len(want) * (1 - min(round, 1)) { // in the first one only
			if err := await(t, mended, "a hint that is mended"); err != nil {
				t.Fatal(err)
			}
		}
		has := map[string]kv.Hint{}
		if err := d.opts.Deliveries.Scan(t.Context(), "", func(key string, hint kv.Hint) bool {
			has[key] = hint
			return true
		}); err != nil || !maps.Equal(has, want) {
			t.Fatalf("the list says %v, want %v, error %v", has, want, err)
		}
	}
	if n := runs.times.Load(); n != 4 || len(mended) > 0 {
		t.Errorf("%d records were read, want 4, and %d hints written again", n, len(mended))
	}
}

// listing tells of what was listed.
type listing struct {
	kv.Deliveries
	done chan error
}

func (l listing) List(key string, hint kv.Hint, done func(error)) {
	l.Deliveries.List(key, hint, func(err error) {
		done(err)
		l.done <- err
	})
}
