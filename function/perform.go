package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/calling"
	"github.com/droverhq/drover/subjects"
)

// What the queue is told of a message.
const (
	ackDone  = "+ACK"
	ackNak   = "-NAK"
	ackAlive = "+WPI"
	ackTerm  = "+TERM"
)

// One try to make a result durable, and the pause after one that failed. What
// was sent before a connection broke gets no answer, so the first try is short.
const (
	publishFirst = 2 * time.Second
	publishTry   = 10 * time.Second
	publishAgain = 200 * time.Millisecond
	envelope     = 64 << 10 // bytes of a payload that the server needs for other than the output
)

// answer tells the queue. It is not awaited: where it is lost, the message
// comes again, and that is harmless.
func (l *loop) answer(m *nats.Msg, what string) { _ = l.nc.Publish(m.Reply, []byte(what)) }

// start performs a call in a slot, unless it runs already.
func (l *loop) start(key string, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if runs := l.inFlight[key]; runs != nil {
		l.again(runs, c.message.Load())
		return
	}
	l.inFlight[key] = c
	if c.delivery != nil {
		if of := c.delivery.Sequence.Stream; l.latest[of] == nil || l.latest[of].delivery.NumDelivered < c.delivery.NumDelivered {
			l.latest[of] = c
		}
	}
	l.busy++
	ctx := context.WithValue(l.calls, callKey{}, c)
	if c.token != "" {
		ctx = calling.With(ctx, calling.Call{ID: c.ID, Token: c.token})
	}
	ctx, end := context.WithCancelCause(ctx)
	c.end = end
	if l.f.message != nil {
		l.spawn(func() { l.handle(ctx, key, c) })
		return
	}
	c.session = func() string { return l.names.Session(subjects.SessionOfCall(c.ID.Session())) }
	c.send = func(ctx context.Context, progress json.RawMessage) error {
		return l.send(ctx, publishTry, c, drover.ResultMessage{Progress: progress})
	}
	l.spawn(func() { l.perform(ctx, key, c) })
}

// spawn does a task in a goroutine: one that has done others, as a new one has
// to grow its stack first, or else a new one.
func (l *loop) spawn(task func()) {
	select {
	case l.spare <- task:
		return
	default:
	}
	l.running.Go(func() {
		for task != nil {
			task()
			task = l.another()
		}
	})
}

// another waits for the next task of a goroutine. It is nil where the goroutine
// is to end: there are enough of them, or the loop drains.
func (l *loop) another() func() {
	if l.spares.Add(1) > int64(l.slots) {
		l.spares.Add(-1)
		return nil
	}
	defer l.spares.Add(-1)
	select {
	case task := <-l.spare:
		return task
	case <-l.drained:
		return nil
	}
}

// again deals with a message of a call that runs. Where it is the same message,
// the queue thought it was lost, and wants the answer on the new one. Where it
// is another, the call was queued twice: one is enough, and the queue keeps it
// until the call has ended.
func (l *loop) again(runs *call, m *nats.Msg) {
	a, errA := runs.message.Load().Metadata()
	b, errB := m.Metadata()
	if errA == nil && errB == nil && a.Sequence.Stream != b.Sequence.Stream {
		l.answer(m, ackDone)
		return
	}
	runs.message.Store(m)
}

// release frees the slot of a call.
func (l *loop) release() {
	l.mu.Lock()
	l.busy--
	l.mu.Unlock()
	l.signal()
}

// forget ends a call.
func (l *loop) forget(key string, c *call) {
	c.end(nil)
	l.mu.Lock()
	delete(l.inFlight, key)
	l.mu.Unlock()
	l.signal()
}

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// perform runs the handler of a call and settles it.
func (l *loop) perform(ctx context.Context, key string, c *call) {
	if !c.Deadline.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, c.Deadline)
		defer stop()
	}
	stopBeats := l.beat(c)
	result := drover.ResultMessage{Error: wire(errGoexit(string(l.f.Name)))}
	defer func() { // runs as well when the handler ends its goroutine
		l.release()
		stopBeats()
		l.settle(ctx, c, result)
		l.forget(key, c)
	}()
	result = l.invoke(ctx, c)
}

// invoke runs the handler.
func (l *loop) invoke(ctx context.Context, c *call) (result drover.ResultMessage) {
	name := string(l.f.Name)
	defer func() {
		if v := recover(); v != nil {
			result = drover.ResultMessage{Error: wire(panicked(name, v, debug.Stack()))}
		}
	}()
	out, err := l.f.call(ctx, c.input)
	limit := min(drover.MaxValue, int(l.nc.MaxPayload())-envelope)
	switch {
	case err != nil:
	case len(out) > limit:
		err = tooLarge(name, len(out), limit)
	case len(out) > 0 && !json.Valid(out):
		err = invalidOutput(name, errors.New("it cannot be parsed"))
	default:
		return drover.ResultMessage{Output: out}
	}
	return drover.ResultMessage{Error: wire(err)}
}

