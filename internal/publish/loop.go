package publish

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// loop is the goroutine of a publisher: it alone calls back.
func (p *Publisher) loop() {
	defer close(p.ended)
	defer p.stop()
	status := p.status
	for {
		select {
		case m := <-p.acks:
			p.answered(m)
		case <-p.failed:
			p.fail()
		case <-p.timer.C:
			p.expire()
		case _, ok := <-status:
			if !ok {
				status = nil
			}
			p.drain()
			p.failAll(errDisconnected)
		case <-p.closing:
			return
		}
	}
}

// stop is the end of the loop.
func (p *Publisher) stop() {
	_ = p.sub.Unsubscribe() // fails where the connection is closed, which is as good
	p.nc.RemoveStatusListener(p.status)
	p.timer.Stop()
	p.drain()
	p.failAll(errClosed)
}

// drain calls back for the answers that have come.
func (p *Publisher) drain() {
	for {
		select {
		case m := <-p.acks:
			p.answered(m)
		default:
			return
		}
	}
}

// answered calls back for the message that an answer belongs to. There is none
// where it was given up.
func (p *Publisher) answered(m *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, p.inbox), 36, 64)
	if err != nil {
		return
	}
	w, ok := p.leave(id)
	if !ok {
		return
	}
	switch {
	case w.batch != nil:
		p.batchAnswered(w, m)
	case w.raw == nil:
		p.landed(w.lane)
		ack, err := parse(m, p.stream)
		if err == nil {
			p.stream = ack.Stream
		}
		w.done(ack, err)
	case noResponders(m):
		w.raw(nil, errNoResponders)
	default:
		w.raw(m, nil)
	}
}

// fail calls back for the messages that were not sent.
func (p *Publisher) fail() {
	p.mu.Lock()
	refused := p.takeRefused()
	p.mu.Unlock()
	for _, f := range refused {
		p.landed(f.lane)
		f.fail(f.err)
	}
}

// takeRefused is called with the lock held.
func (p *Publisher) takeRefused() []failure {
	refused := p.refused
	p.refused = nil
	for _, f := range refused {
		p.makeRoom(f.messages())
	}
	return refused
}

// failAll gives up on all that is in flight, or waits to be sent.
func (p *Publisher) failAll(err error) {
	p.mu.Lock()
	given, refused := p.emptyLanes(), p.takeRefused()
	p.makeRoom(len(given))
	for _, w := range p.waiting {
		given = append(given, w)
		p.makeRoom(w.messages())
	}
	p.waiting = make(map[uint64]waiter)
	p.mu.Unlock()
	for _, f := range refused {
		f.fail(f.err)
	}
	for _, w := range given {
		w.fail(err)
	}
}

// expire gives up on what is overdue, and sets the timer for the rest.
func (p *Publisher) expire() {
	now := time.Now()
	p.mu.Lock()
	late, next := p.overdue(now, now.Add(p.opts.Timeout))
	p.makeRoom(len(late))
	for id, w := range p.waiting {
		if w.due.After(now) {
			next = earlier(next, w.due)
			continue
		}
		late = append(late, w)
		delete(p.waiting, id)
		p.makeRoom(w.messages())
	}
	// What waits in a lane does so for something that is in flight.
	p.armed = len(p.waiting) > 0
	if p.armed {
		p.timer.Reset(max(next.Sub(now), p.opts.Timeout/8))
	}
	p.mu.Unlock()
	for _, w := range late {
		p.landed(w.lane)
		w.fail(errTimeout)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// makeRoom is called with the lock held.
func (p *Publisher) makeRoom(messages int) {
	if messages > 0 {
		p.inFlight -= messages
		p.room.Broadcast()
	}
}
