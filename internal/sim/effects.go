package sim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// queued is a call in the work queue.
type queued struct {
	call    machine.Call
	input   json.RawMessage
	outcome *machine.Delivery // that the call delivers; nil: it is of a node
	set     time.Time         // when it was queued
}

// act performs one effect for an owner.
func (w *World) act(o *owner, e *machine.Effect) {
	switch e.Kind {
	case machine.EffectCall:
		w.enqueue(&queued{call: *e.Call, input: w.value(e.Value)})
	case machine.EffectCancel:
		w.takeOut(e.Call)
	case machine.EffectWithdraw:
		if e.Call != nil {
			w.takeOut(e.Call)
			break
		}
		if w.programs != nil {
			w.withdraw(e.Run, e.Functions)
		}
		for id, q := range w.queue {
			if q.call.ID.Run == e.Run && slices.Contains(e.Functions, q.call.Function) {
				delete(w.queue, id)
			}
		}
	case machine.EffectStart:
		if w.programs != nil {
			w.programs.ledger.child(e)
		}
		req := *e.Start
		req.Input = w.value(e.Value)
		w.starts[e.To] = &req
		w.append(e.To, drover.VerbStart, req)
	case machine.EffectMeta:
		w.append(e.To, drover.VerbMeta, e.Meta)
	case machine.EffectStop:
		if w.programs != nil {
			w.programs.ledger.stops(e)
		}
		w.append(e.To, drover.VerbStop, e.Stop)
	case machine.EffectTell:
		msg := *e.Child
		msg.Result = w.value(e.Value)
		w.append(e.To, drover.VerbChild, msg)
	case machine.EffectDone:
		w.publishOutcome(e)
	case machine.EffectDeliver:
		if e.Call == nil {
			w.deliver(o, e)
		} else {
			w.enqueue(&queued{call: *e.Call, input: w.outcomeBytes(e), outcome: e.Delivery, set: w.now})
		}
	case machine.EffectList, machine.EffectUnlist:
		w.list(e)
	case machine.EffectDrive:
		w.drive(e)
	case machine.EffectNudge:
		w.nudge(e)
	case machine.EffectLook:
		w.lookFor(e)
	case machine.EffectLetter:
		w.programs.letters[e.Run]++
	case machine.EffectForget:
		w.forget(e)
	case machine.EffectRespond: // nobody has to hear of it
	default:
		w.violated("unknown effect %q", e.Kind)
	}
}

// takeOut takes one call out of the queue, whether or not somebody has pulled it: one
// that has goes on. What an earlier life of the run had queued is another call.
func (w *World) takeOut(c *machine.Call) {
	if q := w.queue[c.ID.String()]; q != nil && q.call.Token == c.Token {
		delete(w.queue, c.ID.String())
	}
}

// enqueue puts a call into the queue, from which it comes at least once.
func (w *World) enqueue(q *queued) {
	if id := q.call.ID.String(); w.queuedOnce[id] {
		w.repeats++
	} else {
		w.queuedOnce[id] = true
	}
	w.queue[q.call.ID.String()] = q
	w.soon(func() { w.pull(q) })
	if w.chance(w.faults.Repeat) {
		w.soon(func() { w.pull(q) })
	}
}

// pull hands a call to an instance of its function. What happens is decided by
// the id of the call, so that each delivery of it comes to the same.
func (w *World) pull(q *queued) {
	if w.queue[q.call.ID.String()] != q {
		return // withdrawn, or acknowledged
	}
	if w.chance(w.faults.Lose) { // the instance dies; the queue hands it to another
		w.at(w.now.Add(10*time.Second), func() { w.pull(q) })
		return
	}
	if q.outcome != nil {
		w.pullOutcome(q)
		return
	}
	fate := w.fate(w.lifeOf(q))
	takes := time.Duration(fate%200) * time.Millisecond
	res := drover.ResultMessage{Call: q.call.ID, Token: q.call.Token, Instance: fmt.Sprintf("i%d", fate%3)}
	switch kind := fate / 1000 % 20; {
	case strings.HasPrefix(string(q.call.Function), "undo"), q.call.Function == "sure":
		res.Output = json.RawMessage(`null`)
	case kind < 13:
		res.Output = w.output(fate)
	case kind < 16:
		res.Error = drover.Errorf(drover.CodeFailed, "call %s failed", q.call.ID)
	case kind < 17:
		res.Error = &drover.Error{Code: drover.CodeFailed, Message: "never", Permanent: true}
	case kind < 18:
		res.Error = &drover.Error{Code: drover.CodeFailed, Message: "later", RetryAfter: drover.Duration(5 * time.Second)}
	case kind < 19: // it answers when nobody listens any more
		takes = q.call.Deadline.Sub(w.now) + time.Minute
		res.Output = w.output(fate)
	default: // it never answers
		delete(w.queue, q.call.ID.String())
		return
	}
	w.at(w.now.Add(takes), func() { w.ended(q, res) })
}

// lifeOf says which call this is: that of a run that was started again is another.
func (w *World) lifeOf(q *queued) string {
	if len(w.lives[q.call.ID.Run]) > 1 {
		return q.call.ID.String() + q.call.Token
	}
	return q.call.ID.String()
}

// ended tells how a call ended, and takes it out of the queue.
func (w *World) ended(q *queued, res drover.ResultMessage) {
	w.append(q.call.ID.Run, drover.VerbResult, res)
	if w.chance(w.faults.Repeat) {
		w.append(q.call.ID.Run, drover.VerbResult, res)
	}
	if !w.chance(w.faults.Lose) { // else the ack was lost
		delete(w.queue, q.call.ID.String())
	} else {
		w.at(w.now.Add(10*time.Second), func() { w.pull(q) })
	}
}

// output is what a function gives: now and then more than fits in a record.
func (w *World) output(fate uint64) json.RawMessage {
	pad := ""
	if fate/7%8 == 0 || w.told.cleaning && fate/7%2 == 0 {
		pad = strings.Repeat("x", 3000)
	}
	return json.RawMessage(fmt.Sprintf(`{"n":%d,"list":[1,2,%d],"pad":%q}`, fate%10, fate%5, pad))
}

// fate is a number that belongs to a text in this world.
func (w *World) fate(text string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", w.Seed, text)
	return h.Sum64() >> 8
}

// outcomeBytes are what everybody is told.
func (w *World) outcomeBytes(e *machine.Effect) []byte {
	o := *e.Outcome
	o.Result = w.value(e.Value)
	data, err := json.Marshal(o)
	if err != nil {
		w.violated("the outcome of %s cannot be encoded: %v", e.Run, err)
	}
	return data
}
