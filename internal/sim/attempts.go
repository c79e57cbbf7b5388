package sim

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// attempt is one attempt to deliver an outcome, in the memory of a worker.
type attempt struct {
	run  drover.RunID
	d    machine.Delivery
	data []byte
	set  time.Time // when it was set off
}

// deliver has an owner make an attempt, unless one is under way there.
func (w *World) deliver(o *owner, e *machine.Effect) {
	a := &attempt{run: e.Run, d: *e.Delivery, data: w.outcomeBytes(e), set: w.now}
	if o.telling[a.d.ID] {
		return
	}
	o.telling[a.d.ID] = true
	w.soon(func() { w.try(o, a) })
}

// list writes a delivery on the list, or takes it off.
func (w *World) list(e *machine.Effect) {
	if e.Kind == machine.EffectList {
		w.told.listed[e.Delivery.ID] = targetOf(&e.Delivery.Notify)
	} else {
		delete(w.told.listed, e.Delivery.ID)
	}
}

// try makes an attempt: it finds somebody or not, and is answered or not.
func (w *World) try(o *owner, a *attempt) {
	if o.gone && w.chance(0.5) {
		return // it had not left the process
	}
	to := targetOf(&a.d.Notify)
	if back := w.told.back(to, w.now); !back.IsZero() {
		w.told.unmade++
		w.hear(o, a, 0, drover.HeardMessage{Error: drover.Errorf(drover.CodeUnavailable, "nobody listens"), Unmade: true})
		w.watch(o, to, back)
		return
	}
	w.told.attempts++
	w.reach(a)
	err := w.answerOf(a.d.ID, to)
	takes := w.latency()
	switch {
	case err == nil:
		w.told.got[a.d.ID] = true
		w.hear(o, a, takes, drover.HeardMessage{Receipt: "ok"})
	case err.Code == drover.CodeTimeout:
		w.hear(o, a, 10*time.Second, drover.HeardMessage{Error: err})
	default:
		w.hear(o, a, takes, drover.HeardMessage{Error: err})
	}
	w.missed(o, to)
}

// answerOf is what a target says of a delivery; nil is a receipt.
func (w *World) answerOf(id drover.DeliveryID, to string) *drover.Error {
	if broken(to) {
		return drover.Errorf(drover.CodeFailed, "it is broken")
	}
	made := 0
	for _, n := range w.told.made[id] {
		made += n
	}
	if made > 6 {
		return nil
	}
	switch n := w.rng.IntN(50); {
	case n < 8:
		return drover.Errorf(drover.CodeFailed, "not now")
	case n < 9:
		return &drover.Error{Code: drover.CodeFailed, Message: "never", Permanent: true}
	case n < 11:
		return &drover.Error{Code: drover.CodeFailed, Message: "later", RetryAfter: drover.Duration(20 * time.Second)}
	case n < 14:
		return drover.Errorf(drover.CodeTimeout, "no receipt came")
	}
	return nil
}

// reach has a target get an outcome.
func (w *World) reach(a *attempt) {
	t, d, record := w.told, &a.d, w.told.latest[a.run]
	if was, ok := t.sent[d.ID]; ok && !bytes.Equal(was, a.data) {
		w.violated("delivery %s has two payloads:\n%s\n%s", d.ID, was, a.data)
	}
	t.sent[d.ID], t.last[d.ID] = a.data, w.now
	if t.made[d.ID] == nil {
		t.made[d.ID] = map[int]int{}
	}
	t.made[d.ID][d.Attempt]++
	w.follow("%s gets %s, attempt %d", targetOf(&d.Notify), d.ID, d.Attempt)
	_, i, err := drover.ParseDeliveryID(string(d.ID))
	if err != nil || i >= len(record.subs) {
		w.violated("an attempt was made for delivery %q, of which no record knows", d.ID)
		return
	}
	sub := &record.subs[i]
	if d.Notify.Inline && record.taker != "" {
		w.violated("%s is told, and %q has taken the outcome", d.ID, record.taker)
	}
	// Before, it may have been on its way for long, or twice.
	if a.set.After(t.calmAt.Add(time.Minute)) && sub.Status == drover.DeliveryDead && w.now.After(sub.At.Time().Add(5*time.Second)) {
		w.violated("%s is dead since %s, and an attempt is made", d.ID, sub.At.Time().Format("15:04:05"))
	}
}

