package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
)

// waiter is a client that waits for the outcome of a run, and takes it, gives it
// up, comes too late, or dies.
type waiter struct {
	w     *World
	run   drover.RunID
	name  string
	hold  time.Duration
	until time.Time // it was told that the outcome is held for it until then; zero: it is not
	steps int
}

// waits gives a run a waiter, after a time. The request of a start may bring its
// first hold.
func (w *World) waits(run drover.RunID, n int, after time.Duration, req *drover.StartRequest) {
	p := &waiter{w: w, run: run, name: fmt.Sprintf("w%d", n), hold: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}[w.rng.IntN(3)]}
	w.told.busy++
	if req != nil {
		req.Hold = &drover.HoldRequest{Waiter: p.name, For: drover.Duration(p.hold)}
	}
	w.at(w.now.Add(after+w.latency()), p.next)
}

// next is what a waiter does next.
func (p *waiter) next() {
	w := p.w
	p.steps++
	_, over := w.finals[p.run]
	switch {
	case w.chance(0.04): // it dies, or forgets that it waits
		w.saw("Delivery06 a waiter died")
		w.told.busy--
	case p.steps > 20 || w.chance(0.04):
		if !over {
			w.saw("Delivery06 a waiter gave up, and its run went on")
		}
		p.send(drover.VerbRelease, drover.WaiterRequest{Waiter: p.name})
		w.told.busy--
	case over && p.steps > 1:
		p.consume()
	default:
		p.renew()
	}
}

// renew holds the outcome, for longer. Now and then the next one comes too late.
func (p *waiter) renew() {
	w := p.w
	p.ask(drover.VerbHold, drover.HoldRequest{Waiter: p.name, For: drover.Duration(p.hold)}, func(answer any, refused *drover.Error) {
		if refused != nil && refused.Code != drover.CodeNotFound { // the start is not there yet
			w.violated("waiter %q may not hold the outcome of %s: %v", p.name, p.run, refused)
		}
		if reply, ok := answer.(drover.HoldReply); ok {
			p.until = time.Time{}
			if reply.HeldUntil != nil {
				p.until = *reply.HeldUntil
			}
		}
	})
	pause := p.hold / 3
	if w.chance(0.1) {
		pause = 2 * p.hold
	}
	w.at(w.now.Add(pause+w.latency()), p.next)
}

// consume takes the outcome, and insists on an answer.
func (p *waiter) consume() {
	w := p.w
	at := w.now
	answered := false
	p.ask(drover.VerbConsume, drover.WaiterRequest{Waiter: p.name}, func(_ any, refused *drover.Error) {
		answered = true
		w.told.busy--
		w.follow("waiter %q of %s: %v", p.name, p.run, refused)
		if w.gone(p.run) {
			return // what it asked may be of another life
		}
		if w.told.takers[p.run] == nil {
			w.told.takers[p.run] = map[string]*drover.Error{}
		}
		w.told.takers[p.run][p.name] = refused
		if refused == nil {
			w.saw("Delivery04 a waiter took the outcome")
			return
		}
		w.told.refused++
		w.saw("Delivery04 a waiter came too late")
		d := w.told.latest[p.run]
		if refused.Code != drover.CodeConflict || p.until.After(at) && d.taker == "" {
			w.violated("waiter %q may not take the outcome of %s, which is held for it until %s: %v", p.name, p.run, p.until, refused)
		}
	})
	w.at(w.now.Add(answerTime+time.Second), func() {
		switch {
		case answered:
		case w.chance(0.1): // it dies, and may have taken the outcome
			w.told.busy--
		default:
			p.consume()
		}
	})
}

// send sends a command that does not have to arrive.
func (p *waiter) send(verb drover.Verb, body any) {
	if !p.w.chance(p.w.faults.Fail) {
		p.w.append(p.run, verb, body)
	}
}

// ask sends a command, and hears the answer, if one comes.
func (p *waiter) ask(verb drover.Verb, body any, told func(any, *drover.Error)) {
	w := p.w
	if w.chance(w.faults.Fail) {
		return
	}
	seq := w.store(p.run, verb, body, true)
	w.asked[seq] = func(answer any, refused *drover.Error) {
		if w.asked[seq] != nil {
			delete(w.asked, seq)
			told(answer, refused)
		}
	}
	w.at(w.now.Add(answerTime), func() { delete(w.asked, seq) })
	if verb == drover.VerbHold && w.chance(w.faults.Repeat) {
		w.soon(func() { w.append(p.run, verb, body) })
	}
}

// holds says until when outcomes are held, and for whom, as a reader of the log
// keeps count of it.
type holds struct {
	until  map[string]time.Time // by run and waiter
	takers map[drover.RunID]string
}

// folded follows one command of the log. Whoever takes an outcome holds it.
func (h *holds) folded(w *World, id drover.RunID, m partition.Message, step *machine.Step) {
	if step.State == nil || step.Refused != nil {
		return
	}
	var body struct {
		Waiter string
		Hold   *drover.HoldRequest
	}
	_ = json.Unmarshal(m.Data, &body) // it could be folded
	key := func(name string) string { return string(id) + " " + name }
	switch reply, _ := step.Answer.(drover.HoldReply); drover.Verb(m.Verb) {
	case drover.VerbStart:
		if step.Changed && body.Hold != nil {
			h.until[key(body.Hold.Waiter)] = m.At.Add(time.Duration(body.Hold.For))
		}
	case drover.VerbHold:
		delete(h.until, key(body.Waiter))
		if reply.HeldUntil != nil {
			h.until[key(body.Waiter)] = *reply.HeldUntil
		}
	case drover.VerbRelease:
		delete(h.until, key(body.Waiter))
	default:
	}
	taker := step.State.Taker
	if taker == h.takers[id] {
		return
	}
	if h.takers[id] != "" || !h.until[key(taker)].After(m.At) {
		w.violated("command %d of %s: %q takes the outcome, which it holds until %s; it was taken by %q", m.Seq, id, taker, h.until[key(taker)], h.takers[id])
	}
	h.takers[id] = taker
}
