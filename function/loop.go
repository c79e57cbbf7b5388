package function

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// How a function deals with its queue.
const (
	ackWait      = 10 * time.Second       // silence after which the queue gives a call to another instance
	aliveEvery   = 3 * time.Second        // a call that runs is told to be alive
	pullExpires  = 10 * time.Second       // how long a request for calls stays with the server: an instance that is frozen draws calls for that long
	pullSilence  = 2 * time.Second        // how often the server says that a request is still there: one that is lost with its server is missed after three
	pullAgain    = 250 * time.Millisecond // after a refused request
	maxSettling  = 1024                   // calls whose handler has returned, and whose result is not durable yet
	redeliverIn  = time.Second            // message that its handler could not deal with
	maxPending   = 10_000                 // calls of one function that all its instances perform
	maxWaiting   = 100_000                // requests for calls, of all instances
	joinFirst    = 100 * time.Millisecond // between tries to reach the queue, doubling
	joinAtMost   = 2 * time.Second
	joinPatience = 5 * time.Second     // of one try
	versionGone  = 30 * 24 * time.Hour // after which the server forgets the queue of a version of a program that nobody serves, but not what is in it
)

// loop serves one function. Its run goroutine alone reads the queue and counts
// what it asked for; handlers run in goroutines of their own, and tell it what
// became free by the counts under the lock.
type loop struct {
	*Server
	f       *Function
	slots   int
	log     *slog.Logger
	onAsked func()

	messages chan *nats.Msg // from the queue, and statuses of requests
	wake     chan struct{}  // a count changed
	joined   chan struct{}  // the queue is there
	joining  bool
	inbox    string
	asked    int       // calls that the server was asked for and has not sent
	heard    time.Time // of the server

	calls   context.Context // parent of every call
	endAll  context.CancelCauseFunc
	publish context.Context // of results; ends after calls
	endPub  context.CancelFunc
	running sync.WaitGroup // every goroutine that the loop started
	spare   chan func()    // to goroutines that have nothing to do
	spares  atomic.Int64   // how many there are
	drained chan struct{}  // closed: no call is started any more

	thrown   burst // log lines about messages that are no calls
	unstored burst // and about results that wait for their server

	mu       sync.Mutex
	inFlight map[string]*call // by call.key; of message functions by ack subject
	latest   map[uint64]*call // of message functions, by sequence of the queue: the latest delivery of each message
	busy     int              // handlers that have not returned
}

func newLoop(s *Server, f *Function, asked func()) *loop {
	slots := cmp.Or(f.Concurrency, s.opts.Concurrency)
	l := &loop{
		Server: s, f: f, slots: slots, onAsked: asked,
		log:      s.opts.Logger.With(slog.String("function", string(f.Name))),
		messages: make(chan *nats.Msg, 2*slots+64),
		wake:     make(chan struct{}, 1),
		joined:   make(chan struct{}),
		spare:    make(chan func()),
		drained:  make(chan struct{}),
		inbox:    s.nc.NewInbox(),
		inFlight: map[string]*call{},
		latest:   map[uint64]*call{},
	}
	return l
}

// run serves until ctx ends, and drains then.
func (l *loop) run(ctx context.Context) error {
	whole := context.WithoutCancel(ctx)
	l.calls, l.endAll = context.WithCancelCause(whole)
	l.publish, l.endPub = context.WithCancel(whole)
	defer l.endAll(nil)
	defer l.endPub()
	status := l.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer l.nc.RemoveStatusListener(status)

	cancels, err := l.nc.Subscribe(l.names.CancelsTo(l.f.Name), l.cancel)
	if err != nil {
		return l.closed(err)
	}
	defer func() { _ = cancels.Unsubscribe() }()
	sub, err := l.nc.ChanSubscribe(l.inbox, l.messages)
	if err != nil {
		return l.closed(err)
	}
	gone := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(gone) })

	err = l.serve(ctx, status)
	if errors.Is(err, drover.CodeUnavailable) {
		l.endAll(ErrShutdown) // nobody can be told of results any more
	}
	return errors.Join(err, l.drain(sub, gone))
}

// serve asks for calls and starts them.
func (l *loop) serve(ctx context.Context, status <-chan nats.Status) error {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	again := time.NewTimer(pullAgain)
	again.Stop()
	defer again.Stop()
	l.join(ctx)
	for {
		l.ask()
		select {
		case <-ctx.Done():
			return nil
		case m := <-l.messages:
			switch l.receive(m) {
			case statusNone:
			case statusRefused:
				again.Reset(pullAgain)
			case statusNobody:
				l.join(ctx)
			}
		case <-l.wake:
		case <-l.joined:
			l.joining, l.asked = false, 0
		case <-again.C:
			l.asked = 0
		case <-alive.C:
			l.keepAlive()
			if l.asked > 0 && time.Since(l.heard) > 3*pullSilence {
				l.asked = 0 // the server lost the requests
			}
		case st := <-status:
			if st == nats.CLOSED {
				return l.closed(nats.ErrConnectionClosed)
			}
			l.asked = 0 // the server forgets requests with the connection
		}
	}
}

