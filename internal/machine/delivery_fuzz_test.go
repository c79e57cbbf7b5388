package machine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// lifeOf sends random events to one delivery, and holds what is promised of any.
func lifeOf(t testing.TB, data []byte) {
	d := &dice{data}
	n := drover.Notify{Subject: "a", MaxAge: drover.Duration(d.roll(4)) * drover.Duration(time.Minute), MaxAttempts: d.roll(4), Inline: d.roll(2) == 1}
	if d.roll(3) == 1 {
		n.Subject, n.Function = "", "f"
	}
	sub := &Subscriber{Notify: n}
	now := Millis(1_000_000)
	for len(d.bytes) > 0 {
		now += Millis(d.roll(5) * d.roll(60) * 1000)
		ev := Event{Kind: EventKind(d.roll(int(EventReplayed) + 1)), Now: now, Ceil: now, ID: "r:terminal:0", Until: now + Millis(d.roll(3)*1000), Attempt: sub.Tried - 1 + d.roll(4)}
		switch ev.Kind {
		case EventDue: // comes when it is due only
			if sub.Next == 0 || sub.Next > now {
				continue
			}
		case EventFailed, EventUnmade:
			ev.Error = &drover.Error{Code: "x", Permanent: d.roll(9) == 1, RetryAfter: drover.Duration(d.roll(3)-1) * drover.Duration(time.Minute)}
		case EventEnded, EventHeld, EventConsumed, EventReleased, EventReceived, EventReplayed:
		}
		before := *sub
		changed := sub.step(ev)
		if why := brokenBy(before, *sub, ev, changed); why != "" {
			t.Fatalf("%s\n       %s\nafter %+v\nmade   %s", why, spellSub(before), ev, spellSub(*sub))
		}
		if sub.Status == drover.DeliveryPending && sub.Next == 0 { // as whoever makes the attempt does
			sub.setOff(ev.ID, now)
		}
	}
}

// brokenBy says what a step has broken, or "".
func brokenBy(before, sub Subscriber, ev Event, changed bool) string {
	counted := sub.Tried - sub.Base
	gone := ev.Now >= sub.ends()
	died := before.Status != drover.DeliveryDead && sub.Status == drover.DeliveryDead
	switch {
	case before.Status == drover.DeliveryDelivered && changed, before.Status == drover.DeliveryConsumed && changed:
		return "what was heard of changes"
	case !changed && spellSub(before) != spellSub(sub):
		return "it changed, and says that it did not"
	case sub.Tried < before.Tried || sub.Tried > before.Tried+1 && ev.Kind != EventReceived:
		return "an attempt was lost, or made up"
	case sub.Tried > before.Tried && ev.Kind != EventFailed && ev.Kind != EventReceived:
		return "an attempt was counted that was not made"
	case sub.Status == drover.DeliveryConsumed && before.Status != drover.DeliveryHeld && changed:
		return "it was consumed, and not held"
	case died && !gone && (sub.Notify.MaxAttempts == 0 || counted < sub.Notify.MaxAttempts) && (ev.Error == nil || !ev.Error.Permanent):
		return "it died before its time"
	case sub.Status == drover.DeliveryPending && ev.Kind == EventFailed && changed && sub.Next <= ev.Now && !gone:
		return "it is tried again without a pause"
	case (sub.Status == drover.DeliveryHeld) != (sub.Next > 0) && sub.Status != drover.DeliveryPending:
		return "it is looked at again, or never is"
	}
	if !sub.Status.Over() == (sub.At > 0) {
		return "it has an end, or none"
	}
	return ""
}

func FuzzDelivery(f *testing.F) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 300 {
		data := make([]byte, 20+rng.IntN(300))
		for i := range data {
			data[i] = byte(rng.IntN(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { lifeOf(t, data) })
}

// frozen is a state without what may still change once the run is over.
func (w *world) frozen() string {
	w.t.Helper()
	s := w.decode(w.record)
	s.Notify, s.Waiters, s.Taker, s.Owed, s.Applied, s.Now = nil, nil, "", nil, 0, 0
	return string(w.encode(s))
}

// randomDelivery sends one random command of those that are about the outcome.
func (w *world) randomDelivery(d *dice) {
	who := []string{"ann", "bob"}[d.roll(2)]
	switch d.roll(9) {
	case 0:
		w.hold(who, time.Duration(d.roll(90))*time.Second)
	case 1:
		w.consume(who)
	case 2:
		w.release(who)
	case 3:
		w.replay([]string{"", "0", "1", "9"}[d.roll(4)])
	case 4, 5, 6:
		if len(w.s.Notify) == 0 {
			return
		}
		i := d.roll(len(w.s.Notify))
		m := drover.HeardMessage{Attempt: w.s.Notify[i].Tried + d.roll(3), Receipt: "ok"}
		if d.roll(4) > 0 {
			m.Error, m.Unmade = &drover.Error{Code: "x", Message: "no", Permanent: d.roll(9) == 1}, d.roll(3) == 1
		}
		w.hears(i, m)
	case 7:
		if deadline := w.s.Deadline(); deadline > 0 && deadline.Time().After(w.now) {
			w.now = deadline.Time()
		}
		w.tick()
	case 8:
		if len(w.s.Notify) > 0 {
			w.told(d.roll(len(w.s.Notify)), 1+d.roll(3), drover.ResultMessage{})
		}
	}
}

// afterwards plays on once the run is over: nothing but its deliveries changes,
// and what nobody hears of ends by itself.
func (w *world) afterwards(d *dice) {
	w.t.Helper()
	frozen := w.frozen()
	for range 40 {
		if len(d.bytes) == 0 {
			break
		}
		w.pass(time.Duration(d.roll(5)*d.roll(30)) * time.Second)
		w.randomDelivery(d)
	}
	for round := 0; w.s.Deadline() > 0; round++ {
		if round > 1000 {
			w.t.Fatalf("its deliveries never end: %s", w.record)
		}
		if deadline := w.s.Deadline().Time(); deadline.After(w.now) {
			w.now = deadline
		}
		w.tick()
	}
	for i := range w.s.Notify {
		if !w.s.Notify[i].Status.Over() {
			w.t.Fatalf("nothing more comes, and delivery %d is %s", i, spellSub(w.s.Notify[i]))
		}
	}
	if got := w.frozen(); got != frozen {
		w.t.Fatalf("a run that is over changed from\n%s\nto\n%s", frozen, got)
	}
}
