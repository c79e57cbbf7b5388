package dispatcher

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// Tick stores a tick in the log of a run: it wakes the run now. done is called
// once, and must not block; nil means that nobody wants to know. Neither Tick
// nor Schedule nor Dead blocks.
func (d *Dispatcher) Tick(run drover.RunID, done func(error)) {
	d.later(&nats.Msg{Subject: d.opts.Names.In(run, drover.VerbTick)}, done)
}

// Schedule has the server store a tick in the log of a run at a time, to the
// nanosecond; a time that has passed means at once. applied makes the name of
// the wake-up: two with the same are one, and the later one counts.
func (d *Dispatcher) Schedule(run drover.RunID, at time.Time, applied uint64, done func(error)) {
	d.later(&nats.Msg{
		Subject: d.opts.Names.Timer(run, applied),
		Header: nats.Header{
			subjects.HeaderSchedule:       {"@at " + at.UTC().Format(time.RFC3339Nano)},
			subjects.HeaderScheduleTarget: {d.opts.Names.In(run, drover.VerbTick)},
		},
	}, done)
}

// Unschedule has the server forget a wake-up that is not due yet, if it knows of
// it: what replaces it is gone after a second. Only memory is lost where that fails.
func (d *Dispatcher) Unschedule(run drover.RunID, applied uint64) {
	d.later(&nats.Msg{
		Subject: d.opts.Names.Timer(run, applied),
		Header:  nats.Header{subjects.HeaderRollup: {"sub"}, subjects.HeaderTTL: {"1s"}},
	}, func(error) {})
}

// Dead keeps a command of a partition that could not be folded. A payload that
// does not fit is left out, and the error says so.
func (d *Dispatcher) Dead(partition int, letter drover.DeadLetter, done func(error)) {
	encode := func(l drover.DeadLetter) *nats.Msg {
		data, _ := json.Marshal(l)
		return &nats.Msg{Subject: d.opts.Names.Dead(partition, letter.Sequence), Data: data}
	}
	msg := encode(letter)
	d.operation(done, func(done func(error)) {
		d.orElse(msg, done, func() {
			why := d.large("the payload", len(letter.Payload))
			why.Message += fmt.Sprintf("; it is left out, and stands at sequence %d of %s until it is purged", letter.Sequence, d.opts.Names.Commands())
			letter.Payload, letter.Error = nil, note(letter.Error, why)
			d.publish(encode(letter), done)
		})
	})
}

// later stores a message, from the goroutine that may wait for room.
func (d *Dispatcher) later(msg *nats.Msg, done func(error)) {
	d.operation(done, func(done func(error)) { d.publish(msg, done) })
}

// operation counts what do does until it is done.
func (d *Dispatcher) operation(done func(error), do func(done func(error))) {
	if done == nil {
		done = func(error) {}
	}
	if !d.begin() {
		go done(errEnded())
		return
	}
	d.queue.push(func() {
		do(func(err error) {
			done(err)
			d.inflight.Done()
		})
	})
}

// Answer sends the answer of a fold to the inbox that a command named: JSON of
// reply, or of a drover.Error under the header Drover-Error. It is a core
// message, and nobody may be there any more. An inbox that is no place for
// answers gets none: anyone may name it, and it must not be a way to publish
// with the rights of a worker.
func (d *Dispatcher) Answer(inbox string, reply any) {
	if err := d.opts.Names.Foreign(inbox); err != nil {
		d.quiet.Warn().Err(err).Msg("a command asked for an answer where none may go")
		return
	}
	msg := &nats.Msg{Subject: inbox}
	if err, ok := reply.(error); ok {
		e := drover.AsError(err, drover.CodeInternal)
		msg.Header = nats.Header{subjects.HeaderCode: {string(e.Code)}}
		reply = e
	}
	d.hint(msg, reply)
}

// Event hints that a run is in a status since the command with this sequence.
// It is a core message, for whoever watches just now.
func (d *Dispatcher) Event(run drover.RunID, status drover.Status, applied uint64) {
	d.hint(&nats.Msg{Subject: d.opts.Names.Event(run)}, drover.Event{RunID: run, Status: status, Applied: applied})
}

func (d *Dispatcher) hint(msg *nats.Msg, body any) {
	data, err := rawjson.Encode(body)
	if err == nil {
		msg.Data = data
		err = d.opts.Conn.PublishMsg(msg)
	}
	if err != nil {
		d.opts.Logger.Debug().Err(err).Str("subject", msg.Subject).Msg("an answer or a hint was not sent")
	}
}
