package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

const (
	purgeEvery = 15 * time.Second // commands that are done
	cleanEvery = time.Minute      // runs whose retention is over
)

// janitor removes what nobody needs any more, until ctx ends.
func (w *Worker) janitor(ctx context.Context) error {
	purge, clean := time.NewTicker(purgeEvery), time.NewTicker(cleanEvery)
	defer purge.Stop()
	defer clean.Stop()
	purged := map[int]uint64{}
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-purge.C:
			err = w.purgeCommands(ctx, purged)
		case <-clean.C:
			err = w.cleanRuns(ctx, time.Now())
		}
		if err != nil && ctx.Err() == nil {
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
// first. Records come in the order of their last writes, so it stops at the
// first one that was written later. One worker of the fleet does it, the owner
// of partition 0; another that does it at the same time does no harm.
func (w *Worker) cleanRuns(ctx context.Context, now time.Time) error {
	w.mu.Lock()
	_, mine := w.cursors[0]
	w.mu.Unlock()
	if !mine {
		return nil
	}
	until := machine.Millis(now.Add(-time.Duration(w.settings.Retention)).UnixMilli())
	var old []kv.Record
	var keys []string
	err := w.runs.Scan(ctx, func(key string, rec kv.Record) bool {
		s, err := machine.Decode(rec.Data)
		if err != nil {
			return true // another version's, or broken: not ours to remove
		}
		if s.Now > until {
			return false
		}
		if s.Terminal() && s.Ended <= until && told(s) {
			old, keys = append(old, kv.Record{Revision: rec.Revision}), append(keys, key)
		}
		return len(keys) < 10_000
	})
	if err != nil {
		return err
	}
	for i, key := range keys {
		if err := w.removeRun(ctx, key, old[i].Revision); err != nil {
			return err
		}
	}
	return nil
}

// told reports whether every subscriber has the outcome. A run that somebody
// still has to be told of stays.
func told(s *machine.State) bool {
	return !slices.ContainsFunc(s.Notify, func(n machine.Subscriber) bool { return !n.Done })
}

func (w *Worker) removeRun(ctx context.Context, key string, revision uint64) error {
	run, ok := subjects.RunOfKey(key)
	if !ok {
		return nil
	}
	if err := w.values.PurgeRun(ctx, run); err != nil {
		return err
	}
	err := w.runs.Purge(ctx, key, revision)
	if errors.Is(err, kv.ErrConflict) || errors.Is(err, drover.CodeNotFound) {
		return nil
	}
	return err
}
