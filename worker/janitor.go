package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

const (
	purgeEvery  = 15 * time.Second // commands that are done
	cleanEvery  = time.Minute      // runs whose retention is over
	maxRemoved  = 10_000           // runs that are found by one scan
	maxFailures = 32               // after which the server is taken to be away
)

// janitor removes what nobody needs any more, until ctx ends. Commands do not
// wait for runs: there may be many.
func (w *Worker) janitor(ctx context.Context) error {
	var chores sync.WaitGroup
	purged := map[int]uint64{}
	chores.Go(func() { w.chore(ctx, purgeEvery, func() error { return w.purgeCommands(ctx, purged) }) })
	chores.Go(func() { w.chore(ctx, cleanEvery, func() error { return w.cleanRuns(ctx, time.Now()) }) })
	w.late.looked = time.Now()
	chores.Go(func() { w.chore(ctx, lateLook, func() error { return w.resetTimers(ctx, time.Now()) }) })
	chores.Go(func() { w.chore(ctx, w.opts.SweepEvery, func() error { return w.sweepHooks(ctx) }) })
	chores.Wait()
	return nil
}

// chore does something again and again.
func (w *Worker) chore(ctx context.Context, every time.Duration, do func() error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := do(); err != nil && ctx.Err() == nil {
			w.log.Warn().Err(err).Msg("the clean-up failed, it is tried again")
		}
	}
}

// purgeCommands removes the commands that the saved cursors of own partitions
// have passed, but for the last one that was read, and nothing where that is not
// there any more. purged says up to where that was done. Timers are in the same
// stream, and stay.
func (w *Worker) purgeCommands(ctx context.Context, purged map[int]uint64) error {
	w.mu.Lock()
	todo := map[int]kv.Partition{}
	for n, saved := range w.saved {
		if keep(saved) != purged[n] {
			todo[n] = saved
		}
	}
	w.mu.Unlock()
	if len(todo) == 0 {
		return nil
	}
	stream, err := w.js.Stream(ctx, w.names.Commands())
	if err != nil {
		return err
	}
	for n, saved := range todo {
		begun := time.Now()
		there, err := w.stands(ctx, anchorOf(saved))
		if err != nil {
			return err
		}
		if !there {
			continue // its owner will find out, and have another cursor
		}
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(w.names.CommandsOf(n)), jetstream.WithPurgeSequence(keep(saved)))
		if err != nil {
			return err
		}
		purged[n] = keep(saved)
		// The server holds its log meanwhile, for long where it has a lot: whoever
		// publishes gets as much of the time.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Since(begun)):
		}
	}
	return nil
}

// keep is the first sequence of a partition that is not to be purged.
func keep(p kv.Partition) uint64 {
	if p.Last == 0 {
		return p.Cursor
	}
	return min(p.Cursor, p.Last)
}

// cleanRuns removes runs that ended longer ago than the retention. Records come in
// the order of their last writes, so a scan stops at the first one that was written
// later; what it passes over are runs that wait for long. One worker of the fleet
// does it, the owner of partition 0.
//
// A removal that failed half way is gone on with next time, as long as this worker
// lives and has partition 0. One that was cut off by a crash, or by the end of either,
// is gone on with when the retention is over once more, at the latest: a retired
// record is the latest write of its key. A start with its id does not wait for that.
func (w *Worker) cleanRuns(ctx context.Context, now time.Time) error {
	if !w.owns(0) {
		return nil
	}
	half, err := w.halfRemoved(ctx)
	_, err2 := w.removeRuns(ctx, half, nil)
	return errors.Join(err, err2, w.removeOld(ctx, now))
}

// removeOld removes what is found, until nothing is.
func (w *Worker) removeOld(ctx context.Context, now time.Time) error {
	until := machine.Millis(now.Add(-time.Duration(w.settings.Retention)).UnixMilli())
	for w.owns(0) {
		cursors, err := w.savedCursors(ctx)
		if err != nil {
			return err
		}
		old, err := w.oldRuns(ctx, until, cursors)
		if err != nil || len(old) == 0 {
			return err
		}
		r, err := w.round(ctx, cursors)
		if err != nil {
			return err
		}
		removed, err := w.removeRuns(ctx, old, r)
		if err != nil || removed == 0 || len(old) < maxRemoved {
			return err
		}
	}
	return nil
}

