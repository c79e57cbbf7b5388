package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

const (
	purgeEvery = 15 * time.Second // commands that are done
	cleanEvery = time.Minute      // runs whose retention is over
	maxRemoved = 10_000           // runs that are found by one scan
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
// have passed. purged says up to where that was done. Timers are in the same
// stream, and stay.
func (w *Worker) purgeCommands(ctx context.Context, purged map[int]uint64) error {
	w.mu.Lock()
	todo := map[int]uint64{}
	for n, cursor := range w.cursors {
		if cursor > purged[n] {
			todo[n] = cursor
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
	for n, cursor := range todo {
		err := stream.Purge(ctx, jetstream.WithPurgeSubject(w.names.CommandsOf(n)), jetstream.WithPurgeSequence(cursor))
		if err != nil {
			return err
		}
		purged[n] = cursor
	}
	return nil
}

// cleanRuns removes runs that ended longer ago than the retention, values
// first. Records come in the order of their last writes, so a scan stops at the
// first one that was written later; what it passes over are runs that wait for
// long. One worker of the fleet does it, the owner of partition 0.
func (w *Worker) cleanRuns(ctx context.Context, now time.Time) error {
	until := machine.Millis(now.Add(-time.Duration(w.settings.Retention)).UnixMilli())
	for w.owns(0) {
		old, err := w.oldRuns(ctx, until)
		if err != nil {
			return err
		}
		if err := w.removeRuns(ctx, old); err != nil {
			return err
		}
		if len(old) < maxRemoved {
			return nil
		}
	}
	return nil
}

// owns reports whether a partition is this worker's, as far as it knows.
func (w *Worker) owns(partition int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, mine := w.cursors[partition]
	return mine
}

// oldRun is a record that is to go, while it has this revision.
type oldRun struct {
	key      string
	revision uint64
}

// oldRuns finds runs to remove, not more than maxRemoved.
func (w *Worker) oldRuns(ctx context.Context, until machine.Millis) ([]oldRun, error) {
	var old []oldRun
	err := w.runs.Scan(ctx, func(key string, rec kv.Record) bool {
		s, err := machine.Decode(rec.Data)
		if err != nil {
			return true // another version's, or broken: not ours to remove
		}
		if s.Now > until {
			return false
		}
		if s.Terminal() && s.Ended <= until && told(s, until) {
			old = append(old, oldRun{key, rec.Revision})
		}
		return len(old) < maxRemoved
	})
	return old, err
}

// removeRuns removes runs, several at the same time.
func (w *Worker) removeRuns(ctx context.Context, old []oldRun) error {
	slots := make(chan struct{}, 32)
	var removing sync.WaitGroup
	var failed atomic.Pointer[error]
	for _, run := range old {
		if failed.Load() != nil || !w.owns(0) {
			break
		}
		slots <- struct{}{}
		removing.Go(func() {
			defer func() { <-slots }()
			if err := w.removeRun(ctx, run); err != nil {
				failed.Store(&err)
			}
		})
	}
	removing.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// told reports whether nobody has to be told of a run any more: everyone was, or
// was given up before a time.
func told(s *machine.State, until machine.Millis) bool {
	return !slices.ContainsFunc(s.Notify, func(n machine.Subscriber) bool {
		return !n.Status.Over() || n.Status == drover.DeliveryDead && n.At > until
	})
}

// removeRun removes one run, unless its record is another by now: values have no
// revision, and those of a new run with the same id must stay.
func (w *Worker) removeRun(ctx context.Context, old oldRun) error {
	run, ok := subjects.RunOfKey(old.key)
	if !ok {
		return nil
	}
	rec, err := w.runs.Load(ctx, old.key)
	if errors.Is(err, drover.CodeNotFound) || err == nil && rec.Revision != old.revision {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.values.PurgeRun(ctx, run); err != nil {
		return err
	}
	if err := w.unlist(ctx, run, rec.Data); err != nil {
		return err
	}
	if err := w.purgeStreams(ctx, run, rec.Data); err != nil {
		return err
	}
	err = w.runs.Purge(ctx, old.key, old.revision)
	if errors.Is(err, kv.ErrConflict) || errors.Is(err, drover.CodeNotFound) {
		return nil
	}
	return err
}

// unlist takes the deliveries of a run that is to go off the list.
func (w *Worker) unlist(ctx context.Context, run drover.RunID, record []byte) error {
	s, err := machine.Decode(record)
	if err != nil {
		return err
	}
	partition := subjects.Partition(string(run), w.settings.Partitions)
	done := make(chan error, len(s.Notify))
	waiting := 0
	for i := range s.Notify {
		if n := &s.Notify[i]; n.Listed {
			waiting++
			w.deliveries.Unlist(subjects.DeliveryKey(delivery.Target(&n.Notify), partition, run, i), func(err error) { done <- err })
		}
	}
	for range waiting {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// purgeStreams removes what a program that is to go has written for its readers.
func (w *Worker) purgeStreams(ctx context.Context, run drover.RunID, record []byte) error {
	s, err := machine.Decode(record)
	if err != nil || s.Program == nil {
		return err
	}
	stream, err := w.js.Stream(ctx, w.names.Streams())
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(w.names.StreamsOf(run)))
}
