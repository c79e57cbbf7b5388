package integration_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// move is a write to the bucket of the fleet, as it is sent: the server may
// refuse it.
type move struct {
	n int // the partition; -1: of a member
	place
	after  uint64 // the write of the partition that it is to come after, and is refused if it does not
	member string // its id
	ends   bool   // the member leaves
}

// moves are those writes, in their order.
type moves struct {
	came chan move
	stop func()
}

// moves listens to the fleet from now on.
func (f *fleet) moves() *moves {
	f.t.Helper()
	m := &moves{came: make(chan move, kept)}
	sub, err := f.nc.Subscribe(subjects.BucketKey(names.Fleet(), ">"), func(msg *nats.Msg) {
		key := strings.TrimPrefix(msg.Subject, subjects.BucketKey(names.Fleet(), ""))
		if id, ok := strings.CutPrefix(key, "worker."); ok {
			m.came <- move{n: -1, member: id, ends: len(msg.Data) == 0}
			return
		}
		if n, p, err := readPlace(key, msg.Data); err == nil {
			after, _ := strconv.ParseUint(msg.Header.Get(subjects.HeaderExpectedSubject), 10, 64)
			m.came <- move{n: n, place: p, after: after}
		}
	})
	if err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	m.stop = func() { _ = sub.Unsubscribe() }
	return m
}

// change is what became of the partitions of a member that went.
type change struct {
	had      map[int]place
	released map[int]move // given back, before the member left
	taken    map[int]move
	left     bool          // it said that it goes
	owned    time.Duration // until all had an owner again
	works    time.Duration // until a run in each of them was over
}

// leaves has the oldest member go, by a signal, and follows what comes of it. A
// run is started in each of its partitions at once.
func (c *crew) leaves(how syscall.Signal) change {
	f := c.f
	f.t.Helper()
	name := c.oldest()
	ch := change{had: owned(f.placed(), name), released: map[int]move{}, taken: map[int]move{}}
	ended := make(chan string, kept)
	sub, err := f.nc.Subscribe(names.DoneAll(), func(m *nats.Msg) { ended <- m.Subject[strings.LastIndexByte(m.Subject, '.')+1:] })
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	moves := f.moves()
	defer moves.stop()
	c.members[name].signal(how)
	begun := time.Now()
	waits := c.each(ch.had)
	for !ch.whole() || len(waits) > 0 {
		select {
		case m := <-moves.came:
			ch.moved(name, m, time.Since(begun))
		case run := <-ended:
			delete(waits, drover.RunID(run))
			ch.works = time.Since(begun)
		case <-time.After(patience):
			f.t.Fatalf("worker %s had %v, of which %v are taken; runs %v are not over", name, ch.had, ch.taken, waits)
		}
	}
	for how == syscall.SIGTERM && !ch.left { // it may have to wait for what others do
		ch.moved(name, await(f.t, moves.came, "the end of member "+name), 0)
	}
	c.gone(name, how == syscall.SIGTERM)
	return ch
}

func (ch *change) moved(name string, m move, after time.Duration) {
	had, ours := ch.had[m.n]
	switch {
	case m.ends && strings.HasPrefix(m.member, name+"-"):
		ch.left = true
	case !ours || m.Worker == had.Worker:
	case m.Worker == "" && !ch.left:
		ch.released[m.n] = m
	case m.Worker != "" && m.Epoch == had.Epoch+1 && (ch.taken[m.n].Worker == "" || m.after > ch.taken[m.n].after):
		ch.taken[m.n], ch.owned = m, after
	}
}

// whole reports whether every partition was taken, after it was released where
// it was: an earlier try was refused.
func (ch *change) whole() bool {
	for n := range ch.had {
		free, released := ch.released[n]
		if took, ok := ch.taken[n]; !ok || released && took.after <= free.after {
			return false
		}
	}
	return true
}