// halfRemoved gives those runs whose removal failed that are retired by now. What
// cannot be read is looked at again next time.
func (w *Worker) halfRemoved(ctx context.Context) ([]oldRun, error) {
	var half, unknown []oldRun
	var failed error
	for _, old := range w.failed {
		rec, err := w.runs.Load(ctx, old.key)
		if rec.Retired {
			half = append(half, oldRun{run: old.run, key: old.key, rec: rec})
		} else if err != nil && !errors.Is(err, drover.CodeNotFound) {
			unknown, failed = append(unknown, old), err
		}
	}
	w.failed = unknown
	return half, failed
}

// owns reports whether a partition is this worker's, as far as it knows.
func (w *Worker) owns(partition int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, mine := w.saved[partition]
	return mine
}

// oldRuns finds runs to remove, not more than maxRemoved. One whose latest command
// the next owner of its partition would read again is not among them: that owner
// would find no run, and begin it anew, or it would not do what the run owes. All
// that a run owes has happened once the cursor is past what it has applied.
func (w *Worker) oldRuns(ctx context.Context, until machine.Millis, cursors map[int]uint64) ([]oldRun, error) {
	var old []oldRun
	present := until + machine.Millis(time.Duration(w.settings.Retention).Milliseconds())
	turns := map[string]bool{} // those that have their turn next time
	for _, run := range w.failed {
		turns[run.key] = true
	}
	err := w.runs.Scan(ctx, func(key string, rec kv.Record) bool {
		if rec.Retired {
			if run, ok := subjects.RunOfKey(key); ok && !turns[key] {
				old = append(old, oldRun{run: run, key: key, rec: rec})
			}
			return len(old) < maxRemoved
		}
		s, err := machine.Decode(rec.Data)
		if err != nil {
			return true // another version's, or broken: not ours to remove
		}
		if s.Now > until { // the first young one; but a leap of the server's clock may have put others in front
			return s.Now > present
		}
		if s.Terminal() && s.Ended <= until && told(s, until) && s.Position() < cursors[w.partition(s.Run)] {
			old = append(old, w.oldRunOf(key, rec, s))
		}
		return len(old) < maxRemoved
	})
	return old, err
}

// removeRuns removes runs, several at the same time, and says how many are gone.
// After maxFailures it begins no more. What failed, or was not begun, and may be
// retired is remembered, the latter in front: so each has its turn.
func (w *Worker) removeRuns(ctx context.Context, old []oldRun, r *round) (int, error) {
	slots := make(chan struct{}, 32)
	var removing sync.WaitGroup
	var mu sync.Mutex
	var first error
	var failed []oldRun
	removed := 0
	done := func(run oldRun, gone bool, err error) {
		<-slots
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			if failed = append(failed, run); first == nil {
				first = err
			}
		case gone:
			removed++
		}
	}
	for i, run := range old {
		slots <- struct{}{}
		mu.Lock()
		stop := len(failed) >= maxFailures
		mu.Unlock()
		if stop || !run.rec.Retired && !w.owns(0) {
			w.failed = append(w.failed, retired(old[i:])...)
			break
		}
		removing.Go(func() {
			gone, err := w.remove(ctx, run, r)
			done(run, gone, err)
		})
	}
	removing.Wait()
	w.failed = append(w.failed, failed...)
	w.failed = w.failed[:min(len(w.failed), maxRemoved)]
	if first != nil {
		return removed, fmt.Errorf("%d runs could not be removed, one of them: %w", len(failed), first)
	}
	return removed, nil
}

// retired gives those runs whose records are.
func retired(runs []oldRun) []oldRun {
	return slices.DeleteFunc(slices.Clone(runs), func(run oldRun) bool { return !run.rec.Retired })
}

// told reports whether nobody has to be told of a run any more: everyone was, or
// was given up before a time.
func told(s *machine.State, until machine.Millis) bool {
	return !slices.ContainsFunc(s.Notify, func(n machine.Subscriber) bool {
		return !n.Status.Over() || n.Status == drover.DeliveryDead && n.At > until
	})
}
