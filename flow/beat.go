package flow

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover"
)

// beatState is what a heartbeat says, as of the command before it.
type beatState struct {
	at, have atomic.Int64
	said     atomic.Bool // the owner has been told of the drive
}

func (s *beatState) note(at, have int) {
	s.at.Store(int64(at))
	s.have.Store(int64(have))
}

// earlyBeat is the part of the time between heartbeats after which the owner hears
// of a drive that had nothing to record yet: the time of its computing counts from
// then on, and nobody looks for its process.
const earlyBeat = 10

// heartbeats tells the owner that the drive goes on, also while a branch works
// between two things that it asks for. It gives what ends them.
func (l *loop) heartbeats(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	if l.opts.Beat <= 0 {
		return func() {}
	}
	ctx, done := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick, early := time.NewTicker(l.opts.Beat), time.NewTimer(l.opts.Beat/earlyBeat)
		defer tick.Stop()
		defer early.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-early.C:
				if l.state.said.Load() {
					continue
				}
			case <-tick.C:
			}
			var m drover.RecordRequest
			l.fill(&m, int(l.state.at.Load()), int(l.state.have.Load()))
			reply, err := l.t.Record(ctx, l.req.RunID, &m)
			switch {
			case drover.CodeOf(err, "") == drover.CodeFenced:
				cancel(err)
			case err == nil && reply.Driving:
				l.Nudge(reply.Entries)
			case err == nil: // it is over, unless that was this drive's own end
				l.Nudge(m.Have + 1)
			}
		}
	})
	return func() {
		done()
		running.Wait()
	}
}
