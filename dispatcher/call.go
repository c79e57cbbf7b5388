package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/subjects"
)

// null is the body of a message whose value is absent.
var null = json.RawMessage("null")

// call queues a call. It has no message id: a repeat is fenced by its attempt,
// and an id would cost a third of the rate.
func (d *Dispatcher) call(e *machine.Effect, in input, done func(error)) {
	c := e.Call
	if in.gone != "" {
		d.failCall(e, gone(in.gone, fmt.Sprintf("the input of node %s", c.ID.Node)), done)
		return
	}
	body := orNull(in.json)
	d.orElse(d.callMessage(c, body), done, func() {
		d.failCall(e, d.large(fmt.Sprintf("the input of node %s", c.ID.Node), len(body)), done)
	})
}

func (d *Dispatcher) callMessage(c *machine.Call, body []byte) *nats.Msg {
	header := nats.Header{
		subjects.HeaderCall:     {c.ID.String()},
		subjects.HeaderToken:    {c.Token},
		subjects.HeaderRun:      {string(c.ID.Run)},
		subjects.HeaderFunction: {string(c.Function)},
		subjects.HeaderAttempt:  {strconv.Itoa(c.ID.Attempt)},
	}
	if !c.Deadline.IsZero() {
		header[subjects.HeaderDeadline] = []string{c.Deadline.UTC().Format(time.RFC3339Nano)}
	}
	if c.Heartbeat > 0 {
		header[subjects.HeaderHeartbeat] = []string{c.Heartbeat.String()}
	}
	return &nats.Msg{Subject: d.opts.Names.Call(c.ID.Run, c.Function), Header: header, Data: body}
}

// failCall ends an attempt that can never be queued.
func (d *Dispatcher) failCall(e *machine.Effect, why *drover.Error, done func(error)) {
	c := e.Call
	d.send(c.ID.Run, drover.VerbResult, drover.ResultMessage{
		Call: c.ID, Token: c.Token, Error: why, Instance: d.opts.Instance,
	}, done)
}

// callStream finds the work queue.
func (d *Dispatcher) callStream(ctx context.Context) (jetstream.Stream, error) {
	if found := d.calls.Load(); found != nil {
		return *found, nil
	}
	stream, err := d.js.Stream(ctx, d.opts.Names.Calls())
	if err == nil {
		d.calls.Store(&stream)
	}
	return stream, err
}

// tooLarge reports whether a message was refused for its size, by the client,
// the server or the stream.
func tooLarge(err error) bool {
	return errors.Is(err, drover.CodeTooLarge)
}

// large is the error of something that does not fit in a message.
func (d *Dispatcher) large(what string, size int) *drover.Error {
	e := drover.Errorf(drover.CodeTooLarge,
		"%s is %d bytes and does not fit in a message of the server, which takes %d with its headers: pass a reference to it, or raise the server's max_payload",
		what, size, d.opts.Conn.MaxPayload())
	e.Permanent = true
	return e
}

// gone is the error of a value that is not there any more.
func gone(key, what string) *drover.Error {
	e := drover.Errorf(drover.CodeInternal,
		"%s is not there any more: the values bucket has no key %s, it was purged or deleted by hand", what, key)
	e.Permanent = true
	return e
}

// unavailable gives an error of the server the code that says to try again.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", drover.CodeUnavailable, err)
}
