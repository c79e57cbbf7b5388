package function

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
)

// How long a drain may take beyond the time that handlers are given.
const (
	unsubscribeTime = 2 * time.Second // until the server has sent its last message
	returnTime      = 5 * time.Second // until handlers return once their contexts have ended
)

// cancel ends the calls that a run does not want any more: one, or where none
// is named all of the run.
func (l *loop) cancel(m *nats.Msg) {
	run, ok := l.names.RunOfCancel(m.Subject)
	if !ok {
		return
	}
	if m.Reply != "" && l.names.Foreign(m.Reply) == nil { // somebody asks whether anybody is here
		_ = m.Respond(nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(m.Data) > 0 {
		for key, c := range l.inFlight {
			if id, _, _ := strings.Cut(key, " "); id == string(m.Data) && c.ID.Run == run {
				c.end(ErrCancelled)
			}
		}
		return
	}
	for _, c := range l.inFlight {
		if c.ID.Run == run {
			c.end(ErrCancelled)
		}
	}
}

// keepAlive tells the queue that the calls in flight are not lost.
func (l *loop) keepAlive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.inFlight {
		l.answer(c.message.Load(), ackAlive)
	}
}

// drain gives back what was taken and not begun, waits for what runs, and
// returns when all goroutines of the loop have ended.
func (l *loop) drain(sub *nats.Subscription, gone <-chan struct{}) error {
	close(l.drained)
	_ = sub.Drain()
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	unsubscribed := time.NewTimer(unsubscribeTime)
	defer unsubscribed.Stop()
	soft := time.NewTimer(l.opts.DrainTimeout)
	defer soft.Stop()
	var hard, last <-chan time.Time
	done := l.calls.Done()
	for gone != nil || ended != nil {
		select {
		case m := <-l.messages:
			l.giveBack(m)
		case <-gone:
			gone = nil
		case <-unsubscribed.C:
			_ = sub.Unsubscribe()
			gone = nil
		case <-ended:
			ended = nil
		case <-alive.C:
			l.keepAlive()
		case <-soft.C:
			l.endAll(ErrShutdown)
		case <-done:
			done, hard = nil, time.After(returnTime)
		case <-hard:
			l.endPub()
			last = time.After(time.Second)
		case <-last:
			return l.stuck()
		}
	}
	for {
		select {
		case m := <-l.messages:
			l.giveBack(m)
		default:
			return nil
		}
	}
}

func (l *loop) giveBack(m *nats.Msg) {
	if m.Reply != "" {
		l.answer(m, ackNak)
	}
}

// stuck gives back the calls whose handlers do not return. Their goroutines
// are lost.
func (l *loop) stuck() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var calls []string
	for key, c := range l.inFlight {
		id, _, _ := strings.Cut(key, " ")
		calls = append(calls, id)
		l.answer(c.message.Load(), ackNak)
	}
	if len(calls) == 0 {
		return nil // the last one has returned just now
	}
	slices.Sort(calls)
	return drover.Errorf(drover.CodeTimeout,
		"function %s: handlers of %d calls do not return although their contexts ended, such as %s: return when ctx.Done() is closed",
		l.f.Name, len(calls), calls[0])
}
