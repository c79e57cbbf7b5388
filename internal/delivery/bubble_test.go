package delivery

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// receiver is a subscriber that takes down what it got.
type receiver struct {
	mu  sync.Mutex
	got map[string]int // by delivery id
}

func (r *receiver) take(m *nats.Msg) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got == nil {
		r.got = map[string]int{}
	}
	id := m.Header.Get(subjects.HeaderDelivery)
	r.got[id]++
	return r.got[id]
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func TestDelivery09ASubscriberThatComesBackIsToldWithinASecond(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		stop := w.run()
		j := w.job(subject("late"))
		if m := w.attempt(j); !m.Unmade {
			t.Fatalf("heard %+v", m)
		}
		time.Sleep(time.Minute)
		w.serve("late", func(m *nats.Msg) { w.reply(m, "here") })
		begin := time.Now()
		w.until(func() bool { return w.over() == 1 })
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if len(w.heard) != 2 || w.of(j).made != 1 {
			t.Errorf("heard %d messages, %d attempts: probes that find nobody are no news", len(w.heard), w.of(j).made)
		}
		time.Sleep(time.Minute)
		if len(w.heard) != 2 {
			t.Errorf("heard %d messages", len(w.heard))
		}
		stop()
		if len(w.d.targets) != 0 {
			t.Errorf("%d targets are left", len(w.d.targets))
		}
	})
}

func TestDelivery10FourHundredThatWaitedAreDeliveredOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		w.run()
		begin := time.Now()
		for range 400 {
			w.d.Deliver(w.job(subject("late")))
		}
		w.until(func() bool { return len(w.heard) == 400 })
		if took := time.Since(begin); took > probePause/2 {
			t.Errorf("it took %v until it was heard that nobody is there", took)
		}
		time.Sleep(time.Minute)
		var r receiver
		w.serve("late", func(m *nats.Msg) { r.take(m); w.reply(m, "ok") })
		begin = time.Now()
		w.until(func() bool { return w.over() == 400 })
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		w.honest(&r)
	})
}

// honest checks that each delivery counts as many attempts as the receiver got.
func (w *world) honest(r *receiver) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, rec := range w.records {
		if rec.made != r.got[string(id)] {
			w.t.Errorf("%s counts %d attempts, and was received %d times", id, rec.made, r.got[string(id)])
		}
	}
}

func TestDelivery10WhatAnotherWorkerListedIsFound(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		w.run()
		const many = 3 * maxQueued
		var first *Job
		for range many {
			if j := w.listedJob(subject("there")); first == nil {
				first = j
			}
		}
		var r receiver
		w.serve("there", func(m *nats.Msg) { r.take(m); w.reply(m, "ok") })
		begin := time.Now()
		w.d.Found(first)
		w.until(func() bool { return w.over() == many })
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if len(w.heard) != many {
			t.Errorf("heard %d messages of %d deliveries", len(w.heard), many)
		}
		w.honest(&r)
	})
}

func TestFoundWhereNobodyIsAsksWithOneOnly(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		w.run()
		first := w.listedJob(subject("gone"))
		for range 100 {
			w.listedJob(subject("gone"))
		}
		w.d.Found(first)
		w.d.Found(first)
		time.Sleep(time.Minute)
		if len(w.heard) != 0 {
			t.Errorf("heard %d messages: what is listed knows already that nobody was there", len(w.heard))
		}
		late := w.job(subject("gone"))
		if m := w.attempt(late); !m.Unmade {
			t.Errorf("heard %+v", m)
		}
		w.serve("gone", func(m *nats.Msg) { w.reply(m, "ok") })
		w.until(func() bool { return w.over() == 102 })
	})
}

func TestDelivery09WhoeverAnswersWithErrorsIsAskedOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		w.run()
		for range 50 {
			w.d.Deliver(w.job(subject("sick")))
		}
		w.until(func() bool { return len(w.heard) == 50 })
		var r receiver
		w.serve("sick", func(m *nats.Msg) {
			r.take(m)
			if err := m.RespondMsg(&nats.Msg{Header: nats.Header{subjects.HeaderCode: {"failed"}}}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Hour)
		w.honest(&r)
		if r.count() != 50 || len(w.heard) != 100 || w.lists > 10 {
			t.Errorf("%d were received, %d messages heard, the list was read %d times", r.count(), len(w.heard), w.lists)
		}
	})
}

