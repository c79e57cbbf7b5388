package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/internal/seal"
	"github.com/droverhq/drover/kv"
)

const (
	checkpointEvery = time.Second
	ownerSleep      = time.Minute            // while nothing is to be done; what happens wakes it
	releaseAgain    = 200 * time.Millisecond // after the partition could not be given back
	trickleEvery    = 100 * time.Millisecond // a command is taken, although there is no room
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
	last  anchor       // the latest command that was read
	saved time.Time    // when a checkpoint was last begun
	busy  bool         // a checkpoint is under way
	lost  error

	trickled time.Time // the last command was taken for which there was no room
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
		room:  newGate(w.share(queuedBytes, minQueued)),
		held:  held,
		last:  anchorOf(held),
		saved: time.Now(),
	}
	quiet := o.log.Sample(w.quiet)
	o.p = partition.New(partition.Options{
		Cursor:     held.Cursor,
		CoverAfter: w.opts.CoverAfter,
		Memory:     w.share(keptBytes, minKept),
		Secret:     newSecret,
		Plan:       w.plans.at,
		Admit:      w.admit,
		Report: func(run drover.RunID, kind partition.OpKind, err error) {
			quiet.Warn().Str("run", string(run)).Stringer("operation", kind).Err(err).Msg("operation failed, it is tried again")
		},
	})
	return o
}

// admit says why a start may not make a run, or nil: it must not have an outcome
// told to the session of somebody else, or with the rights of the worker.
func (w *Worker) admit(run drover.RunID, start *drover.StartRequest, plan *machine.Plan) *drover.Error {
	if refused := seal.Admit(w.secret, run, start); refused != nil {
		return refused
	}
	err := w.names.ForeignNotify(slices.Concat(plan.Definition.Notify, start.Notify))
	if err == nil {
		return nil
	}
	refused := drover.AsError(err, drover.CodeForbidden)
	return drover.Errorf(refused.Code, "run %s cannot start: %s", run, refused.Message)
}

// run owns the partition. It returns nil when it was given back, errLost when
// another has it, and the error of ctx when it was cut short.
func (o *owner) run(ctx context.Context) error {
	stopReading := o.read(ctx)
	defer stopReading()
	drain := o.drain
	var late <-chan time.Time
	hurry := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	var events []event
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-drain:
			drain = nil
			late = time.After(o.w.opts.DrainTimeout * 3 / 4)
			stopReading()
			o.p.Advance(time.Now())
			o.p.Drain()
			o.perform(ctx)
		case <-o.box.signal:
			events = o.box.take(events)
			o.handle(ctx, events, drain == nil)
		case <-timer.C:
			o.p.Advance(time.Now())
			o.perform(ctx)
			o.makeRoom(load{})
		case <-late:
			hurry = true
			o.log.Warn().Uint64("cursor", o.p.Cursor()).Msg("not all of the partition could be finished in time, the next owner goes on with it")
		}
		o.checkpoint(ctx)
		if o.lost != nil {
			return o.lost
		}
		if drain == nil && (o.p.Quiet() || hurry) && !o.busy {
			return o.release(ctx)
		}
		timer.Reset(o.patience())
	}
}

// handle feeds events to the loop, and performs what comes of them. What was
// read is left to the next owner once this one drains.
func (o *owner) handle(ctx context.Context, events []event, draining bool) {
	o.p.Advance(time.Now())
	var arrived load
	for i := range events {
		switch e := &events[i]; {
		case e.then != nil:
			e.then()
		case e.msg == nil:
			o.p.Complete(e.id, e.res)
		default:
			arrived.commands++
			arrived.bytes += len(e.msg.Data)
			if !draining {
				o.p.Receive(*e.msg)
				o.last = anchor{e.msg.Seq, e.msg.At.UnixNano()}
			}
		}
	}
	o.perform(ctx)
	o.makeRoom(arrived)
}

// makeRoom lets as many commands come as there is room for.
func (o *owner) makeRoom(arrived load) {
	var queued load
	queued.commands, queued.bytes = o.p.Queued()
	room := o.p.Room()
	if room == 0 && time.Since(o.trickled) >= trickleEvery {
		room, o.trickled = 1, time.Now()
	}
	o.room.set(arrived, queued, room)
}

// read has the log put into the mailbox, from the cursor, until the function
// that it gives is called.
func (o *owner) read(ctx context.Context) (stop func()) {
	r := &reader{
		w: o.w, n: o.n, next: max(o.held.Cursor, 1), room: o.room, log: o.log,
		last: o.last,
		give: func(m *partition.Message) { o.box.put(event{msg: m}) },
		lost: func() { o.box.put(event{then: func() { o.lost = errRewound }}) },
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.run(ctx)
	}()
	return func() {
		cancel()
		o.room.open()
		<-ended
	}
}

// patience is how long the owner may sleep.
func (o *owner) patience() time.Duration {
	wait := ownerSleep
	if o.p.Cursor() != o.held.Cursor && !o.busy {
		wait = checkpointEvery - time.Since(o.saved)
	}
	if o.p.Room() == 0 {
		wait = min(wait, trickleEvery)
	}
	if at, ok := o.p.Next(); ok {
		wait = min(wait, time.Until(at))
	}
	return max(wait, 0)
}

// checkpoint saves the cursor where it has moved and some time has passed.
func (o *owner) checkpoint(ctx context.Context) {
	if o.busy || time.Since(o.saved) < checkpointEvery {
		return
	}
	o.saved = time.Now()
	next := o.held
	next.Cursor, next.Last, next.Stored = o.p.Cursor(), o.last.seq, o.last.at
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
		o.w.passed(saved)
	case errors.Is(err, kv.ErrConflict):
		o.lost = errLost
	default:
		o.log.Warn().Err(err).Msg("the cursor could not be saved, it is tried again")
	}
}

// release gives the partition back with its last cursor, for as long as it
// takes: nobody else takes it while its owner lives.
func (o *owner) release(ctx context.Context) error {
	free := o.held
	free.Worker, free.Cursor, free.Last, free.Stored = "", o.p.Cursor(), o.last.seq, o.last.at
	for {
		saved, err := o.w.fleet.Save(ctx, free)
		switch {
		case err == nil:
			o.held = saved
			return nil
		case errors.Is(err, kv.ErrConflict):
			return errLost
		case ctx.Err() != nil:
			return ctx.Err()
		}
		o.log.Warn().Err(err).Msg("the partition could not be given back, it is tried again")
		select {
		case <-time.After(releaseAgain):
		case <-ctx.Done():
		}
	}
}