// settle makes the result of a call durable, and takes the call off the queue.
func (l *loop) settle(ctx context.Context, c *call, result drover.ResultMessage) {
	failed := result.Error != nil
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrCancelled), errors.Is(cause, context.DeadlineExceeded) && failed:
		l.answer(c.message.Load(), ackDone) // nobody waits for it any more
		return
	case errors.Is(cause, ErrShutdown) && failed:
		l.answer(c.message.Load(), ackNak)
		return
	}
	try := publishFirst
	for told := false; ; told, try = true, min(2*try, publishTry) {
		err := l.send(l.publish, try, c, result)
		late := !c.Deadline.IsZero() && !time.Now().Before(c.Deadline)
		switch {
		case err == nil || late:
			l.answer(c.message.Load(), ackDone)
			return
		case errors.Is(err, nats.ErrMaxPayload):
			result = drover.ResultMessage{Error: tooLarge(string(l.f.Name), len(result.Output), int(l.nc.MaxPayload())-envelope)}
		case l.publish.Err() != nil || l.nc.IsClosed():
			l.answer(c.message.Load(), ackNak)
			return
		}
		if !told {
			l.warn(&l.unstored, "a result cannot be stored yet, trying again",
				slog.String("call", c.ID.String()), slog.Any("error", err))
		}
		select {
		case <-time.After(publishAgain):
		case <-l.publish.Done():
		}
	}
}

// encodeResult makes the message with which a call ends or goes on. An output is
// nearly always all that is in it, and is written as it is, without the white
// space; it is valid JSON already.
func encodeResult(c *call, result drover.ResultMessage) ([]byte, error) {
	result.Call, result.Token, result.Instance = c.ID, c.token, c.Instance
	if result.Error != nil || len(result.Progress) > 0 || !plain(c.token) || !plain(c.Instance) {
		return encode(string(c.Function), result)
	}
	var b bytes.Buffer
	b.Grow(len(result.Output) + len(c.token) + len(c.Instance) + 256)
	b.WriteString(`{"call":"` + c.ID.String() + `","token":"` + c.token + `"`)
	if len(result.Output) > 0 {
		b.WriteString(`,"output":`)
		if err := json.Compact(&b, result.Output); err != nil {
			return nil, invalidOutput(string(c.Function), err)
		}
	}
	if c.Instance != "" {
		b.WriteString(`,"instance":"` + c.Instance + `"`)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// plain reports whether a text is the same within the quotes of JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// send publishes a result or a heartbeat, and returns when it is durable.
func (l *loop) send(ctx context.Context, try time.Duration, c *call, result drover.ResultMessage) error {
	data, err := encodeResult(c, result)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	subject := l.names.In(c.ID.Run, drover.VerbResult)
	if l.results != nil {
		_, err = l.results.Do(ctx, &nats.Msg{Subject: subject, Data: data})
	} else {
		_, err = l.js.Publish(ctx, subject, data)
	}
	return err
}

// beat sends heartbeats of a call that is watched, the first one at once, until
// the function that it gives is called. They are not awaited: the next one
// makes up for one that is lost.
func (l *loop) beat(c *call) (stop func()) {
	if c.Heartbeat == 0 {
		return func() {}
	}
	beat := func() {
		progress := json.RawMessage("{}")
		if last := c.last.Load(); last != nil {
			progress = *last
		}
		if data, err := encodeResult(c, drover.ResultMessage{Progress: progress}); err == nil {
			_ = l.nc.Publish(l.names.In(c.ID.Run, drover.VerbResult), data)
		}
	}
	beat()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(max(c.Heartbeat/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				beat()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// newMessage wraps a message of a message function, so that it is kept alive
// like a call.
func (l *loop) newMessage(m *nats.Msg) *call {
	c := &call{Call: Call{Function: l.f.Name, Instance: l.opts.Instance}}
	c.message.Store(m)
	c.delivery, _ = m.Metadata()
	return c
}

// mayAnswer reports whether the answer of a delivery is that of its message: no later
// one is, or was, in hand here. The server takes an ack for the message whichever
// delivery it is of, so that of one that was given up would leave the later one with
// nobody to replace it.
func (l *loop) mayAnswer(c *call) bool {
	if c.delivery == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := c.delivery.Sequence.Stream
	if l.latest[of] != c {
		return false
	}
	delete(l.latest, of)
	return true
}

// handle runs the handler of a message function.
func (l *loop) handle(ctx context.Context, key string, c *call) {
	m, err := c.message.Load(), errGoexit(string(l.f.Name))
	defer func() {
		if v := recover(); v != nil {
			err = panicked(string(l.f.Name), v, debug.Stack())
		}
		l.release()
		switch {
		case !l.mayAnswer(c):
		case err == nil:
			l.answer(m, ackDone)
		case context.Cause(ctx) != nil:
			l.answer(m, ackNak)
		default:
			l.log.Warn("a message is delivered again", slog.String("subject", m.Subject), slog.Any("error", err))
			delay, _ := json.Marshal(map[string]time.Duration{"delay": redeliverIn})
			l.answer(m, ackNak+" "+string(delay))
		}
		l.forget(key, c)
	}()
	err = l.f.message(ctx, m)
}
