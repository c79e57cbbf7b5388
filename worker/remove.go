package worker

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// A run is removed in three steps, each of which may be the last before a crash:
//
//  1. Its record is retired, over the revision that was found to be old. Of this and
//     a command that still changes the run, such as a replay of a dead delivery, one
//     wins. From here on there is no such run for anybody.
//  2. What it has elsewhere is purged: values, keys of the list, streams, timers,
//     queued calls.
//  3. What is left of its record is purged. From here on its id may be used anew.
//
// Whoever meets a retired record does the last two: the janitor, and the owner of a
// partition that gets a command for this id, above all a start. Both may do so at
// the same time, and one of them much later: what is purged has been written up to a
// sequence that the retired record names, so it never belongs to a new run.

// remains is what a retired record says of what the run has elsewhere.
type remains struct {
	Values  uint64   `json:"values,omitempty"` // up to which sequence of the bucket, as all that follow
	List    uint64   `json:"list,omitempty"`
	Keys    []string `json:"keys,omitempty"` // of the list
	Streams uint64   `json:"streams,omitempty"`
	Timers  uint64   `json:"timers,omitempty"`
	Calls   uint64   `json:"calls,omitempty"`
}

// oldRun is a run that is to go, while its record has this revision.
type oldRun struct {
	run     drover.RunID
	key     string
	rec     kv.Record // its data only where it is retired
	listed  []string  // keys
	program bool
	lasting bool // it may have timers, and calls that nobody took
}

// oldRunOf notes what there is to remove of a run that is over.
func (w *Worker) oldRunOf(key string, rec kv.Record, s *machine.State) oldRun {
	old := oldRun{
		run: s.Run, key: key, rec: kv.Record{Revision: rec.Revision}, program: s.Program != nil,
		lasting: s.Timer > 0 || s.Kept > 0 || s.Now-s.Created >= lasting,
	}
	for i := range s.Notify {
		if sub := &s.Notify[i]; sub.Listed {
			old.listed = append(old.listed, delivery.Key(&sub.Notify, w.settings.Partitions, s.Run, i))
		}
	}
	return old
}

// lasting is how long a run lives before it may have timers, and that none of its
// attempts failed meanwhile: to remove what most runs do not have costs as much as
// the rest. Few runs with a shorter life leave a timer nevertheless, as their
// worker ended under them; it finds no run when it is due.
const lasting = machine.Millis(1000)

// round is what removals of one scan have in common.
type round struct {
	past     remains        // that all runs have
	cursors  map[int]uint64 // saved, of all partitions, before the scan
	commands jetstream.Stream
}

func (w *Worker) round(ctx context.Context, cursors map[int]uint64) (*round, error) {
	past, err := w.past(ctx)
	if err != nil {
		return nil, err
	}
	commands, err := w.js.Stream(ctx, w.names.Commands())
	return &round{past: past, cursors: cursors, commands: commands}, err
}

// savedCursors gives where the next owner of each partition would begin to read. A
// partition that nobody has had would be read from its beginning.
func (w *Worker) savedCursors(ctx context.Context) (map[int]uint64, error) {
	partitions, err := kv.First(ctx, w.fleet.WatchPartitions)
	if err != nil {
		return nil, err
	}
	cursors := make(map[int]uint64, len(partitions))
	for _, p := range partitions {
		cursors[p.Number] = p.Cursor
	}
	return cursors, nil
}

func (w *Worker) partition(run drover.RunID) int {
	return subjects.Partition(string(run), w.settings.Partitions)
}

// past gives how far all that runs have elsewhere was written. What a record refers
// to was written before it was read.
func (w *Worker) past(ctx context.Context) (remains, error) {
	var p remains
	values, err := w.values.Last(ctx)
	list, err2 := w.deliveries.Last(ctx)
	if err := errors.Join(err, err2); err != nil {
		return p, err
	}
	streams, err := w.js.Stream(ctx, w.names.Streams())
	if err != nil {
		return p, err
	}
	timers, err := w.js.Stream(ctx, w.names.Commands())
	if err != nil {
		return p, err
	}
	calls, err := w.js.Stream(ctx, w.names.Calls())
	if err != nil {
		return p, err
	}
	return remains{
		Values: values, List: list, Streams: streams.CachedInfo().State.LastSeq,
		Timers: timers.CachedInfo().State.LastSeq, Calls: calls.CachedInfo().State.LastSeq,
	}, nil
}

