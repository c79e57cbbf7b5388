package worker

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// perform carries out what the loop decided. Nothing in it blocks but for the
// room that the publisher has.
func (o *owner) perform(ctx context.Context) {
	var commits []kv.Commit
	for _, op := range o.p.Take() {
		switch op.Kind {
		case partition.OpLoad:
			o.w.async(func() { o.end(op, o.load(ctx, op)) })
		case partition.OpResolve:
			o.w.async(func() {
				plan, err := o.w.plans.resolve(ctx, op.Start, op.Hash)
				o.end(op, partition.Result{Plan: plan, Err: err})
			})
		case partition.OpTrace:
			o.w.async(func() { o.end(op, partition.Result{Err: o.trace(ctx, op)}) })
		case partition.OpFetch:
			o.w.async(func() {
				o.w.fetches <- struct{}{}
				defer func() { <-o.w.fetches }()
				values, err := o.w.values.Get(ctx, op.Keys)
				o.end(op, partition.Result{Values: values, Err: err})
			})
		case partition.OpCommit:
			if len(op.Puts) > 0 {
				o.store(op)
				continue
			}
			commits = append(commits, o.commit(op))
		case partition.OpAct:
			o.w.dispatcher.Perform(op.Effects, o.ended(op))
		case partition.OpDead:
			o.w.dispatcher.Dead(o.n, letter(op), o.ended(op))
		case partition.OpTick:
			o.w.dispatcher.Tick(op.Run, o.ended(op))
		case partition.OpSchedule:
			o.w.dispatcher.Schedule(op.Run, op.At, op.Seq, o.ended(op))
		case partition.OpUnschedule:
			o.w.dispatcher.Unschedule(op.Run, op.Seq)
		case partition.OpAnswer:
			o.w.dispatcher.Answer(op.Reply, answer(op))
		case partition.OpEvent:
			o.w.dispatcher.Event(op.Run, op.Status, op.Seq)
		}
	}
	if len(commits) > 0 {
		o.w.runs.Commit(commits)
	}
}

func (o *owner) end(op *partition.Op, res partition.Result) {
	o.box.put(event{id: op.ID, res: res})
}

func (o *owner) ended(op *partition.Op) func(error) {
	return func(err error) { o.end(op, partition.Result{Err: err}) }
}

func (o *owner) load(ctx context.Context, op *partition.Op) partition.Result {
	key := subjects.RunKey(o.n, op.Run)
	rec, err := o.w.runs.Load(ctx, key)
	if rec.Retired { // a new run may come, and must find nothing of the old one
		if failed := o.w.finish(ctx, op.Run, key, rec); failed != nil {
			err = failed
		}
		rec = kv.Record{}
	}
	return partition.Result{Data: rec.Data, Revision: rec.Revision, Err: err}
}

func (o *owner) commit(op *partition.Op) kv.Commit {
	return kv.Commit{
		Key: subjects.RunKey(o.n, op.Run), Revision: op.Revision, Data: op.Data,
		Done: func(rev uint64, err error) { o.end(op, partition.Result{Revision: rev, Err: verdict(err)}) },
	}
}

// verdict says of a failed write what the loop has to know.
func verdict(err error) error {
	switch {
	case errors.Is(err, kv.ErrConflict):
		return partition.ErrConflict
	case errors.Is(err, kv.ErrBusy):
		return partition.ErrBusy
	case errors.Is(err, drover.CodeTooLarge):
		return errors.Join(partition.ErrImpossible, err)
	}
	return err
}

// store makes the values of a commit durable, then commits.
func (o *owner) store(op *partition.Op) {
	var left atomic.Int64
	left.Store(int64(len(op.Puts)))
	var failed atomic.Pointer[error]
	for _, put := range op.Puts {
		o.w.values.Put(put.Key, put.JSON, func(err error) {
			if err != nil {
				failed.Store(&err)
			}
			if left.Add(-1) > 0 {
				return
			}
			if err := failed.Load(); err != nil {
				o.end(op, partition.Result{Err: verdict(*err)})
				return
			}
			// Not from here: this is the publisher's own goroutine.
			o.box.put(event{then: func() { o.w.runs.Commit([]kv.Commit{o.commit(op)}) }})
		})
	}
}

func answer(op *partition.Op) any {
	if op.Err != nil {
		return op.Err
	}
	return op.Answer
}

func letter(op *partition.Op) drover.DeadLetter {
	return drover.DeadLetter{
		Sequence: op.Message.Seq, RunID: op.Message.Run, Verb: op.Message.Verb,
		Error: op.Err, Payload: op.Message.Data,
	}
}
