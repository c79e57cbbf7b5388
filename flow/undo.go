package flow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/droverhq/drover"
)

// undoList is what a part of a body has done and can undo, oldest first.
type undoList struct {
	list []undo
	into *undoList // of a group that is over: where what its branches do later goes
}

func (l *undoList) push(all ...undo) {
	for l.into != nil {
		l = l.into
	}
	l.list = append(l.list, all...)
}

type undo struct {
	id     string
	work   func(ctx context.Context) error
	policy policy
}

// Compensate has fn undo something when the run, or the group that it is done in,
// fails or is stopped. id is as that of a step.
func (r *Run) Compensate(id string, fn func(ctx context.Context) error, opts ...StepOption) error {
	r.b.enter()
	o, err := read(id, opts, "Retry", "Timeout")
	if err != nil {
		return err
	}
	if err := r.b.c.use(id, "a compensation"); err != nil {
		return err
	}
	r.undo.push(undo{id: id, work: fn, policy: o.policy})
	return nil
}

// Group does a part of a body, and undoes it at once where it returns an error,
// which Group returns. Where an undo fails as well, that is said in it. What
// succeeded is undone with what is around it. id is for people, and need not be
// unique.
func (r *Run) Group(id string, body func(run *Run) error) error {
	r.b.enter()
	inner, returned := &Run{b: r.b, undo: &undoList{}}, false
	defer func() {
		if !returned { // it panicked: what it did is undone with all the rest, if anything is
			inner.undo.into = r.undo
			r.undo.push(inner.undo.list...)
		}
	}()
	err := body(inner)
	r.b.alive()
	returned = true
	if err == nil {
		inner.undo.into = r.undo
		r.undo.push(inner.undo.list...)
		return nil
	}
	inner.undo.into = r.undo // a branch of it may go on, and do more
	if bad := inner.rollBack(); len(bad) > 0 {
		return fmt.Errorf("group %s: %w; and what it did could not be undone: %s", id, err, join(bad))
	}
	return err
}

// rollBack undoes all, newest first, and gives what it could not. No stop keeps
// it from that.
func (r *Run) rollBack() (bad []string) {
	c := r.b.c
	list := r.undo.list
	r.undo.list = nil
	for i := len(list) - 1; i >= 0; i-- {
		u := list[i]
		o := &op{
			entry: drover.Entry{Kind: drover.EntryUndo, ID: u.id}, policy: u.policy, attempt: 1,
			work: func(ctx context.Context) (json.RawMessage, error) { return nil, u.work(ctx) },
		}
		c.undos[u.id] = o
		c.due = append(c.due, o)
		c.traced(o.entry)
		if r.b.await(o); o.err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", u.id, o.err))
		}
	}
	return bad
}
