package flow

import (
	"context"
	"errors"
	"sync"

	"github.com/droverhq/drover"
)

const (
	// maxBacklog is how many bytes of chunks may wait to be stored before the body
	// waits for them.
	maxBacklog = 4 << 20
	// What is stored at once, at most.
	maxAppend      = 200
	maxAppendBytes = 1 << 20
)

// StreamMessage is one message of a stream: a chunk, or its end.
type StreamMessage struct {
	Number int // in the stream, from 1
	Type   drover.ChunkType
	Data   []byte
	End    bool
	Writer StreamWriter
}

// StreamWriter is who wrote a message of a stream.
type StreamWriter struct {
	Drive      int
	Fence      int
	Generation int // how often the body had begun anew
	Base       int // messages of the stream before that
}

// after reports whether somebody has the drive that another had before.
func (w StreamWriter) after(other StreamWriter) bool {
	return w.Drive > other.Drive || w.Drive == other.Drive && w.Fence > other.Fence
}

// StreamTail is the last message of a stream, and its sequence; 0: there is none.
type StreamTail struct {
	Sequence uint64
	Message  StreamMessage
}

// outbox stores the chunks that a body writes in one drive. What a body writes
// follows from its journal alone, so it is the same in every drive, and a chunk is
// known by its number.
//
// Each write names the last message of its stream: of two processes that write
// the same stream, as one of them has lost its drive and does not know, one finds
// another message there. The one whose drive is the later one goes on after it,
// and the other one stops.
type outbox struct {
	ctx    context.Context //nolint:containedctx // of the drive
	t      Transport
	run    drover.RunID
	writer StreamWriter
	work   func(func()) // begins what the drive waits for
	failed chan struct{}

	mu    sync.Mutex
	list  []*stream // with a queue, in turns
	bytes int
	idle  chan struct{} // closed when all is stored; nil: it is
	err   error
}

// push queues a message, and gives how many bytes are queued.
func (o *outbox) push(s *stream, m StreamMessage) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0
	}
	if len(s.queue) == 0 {
		o.list = append(o.list, s)
	}
	s.queue = append(s.queue, m)
	o.bytes += len(m.Data)
	if o.idle == nil {
		o.idle = make(chan struct{})
		o.work(o.store)
	}
	return o.bytes
}

// flush waits until all is stored.
func (o *outbox) flush() error {
	o.mu.Lock()
	idle := o.idle
	o.mu.Unlock()
	if idle == nil {
		return o.failure()
	}
	select {
	case <-idle:
		return o.failure()
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	}
}

func (o *outbox) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// store stores what is queued, until nothing is.
func (o *outbox) store() {
	for {
		o.mu.Lock()
		if len(o.list) == 0 {
			close(o.idle)
			o.idle = nil
			o.mu.Unlock()
			return
		}
		s := o.list[0]
		part := s.part()
		o.mu.Unlock()
		err := o.append(s, part)
		o.mu.Lock()
		if err != nil {
			o.err = err
			close(o.failed)
			close(o.idle)
			o.idle = nil
			o.mu.Unlock()
			return
		}
		for _, m := range part {
			o.bytes -= len(m.Data)
		}
		s.queue = s.queue[len(part):]
		if o.list = o.list[1:]; len(s.queue) > 0 {
			o.list = append(o.list, s)
		} else {
			s.queue = nil
		}
		o.mu.Unlock()
	}
}

// part is what of a queue is stored at once.
func (s *stream) part() []StreamMessage {
	n, size := 0, 0
	for n < min(len(s.queue), maxAppend) && (n == 0 || size+len(s.queue[n].Data) <= maxAppendBytes) {
		size += len(s.queue[n].Data)
		n++
	}
	return s.queue[:n]
}

// append stores messages, but those that are there.
func (o *outbox) append(s *stream, part []StreamMessage) error {
	for {
		if !s.known {
			tail, err := o.t.StreamTail(o.ctx, o.run, s.id)
			if err != nil {
				return err
			}
			if err := o.learn(s, tail); err != nil {
				return err
			}
		}
		left := part[min(len(part), max(0, s.have-part[0].Number+1)):]
		if len(left) == 0 {
			return nil
		}
		if s.ended {
			return drover.Errorf(drover.CodeConflict, "stream %q of run %s has ended with %d chunks, and the body writes one more: it is not the same in every drive, or writes on in a stream that it closed before it began anew",
				s.id, o.run, s.base+s.have-1)
		}
		wire := make([]StreamMessage, len(left))
		for i, m := range left {
			m.Number += s.base
			m.Writer = o.writer
			m.Writer.Base = s.base
			wire[i] = m
		}
		sequence, err := o.t.StreamAppend(o.ctx, o.run, s.id, s.sequence, wire)
		if errors.Is(err, drover.CodeConflict) {
			s.known = false
			continue
		}
		if err != nil {
			return err
		}
		last := left[len(left)-1]
		s.sequence, s.have, s.ended = sequence, last.Number, last.End
		return nil
	}
}

// learn notes what is stored of a stream. Its error has the code fenced where a
// later drive has written.
func (o *outbox) learn(s *stream, tail StreamTail) error {
	m := tail.Message
	w := m.Writer
	if tail.Sequence > 0 && w.after(o.writer) {
		return drover.Errorf(drover.CodeFenced, "drive %d (%d) of run %s is over: drive %d (%d) writes stream %q now; stop the body",
			o.writer.Drive, o.writer.Fence, o.run, w.Drive, w.Fence, s.id)
	}
	s.known, s.sequence, s.base, s.have, s.ended = true, tail.Sequence, 0, 0, m.End
	switch {
	case tail.Sequence == 0:
	case w.Generation != o.writer.Generation: // what the body wrote before it began anew
		s.base = m.Number
	default:
		s.base, s.have = w.Base, m.Number-w.Base
	}
	return nil
}

// openOutbox makes the outbox of a drive.
func (l *loop) openOutbox(ctx context.Context) {
	l.out = &outbox{
		ctx: ctx, t: l.t, run: l.req.RunID, work: l.sending.Go, failed: make(chan struct{}),
		writer: StreamWriter{Drive: l.req.Drive, Fence: l.fence, Generation: l.req.Generation},
	}
	l.stuck = l.out.failed
}

// streamsFailed ends a drive whose chunks cannot be stored, or whose body was cut
// off while it waited for that. A body that writes what does not fit its stream is
// blocked, as by its journal.
func (l *loop) streamsFailed(ctx context.Context) error {
	err := l.out.failure()
	switch code := drover.CodeOf(err, ""); {
	case err == nil && l.c.dead:
		return context.Cause(ctx)
	case err == nil || l.c.broken != nil:
	case code == "", code == drover.CodeFenced:
		return err
	case code == drover.CodeConflict:
		l.c.breakOff(&drover.DriveEnd{Status: drover.DriveBlocked, Error: wire(err)})
	default:
		l.c.breakOff(&drover.DriveEnd{Status: drover.DriveFailed, Error: wire(err)})
	}
	return nil
}
