package flow

import (
	"context"
	"errors"
	"slices"

	"github.com/droverhq/drover"
)

// send queues what was issued and is not in the journal.
func (c *core) send() {
	for _, o := range c.issued[len(c.issued)-c.unsent:] {
		c.queue = append(c.queue, o.entry)
	}
	c.unsent = 0
}

// sendAll sends what is queued, and with it the end, where nothing else is under
// way. It gives an end only where it cannot be sent.
func (l *loop) sendAll(ctx context.Context) (*drover.DriveEnd, error) {
	c := l.c
	if l.busy {
		return nil, nil //nolint:nilnil // the drive goes on
	}
	m := drover.RecordRequest{Records: c.batch()}
	switch {
	case len(m.Records) < len(c.queue):
	case c.begun > 0:
		if len(c.queue) == 0 && int(l.hint.Load()) <= c.have {
			return nil, nil //nolint:nilnil // the drive goes on
		}
	case c.end != nil:
		m.End = c.end
	case !c.awaitsRecord():
		m.End = &drover.DriveEnd{Status: drover.DriveWaiting}
	}
	if m.End != nil && l.out.flush() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, l.send(ctx, m)
}

// maxBatch is how many bytes of values one command carries, unless it is one.
const maxBatch = 256 << 10

// batch is as much of the queue as one command carries.
func (c *core) batch() []drover.Entry {
	size := 0
	for i := range c.queue {
		if i > 0 && c.single > 0 {
			return c.queue[:i]
		}
		size += len(c.queue[i].Output) + len(c.queue[i].Input) + len(c.queue[i].Step) + 256
		if i > 0 && size > maxBatch {
			return c.queue[:i]
		}
	}
	return c.queue
}

// awaitsRecord reports whether a branch goes on once what is queued is in the
// journal.
func (c *core) awaitsRecord() bool {
	return len(c.queue) > 0 && c.reading > 0 || slices.ContainsFunc(c.queue, func(e drover.Entry) bool {
		return e.Kind == drover.EntryStep || e.Kind == drover.EntryUndo || e.Kind == drover.EntryPanic
	})
}

// send sends a command, and has its answer come among replies.
func (l *loop) send(ctx context.Context, m drover.RecordRequest) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	l.fill(&m, l.c.at, l.c.have)
	l.busy, l.sent, l.asked = true, m, l.hint.Load()
	l.state.note(m.At, m.Have)
	l.state.said.Store(true)
	l.sending.Go(func() {
		var a answered
		if a.reply, a.err = l.t.Record(ctx, l.req.RunID, &m); a.err == nil && a.reply.Partial {
			got, err := l.t.Journal(ctx, l.req.RunID, m.Have+1)
			if err == nil {
				a.more = got.Journal
			} else {
				a.err = behind(err)
			}
		}
		l.replies <- a
	})
	return nil
}

// behind is an error of reading on in a journal: the record that is read may be
// behind its run, and not have what comes next.
func behind(err error) error {
	if drover.CodeOf(err, "") == drover.CodeInvalidRequest {
		return drover.Errorf(drover.CodeStale, "%v", err)
	}
	return err
}

// fill completes a command.
func (l *loop) fill(m *drover.RecordRequest, at, have int) {
	m.Drive, m.Fence, m.Token, m.At, m.Have = l.req.Drive, l.fence, l.req.Token, at, have
	m.Instance, m.Keep, m.Version = l.opts.Instance, l.opts.Keep, l.opts.Version
}

// answered takes what the owner says.
func (l *loop) answered(a answered) (*drover.DriveEnd, error) {
	c, m := l.c, &l.sent
	if !a.reply.Driving {
		if m.End == nil {
			return nil, drover.Errorf(drover.CodeFenced, "run %s is %s, and drive %d is over", l.req.RunID, a.reply.Status, l.req.Drive)
		}
		if a.reply.Records != m.At+len(m.Records) {
			l.Close() // somebody else has recorded
		} else if m.End.Status == drover.DriveWaiting {
			c.queue = nil
			c.at = a.reply.Records
			c.learn(a.reply.New)
			c.learn(a.more)
		}
		return m.End, nil
	}
	if a.reply.Records != m.At+len(m.Records) {
		return nil, drover.Errorf(drover.CodeStale, "run %s has %d records, and %d were known", l.req.RunID, a.reply.Records, m.At+len(m.Records))
	}
	l.hint.CompareAndSwap(l.asked, 0)
	c.at, c.last = a.reply.Records, a.reply.Last
	c.queue = c.queue[len(m.Records):]
	c.single = max(c.single-len(m.Records), 0)
	c.learn(a.reply.New)
	c.learn(a.more)
	l.state.note(c.at, c.have)
	return nil, nil //nolint:nilnil // the drive goes on
}

// refused deals with what the owner does not take. A record that cannot be is
// replaced by one that says so, which is an error of what the body has asked for,
// in this drive and in all others. Where even that cannot be, or the end that the
// body came to, the run fails.
func (l *loop) refused(ctx context.Context, err error) (*drover.DriveEnd, error) {
	switch drover.CodeOf(err, "") {
	case drover.CodeInvalidRequest, drover.CodeTooLarge, drover.CodeInvalidDefinition, drover.CodeInvalidID, drover.CodeNotFound:
	default:
		return nil, err
	}
	c, sent := l.c, len(l.sent.Records)
	switch {
	case sent == 0 && (l.sent.End == nil || errors.Is(err, drover.CodeNotFound)):
		return nil, err
	case sent == 0:
		return l.finish(ctx, &drover.DriveEnd{Status: drover.DriveFailed, Error: wire(err)})
	case sent > 1: // which of them it is, is not said
		c.single = sent
	case c.queue[0].Kind == drover.EntryPanic:
		return l.finish(ctx, c.burst.end())
	case c.queue[0].Kind == drover.EntryCancel || c.queue[0].Kind == drover.EntryMeta || c.queue[0].Error != nil:
		return l.finish(ctx, &drover.DriveEnd{Status: drover.DriveFailed, Error: wire(err)})
	default:
		e := c.queue[0]
		bad := *wire(err)
		bad.Permanent = true
		c.queue[0] = drover.Entry{Kind: drover.EntryStep, ID: e.ID, Attempt: max(e.Attempt, 1), Error: &bad}
		if e.Kind == drover.EntryUndo {
			c.queue[0].Kind = drover.EntryUndo
		}
	}
	return nil, nil //nolint:nilnil // the drive goes on
}

// finish ends the drive at once.
func (l *loop) finish(ctx context.Context, end *drover.DriveEnd) (*drover.DriveEnd, error) {
	if end.Status != drover.DriveBlocked {
		_ = l.out.flush() // what cannot be stored now cannot be later
	}
	m := drover.RecordRequest{End: end}
	l.fill(&m, l.c.at, l.c.have)
	_, err := l.t.Record(ctx, l.req.RunID, &m)
	return end, err
}
