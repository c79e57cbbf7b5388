// Package replies takes in what the owners of runs answer to commands: many
// answers under way, and one subscription for all of them.
//
// A command goes to a stream, whose acknowledgement uses up the reply subject of
// NATS. So the command names an inbox of its own, and the answer comes there as a
// plain message: at most one counts, and none may come at all. Whoever waits
// brings the limit.
//
// Because the subscription is there before the first command is sent, all servers
// of a cluster know of it by the time that an answer comes.
package replies

import (
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// Replies are the answers that are waited for on one connection. They may be
// used by any number of goroutines.
type Replies struct {
	nc     *nats.Conn
	prefix string // of all inboxes

	mu      sync.Mutex
	next    uint64
	waiting map[string]chan *nats.Msg
}

// New makes inboxes on a connection. Nothing comes in before Open.
func New(nc *nats.Conn) *Replies {
	return &Replies{nc: nc, prefix: nc.NewInbox() + ".", waiting: map[string]chan *nats.Msg{}}
}

// Open takes in answers until shut is called.
func (r *Replies) Open() (shut func(), err error) {
	sub, err := r.nc.Subscribe(r.prefix+"*", r.take)
	if err != nil {
		return nil, err
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

func (r *Replies) take(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := strings.TrimPrefix(m.Subject, r.prefix)
	if ch := r.waiting[key]; ch != nil {
		delete(r.waiting, key) // the first answer counts
		ch <- m
	}
}

// Expect gives an inbox and where its answer comes, until forget is called.
func (r *Replies) Expect() (inbox string, answer <-chan *nats.Msg, forget func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	key := strconv.FormatUint(r.next, 36)
	ch := make(chan *nats.Msg, 1)
	r.waiting[key] = ch
	return r.prefix + key, ch, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, key)
	}
}