// each starts a run in each of some partitions.
func (c *crew) each(places map[int]place) map[drover.RunID]bool {
	c.f.t.Helper()
	c.hired++ // for ids that are new
	runs, met := map[drover.RunID]bool{}, map[int]bool{}
	for i := 0; len(runs) < len(places); i++ {
		run := fmt.Sprintf("in-each-%d-%d", c.hired, i)
		n := subjects.Partition(run, parts)
		if _, ours := places[n]; !ours || met[n] {
			continue
		}
		met[n], runs[drover.RunID(run)] = true, true
		c.f.publish(drover.RunID(run), drover.VerbStart, drover.StartRequest{Definition: text("nodes: {a: {set: {with: 1}}}\noutput: {from: \"node:a\"}\n")})
	}
	return runs
}

// What a worker that is killed had is taken by others when its lease has run
// out, and work goes on there.
func TestFleetTakesOver(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	c := newCrew(f, 3)
	w := newToil(f)
	w.eavesdrop()
	enough := w.beneath(50)
	w.goesOn(20)
	ch := c.leaves(syscall.SIGKILL)
	enough()
	now := f.placed()
	if ch.left || len(ch.released) > 0 || !passedOn(ch.had, now) {
		t.Errorf("the worker had %v, and gave back %v; now it is %v", ch.had, ch.released, now)
	}
	for n, p := range ch.had {
		if now[n].Cursor < p.Cursor {
			t.Errorf("the cursor of partition %d was %d, and is %d", n, p.Cursor, now[n].Cursor)
		}
	}
	w.allTold()
	w.check()
	t.Logf("owners after %.2f leases, runs over after %.2f", ratio(ch.owned), ratio(ch.works))
}

func ratio(d time.Duration) float64 { return float64(d) / float64(lease) }

// A worker that is asked to end gives each partition back with the cursor that
// the next owner goes on from, and goes after that.
func TestFleetHandsOver(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	c := newCrew(f, 3, patient...)
	w := newToil(f)
	w.eavesdrop()
	enough := w.beneath(50)
	w.goesOn(20)
	ch := c.leaves(syscall.SIGTERM)
	enough()
	c.undisturbed()
	for n, had := range ch.had {
		free, ok := ch.released[n]
		next := ch.taken[n]
		if !ok || free.Epoch != had.Epoch || free.Cursor < had.Cursor || next.Epoch != free.Epoch+1 || next.Cursor != free.Cursor {
			t.Errorf("partition %d was %+v, was given back as %+v and taken as %+v", n, had, free.place, next.place)
		}
	}
	w.allTold()
	w.check()
	t.Logf("owners after %v, runs over after %v", ch.owned, ch.works)
}

// How long the partitions of a worker that is killed are without one.
func BenchmarkTakeover(b *testing.B) { benchmarkLeaving(b, syscall.SIGKILL) }

// How long the partitions of a worker that is asked to end are without one.
func BenchmarkHandover(b *testing.B) { benchmarkLeaving(b, syscall.SIGTERM) }

func benchmarkLeaving(b *testing.B, how syscall.Signal) {
	f := connect(b, natstest.New(b, natstest.Listen()).URL())
	c := newCrew(f, 3)
	w := newToil(f)
	w.eavesdrop()
	enough := w.beneath(50)
	var owners, works, worst time.Duration
	for b.Loop() {
		ch := c.leaves(how)
		owners, works, worst = owners+ch.owned, works+ch.works, max(worst, ch.works)
		c.hire()
		c.settled()
	}
	enough()
	n := time.Duration(b.N)
	b.ReportMetric(0, "ns/op") // which has the start of another worker in it
	b.ReportMetric(float64((owners / n).Milliseconds()), "ms-to-owners")
	b.ReportMetric(float64((works / n).Milliseconds()), "ms-to-outcomes")
	b.ReportMetric(float64(worst.Milliseconds()), "ms-at-worst")
}
