package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/internal/seal"
)

var errUnavailable = drover.Errorf(drover.CodeUnavailable, "the store did not answer")

// hurry is how long an owner may take to give its partition back.
const hurry = 7 * time.Second

// owner drives a partition, as a worker does.
type owner struct {
	w     *World
	p     *partition.Partition
	epoch int
	next  uint64 // sequence to read
	dead  bool
	gone  bool // it crashed, and all that it did for effects with it
	wake  time.Time
	saves bool          // a checkpoint is coming
	drain bool          // it gives the partition back
	skew  time.Duration // how far its clock is ahead of the log's

	acting map[drover.RunID][]*partition.Op // effects of runs whose claims are under way

	telling  map[drover.DeliveryID]bool // deliveries with an attempt under way
	batches  map[string]*batch          // that wait to be sent, by target
	watching map[string]bool            // targets that are away
	found    map[string]time.Time       // since when those have been there whose list was delivered
}

// take makes a new owner of the partition. Others may still believe that they
// own it.
func (w *World) take() {
	w.lease.epoch++
	o := &owner{
		w: w, epoch: w.lease.epoch, next: w.lease.cursor, skew: w.faults.Skew, acting: map[drover.RunID][]*partition.Op{},
		telling: map[drover.DeliveryID]bool{}, batches: map[string]*batch{}, watching: map[string]bool{}, found: map[string]time.Time{},
	}
	if o.epoch%2 == 0 {
		o.skew = -o.skew
	}
	secrets := 0
	o.p = partition.New(partition.Options{
		Cursor: w.lease.cursor,
		Secret: func() string {
			secrets++
			return fmt.Sprintf("secret-%d-%d-%d", w.Seed, o.epoch, secrets)
		},
		Plan: func(req *drover.StartRequest, hash drover.Hash) *machine.Plan {
			if w.chance(0.5) {
				return nil
			}
			plan, _ := w.resolve(req, hash)
			return plan
		},
		Admit: admit,
	})
	w.owners = append(w.owners, o)
	o.drive(func() {})
	w.soon(o.read)
	w.adopt(o)
}

// admit says why a start may not make a run, as the workers do.
func admit(run drover.RunID, start *drover.StartRequest, _ *machine.Plan) *drover.Error {
	return seal.Admit(fleetSecret, run, start)
}

// resolve finds the definition that a start or a hash names.
func (w *World) resolve(req *drover.StartRequest, hash drover.Hash) (*machine.Plan, error) {
	if hash == "" && req != nil {
		hash = req.Hash
	}
	if hash == "" && req != nil && len(req.Definition) > 0 {
		def, err := drover.ParseDefinition(req.Definition)
		if err != nil {
			return nil, err
		}
		if _, hash, err = def.Canonical(); err != nil {
			return nil, err
		}
		if w.plans[hash] == nil {
			if w.plans[hash], err = machine.Compile(def); err != nil {
				return nil, err
			}
		}
	}
	if plan := w.plans[hash]; plan != nil {
		return plan, nil
	}
	return nil, drover.Errorf(drover.CodeNotFound, "no definition %q", hash)
}

// drive has the loop do something, and performs what comes of it.
func (o *owner) drive(do func()) {
	if o.dead {
		return
	}
	if o.w.chance(o.w.faults.Crash) {
		o.crash()
		return
	}
	if o.w.chance(o.w.faults.Zombie) {
		o.w.soon(o.w.take)
	}
	o.p.Advance(o.w.now.Add(o.skew))
	do()
	if !o.drain && o.epoch == o.w.lease.epoch && o.w.chance(o.w.faults.Handover) {
		o.drain = true
		if o.w.hooked != nil { // a run that hands over asks one that is not read any more
			o.w.at(o.w.now.Add(hurry), o.release)
		}
		o.p.Drain()
		o.p.Advance(o.w.now.Add(o.skew))
	}
	if o.drain && o.p.Quiet() {
		o.release()
		return
	}
	for _, op := range o.p.Take() {
		o.w.soon(func() { o.perform(op) })
	}
	if !o.saves {
		o.saves = true
		o.w.at(o.w.now.Add(time.Second), o.checkpoint)
	}
	if at, ok := o.due(); ok && (o.wake.IsZero() || at.Before(o.wake) || !o.wake.After(o.w.now)) {
		o.wake = at
		o.w.at(at, func() { o.drive(func() {}) })
	}
}

// due is when the loop wants to be driven, by the time of the world.
func (o *owner) due() (time.Time, bool) {
	at, ok := o.p.Next()
	return at.Add(-o.skew), ok
}

// crash ends an owner in the middle of whatever it does. Another one takes over
// when the lease has run out.
func (o *owner) crash() {
	o.dead, o.gone = true, true
	o.w.crashes++
	if o.epoch == o.w.lease.epoch {
		o.w.at(o.w.now.Add(3*time.Second), func() {
			if o.epoch == o.w.lease.epoch {
				o.w.take()
			}
		})
	}
}

// release ends an owner whose partition is in order, and has the next one begin
// where it stopped.
func (o *owner) release() {
	if o.dead {
		return
	}
	if o.w.now.Before(o.w.unsaved) {
		o.w.at(o.w.unsaved, o.release)
		return
	}
	o.checkpoint()
	if o.dead {
		return
	}
	o.dead = true
	o.w.handovers++
	o.w.take()
}

