package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover/subjects"
)

const (
	lateLook  = 5 * time.Second  // how often it is asked whether to look for late timers
	lateEvery = 10 * time.Minute // how often that is done without a reason
	lateAfter = 2 * time.Second  // how late a timer is that the server has given up
)

// A server that cannot store the tick of a timer, because its disk is full, keeps
// the timer and never tries again before its next start. late has such timers set
// once more: soon after the server refused something, and now and then.
type late struct {
	refused atomic.Bool // the server has refused a write of this worker
	looked  time.Time
}

// note learns from a write that failed.
func (l *late) note(err error) {
	if _, refused := errors.AsType[*jetstream.APIError](err); refused {
		l.refused.Store(true)
	}
}

// resetTimers sets late timers once more, where there is a reason to look for
// them. One worker of the fleet does it, the owner of partition 0.
func (w *Worker) resetTimers(ctx context.Context, now time.Time) error {
	if !w.owns(0) {
		return nil
	}
	reason := w.late.refused.Swap(false)
	if !reason && now.Sub(w.late.looked) < lateEvery {
		return nil
	}
	w.late.looked = now
	n, err := w.resetLate(ctx, now.Add(-lateAfter))
	if n > 0 {
		w.log.Warn().Int("timers", n).Msg("the server had given up timers, they are set once more")
	}
	if err != nil {
		w.late.refused.Store(true)
	}
	return err
}

// resetLate stores timers that were due before a time as they are. The same timer
// twice is one, and one that fires twice wakes its run for nothing: so it does
// no harm if a clock is wrong, or if the server is about to fire them.
func (w *Worker) resetLate(ctx context.Context, until time.Time) (n int, err error) {
	timers, err := w.js.OrderedConsumer(ctx, w.names.Commands(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{w.names.TimerAll()}, HeadersOnly: true,
	})
	if err != nil {
		return 0, err
	}
	left := timers.CachedInfo().NumPending
	if left == 0 {
		return 0, nil
	}
	it, err := timers.Messages()
	if err != nil {
		return 0, err
	}
	defer it.Stop()
	for ; left > 0; left-- {
		m, err := it.Next(jetstream.NextMaxWait(readPatience))
		if errors.Is(err, nats.ErrTimeout) {
			return n, nil // those that were left have fired
		}
		if err != nil {
			return n, err
		}
		at, err := time.Parse("@at "+time.RFC3339Nano, m.Headers().Get(subjects.HeaderSchedule))
		if err != nil || at.After(until) {
			continue
		}
		again := nats.Header{}
		for _, name := range []string{subjects.HeaderSchedule, subjects.HeaderScheduleTarget} {
			again.Set(name, m.Headers().Get(name))
		}
		if _, err := w.js.PublishMsg(ctx, &nats.Msg{Subject: m.Subject(), Header: again}); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
