package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
)

// Looking at a run although nothing was heard of it. A message may be missed
// while a connection is bad, and a status may be read from a replica that is
// behind, so that what is pushed is not enough.
const (
	lookFirst  = 2 * time.Second
	lookAtMost = 30 * time.Second
	watchPause = 100 * time.Millisecond // between two looks of Watch
)

// Run starts a run and waits for its outcome. A run that fails is no error:
// the outcome says so.
//
// Of a run with subscribers that are told only inline, it takes the outcome before
// it returns it, as Take does, with the same errors. When ctx ends first, the run
// goes on, and these subscribers are told.
func (c *Client) Run(ctx context.Context, req drover.StartRequest) (drover.Outcome, error) {
	if req.RunID == "" && req.IdempotencyKey == "" {
		req.RunID = drover.RunID(chance("r_"))
	}
	waiter := NewWaiter()
	req.Hold = &drover.HoldRequest{Waiter: waiter, For: drover.Duration(holdFirst)}
	if req.RunID == "" {
		// The id depends on the account that asks, which only the fleet sees.
		reply, err := c.Start(ctx, req)
		switch {
		case err != nil:
			return drover.Outcome{}, err
		case reply.Inline:
			return c.take(ctx, reply.RunID, waiter, reply.Created)
		}
		return c.Wait(ctx, reply.RunID)
	}
	e, err := c.listen(req.RunID, false)
	if err != nil {
		return drover.Outcome{}, err
	}
	defer e.close()
	reply, err := c.Start(ctx, req)
	switch {
	case err != nil:
		return drover.Outcome{}, err
	case reply.Inline:
		return c.take(ctx, reply.RunID, waiter, reply.Created)
	}
	return e.wait(ctx, !reply.Created)
}

// Wait gives the outcome of a run, once it has one. The error has the code
// not_found where there is no such run.
func (c *Client) Wait(ctx context.Context, run drover.RunID) (drover.Outcome, error) {
	e, err := c.listen(run, false)
	if err != nil {
		return drover.Outcome{}, err
	}
	defer e.close()
	return e.wait(ctx, true)
}

// Watch shows a run: as it is now, and again each time it has changed, at most
// ten times a second, until it is terminal. The error, which ends it, is that
// of a status.
func (c *Client) Watch(ctx context.Context, run drover.RunID) iter.Seq2[drover.Run, error] {
	return func(yield func(drover.Run, error) bool) {
		e, err := c.listen(run, true)
		if err != nil {
			yield(drover.Run{}, err)
			return
		}
		defer e.close()
		applied, shown := uint64(0), false
		for quiet := lookFirst; ; {
			reply, err := c.Status(ctx, drover.RunRequest{RunID: run, Brief: true})
			if err != nil {
				yield(drover.Run{}, err)
				return
			}
			if !shown || reply.Run.Applied != applied || reply.Run.Status.Terminal() {
				applied, shown, quiet = reply.Run.Applied, true, lookFirst
				if !yield(reply.Run, nil) || reply.Run.Status.Terminal() {
					return
				}
			} else {
				quiet = min(2*quiet, lookAtMost)
			}
			if err := e.changed(ctx, quiet); err != nil {
				yield(drover.Run{}, err)
				return
			}
		}
	}
}

// ear listens for what is told of one run.
type ear struct {
	c      *Client
	run    drover.RunID
	ended  chan drover.Outcome // holds the first one
	hint   chan struct{}       // the run has changed
	status chan nats.Status
	subs   []*nats.Subscription
}

