package publish

import (
	"context"
	"crypto/rand"
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
	// Timeout is how long an ack may take, and how long a message may wait to be
	// sent where it is grouped. It is noticed up to an eighth of it later. 0: 5 s.
	Timeout time.Duration
	// MaxInFlight is how many messages may wait for their acks; Publish blocks
	// when there are so many. 0: 16384.
	MaxInFlight int
	// Group names the stream of a subject. While messages to a stream are in
	// flight, others to it wait, and go together as an atomic batch, which is
	// faster where the server syncs every write to its disk. "" has a message
	// sent at once. nil: all are.
	Group func(subject string) (stream string)
}

func (o Options) withDefaults() (Options, error) {
	if o.Timeout < 0 || o.MaxInFlight < 0 {
		return o, fmt.Errorf("%w: the timeout %v and the limit of %d messages of a publisher must not be negative",
			drover.CodeInvalidRequest, o.Timeout, o.MaxInFlight)
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
	batches string // begins the id of every batch
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
	lanes    map[string]*lane // by stream
}

// waiter is who waits for an answer: done for an ack, raw for the message, or
// all of a batch.
type waiter struct {
	done  func(Ack, error)
	raw   func(*nats.Msg, error)
	batch []held
	lane  *lane // nil: not grouped
	due   time.Time
}

func (w waiter) fail(err error) {
	switch {
	case w.batch != nil:
		for _, h := range w.batch {
			h.done(Ack{}, err)
		}
	case w.raw != nil:
		w.raw(nil, err)
	default:
		w.done(Ack{}, err)
	}
}

// messages is how many wait.
func (w waiter) messages() int { return max(len(w.batch), 1) }

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
		lanes:   make(map[string]*lane),
	}
	p.batches = rand.Text() + "-"
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
// msg.Reply; the message is the caller's again when Publish returns, or where
// messages are grouped, when done is called.
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
	switch id, ok := p.enter(msg, w, wait); {
	case !ok:
		w.fail(errClosed)
	case id != 0:
		p.transmit(id, msg)
	}
}

// reply is where the ack of a number goes.
func (p *Publisher) reply(id uint64) string { return p.inbox + strconv.FormatUint(id, 36) }

// transmit hands a message to the connection.
func (p *Publisher) transmit(id uint64, msg *nats.Msg) {
	msg.Reply = p.reply(id)
	if err := p.nc.PublishMsg(msg); err != nil {
		p.refuse(id, sendError(msg.Subject, err))
	}
}

// enter gives a message its number, or 0 where it waits in its lane, unless the
// publisher is closed.
func (p *Publisher) enter(msg *nats.Msg, w waiter, wait bool) (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for wait && p.inFlight >= p.opts.MaxInFlight && !p.closed {
		p.room.Wait()
	}
	if p.closed {
		return 0, false
	}
	p.inFlight++
	if w.lane = p.lane(msg, w); w.lane == nil {
		return p.register(w), true
	}
	l := w.lane
	if l.flying > 0 && (!l.single || len(l.queue) > 0) {
		l.queue = append(l.queue, held{msg: msg, done: w.done, due: time.Now().Add(p.opts.Timeout)})
		return 0, true
	}
	l.flying++
	return p.register(w), true
}

// register gives the number of what is sent next. It is called with the lock
// held.
func (p *Publisher) register(w waiter) uint64 {
	p.last++
	w.due = time.Now().Add(p.opts.Timeout)
	p.waiting[p.last] = w
	if !p.armed {
		p.armed = true
		p.timer.Reset(p.opts.Timeout)
	}
	return p.last
}

// leave takes a message or a batch out, and makes room for others where it was
// a message: those of a batch may go out again.
func (p *Publisher) leave(id uint64) (waiter, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.waiting[id]
	if ok {
		delete(p.waiting, id)
		if w.batch == nil {
			p.inFlight--
			p.room.Signal()
		}
	}
	return w, ok
}

// refuse hands what was not sent to the loop, unless the loop has given it up
// already.
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