// read receives what is new in the log.
func (o *owner) read() {
	o.drive(func() {
		if o.drain {
			return
		}
		for n := 1 + o.w.rng.IntN(8); n > 0 && o.next <= uint64(len(o.w.log)); n-- {
			o.p.Receive(o.w.log[o.next-1])
			o.next++
		}
		if o.next <= uint64(len(o.w.log)) {
			o.w.soon(o.read)
		}
	})
}

// checkpoint saves the cursor, or finds that the partition was lost. It comes
// within a second of whatever the owner does.
func (o *owner) checkpoint() {
	if o.dead {
		return
	}
	if o.epoch != o.w.lease.epoch {
		o.dead = true
		return
	}
	if o.w.now.Before(o.w.unsaved) {
		o.w.at(o.w.now.Add(time.Second), o.checkpoint)
		return
	}
	if c := o.p.Cursor(); c < o.w.lease.cursor {
		o.w.violated("the cursor went back from %d to %d", o.w.lease.cursor, c)
	}
	o.w.lease.cursor = o.p.Cursor()
	o.saves = false
}

// perform lets an operation happen, or not, and tells its owner.
func (o *owner) perform(op *partition.Op) {
	w := o.w
	if o.dead && w.chance(0.5) {
		return // it had not left the process
	}
	if op.Kind == partition.OpAct && o.hooks(op) {
		return
	}
	if w.chance(w.faults.Fail) {
		if op.Kind == partition.OpAct { // some of it may have happened
			for i := range w.rng.IntN(len(op.Effects) + 1) {
				w.act(o, &op.Effects[i])
			}
		}
		o.complete(op, partition.Result{Err: errUnavailable})
		return
	}
	res := w.happen(o, op)
	if w.chance(w.faults.Unknown) {
		res = partition.Result{Err: errUnavailable}
	}
	o.complete(op, res)
}

func (o *owner) complete(op *partition.Op, res partition.Result) {
	if op.Awaited() {
		o.w.soon(func() { o.drive(func() { o.p.Complete(op.ID, res) }) })
	}
}

// happen does what an operation of an owner says.
func (w *World) happen(o *owner, op *partition.Op) (res partition.Result) {
	switch op.Kind {
	case partition.OpLoad:
		rec := w.records[op.Run]
		if rec.retired != nil {
			if res.Err = w.met(op.Run); res.Err != nil {
				return res
			}
			rec = record{}
		}
		if rec.data == nil {
			res.Err = drover.Errorf(drover.CodeNotFound, "no run %s", op.Run)
		}
		res.Data, res.Revision = rec.data, rec.rev
	case partition.OpResolve:
		res.Plan, res.Err = w.resolve(op.Start, op.Hash)
	case partition.OpTrace:
		if op.Seq > uint64(len(w.log)) || w.log[op.Seq-1].Run != string(op.Run) || w.log[op.Seq-1].At.Truncate(time.Millisecond).After(op.At) {
			res.Err = drover.Errorf(drover.CodeNotFound, "no command %d for run %s", op.Seq, op.Run)
		}
	case partition.OpFetch:
		res.Values = map[string]json.RawMessage{}
		for _, key := range op.Keys {
			res.Values[key] = w.value(machine.Value{Key: key})
		}
	case partition.OpCommit:
		if w.chance(w.faults.Fail) {
			res.Err = partition.ErrBusy
			return res
		}
		res.Revision, res.Err = w.write(op)
	case partition.OpAct:
		for i := range op.Effects {
			w.act(o, &op.Effects[i])
		}
	case partition.OpDead:
		w.bury(op)
	case partition.OpTick:
		w.append(op.Run, drover.VerbTick, nil)
	case partition.OpSchedule:
		w.at(op.At.Add(w.latency()), func() { w.append(op.Run, drover.VerbTick, nil) })
	case partition.OpAnswer:
		w.answer(op)
	case partition.OpUnschedule, partition.OpEvent:
	default:
		res.Err = errors.New("unknown operation")
	}
	return res
}

// answer hears what a sender is told. What is accepted must be in a record, and
// what is refused must be refused for one reason.
func (w *World) answer(op *partition.Op) {
	seq, err := strconv.ParseUint(op.Reply, 10, 64)
	if err != nil || seq == 0 || seq > uint64(len(w.log)) {
		w.violated("an answer goes to %q", op.Reply)
		return
	}
	if op.Err != nil {
		if was := w.refused[seq]; was != "" && was != op.Err.Code && !w.gone(drover.RunID(w.log[seq-1].Run)) {
			w.violated("command %d was refused with %s, and now with %s", seq, was, op.Err.Code)
		}
		w.refused[seq] = op.Err.Code
		if told := w.asked[seq]; told != nil && !w.chance(w.faults.Lose) {
			w.soon(func() { told(nil, op.Err) })
		}
		return
	}
	w.accepted++
	if told := w.asked[seq]; told != nil && !w.chance(w.faults.Lose) {
		w.soon(func() { told(op.Answer, nil) })
	}
	if run := drover.RunID(w.log[seq-1].Run); w.records[run].data == nil && !w.gone(run) {
		w.violated("command %d was accepted, and run %s has no record", seq, w.log[seq-1].Run)
	}
}

// bury keeps a dead letter, which must say the same each time.
func (w *World) bury(op *partition.Op) {
	if op.Err == nil {
		w.violated("the dead letter of command %d has no reason", op.Message.Seq)
		return
	}
	if was := w.dead[op.Message.Seq]; was != nil && was.Code != op.Err.Code && !w.gone(drover.RunID(op.Message.Run)) {
		w.violated("command %d was refused with %s, and now with %s", op.Message.Seq, was.Code, op.Err.Code)
	}
	w.dead[op.Message.Seq] = op.Err
}