func TestACanaryThatIsNotPendingIsReplaced(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		stop := w.run()
		a, b := w.job(subject("gone")), w.job(subject("gone"))
		w.attempt(a)
		w.attempt(b)
		w.forget(a)
		time.Sleep(time.Minute)
		var r receiver
		sub := w.serve("gone", func(m *nats.Msg) { r.take(m); w.reply(m, "ok") })
		w.until(func() bool { return w.of2(b).over })
		if r.got[string(a.ID)] != 0 {
			t.Error("what was given up was sent")
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
		w.flush()
		c := w.job(subject("gone"))
		w.attempt(c)
		w.forget(c)
		time.Sleep(time.Minute)
		stop()
		if len(w.d.targets) != 0 {
			t.Errorf("%d targets are left, with nothing to deliver", len(w.d.targets))
		}
	})
}

// of2 is of for until, which has the lock.
func (w *world) of2(j *Job) record { return *w.records[j.ID] }

func TestASlowSubscriberThatIsBackIsSeenToBeThere(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		w.run()
		for range 10 {
			w.d.Deliver(w.job(subject("slow")))
		}
		w.until(func() bool { return len(w.heard) == 10 })
		got := make(chan *nats.Msg, 10)
		w.serve("slow", func(m *nats.Msg) { got <- m })
		begin := time.Now()
		for range 10 {
			m := <-got
			defer w.reply(m, "done")
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v until all had been sent", took)
		}
	})
}

func TestNoAnswerIsAFailedAttempt(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		w.run()
		got := make(chan *nats.Msg, 2)
		w.serve("silent", func(m *nats.Msg) { got <- m })
		for _, want := range []time.Duration{0, 20 * time.Second} {
			n := subject("silent")
			n.Timeout = drover.Duration(want)
			begin := time.Now()
			m := w.attempt(w.job(n))
			if want == 0 {
				want = drover.DefaultReceiptTime
			}
			if took := time.Since(begin); m.Error == nil || m.Error.Code != drover.CodeTimeout || m.Unmade || took < want || took > want+time.Second {
				t.Errorf("heard %+v after %v", m, took)
			}
			w.reply(<-got, "too late")
		}
		time.Sleep(time.Minute)
		if len(w.heard) != 2 {
			t.Errorf("heard %d messages: an answer that is too late is none", len(w.heard))
		}
	})
}

func TestABatchGathers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		w.run()
		n := drover.Notify{Subject: "batch", Batch: &drover.Batch{Max: 4, Wait: drover.Duration(time.Second)}}
		sizes := make(chan int, 10)
		w.serve("batch", func(m *nats.Msg) { sizes <- w.receiveBatch(m) })
		begin := time.Now()
		for range 3 {
			w.d.Deliver(w.job(n))
			time.Sleep(300 * time.Millisecond)
		}
		if n, took := <-sizes, time.Since(begin); n != 3 || took < time.Second || took > time.Second+100*time.Millisecond {
			t.Errorf("%d after %v", n, took)
		}
		begin = time.Now()
		for range 9 {
			w.d.Deliver(w.job(n))
		}
		for _, want := range []int{4, 4} {
			if n := <-sizes; n != want || time.Since(begin) > 0 {
				t.Errorf("%d after %v", n, time.Since(begin))
			}
		}
		if n, took := <-sizes, time.Since(begin); n != 1 || took < time.Second {
			t.Errorf("%d after %v", n, took)
		}
	})
}

// receiveBatch gives a receipt for each outcome.
func (w *world) receiveBatch(m *nats.Msg) int {
	var in drover.OutcomeBatch
	if err := json.Unmarshal(m.Data, &in); err != nil {
		w.t.Error(err)
	}
	var out drover.BatchReceipts
	for _, raw := range in.Outcomes {
		var o drover.Outcome
		if err := json.Unmarshal(raw, &o); err != nil {
			w.t.Error(err)
		}
		out.Receipts = append(out.Receipts, drover.BatchReceipt{DeliveryID: o.DeliveryID})
	}
	data, err := json.Marshal(out)
	if err != nil {
		w.t.Error(err)
	}
	w.reply(m, string(data))
	return len(in.Outcomes)
}

