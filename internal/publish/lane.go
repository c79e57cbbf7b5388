package publish

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/subjects"
)

// Bounds of a batch. A batch costs a server that syncs every write about as much
// as a dozen single writes, as it stores the batch in files of its own first; the
// server's own limit is 1,000 messages.
const (
	minBatch      = 16
	maxBatch      = 500
	maxBatchBytes = 4 << 20
)

// lane is what goes to one stream whose messages are grouped.
type lane struct {
	queue  []held // waits for what is in flight, in the order of Publish
	flying int    // messages and batches in flight; the queue is empty where it is 0
	single bool   // the stream takes no batches
}

// held is a message that waits for its turn, or for the ack of its batch.
type held struct {
	msg  *nats.Msg
	done func(Ack, error)
	due  time.Time // in the queue
}

// lane gives the lane of a message; nil: it goes by itself. It is called with
// the lock held.
func (p *Publisher) lane(msg *nats.Msg, w waiter) *lane {
	if p.opts.Group == nil || w.raw != nil {
		return nil
	}
	stream := p.opts.Group(msg.Subject)
	if stream == "" {
		return nil
	}
	l := p.lanes[stream]
	if l == nil {
		l = &lane{}
		p.lanes[stream] = l
	}
	return l
}

// landed notes that a message or a batch of a lane is not in flight any more,
// and sends what has waited for the last of them.
func (p *Publisher) landed(l *lane) {
	if l == nil {
		return
	}
	p.mu.Lock()
	l.flying--
	if l.flying > 0 || len(l.queue) == 0 {
		p.mu.Unlock()
		return
	}
	unit, together := l.take()
	if !together {
		l.flying += len(unit) // already now: what comes meanwhile may not overtake them
		p.mu.Unlock()
		p.singly(l, unit, len(unit))
		return
	}
	l.flying++
	id := p.register(waiter{lane: l, batch: unit})
	p.mu.Unlock()
	p.sendBatch(id, l, unit)
}

// take takes the next messages out of the queue: those that may be sent as one
// batch, or else few, to be sent one by one.
func (l *lane) take() (unit []held, together bool) {
	n := l.batchable()
	together = n >= minBatch && !l.single
	for !together && n < len(l.queue) && (n == 0 || alone(l.queue[n].msg)) {
		n++
	}
	unit = l.queue[:n:n]
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	return unit, together
}

// batchable is how many messages of the queue, from its front, may be one batch.
func (l *lane) batchable() int {
	seen := make(map[string]struct{}, min(len(l.queue), maxBatch))
	n, size := 0, 0
	for n < min(len(l.queue), maxBatch) {
		m := l.queue[n].msg
		size += m.Size()
		_, again := seen[m.Subject]
		if alone(m) || n > 0 && size > maxBatchBytes || again && len(m.Header[subjects.HeaderExpectedSubject]) > 0 {
			break
		}
		seen[m.Subject] = struct{}{}
		n++
	}
	return n
}

// alone reports whether a message has a header of the server with which it may
// be refused in a batch, or mean something else there. Schedules are taken, but
// what they send when they are due still has the headers of their batch, and may
// be taken for a part of one.
func alone(m *nats.Msg) bool {
	for name := range m.Header {
		switch name {
		case subjects.HeaderExpectedSubject, subjects.HeaderMessageID:
		default:
			if strings.HasPrefix(name, "Nats-") {
				return true
			}
		}
	}
	return false
}

// singly sends messages of a lane one by one. replaces is how many messages and
// batches in flight these are in place of.
func (p *Publisher) singly(l *lane, unit []held, replaces int) {
	ids := make([]uint64, len(unit))
	p.mu.Lock()
	l.flying += len(unit) - replaces
	for i, h := range unit {
		ids[i] = p.register(waiter{done: h.done, lane: l})
	}
	p.mu.Unlock()
	for i, h := range unit {
		p.transmit(ids[i], h.msg)
	}
}

// sendBatch sends messages as one batch, whose ack is that of the last.
func (p *Publisher) sendBatch(id uint64, l *lane, unit []held) {
	name := p.batches + strconv.FormatUint(id, 36)
	for i, h := range unit {
		m := &nats.Msg{Subject: h.msg.Subject, Data: h.msg.Data, Header: make(nats.Header, len(h.msg.Header)+3)}
		for key, values := range h.msg.Header {
			m.Header[key] = values
		}
		m.Header[subjects.HeaderBatch] = []string{name}
		m.Header[subjects.HeaderBatchSequence] = []string{strconv.Itoa(i + 1)}
		if i == len(unit)-1 {
			m.Header[subjects.HeaderBatchCommit] = []string{"1"}
			m.Reply = p.reply(id)
		}
		err := p.nc.PublishMsg(m)
		switch {
		case err == nil:
		case cannotBeSent(err): // and nothing is stored, for the last one was not sent
			if _, ok := p.leave(id); ok {
				p.singly(l, unit, 1)
			}
			return
		default:
			p.refuse(id, sendError(m.Subject, err))
			return
		}
	}
}

// batchAnswered calls back for the messages of a batch. Where it was refused,
// each is sent by itself, so that it gets the answer that it deserves.
func (p *Publisher) batchAnswered(w waiter, m *nats.Msg) {
	last, err := parseBatch(m, len(w.batch))
	if refusal(err) {
		p.mu.Lock()
		w.lane.single = w.lane.single || noBatches(err)
		p.mu.Unlock()
		p.singly(w.lane, w.batch, 1)
		return
	}
	p.mu.Lock()
	p.makeRoom(len(w.batch))
	p.mu.Unlock()
	p.landed(w.lane)
	if err != nil {
		w.fail(err)
		return
	}
	first := last.Sequence - uint64(len(w.batch)) + 1
	for i, h := range w.batch {
		h.done(Ack{Stream: last.Stream, Sequence: first + uint64(i)}, nil)
	}
}

// overdue takes the messages out of the queues that have waited for too long,
// and gives when the next one has. It is called with the lock held.
func (p *Publisher) overdue(now, next time.Time) ([]waiter, time.Time) {
	var late []waiter
	for _, l := range p.lanes {
		n := 0
		for n < len(l.queue) && !l.queue[n].due.After(now) {
			late = append(late, waiter{done: l.queue[n].done})
			n++
		}
		l.queue = l.queue[n:]
		if len(l.queue) > 0 {
			next = earlier(next, l.queue[0].due)
		}
	}
	return late, next
}

// emptyLanes takes all that waits, and forgets what is in flight. It is called
// with the lock held.
func (p *Publisher) emptyLanes() []waiter {
	var given []waiter
	for _, l := range p.lanes {
		for _, h := range l.queue {
			given = append(given, waiter{done: h.done})
		}
		l.queue, l.flying = nil, 0
	}
	return given
}