// listen begins to listen, for changes as well where they matter.
func (c *Client) listen(run drover.RunID, changes bool) (*ear, error) {
	if _, err := drover.ParseRunID(string(run)); err != nil {
		return nil, err
	}
	e := &ear{c: c, run: run, ended: make(chan drover.Outcome, 1), hint: make(chan struct{}, 1)}
	done := func(m *nats.Msg) {
		var o drover.Outcome
		if json.Unmarshal(m.Data, &o) != nil || o.RunID != run || !o.Status.Terminal() {
			return // no outcome; the next look tells
		}
		select {
		case e.ended <- o:
		default:
		}
		e.signal()
	}
	sub, err := c.nc.Subscribe(c.names.DoneOf(run), done)
	if err == nil && changes {
		e.subs = append(e.subs, sub)
		sub, err = c.nc.Subscribe(c.names.Event(run), func(*nats.Msg) { e.signal() })
	}
	if err != nil {
		e.close()
		return nil, drover.Errorf(drover.CodeUnavailable, "cannot listen for run %s: %v", run, err)
	}
	e.subs = append(e.subs, sub)
	e.status = c.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	return e, nil
}

func (e *ear) signal() {
	select {
	case e.hint <- struct{}{}:
	default:
	}
}

func (e *ear) close() {
	for _, s := range e.subs {
		_ = s.Unsubscribe()
	}
	if e.status != nil {
		e.c.nc.RemoveStatusListener(e.status)
	}
}

// wait gives the outcome. With look it asks for the status first, as the run
// may have ended before.
func (e *ear) wait(ctx context.Context, look bool) (drover.Outcome, error) {
	first := true
	for quiet := lookFirst; ; quiet = min(2*quiet, lookAtMost) {
		if look {
			o, over, err := e.c.outcome(ctx, e.run)
			// A fleet that is down for a while is no reason to give up, once
			// it was there.
			if err != nil && (first || ctx.Err() != nil || !errors.Is(err, drover.CodeUnavailable)) || over {
				return o, err
			}
		}
		first, look = false, true
		timer := time.NewTimer(quiet)
		select {
		case o := <-e.ended:
			timer.Stop()
			return o, nil
		case <-timer.C:
		case s := <-e.status:
			timer.Stop()
			if s == nats.CLOSED {
				return drover.Outcome{}, e.lost()
			}
		case <-ctx.Done():
			timer.Stop()
			return drover.Outcome{}, e.cut(ctx)
		}
	}
}

// changed returns when the run may have changed, or after quiet.
func (e *ear) changed(ctx context.Context, quiet time.Duration) error {
	pause := time.NewTimer(watchPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return e.cut(ctx)
	}
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-e.hint:
	case <-timer.C:
	case s := <-e.status:
		if s == nats.CLOSED {
			return e.lost()
		}
	case <-ctx.Done():
		return e.cut(ctx)
	}
	return nil
}

func (e *ear) lost() error {
	return drover.Errorf(drover.CodeUnavailable, "run %s cannot be waited for: the connection was closed", e.run)
}

func (e *ear) cut(ctx context.Context) error {
	return fmt.Errorf("client: waiting for run %s: %w", e.run, context.Cause(ctx))
}

// outcome makes the outcome of a run that is over, from what its record says.
func (c *Client) outcome(ctx context.Context, run drover.RunID) (o drover.Outcome, over bool, err error) {
	status, err := c.Status(ctx, drover.RunRequest{RunID: run, Brief: true})
	r := status.Run
	if err != nil || !r.Status.Terminal() {
		return drover.Outcome{}, false, err
	}
	o = drover.Outcome{
		DeliveryID: drover.DeliveryID(string(run) + ":terminal"),
		RunID:      run, Workflow: r.Workflow, Status: r.Status, Result: r.Result, Error: r.Error, Tags: r.Tags,
	}
	if r.StartedAt != nil {
		o.StartedAt = *r.StartedAt
	}
	if r.EndedAt != nil {
		o.EndedAt = *r.EndedAt
	}
	if r.Status == drover.StatusCompleted && len(r.Result) == 0 {
		result, err := c.Result(ctx, drover.RunRequest{RunID: run})
		if err != nil {
			return drover.Outcome{}, false, err
		}
		o.Result = result.Output
	}
	if len(o.Result) == 0 {
		o.Result = json.RawMessage("null")
	}
	return o, true, nil
}
