package sim

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/machine"
)

// attempt is one attempt to deliver an outcome, in the memory of a worker.
type attempt struct {
	run  drover.RunID
	d    machine.Delivery
	data []byte
	told *drover.Outcome
	set  time.Time // when it was set off
}

// job is the attempt as internal/delivery has it.
func (a *attempt) job() *delivery.Job {
	return &delivery.Job{Run: a.run, ID: a.d.ID, Attempt: a.d.Attempt, Token: a.d.Token, Notify: a.d.Notify, Outcome: a.told, Body: a.data}
}

func jobs(all []*attempt) []*delivery.Job {
	var list []*delivery.Job
	for _, a := range all {
		list = append(list, a.job())
	}
	return list
}

// deliver has an owner make an attempt, unless one is under way there.
func (w *World) deliver(o *owner, e *machine.Effect) {
	a := &attempt{run: e.Run, d: *e.Delivery, data: w.outcomeBytes(e), told: e.Outcome, set: w.now}
	if o.telling[a.d.ID] {
		return
	}
	o.telling[a.d.ID] = true
	if a.d.Notify.Batch != nil {
		w.gather(o, a)
		return
	}
	w.soon(func() { w.try(o, []*attempt{a}) })
}

// list writes a delivery on the list, or takes it off.
func (w *World) list(e *machine.Effect) {
	if e.Kind == machine.EffectList {
		w.told.listed[e.Delivery.ID] = targetOf(&e.Delivery.Notify)
		w.wrote(string(e.Delivery.ID))
	} else {
		delete(w.told.listed, e.Delivery.ID)
	}
}

// try makes an attempt, of one delivery or of those of a batch: it finds somebody
// or not, and is answered or not.
func (w *World) try(o *owner, all []*attempt) {
	if o.gone && w.chance(0.5) {
		return // it had not left the process
	}
	to := targetOf(&all[0].d.Notify)
	back := w.told.back(to, w.now)
	var heard []drover.HeardMessage
	var takes time.Duration
	if all[0].d.Notify.URL != "" {
		heard, takes = w.webhook(o, all[0], !back.IsZero())
	} else {
		heard, takes = w.exchange(all, !back.IsZero())
	}
	for i, a := range all {
		w.hear(o, a, takes, heard[i])
	}
	if back.IsZero() {
		w.missed(o, to)
		return
	}
	for i := range heard {
		w.told.unmade++
		w.saw("Delivery10 an attempt found nobody, and was not counted")
		if !heard[i].Unmade || heard[i].Error == nil {
			w.violated("nobody is at %s, and what is heard of %s is %+v", to, heard[i].DeliveryID, heard[i])
		}
	}
	w.watch(o, to, back)
}

// made notes an attempt that was sent, whether or not it arrives.
func (w *World) made(a *attempt) {
	t, d, record := w.told, &a.d, w.told.latest[a.run]
	t.attempts++
	t.last[d.Token] = w.now
	if t.made[d.Token] == nil {
		t.made[d.Token] = map[int]int{}
	}
	t.made[d.Token][d.Attempt]++
	w.follow("attempt %d of %s for %s", d.Attempt, d.ID, targetOf(&d.Notify))
	_, i, err := drover.ParseDeliveryID(string(d.ID))
	if err != nil {
		w.violated("an attempt was made for delivery %q, which is none", d.ID)
		return
	}
	if record.secret == "" || machine.Token(record.secret, string(d.ID)) != d.Token {
		return // it was on its way when its run was removed
	}
	if i >= len(record.subs) {
		w.violated("an attempt was made for delivery %q, of which no record knows", d.ID)
		return
	}
	sub := &record.subs[i]
	if d.Notify.Inline && record.taker != "" {
		w.violated("%s is told, and %q has taken the outcome", d.ID, record.taker)
	}
	// Before, it may have been on its way for long, or twice.
	over := sub.Status == drover.DeliveryDead || sub.Status == drover.DeliveryDelivered
	if over && a.set.After(t.calmAt.Add(time.Minute)) && w.now.After(sub.At.Time().Add(15*time.Second)) {
		w.violated("%s is %s since %s, and an attempt is made", d.ID, sub.Status, sub.At.Time().Format("15:04:05"))
	}
}

// reach has a target get an outcome: the same each time, and the one that the run
// has.
func (w *World) reach(a *attempt, data []byte) {
	t, d := w.told, &a.d
	if was, ok := t.sent[d.Token]; ok {
		w.saw("Delivery07 a delivery came again with the same id and bytes")
		if !bytes.Equal(was, data) {
			w.violated("delivery %s has two payloads:\n%s\n%s", d.ID, was, data)
		}
	}
	t.sent[d.Token] = data
	var o drover.Outcome
	if err := json.Unmarshal(data, &o); err != nil || o.DeliveryID != d.ID || o.RunID != a.run || !o.Status.Terminal() || o.StartedAt.IsZero() || o.EndedAt.IsZero() {
		w.violated("delivery %s is %.300s: %v", d.ID, data, err)
	}
	if t.heirs[a.run] {
		w.saw("Delivery13 a " + d.Notify.Kind() + " was told of a successor")
	}
	w.saw("Delivery05 a run was told as " + string(o.Status))
}

// hear has a worker tell a run how an attempt went: once or twice, late, or
// never, where the worker dies before that.
func (w *World) hear(o *owner, a *attempt, takes time.Duration, m drover.HeardMessage) {
	if m.DeliveryID != a.d.ID || m.Token != a.d.Token || m.Attempt != a.d.Attempt {
		w.violated("what is heard of attempt %d of %s is %+v", a.d.Attempt, a.d.ID, m)
	}
	w.at(w.now.Add(takes), func() {
		delete(o.telling, a.d.ID)
		late := w.latency()
		if w.chance(w.faults.Slow) { // the log takes nothing for a while
			late += time.Duration(w.rng.Int64N(int64(time.Minute)))
		}
		w.at(w.now.Add(late), func() {
			if o.gone || w.chance(w.faults.Lose) {
				if m.Error == nil {
					w.saw("Delivery11 a worker died between a receipt and its record")
				}
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
	rec := w.records[run]
	if rec.data == nil {
		delete(w.told.listed, id) // what a clean-up that crashed has left
		return false
	}
	state, err := machine.Decode(rec.data)
	if err != nil {
		w.violated("the record of %s, which is listed: %v", run, err)
		return false
	}
	e, pending := machine.Redeliver(state, i, w.now)
	if pending {
		w.told.atOnce++
		w.saw("Delivery09 a delivery was made at once, as its subscriber was there again")
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
	a := &attempt{run: q.call.ID.Run, d: *q.outcome, data: q.input, set: q.set}
	w.made(a)
	w.reach(a, a.data)
	res := drover.ResultMessage{Call: q.call.ID, Token: q.call.Token, Instance: "i0", Output: json.RawMessage(`"ok"`)}
	if err := w.answerOf(a); err != nil {
		res.Output, res.Error = nil, err
	} else {
		w.gives(a)
		w.saw("Delivery01 a function gave a receipt")
	}
	w.at(w.now.Add(time.Duration(w.rng.Int64N(int64(100*time.Millisecond)))), func() { w.ended(q, res) })
}
