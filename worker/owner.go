package worker

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

const (
	checkpointEvery = time.Second
	// maxQueued is how many commands an owner reads ahead of its folds.
	maxQueued = 4096
)

// errLost is why an owner stops when its partition has another one.
var errLost = errors.New("the partition has another owner")

// owner drives one partition until it is asked to give it back, or loses it.
type owner struct {
	w     *Worker
	n     int
	log   zerolog.Logger
	p     *partition.Partition
	box   *mailbox[event]
	drain chan struct{} // closed: give it back
	room  *gate         // holds the reader back

	held  kv.Partition // what the fleet's bucket says: epoch, cursor, revision
	saved time.Time    // when a checkpoint was last begun
	busy  bool         // a checkpoint is under way
	lost  error
}

// event is a message, the end of an operation, or of a checkpoint.
type event struct {
	msg  *partition.Message
	id   uint64
	res  partition.Result
	then func()
}

func newOwner(w *Worker, held kv.Partition) *owner {
	o := &owner{
		w:     w,
		n:     held.Number,
		log:   w.log.With().Int("partition", held.Number).Uint64("epoch", held.Epoch).Logger(),
		box:   newMailbox[event](),
		drain: make(chan struct{}),
		room:  newGate(),
		held:  held,
		saved: time.Now(),
	}
	o.p = partition.New(partition.Options{
		Cursor:     held.Cursor,
		CoverAfter: w.opts.CoverAfter,
		Secret:     newSecret,
		Plan:       w.plans.at,
		Report: func(run drover.RunID, kind partition.OpKind, err error) {
			o.log.Warn().Str("run", string(run)).Stringer("operation", kind).Err(err).Msg("operation failed, it is tried again")
		},
	})
	return o
}

// run owns the partition. It returns nil when it was given back, errLost when
// another has it, and the error of ctx when it was cut short.
func (o *owner) run(ctx context.Context) error {
	reader, err := o.read(ctx)
	if err != nil {
		return err
	}
	defer func() {
		o.room.open()
		reader.Stop()
		<-reader.Closed()
	}()
	drain := o.drain
	timer := time.NewTimer(0)
	defer timer.Stop()
	var events []event
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-drain:
			drain = nil
			reader.Stop()
			o.p.Advance(time.Now())
			o.p.Drain()
			o.perform(ctx)
		case <-o.box.signal:
			events = o.box.take(events)
			o.handle(ctx, events, drain == nil)
		case <-timer.C:
			o.p.Advance(time.Now())
			o.perform(ctx)
		}
		o.checkpoint(ctx)
		if o.lost != nil {
			return o.lost
		}
		if drain == nil && o.p.Quiet() && !o.busy {
			return o.release(ctx)
		}
		timer.Reset(o.patience())
	}
}

// handle feeds events to the loop, and performs what comes of them. What was
// read is left to the next owner once this one drains.
func (o *owner) handle(ctx context.Context, events []event, draining bool) {
	o.p.Advance(time.Now())
	for i := range events {
		switch e := &events[i]; {
		case e.then != nil:
			e.then()
		case e.msg == nil:
			o.p.Complete(e.id, e.res)
		case !draining:
			o.p.Receive(*e.msg)
		}
	}
	o.perform(ctx)
	o.room.set(o.p.Queued() < maxQueued)
}

// patience is how long the owner may sleep.
func (o *owner) patience() time.Duration {
	wait := checkpointEvery
	if at, ok := o.p.Next(); ok {
		wait = min(wait, time.Until(at))
	}
	return max(wait, 0)
}

// read has the log put into the mailbox, from the cursor.
func (o *owner) read(ctx context.Context) (jetstream.ConsumeContext, error) {
	cons, err := o.w.js.OrderedConsumer(ctx, o.w.names.Commands(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{o.w.names.CommandsOf(o.n)},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    max(o.held.Cursor, 1),
	})
	if err != nil {
		return nil, err
	}
	return cons.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			o.log.Error().Err(err).Str("subject", m.Subject()).Msg("a message of the log has no metadata")
			return
		}
		_, run, verb, _ := o.w.names.ParseCommand(m.Subject())
		o.room.wait()
		o.box.put(event{msg: &partition.Message{
			Seq: meta.Sequence.Stream, At: meta.Timestamp, Run: run, Verb: verb,
			Data: m.Data(), Reply: m.Headers().Get(subjects.HeaderReply),
		}})
	}, jetstream.PullMaxMessages(1000), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		o.log.Warn().Err(err).Msg("the log could not be read, it is tried again")
	}))
}

// checkpoint saves the cursor where it has moved and some time has passed.
func (o *owner) checkpoint(ctx context.Context) {
	if o.busy || time.Since(o.saved) < checkpointEvery {
		return
	}
	o.saved = time.Now()
	next := o.held
	next.Cursor = o.p.Cursor()
	if next.Cursor == o.held.Cursor {
		return
	}
	o.busy = true
	o.w.async(func() {
		saved, err := o.w.fleet.Save(ctx, next)
		o.box.put(event{then: func() { o.checkpointed(saved, err) }})
	})
}

func (o *owner) checkpointed(saved kv.Partition, err error) {
	o.busy = false
	switch {
	case err == nil:
		o.held = saved
		o.w.passed(o.n, saved.Cursor)
	case errors.Is(err, kv.ErrConflict):
		o.lost = errLost
	default:
		o.log.Warn().Err(err).Msg("the cursor could not be saved, it is tried again")
	}
}

// release gives the partition back with its last cursor.
func (o *owner) release(ctx context.Context) error {
	free := o.held
	free.Worker, free.Cursor = "", o.p.Cursor()
	_, err := o.w.fleet.Save(ctx, free)
	if errors.Is(err, kv.ErrConflict) {
		return errLost
	}
	return err
}