// remove removes one run, and reports whether it did: not where its record is another
// by now, or a command for it may be read again.
func (w *Worker) remove(ctx context.Context, old oldRun, r *round) (bool, error) {
	if old.rec.Retired {
		return true, w.finish(ctx, old.run, old.key, old.rec)
	}
	if again, err := w.readAgain(ctx, old.run, r); again || err != nil {
		return false, err
	}
	left := r.past
	if left.Keys = old.listed; len(left.Keys) == 0 {
		left.List = 0
	}
	if !old.program {
		left.Streams = 0
	}
	if !old.lasting {
		left.Timers, left.Calls = 0, 0
	}
	data, err := json.Marshal(left)
	if err != nil {
		return false, err
	}
	revision, err := w.runs.Retire(ctx, old.key, old.rec.Revision, data)
	if errors.Is(err, kv.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, w.finish(ctx, old.run, old.key, kv.Record{Data: data, Revision: revision, Retired: true})
}

// readAgain reports whether the next owner of a run would read a command for it. The
// record knows only of those that changed it. But one that did not, such as a second
// start, would begin a run where there is none, and its sender was told otherwise.
func (w *Worker) readAgain(ctx context.Context, run drover.RunID, r *round) (bool, error) {
	n := w.partition(run)
	_, err := r.commands.GetMsg(ctx, r.cursors[n], jetstream.WithGetMsgSubject(w.names.CommandsTo(n, run)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, err
}

// finish removes all that is left of a run whose record is retired.
func (w *Worker) finish(ctx context.Context, run drover.RunID, key string, retired kv.Record) error {
	left, err := w.remainsOf(ctx, run, key, retired)
	if err != nil {
		return err
	}
	if err := w.values.PurgeRun(ctx, run, left.Values); err != nil {
		return err
	}
	if err := w.deliveries.Purge(ctx, left.Keys, left.List); err != nil { // they are hints: whoever asks for deliveries removes them
		w.log.Warn().Err(err).Str("run", string(run)).Msg("a run is removed, but not its deliveries from the list")
	}
	for _, p := range []struct {
		stream, subject string
		last            uint64
	}{
		{w.names.Streams(), w.names.StreamsOf(run), left.Streams},
		{w.names.Commands(), w.names.TimersOf(run), left.Timers},
		{w.names.Calls(), w.names.CallsOf(run), left.Calls},
	} {
		if err := w.purgeUpTo(ctx, p.stream, p.subject, p.last); err != nil {
			return err
		}
	}
	err = w.runs.Purge(ctx, key, retired.Revision)
	if errors.Is(err, kv.ErrConflict) || errors.Is(err, drover.CodeNotFound) {
		return nil // somebody else was here
	}
	return err
}

// remainsOf gives what a retired record says. Where that cannot be read it is all that
// there is of the run, if the record is still there afterwards: no new run had
// written anything by then.
func (w *Worker) remainsOf(ctx context.Context, run drover.RunID, key string, retired kv.Record) (remains, error) {
	var left remains
	if json.Unmarshal(retired.Data, &left) == nil {
		return left, nil
	}
	left, err := w.past(ctx)
	err2 := w.deliveries.Scan(ctx, subjects.DeliveriesOf(run), func(key string, _ kv.Hint) bool {
		left.Keys = append(left.Keys, key)
		return true
	})
	if err := errors.Join(err, err2); err != nil {
		return remains{}, err
	}
	rec, err := w.runs.Load(ctx, key)
	switch {
	case rec.Retired && rec.Revision == retired.Revision:
		return left, nil
	case err != nil && !errors.Is(err, drover.CodeNotFound):
		return remains{}, err
	}
	return remains{}, nil // somebody else was here
}

// purgeUpTo removes what a stream has under a subject up to a sequence; 0: nothing.
func (w *Worker) purgeUpTo(ctx context.Context, name, subject string, last uint64) error {
	if last == 0 {
		return nil
	}
	stream, err := w.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(last+1))
}
