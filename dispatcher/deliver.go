package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// storePause is between attempts to store what was heard of a delivery.
const storePause = 200 * time.Millisecond

// maxAdopted is how many deliveries of a target are looked at for one that waits:
// the list only hints at what does.
const maxAdopted = 512

// headroom is what the headers of an outcome may take of a message.
const headroom = 4 << 10

// deliver sets off an attempt to deliver an outcome. The effect has happened
// then: the record has a time at which the attempt is made again, should nothing
// be heard of it.
func (d *Dispatcher) deliver(e *machine.Effect, in input, done func(error)) {
	if e.Call != nil {
		d.told(d.callMessage(e.Call, nil), e, in, done)
		return
	}
	d.deliverer.Deliver(d.job(e, in))
	done(nil)
}

// job makes the attempt of an effect.
func (d *Dispatcher) job(e *machine.Effect, in input) *delivery.Job {
	j := &delivery.Job{
		Run: e.Run, ID: e.Delivery.ID, Attempt: e.Delivery.Attempt, Token: e.Delivery.Token,
		Notify: e.Delivery.Notify, Outcome: e.Outcome,
	}
	if in.gone != "" {
		j.Body = encodeWithout(e.Outcome, gone(in.gone, "the result of run "+string(e.Run)))
		return j
	}
	j.Body = Encode(e.Outcome, in.json)
	if limit := d.opts.Conn.MaxPayload() - headroom; limit > 0 && int64(len(j.Body)) > limit {
		j.Body = encodeWithout(e.Outcome, d.large("the outcome of run "+string(e.Run), len(j.Body)))
	}
	return j
}

// list writes a delivery on the list of those that did not succeed at once, or
// takes it off.
func (d *Dispatcher) list(e *machine.Effect, done func(error)) {
	run, i, err := drover.ParseDeliveryID(string(e.Delivery.ID))
	if err != nil {
		done(err)
		return
	}
	key := delivery.Key(&e.Delivery.Notify, d.opts.Partitions, run, i)
	if e.Kind == machine.EffectList {
		d.opts.Deliveries.List(key, hint(e.Delivery), done)
	} else {
		d.opts.Deliveries.Unlist(key, done)
	}
}

// hint is what the list says of a delivery.
func hint(d *machine.Delivery) kv.Hint {
	switch {
	case d.Dead:
		return kv.HintDead
	case d.Notify.Function != "":
		return kv.HintQueued
	}
	return kv.HintWaits
}

func (d *Dispatcher) partition(run drover.RunID) int {
	return subjects.Partition(string(run), d.opts.Partitions)
}

// heard tells a run how an attempt went, and tries until that is durable: what
// was done should not be done again because it could not be told.
func (d *Dispatcher) heard(run drover.RunID, m drover.HeardMessage) {
	msg, err := d.command(run, drover.VerbHeard, m)
	if err != nil || !d.begin() {
		return // the record has a time at which the attempt is made again
	}
	d.queue.push(func() { d.store(msg) })
}

func (d *Dispatcher) store(msg *nats.Msg) {
	d.opts.Publisher.Publish(msg, func(_ publish.Ack, err error) {
		if !errors.Is(err, drover.CodeUnavailable) || d.ends.Err() != nil {
			d.inflight.Done()
			return
		}
		time.AfterFunc(storePause, func() { d.queue.push(func() { d.store(msg) }) })
	})
}

// Adopt has the deliveries of own partitions tried at once that did not succeed
// when they were first tried: their last owner knew which subscribers are there,
// and this one has to find out.
func (d *Dispatcher) Adopt(ctx context.Context) error {
	known := map[string]int{} // how many were looked at, or enough
	var failed error
	err := d.opts.Deliveries.Scan(ctx, "", func(key string, hint kv.Hint) bool {
		target, _, _ := strings.Cut(key, ".")
		partition, run, i, ok := subjects.DeliveryOfKey(key)
		if !ok || !hint.Waits() || known[target] >= maxAdopted || !d.opts.Owns(partition) {
			return true
		}
		known[target]++
		var job *delivery.Job
		if job, failed = d.Load(ctx, run, i); job != nil {
			known[target] = maxAdopted
			d.deliverer.Found(job)
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}

// Listed implements delivery.Source.
func (d *Dispatcher) Listed(ctx context.Context, target string, visit func(drover.RunID, int) bool) error {
	return d.opts.Deliveries.Scan(ctx, subjects.DeliveriesTo(target), func(key string, hint kv.Hint) bool {
		partition, run, i, ok := subjects.DeliveryOfKey(key)
		return !ok || !hint.Waits() || !d.opts.Owns(partition) || visit(run, i)
	})
}

// Load implements delivery.Source.
func (d *Dispatcher) Load(ctx context.Context, run drover.RunID, subscriber int) (*delivery.Job, error) {
	if !d.opts.Owns(d.partition(run)) {
		return nil, nil
	}
	state, err := d.opts.Runs.Load(ctx, run)
	if errors.Is(err, drover.CodeNotFound) {
		return nil, d.unlistGone(ctx, run)
	}
	if errors.Is(err, drover.CodeInternal) { // it is of a newer version, or broken: its own owner will say so
		d.quiet.Warn().Err(err).Str("run", string(run)).Msg("a delivery that waits cannot be read")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, pending := machine.Redeliver(state, subscriber, time.Now())
	if !pending {
		d.correct(state, subscriber)
		return nil, nil
	}
	in := input{json: e.Value.JSON}
	if key := e.Value.Key; key != "" {
		values, err := d.opts.Values.Get(ctx, []string{key})
		if err != nil {
			return nil, err
		}
		if value, ok := values[key]; ok {
			in.json = value
		} else {
			in.gone = key
		}
	}
	return d.job(&e, in), nil
}

// correct takes a delivery that somebody had off the list, where an owner that
// crashed, or came late, has left it; and of one that does not wait it has the list
// say so, which those of earlier versions do not.
func (d *Dispatcher) correct(s *machine.State, i int) {
	if i < 0 || i >= len(s.Notify) {
		return
	}
	sub := &s.Notify[i]
	key := delivery.Key(&sub.Notify, d.opts.Partitions, s.Run, i)
	ignore := func(error) {} // whoever meets it next tries again
	switch sub.Status {
	case drover.DeliveryDelivered, drover.DeliveryConsumed:
		d.opts.Deliveries.Unlist(key, ignore)
	case drover.DeliveryDead, drover.DeliveryPending:
		is := hint(&machine.Delivery{Notify: sub.Notify, Dead: sub.Status == drover.DeliveryDead})
		if !is.Waits() && sub.Listed {
			d.opts.Deliveries.List(key, is, ignore)
		}
	case drover.DeliveryNone, drover.DeliveryHeld:
	}
}

// unlistGone does the same for all deliveries of a run that has no record.
func (d *Dispatcher) unlistGone(ctx context.Context, run drover.RunID) error {
	return d.opts.Deliveries.Scan(ctx, subjects.DeliveriesOf(run), func(key string, _ kv.Hint) bool {
		d.opts.Deliveries.Unlist(key, func(error) {})
		return true
	})
}

// orNull gives what a message has where there is no value.
func orNull(value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return null
	}
	return value
}
