package flow

import (
	"errors"
	"slices"

	"github.com/droverhq/drover"
)

// Awaitable is a [Future] of any type.
type Awaitable interface{ pending() *op }

// Future is what a body has asked for and has not waited for yet.
type Future[T any] struct {
	o   *op
	get func(o *op) (T, error)
}

func (f *Future[T]) pending() *op { return f.o }

// Get waits for it. run is that of the branch that waits. It may be called again.
func (f *Future[T]) Get(run *Run) (T, error) {
	run.b.enter()
	var none T
	if err := run.b.share(func() bool { return f.o.over }, f.o); err != nil {
		return none, err
	}
	if f.o.err != nil {
		return none, f.o.err
	}
	return f.get(f.o)
}

// result reads what a node gave.
func result[T any](o *op) (T, error) {
	out, err := decode[T](o.output)
	if err != nil {
		return out, permanent(drover.CodeContract, "what %q got is no %T: %v", o.entry.ID, out, err)
	}
	return out, nil
}

// Go begins a branch. Its error is that of Get. A branch that nobody waits for is
// cancelled when the body returns.
func Go[T any](run *Run, branch func(run *Run) (T, error)) *Future[T] {
	run.b.enter()
	return start(run, run.b.scope, branch)
}

func start[T any](run *Run, around *scope, body func(run *Run) (T, error)) *Future[T] {
	s := newScope(around, around.ctx)
	o := &op{scope: s, branch: true}
	inner := &Run{undo: run.undo}
	inner.b = run.b.c.fork(s, func() {
		out, err := body(inner)
		inner.b.alive()
		o.value = out
		s.end(nil)
		inner.b.c.resolve(o, nil, err)
	})
	inner.b.op = o
	return &Future[T]{o: o, get: func(o *op) (T, error) {
		out, _ := o.value.(T) // nil, where T is an interface
		return out, nil
	}}
}

// Select waits for the first of several, and gives its index; of those that are
// over already, the least. All others are cancelled: a branch hears of it by its
// context and by all that it waits for, and a delivery that a wait had not got
// goes to the next wait for the same.
func Select(run *Run, futures ...Awaitable) (int, error) {
	run.b.enter()
	list := make([]*op, len(futures))
	for i, f := range futures {
		list[i] = f.pending()
	}
	if len(list) == 0 {
		return -1, permanent(drover.CodeInvalidRequest, "a Select of nothing would wait for ever")
	}
	first := -1
	over := func() bool {
		first = slices.IndexFunc(list, func(o *op) bool { return o.over })
		return first >= 0
	}
	if err := run.b.share(over, list...); err != nil {
		return -1, err
	}
	why := drover.Errorf(drover.CodeStopped, "another one was first")
	for i, o := range list {
		switch {
		case i == first || o.over:
		case o.branch:
			run.b.c.cancel(o.scope, why, false)
		default:
			run.b.c.drop(o, why)
		}
	}
	return first, nil
}

// ParallelOptions say how branches run beside each other. The zero value: all at
// the same time, and the first error cancels the others.
type ParallelOptions struct {
	Limit  int  // branches at a time; 0: all
	Settle bool // all of them run, whatever becomes of others
}

// Parallel runs branches, and returns when all are over. Its error is the first
// one, or with Settle all of them, joined in the order of the branches.
func Parallel(run *Run, o ParallelOptions, branches ...func(run *Run) error) error {
	run.b.enter()
	c, around := run.b.c, newScope(run.b.scope, run.b.scope.ctx)
	defer around.end(nil)
	var open []*op
	errs := make([]error, len(branches))
	ops := map[*op]int{}
	var first error
	for next := 0; next < len(branches) || len(open) > 0; {
		for next < len(branches) && (o.Limit <= 0 || len(open) < o.Limit) && (first == nil || o.Settle) {
			body := branches[next]
			f := start(run, around, func(run *Run) (struct{}, error) { return struct{}{}, body(run) })
			ops[f.o] = next
			open = append(open, f.o)
			next++
		}
		if len(open) == 0 {
			break
		}
		for _, done := range c.anyOver(run.b, &open) {
			errs[ops[done]] = done.err
			if first == nil && done.err != nil {
				if first = done.err; !o.Settle {
					c.cancel(around, drover.Errorf(drover.CodeStopped, "another branch failed: %v", first), false)
				}
			}
		}
	}
	if o.Settle {
		return errors.Join(errs...)
	}
	return first
}

// anyOver waits until branches are over, and takes them out of the list.
func (c *core) anyOver(b *branch, open *[]*op) (over []*op) {
	for {
		*open = slices.DeleteFunc(*open, func(o *op) bool {
			if o.over {
				over = append(over, o)
			}
			return o.over
		})
		if len(over) > 0 {
			return over
		}
		for _, o := range *open {
			o.waiters = append(o.waiters, b)
		}
		b.block()
	}
}
