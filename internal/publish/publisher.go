package publish

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
)

// Ack is what JetStream says of a message that it stored.
type Ack struct {
	Stream    string
	Sequence  uint64 // of the message in the stream
	Duplicate bool   // its Nats-Msg-Id was there already, and Sequence is that one's
}

// Options of a Publisher. The zero value is good.
type Options struct {
	// Timeout is how long an ack may take. It is noticed up to an eighth of it
	// later. 0: 5 s.
	Timeout time.Duration
	// MaxInFlight is how many messages may wait for their acks; Publish blocks
	// when there are so many. 0: 16384.
	MaxInFlight int
}

func (o Options) withDefaults() (Options, error) {
	if o.Timeout < 0 || o.MaxInFlight < 0 {
		return o, fmt.Errorf("%w: publish options %+v must not be negative", drover.CodeInvalidRequest, o)
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 16384
	}
	return o, nil
}

// Publisher sends messages to JetStream. It is safe for use by many goroutines.
type Publisher struct {
	nc      *nats.Conn
	opts    Options
	inbox   string // ends with a dot
	sub     *nats.Subscription
	acks    chan *nats.Msg
	status  chan nats.Status
	failed  chan struct{} // refused has news
	closing chan struct{}
	ended   chan struct{}
	timer   *time.Timer
	stream  string // of the last ack; the loop's own

	mu       sync.Mutex
	room     *sync.Cond // inFlight went down, or closed
	inFlight int
	closed   bool
	armed    bool // the timer will fire
	last     uint64
	waiting  map[uint64]waiter
	refused  []failure
}

// waiter is who waits for an answer: done for an ack, or raw for the message.
type waiter struct {
	done func(Ack, error)
	raw  func(*nats.Msg, error)
	due  time.Time
}

func (w waiter) fail(err error) {
	if w.raw != nil {
		w.raw(nil, err)
		return
	}
	w.done(Ack{}, err)
}

// failure is a message that the connection did not take.
type failure struct {
	waiter
	err error
}

// New starts a publisher over a connection, which it does not own. Close ends it.
func New(nc *nats.Conn, opts Options) (*Publisher, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		nc:   nc,
		opts: opts,
		// Acks that come after their messages were given up need room too: one
		// that finds none is lost, and its message is given up in turn.
		acks:    make(chan *nats.Msg, 2*opts.MaxInFlight),
		inbox:   nc.NewInbox() + ".",
		failed:  make(chan struct{}, 1),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
		timer:   time.NewTimer(opts.Timeout),
		waiting: make(map[uint64]waiter),
	}
	p.room = sync.NewCond(&p.mu)
	p.timer.Stop()
	if p.sub, err = nc.ChanSubscribe(p.inbox+"*", p.acks); err != nil {
		return nil, fmt.Errorf("%w: the inbox for acks: %w", drover.CodeUnavailable, err)
	}
	p.status = nc.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	go p.loop()
	return p, nil
}

// Publish sends a message and returns; done is called when it was acknowledged,
// or failed. It waits while MaxInFlight messages are under way. It sets
// msg.Reply; the message is the caller's again when Publish returns.
//
// The error is ErrConflict or ErrBusy where the server refused a revision, is
// drover.CodeUnavailable where nobody knows what became of the message, and is
// otherwise a *jetstream.APIError, or drover.CodeTooLarge. After Close, done is
// called before Publish returns.
func (p *Publisher) Publish(msg *nats.Msg, done func(Ack, error)) {
	p.send(msg, waiter{done: done}, true)
}

// PublishNow is Publish for use in a callback: it does not wait for room, and
// may exceed MaxInFlight by as many messages as callbacks send.
func (p *Publisher) PublishNow(msg *nats.Msg, done func(Ack, error)) {
	p.send(msg, waiter{done: done}, false)
}

// Request sends a message that is answered with something else than an ack, such
// as a read. It waits for room like Publish, and calls back with the answer as
// it came, or with an error that is drover.CodeUnavailable.
func (p *Publisher) Request(msg *nats.Msg, done func(*nats.Msg, error)) {
	p.send(msg, waiter{raw: done}, true)
}

// RequestNow is Request for use in a callback, as PublishNow is Publish.
func (p *Publisher) RequestNow(msg *nats.Msg, done func(*nats.Msg, error)) {
	p.send(msg, waiter{raw: done}, false)
}

// Do sends a message and waits for its ack. The end of ctx ends the waiting, and
// leaves it unknown whether the message was stored.
func (p *Publisher) Do(ctx context.Context, msg *nats.Msg) (Ack, error) {
	type result struct {
		ack Ack
		err error
	}
	got := make(chan result, 1)
	p.Publish(msg, func(ack Ack, err error) { got <- result{ack, err} })
	select {
	case r := <-got:
		return r.ack, r.err
	case <-ctx.Done():
		return Ack{}, fmt.Errorf("%w: the ack of the message on %q: %w", drover.CodeUnavailable, msg.Subject, context.Cause(ctx))
	}
}

// InFlight is how many messages wait for their acks.
func (p *Publisher) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight
}

// Close fails what is in flight, with drover.CodeUnavailable, and returns when
// all callbacks have returned. It must not be called by a callback.
func (p *Publisher) Close() {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.room.Broadcast()
	p.mu.Unlock()
	if first {
		close(p.closing)
	}
	<-p.ended
}

func (p *Publisher) send(msg *nats.Msg, w waiter, wait bool) {
	id, ok := p.enter(w, wait)
	if !ok {
		w.fail(errClosed)
		return
	}
	msg.Reply = p.inbox + strconv.FormatUint(id, 36)
	if err := p.nc.PublishMsg(msg); err != nil {
		p.refuse(id, sendError(msg.Subject, err))
	}
}

// enter gives a message its number, unless the publisher is closed.
func (p *Publisher) enter(w waiter, wait bool) (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for wait && p.inFlight >= p.opts.MaxInFlight && !p.closed {
		p.room.Wait()
	}
	if p.closed {
		return 0, false
	}
	p.last++
	p.inFlight++
	w.due = time.Now().Add(p.opts.Timeout)
	p.waiting[p.last] = w
	if !p.armed {
		p.armed = true
		p.timer.Reset(p.opts.Timeout)
	}
	return p.last, true
}

// leave takes a message out, and makes room for another.
func (p *Publisher) leave(id uint64) (waiter, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.waiting[id]
	if ok {
		delete(p.waiting, id)
		p.inFlight--
		p.room.Signal()
	}
	return w, ok
}

// refuse hands a message that was not sent to the loop, unless the loop has
// given it up already.
func (p *Publisher) refuse(id uint64, err error) {
	p.mu.Lock()
	w, ok := p.waiting[id]
	if ok {
		delete(p.waiting, id)
		p.refused = append(p.refused, failure{w, err})
	}
	p.mu.Unlock()
	if ok {
		select {
		case p.failed <- struct{}{}:
		default:
		}
	}
}
