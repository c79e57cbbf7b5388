package worker

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/kv"
)

// A server that lost its power, or got a backup, may have less of the log than was
// read, and gives the same sequences to other commands. Whoever relies on what was
// done up to a sequence looks first whether the last command that was read is still
// there, with its time: the janitor lets it stand.

// errRewound is why a partition is taken anew: its log has lost commands that were
// read.
var errRewound = errors.New("the log has lost commands that were read: it is read again from there")

// anchor is a command of the log: its sequence, and when it was stored, in
// nanoseconds. The zero value is none.
type anchor struct {
	seq uint64
	at  int64
}

func anchorOf(p kv.Partition) anchor { return anchor{p.Last, p.Stored} }

// stands reports whether the log has a command still.
func (w *Worker) stands(ctx context.Context, a anchor) (bool, error) {
	if a.seq == 0 {
		return true, nil
	}
	m, err := w.command(ctx, a.seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil && m.Time.UnixNano() == a.at, err
}

// command reads the log at a sequence, from the leader.
func (w *Worker) command(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	stream, err := w.js.Stream(ctx, w.names.Commands())
	if err != nil {
		return nil, err
	}
	return stream.GetMsg(ctx, seq)
}

// rewound gives a partition that is about to be taken. Where the log has lost what
// its cursor has passed, it begins with the first command that was stored after
// all that had been read.
func (w *Worker) rewound(ctx context.Context, p kv.Partition) (kv.Partition, error) {
	if there, err := w.stands(ctx, anchorOf(p)); there || err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	after := time.Unix(0, p.Stored+1).UTC()
	cons, err := w.js.CreateConsumer(ctx, w.names.Commands(), jetstream.ConsumerConfig{
		FilterSubject:     w.names.CommandsOf(p.Number),
		DeliverPolicy:     jetstream.DeliverByStartTimePolicy,
		OptStartTime:      &after,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: readInactivity,
	})
	if err != nil {
		return p, err
	}
	first := cons.CachedInfo().Delivered.Stream + 1
	w.async(func() { w.forget(cons) })
	w.log.Error().Int("partition", p.Number).Uint64("read", p.Last).Uint64("cursor", p.Cursor).Uint64("from", first).
		Msg("the log has lost commands that were read: what it has since is read; runs whose commands are lost may wait for ever")
	p.Cursor, p.Last, p.Stored = min(p.Cursor, first), 0, 0
	return p, nil
}

// trace looks for the command that a record has seen last.
func (o *owner) trace(ctx context.Context, op *partition.Op) error {
	m, err := o.w.command(ctx, op.Seq)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return err
	}
	if err == nil {
		_, run, _, ok := o.w.names.ParseCommand(m.Subject)
		if ok && run == string(op.Run) && !m.Time.Truncate(time.Millisecond).After(op.At) {
			return nil
		}
	}
	o.log.Error().Str("run", string(op.Run)).Uint64("read", op.Seq).Msg("the log has lost commands that the run has seen: it goes on with what the log has since")
	return drover.Errorf(drover.CodeNotFound, "the log does not have command %d for run %s any more", op.Seq, op.Run)
}