// hear has a worker tell a run how an attempt went: once or twice, late, or
// never, where the worker dies before that.
func (w *World) hear(o *owner, a *attempt, takes time.Duration, m drover.HeardMessage) {
	m.DeliveryID, m.Token, m.Attempt = a.d.ID, a.d.Token, a.d.Attempt
	w.at(w.now.Add(takes), func() {
		delete(o.telling, a.d.ID)
		late := w.latency()
		if w.chance(w.faults.Slow) { // the log takes nothing for a while
			late += time.Duration(w.rng.Int64N(int64(time.Minute)))
		}
		w.at(w.now.Add(late), func() {
			if o.gone || w.chance(w.faults.Lose) {
				return
			}
			w.append(a.run, drover.VerbHeard, m)
			if w.chance(w.faults.Repeat) {
				w.soon(func() { w.append(a.run, drover.VerbHeard, m) })
			}
		})
	})
}

// watch has an owner notice when a target is there again, with one delivery.
func (w *World) watch(o *owner, to string, back time.Time) {
	if w.told.plain || o.watching[to] {
		return
	}
	o.watching[to] = true
	w.at(back.Add(time.Duration(w.rng.Int64N(int64(400*time.Millisecond)))), func() {
		delete(o.watching, to)
		w.probe(o, to)
	})
}

// missed has an owner deliver all that is listed for a target that is there, if
// nobody did since it was away.
func (w *World) missed(o *owner, to string) {
	since := w.told.present(to, w.now)
	if w.told.plain || since.IsZero() || !o.found[to].Before(since) {
		return
	}
	o.found[to] = since
	for _, id := range w.listedFor(to) {
		w.soon(func() { w.again(o, id) })
	}
}

// probe makes an attempt of the first delivery to a target that is pending.
func (w *World) probe(o *owner, to string) {
	for _, id := range w.listedFor(to) {
		if w.again(o, id) {
			return
		}
	}
}

// adopt has a new owner look after what is listed.
func (w *World) adopt(o *owner) {
	if w.told.plain {
		return
	}
	targets := map[string]bool{}
	for _, to := range w.told.listed {
		targets[to] = true
	}
	for _, to := range slices.Sorted(maps.Keys(targets)) {
		w.soon(func() { w.probe(o, to) })
	}
}

func (w *World) listedFor(to string) []drover.DeliveryID {
	var ids []drover.DeliveryID
	for _, id := range slices.Sorted(maps.Keys(w.told.listed)) {
		if w.told.listed[id] == to {
			ids = append(ids, id)
		}
	}
	return ids
}

// again makes the next attempt of a delivery as its record has it, without a
// command. It is false where there is none to make.
func (w *World) again(o *owner, id drover.DeliveryID) bool {
	run, i, err := drover.ParseDeliveryID(string(id))
	if err != nil || o.dead {
		return false
	}
	state, err := machine.Decode(w.records[run].data)
	if err != nil {
		w.violated("the record of %s, which is listed: %v", run, err)
		return false
	}
	e, pending := machine.Redeliver(state, i, w.now)
	if pending {
		w.told.atOnce++
		w.deliver(o, &e)
	}
	return pending
}

// pullOutcome hands an outcome to an instance of a function.
func (w *World) pullOutcome(q *queued) {
	id := q.call.ID.String()
	if back := w.told.back(targetOf(&q.outcome.Notify), w.now); !back.IsZero() {
		w.at(back.Add(w.latency()), func() { w.pull(q) })
		return
	}
	if !w.now.Before(q.call.Deadline) {
		delete(w.queue, id)
		return
	}
	w.told.calls++
	w.reach(&attempt{run: q.call.ID.Run, d: *q.outcome, data: q.input, set: q.set})
	res := drover.ResultMessage{Call: q.call.ID, Token: q.call.Token, Instance: "i0", Output: json.RawMessage(`"ok"`)}
	if err := w.answerOf(q.outcome.ID, targetOf(&q.outcome.Notify)); err != nil {
		res.Output, res.Error = nil, err
	} else {
		w.told.got[q.outcome.ID] = true
	}
	w.at(w.now.Add(time.Duration(w.rng.Int64N(int64(100*time.Millisecond)))), func() { w.ended(q, res) })
}
