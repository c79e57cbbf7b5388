package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/rawjson"
)

// loadTimeout is how long one answer of the server may take before a batch
// ends with an error.
const loadTimeout = 15 * time.Second

// batch is effects of one run that end together.
type batch struct {
	run     drover.RunID
	effects []machine.Effect
	done    func(error)
	left    atomic.Int64 // parts that have not ended
	failed  atomic.Pointer[error]
}

// input is the value of an effect once it is at hand. The zero value is null.
type input struct {
	json json.RawMessage
	gone string // the key of a value that is not there any more
}

// Perform performs the effects of one commit of one run. done is called exactly
// once: with nil when all have happened, else with the first error, and then
// the whole batch is to be given again. done must not block; it is never called
// before Perform returns. Perform keeps the effects until then, and never blocks.
func (d *Dispatcher) Perform(effects []machine.Effect, done func(error)) {
	b := &batch{effects: effects, done: done}
	if len(effects) > 0 {
		b.run = effects[0].Run
	}
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		go done(errEnded())
		return
	}
	d.inflight.Add(1)
	waiting, busy := d.runs[b.run]
	if busy {
		d.runs[b.run] = append(waiting, b)
	} else {
		d.runs[b.run] = nil
	}
	d.mu.Unlock()
	if !busy {
		d.queue.push(func() { d.start(b) })
	}
}

// start performs a batch: what can be sent at once is, what needs an answer of
// the server first goes to the slow workers, and what takes something back stays in
// its place among calls and starts.
func (d *Dispatcher) start(b *batch) {
	b.left.Store(1)
	var slow, hooks, line []*machine.Effect
	back := slices.ContainsFunc(b.effects, takesBack)
	for i := range b.effects {
		e := &b.effects[i]
		switch {
		case ofHook(e.Kind):
			hooks = append(hooks, e)
		case back && inLine(e):
			line = append(line, e)
		case loads(e):
			slow = append(slow, e)
		default:
			b.left.Add(1)
			d.act(e, input{json: e.Value.JSON}, func(err error) { d.part(b, err) })
		}
	}
	if len(line) > 0 {
		b.left.Add(1)
		d.slow.push(func() { d.part(b, d.actInLine(line)) })
	}
	if len(hooks) > 0 {
		b.left.Add(1)
		d.actOnHooks(hooks, func(err error) { d.part(b, discreet(err)) })
	}
	if len(slow) > 0 {
		d.slow.push(func() {
			d.part(b, d.actSlowly(slow))
		})
		return
	}
	d.part(b, nil)
}

// discreet hides the text of an error that may have a token in it, as it will be
// logged, and whoever knows a token may deliver. The code stays.
func discreet(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("a hook could not be claimed, released or handed over: %w", drover.CodeOf(err, drover.CodeUnavailable))
}

// part ends a part of a batch, and with the last one the batch.
func (d *Dispatcher) part(b *batch, err error) {
	if err != nil {
		b.failed.CompareAndSwap(nil, &err)
	}
	if b.left.Add(-1) > 0 {
		return
	}
	d.mu.Lock()
	waiting := d.runs[b.run]
	if len(waiting) == 0 {
		delete(d.runs, b.run)
	} else {
		next := waiting[0]
		d.runs[b.run] = waiting[1:]
		d.queue.push(func() { d.start(next) })
	}
	d.mu.Unlock()
	if first := b.failed.Load(); first != nil {
		b.done(*first)
	} else {
		b.done(nil)
	}
	d.inflight.Done()
}

// loads reports whether the value of an effect has to be read first. That of a drive
// is read by whoever takes it.
func loads(e *machine.Effect) bool { return e.Value.Key != "" && e.Kind != machine.EffectDrive }

