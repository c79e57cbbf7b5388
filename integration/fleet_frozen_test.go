package integration_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// A worker is stopped in the middle of its work for longer than its lease, and
// goes on when others have done all of it: with answers that it waits for, writes
// that it had begun, and the belief that it owns its partitions. None of what it
// does then changes anything. (Two workers that work on one partition at the
// same time are in package worker: TestAFrozenWorkerDoesNoHarm.)
func TestFaults03FrozenWorker(t *testing.T) {
	t.Parallel()
	inFlight := 300
	if testing.Short() {
		inFlight = 100
	}
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	c := newCrew(f, 3, "--log-level", "info")
	w := newToil(f, breeds...)
	w.eavesdrop()
	parked := w.park(20)
	enough := w.beneath(inFlight)
	w.goesOn(inFlight / 2)

	frozen := c.oldest()
	had := owned(f.placed(), frozen)
	c.members[frozen].signal(syscall.SIGSTOP)
	f.untilPlaces("other owners of the partitions of "+frozen, func(all map[int]place) bool { return passedOn(had, all) })
	w.goesOn(inFlight)
	enough()
	w.allTold()
	w.quiet()
	records, outcomes := f.records(), f.count(names.Outcomes())

	c.members[frozen].signal(syscall.SIGCONT)
	c.members[frozen].line("the lease ran out, all partitions are dropped")
	c.members[frozen].line("rejoined the fleet")
	if now := c.settled(); !later(had, now) {
		t.Errorf("worker %s had %v, and now it is %v", frozen, had, now)
	}
	w.quiet()
	for key, now := range f.records() {
		if was := records[key]; was != now {
			t.Errorf("record %s was\n%s\nand is now\n%s", key, was, now)
		}
	}
	if n := f.count(names.Outcomes()); n != outcomes {
		t.Errorf("%d outcomes were published, and are now %d", outcomes, n)
	}
	for _, run := range parked {
		f.publish(run, drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: number(5)})
	}
	for _, run := range parked {
		f.completes(run, "5")
	}
	w.check()
	t.Logf("%d runs, of them %d in records", len(w.runs), len(records))
}

// eavesdrop has everyone's outcomes count as what was told, in place of what
// subscribers are told: who is frozen may hold on to deliveries for long.
func (w *crashed) eavesdrop() {
	w.t.Helper()
	start := w.start
	w.start = func(ctx context.Context, req drover.StartRequest) error {
		req.Notify = nil
		return start(ctx, req)
	}
	if _, err := w.nc.Subscribe(names.DoneAll(), func(m *nats.Msg) {
		run := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		w.told.add(run, string(m.Data))
	}); err != nil {
		w.t.Fatal(err)
	}
}

// park starts runs that wait for a delivery.
func (w *crashed) park(n int) (runs []drover.RunID) {
	w.t.Helper()
	for i := range n {
		run := drover.RunID(fmt.Sprintf("parked-%d", i))
		w.publish(run, drover.VerbStart, drover.StartRequest{
			Definition: text("nodes: {w: {wait: {name: go}}}\noutput: {from: \"node:w\"}\n"),
		})
		runs = append(runs, run)
	}
	return runs
}

// later reports whether every partition has a later epoch, whoever has it.
func later(had, now map[int]place) bool {
	for n, p := range had {
		if now[n].Epoch <= p.Epoch {
			return false
		}
	}
	return true
}