func TestTheListIsReadAgainWhenThatFailed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		w := newWorld(t, s)
		w.run()
		for range 5 {
			w.d.Deliver(w.job(subject("late")))
		}
		w.until(func() bool { return len(w.heard) == 5 })
		w.setFailing(true)
		time.Sleep(time.Minute) // the canary cannot be read again
		w.serve("late", func(m *nats.Msg) { w.reply(m, "ok") })
		time.Sleep(5 * time.Second)
		w.setFailing(false)
		w.until(func() bool { return w.over() == 5 })
		if len(w.heard) != 10 {
			t.Errorf("heard %d messages", len(w.heard))
		}
	})
}

func (w *world) setFailing(failing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = failing
}

func TestProbesHaveARate(t *testing.T) {
	d := &Deliverer{}
	now := time.Now()
	last := now
	for range 5000 {
		last = d.pace(now, probePause, &Job{})
	}
	if took := last.Sub(now); took < 4*time.Second || took > 5*time.Second {
		t.Errorf("5000 probes in %v", took)
	}
	d = &Deliverer{}
	for range 16 {
		last = d.pace(now, probePause, &Job{Body: make([]byte, 1<<20)})
	}
	if took := last.Sub(now); took < 3*time.Second || took > 4*time.Second {
		t.Errorf("16 MiB in %v", took)
	}
}

// Whatever comes when: in the end each delivery has arrived, and counts the
// attempts that its subscriber saw.
func TestAttemptsAreHonestWhateverHappens(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
				w := newWorld(t, s)
				w.run()
				rng := rand.New(rand.NewPCG(seed, 1))
				wild(w, rng)
			})
		})
	}
}

func wild(w *world, rng *rand.Rand) {
	var r receiver
	var calm bool
	subs := map[string]*nats.Subscription{}
	answer := func(m *nats.Msg) {
		n := r.take(m)
		r.mu.Lock()
		defer r.mu.Unlock()
		switch id := m.Header.Get(subjects.HeaderDelivery); {
		case calm || n+len(id)%3 > 3:
			w.reply(m, "ok")
		case strings.HasSuffix(m.Subject, "2") && n == 1: // silent
		default:
			if err := m.RespondMsg(&nats.Msg{Header: nats.Header{subjects.HeaderCode: {"failed"}}}); err != nil {
				w.t.Error(err)
			}
		}
	}
	names := []string{"wild.1", "wild.2", "wild.3"}
	for range 60 {
		name := names[rng.IntN(len(names))]
		switch rng.IntN(4) {
		case 0:
			if sub := subs[name]; sub != nil {
				synctest.Wait() // what was sent to it has been received
				_ = sub.Unsubscribe()
				w.flush()
				delete(subs, name)
			} else {
				subs[name] = w.serve(name, answer)
			}
		case 1:
			for range rng.IntN(150) {
				w.d.Deliver(w.job(subject(name)))
			}
		case 2:
			w.redeliver(rng.IntN(5) + 1)
		case 3:
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		}
	}
	r.mu.Lock()
	calm = true
	r.mu.Unlock()
	for _, name := range names {
		if subs[name] == nil {
			w.serve(name, answer)
		}
	}
	time.Sleep(time.Minute)
	w.redeliver(1)
	time.Sleep(time.Minute)
	synctest.Wait()
	if over := w.over(); over != len(w.records) {
		w.t.Errorf("%d of %d deliveries arrived", over, len(w.records))
	}
	w.honest(&r)
}

// redeliver makes every nth attempt that is due, as a record does whose time has
// come.
func (w *world) redeliver(n int) {
	synctest.Wait() // what was received has been heard
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 0; i < len(w.records); i += n {
		r := w.records[drover.DeliveryIDOf(drover.RunID(fmt.Sprint("r", i)), 0)]
		if j := r.job; !r.over {
			w.d.Deliver(&j)
		}
	}
}