// actSlowly performs effects that need answers of the server first, and waits
// for their end, so that few values are in memory at any time.
func (d *Dispatcher) actSlowly(effects []*machine.Effect) error {
	for len(effects) > 0 {
		n, size := 0, 0
		for n < len(effects) && (n == 0 || size+effects[n].Value.Size <= loadBytes) {
			size += effects[n].Value.Size
			n++
		}
		if err := d.actOn(effects[:n]); err != nil {
			return err
		}
		effects = effects[n:]
	}
	return nil
}

// actOn loads the values of some effects, performs these and waits.
func (d *Dispatcher) actOn(effects []*machine.Effect) error {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	var keys []string
	for _, e := range effects {
		if loads(e) {
			keys = append(keys, e.Value.Key)
		}
	}
	var values map[string]json.RawMessage
	if len(keys) > 0 {
		var err error
		if values, err = d.opts.Values.Get(ctx, keys); err != nil {
			return err
		}
	}
	ends := make(chan error, len(effects))
	for _, e := range effects {
		in := input{json: e.Value.JSON}
		if key := e.Value.Key; loads(e) {
			var ok bool
			if in.json, ok = values[key]; !ok {
				in.gone = key
			}
		}
		d.act(e, in, func(err error) { ends <- err })
	}
	var first error
	for range effects {
		if err := <-ends; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// act performs one effect whose value is at hand.
func (d *Dispatcher) act(e *machine.Effect, in input, done func(error)) {
	switch e.Kind {
	case machine.EffectCall:
		d.call(e, in, done)
	case machine.EffectStart:
		d.startChild(e, in, done)
	case machine.EffectMeta:
		d.send(e.To, drover.VerbMeta, e.Meta, done)
	case machine.EffectTell:
		d.tell(e, in, done)
	case machine.EffectDone:
		d.outcome(e, in, done)
	case machine.EffectDeliver:
		d.deliver(e, in, done)
	case machine.EffectDrive:
		d.drive(e, in, done)
	case machine.EffectNudge:
		d.nudge(e)
		done(nil)
	case machine.EffectLook:
		d.look(e)
		done(nil)
	case machine.EffectForget:
		d.forget(e)
		done(nil)
	case machine.EffectLetter:
		d.letter(e, done)
	case machine.EffectList, machine.EffectUnlist:
		d.list(e, done)
	case machine.EffectRespond:
		d.respond(e, in)
		done(nil)
	case machine.EffectCancel, machine.EffectWithdraw, machine.EffectStop, machine.EffectClaim, machine.EffectRelease, machine.EffectHandOver:
		done(drover.Errorf(drover.CodeInternal, "the effect %q of run %s must be performed slowly", e.Kind, e.Run))
	default:
		done(drover.Errorf(drover.CodeInternal, "run %s has an effect of the unknown kind %q: a newer worker decided it", e.Run, e.Kind))
	}
}

// publish stores a message. done may be called on the goroutine of the
// Publisher, and must not publish there: see later.
func (d *Dispatcher) publish(msg *nats.Msg, done func(error)) {
	d.opts.Publisher.Publish(msg, func(_ publish.Ack, err error) { done(err) })
}

// orElse stores a message; where it is refused as too large, it does instead
// what never is.
func (d *Dispatcher) orElse(msg *nats.Msg, done func(error), instead func()) {
	d.publish(msg, func(err error) {
		if tooLarge(err) {
			// The goroutine of the Publisher makes room for what is published, so
			// it must not publish itself.
			d.queue.push(instead)
			return
		}
		done(err)
	})
}

// send stores a command in the log of a run.
func (d *Dispatcher) send(run drover.RunID, verb drover.Verb, body any, done func(error)) {
	msg, err := d.command(run, verb, body)
	if err != nil {
		done(err)
		return
	}
	d.publish(msg, done)
}

func (d *Dispatcher) command(run drover.RunID, verb drover.Verb, body any) (*nats.Msg, error) {
	data, err := rawjson.Encode(body)
	if err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: d.opts.Names.In(run, verb), Data: data}, nil
}
