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
	if w.raw != nil {
		if noResponders(m) {
			w.raw(nil, errNoResponders)
			return
		}
		w.raw(m, nil)
		return
	}
	ack, err := parse(m, p.stream)
	if err == nil {
		p.stream = ack.Stream
	}
	w.done(ack, err)
}

// fail calls back for the messages that were not sent.
func (p *Publisher) fail() {
	p.mu.Lock()
	refused := p.refused
	p.refused = nil
	p.makeRoom(len(refused))
	p.mu.Unlock()
	for _, f := range refused {
		f.fail(f.err)
	}
}

// failAll gives up on all that is in flight.
func (p *Publisher) failAll(err error) {
	p.mu.Lock()
	given := p.waiting
	p.waiting = make(map[uint64]waiter)
	p.makeRoom(len(given))
	p.mu.Unlock()
	p.fail()
	for _, w := range given {
		w.fail(err)
	}
}

// expire gives up on what is overdue, and sets the timer for the rest.
func (p *Publisher) expire() {
	now := time.Now()
	var late []waiter
	p.mu.Lock()
	next := p.opts.Timeout
	for id, w := range p.waiting {
		if left := w.due.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		late = append(late, w)
		delete(p.waiting, id)
	}
	p.makeRoom(len(late))
	p.armed = len(p.waiting) > 0
	if p.armed {
		p.timer.Reset(max(next, p.opts.Timeout/8))
	}
	p.mu.Unlock()
	for _, w := range late {
		w.fail(errTimeout)
	}
}

// makeRoom is called with the lock held.
func (p *Publisher) makeRoom(messages int) {
	if messages > 0 {
		p.inFlight -= messages
		p.room.Broadcast()
	}
}