func (l *loop) closed(err error) error {
	return drover.Errorf(drover.CodeUnavailable,
		"function %s cannot be served: %v: connect again, with nats.MaxReconnects(-1)", l.f.Name, err)
}

// ask requests as many calls as there are free slots, but in batches: a
// request for each slot that gets free would cost as much as the calls.
func (l *loop) ask() {
	if l.joining {
		return
	}
	l.mu.Lock()
	busy, settling := l.busy, len(l.inFlight)-l.busy
	l.mu.Unlock()
	want := l.slots - busy - l.asked
	if want <= 0 || settling > maxSettling || l.asked > 0 && want < l.slots/4 {
		return
	}
	request, _ := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires"`
		Silence time.Duration `json:"idle_heartbeat"`
	}{want, pullExpires, pullSilence})
	m := &nats.Msg{
		Subject: subjects.Pull(l.names.Calls(), l.names.Consumer(l.f.Name)),
		Reply:   l.inbox,
		Data:    request,
	}
	if l.nc.PublishMsg(m) != nil {
		return // the connection is closed, or its buffer is full; both are heard of
	}
	l.asked += want
	l.heard = time.Now()
	l.onAsked()
}

// What a message said about the requests of this loop.
type pullStatus int

const (
	statusNone    pullStatus = iota
	statusRefused            // ask again, but not at once
	statusNobody             // no such queue
)

// receive deals with one message of the inbox.
func (l *loop) receive(m *nats.Msg) pullStatus {
	l.heard = time.Now()
	if m.Reply == "" { // no message of a queue comes without an ack subject
		return l.status(m)
	}
	l.asked = max(l.asked-1, 0)
	l.mu.Lock()
	full := l.busy >= l.slots
	l.mu.Unlock()
	switch {
	case full: // an old request was still alive
		l.answer(m, ackNak)
	case l.f.message != nil:
		l.start(m.Reply, l.newMessage(m))
	default:
		l.receiveCall(m)
	}
	return statusNone
}

func (l *loop) receiveCall(m *nats.Msg) {
	c, err := parseCall(m, l.f.Name, l.opts.Instance)
	if err == nil && m.Subject != l.names.Call(c.ID.Run, l.f.Name) {
		err = drover.Errorf(drover.CodeInvalidRequest, "message on %s is no call of run %s", m.Subject, c.ID.Run)
	}
	if err != nil {
		l.answer(m, ackTerm)
		l.warn(&l.thrown, "a message was thrown away", slog.Any("error", err))
		return
	}
	if !c.Deadline.IsZero() && !time.Now().Before(c.Deadline) {
		l.answer(m, ackDone)
		return
	}
	l.start(c.key(), c)
}

// status reads a message of the server about the requests.
func (l *loop) status(m *nats.Msg) pullStatus {
	left, err := strconv.Atoi(m.Header.Get(subjects.HeaderPending))
	switch code := m.Header.Get(subjects.HeaderStatus); {
	case code == "100":
	case code == "503", code == "404" && err != nil:
		return statusNobody
	case err == nil:
		l.asked = max(l.asked-left, 0)
	default:
		if m.Header.Get(subjects.HeaderDescription) == "Consumer Deleted" {
			return statusNobody
		}
		return statusRefused
	}
	return statusNone
}

// join makes sure that the consumer of the function exists, and waits for the
// queue as long as it takes.
func (l *loop) join(ctx context.Context) {
	if l.joining {
		return
	}
	l.joining = true
	l.running.Go(func() {
		for wait, told := joinFirst, false; ; wait = min(2*wait, joinAtMost) {
			err := l.createConsumer(ctx)
			if err == nil {
				break
			}
			if !told && ctx.Err() == nil {
				l.log.Warn("no queue yet, waiting for a worker of the fleet", slog.Any("error", err))
				told = true
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
		select {
		case l.joined <- struct{}{}:
		case <-ctx.Done():
		}
	})
}

// createConsumer makes the durable consumer that all instances share. One that
// exists is taken as it is.
func (l *loop) createConsumer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	_, err := l.js.CreateConsumer(ctx, l.names.Calls(), jetstream.ConsumerConfig{
		Durable:       l.names.Consumer(l.f.Name),
		Description:   "calls of function " + string(l.f.Name),
		FilterSubject: l.names.CallsTo(l.f.Name),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxDeliver:    -1,
		MaxAckPending: maxPending,
		MaxWaiting:    maxWaiting,

		InactiveThreshold: l.inactivity(),
	})
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return nil
	}
	return err
}

// inactivity is how long nobody has to ask for calls until the server forgets the
// consumer; 0: for ever. There is a new version of a program with each deployment,
// and its consumer costs a cluster as much as one that is used.
func (l *loop) inactivity() time.Duration {
	if version, ok := strings.CutPrefix(string(l.f.Name), "program."); ok && strings.Contains(version, ".") {
		return versionGone
	}
	return 0
}
