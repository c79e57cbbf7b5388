package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/droverhq/drover"
)

// How a waiter holds an outcome.
const (
	// waitOnce is for how long one request waits. The fleet holds the outcome for
	// longer than until the next one comes, also where this one is lost.
	waitOnce = 15 * time.Second
	// holdFirst is for how long a start holds it: until the second request.
	holdFirst = 30 * time.Second
	// releaseTime is for how long a waiter that gives up tries to say so.
	releaseTime = 2 * time.Second
)

// NewWaiter makes the name of a waiter, which nobody else has.
func NewWaiter() string { return chance("w_") }

// Hold keeps the outcome of a run for a waiter, for some time: subscribers that
// are told only inline are not told before. Another hold makes it longer. A reply
// without HeldUntil means that nothing is held, as they were told already.
func (c *Client) Hold(ctx context.Context, req drover.HoldRequest) (drover.HoldReply, error) {
	var reply drover.HoldReply
	return reply, c.request(ctx, "hold", req, &reply)
}

// Consume says that a waiter has the outcome of a run, so that nobody is told who
// is told only inline. The error has the code conflict where it is too late for
// that: they were told, or another waiter has it.
func (c *Client) Consume(ctx context.Context, run drover.RunID, waiter string) (drover.HoldReply, error) {
	var reply drover.HoldReply
	return reply, c.request(ctx, "consume", drover.WaiterRequest{RunID: run, Waiter: waiter}, &reply)
}

// Release says that a waiter has given up. The run goes on; subscribers that are
// told only inline are told, unless others wait.
func (c *Client) Release(ctx context.Context, run drover.RunID, waiter string) (drover.HoldReply, error) {
	var reply drover.HoldReply
	return reply, c.request(ctx, "release", drover.WaiterRequest{RunID: run, Waiter: waiter}, &reply)
}

// Take waits for the outcome of a run as a waiter, and takes it: of this and of
// telling the subscribers that are told only inline, exactly one happens. It asks
// the API alone, and so works from other accounts too. waiter is a name that
// nobody else uses; one that holds the outcome since the start goes on with that.
//
// When ctx ends first, the waiter gives up: the run goes on, those subscribers
// are told, and the error wraps that of ctx. A process that dies gives up as well,
// within half a minute.
//
// With two codes of errors the outcome is there nevertheless: with the code conflict
// others were told as well, or another waiter has taken it; with the code
// unavailable it is not known whether they will be.
func (c *Client) Take(ctx context.Context, run drover.RunID, waiter string) (drover.Outcome, error) {
	return c.take(ctx, run, waiter, false)
}

// take is Take. held says that the run has just been started with a hold.
func (c *Client) take(ctx context.Context, run drover.RunID, waiter string, held bool) (drover.Outcome, error) {
	o, err := c.takeover(ctx, run, waiter, held)
	if err != nil {
		// Also where it cannot be known whether anything is held.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		_, _ = c.Release(late, run, waiter)
		return drover.Outcome{}, err
	}
	// The outcome is there: that the caller's time is over makes no difference now.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.patience)
	defer cancel()
	if _, err := c.Consume(late, run, waiter); err != nil {
		return o, fmt.Errorf("client: the outcome of run %s is there, but not taken: %w", run, err)
	}
	return o, nil
}

// takeover waits until the outcome is there, and keeps it held.
func (c *Client) takeover(ctx context.Context, run drover.RunID, waiter string, held bool) (drover.Outcome, error) {
	req := drover.RunRequest{RunID: run, Wait: drover.Duration(waitOnce)}
	if !held {
		req.Waiter = waiter
	}
	asked, answered, pause := time.Now(), held, againFirst
	for {
		began := time.Now()
		o, over, err := c.ended(ctx, req)
		// A fleet that is down for a while is no reason to give up, once it was there.
		patient := errors.Is(err, drover.CodeUnavailable) && !c.nc.IsClosed() && (answered || time.Since(asked) < c.patience)
		switch {
		case over:
			return o, nil
		case ctx.Err() != nil:
			return o, fmt.Errorf("client: waiting for run %s: %w", run, context.Cause(ctx))
		case err != nil && !patient:
			return o, err
		case err == nil:
			answered = true
		}
		req.Waiter = waiter
		if time.Since(began) >= time.Second {
			pause = againFirst
			continue
		}
		// Whoever answered did not wait, as a worker that ends does.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, againMost)
	}
}

// ended waits in the fleet for the end of a run, and gives its outcome if it came.
func (c *Client) ended(ctx context.Context, req drover.RunRequest) (o drover.Outcome, over bool, err error) {
	data, err := encode("result", req)
	if err != nil {
		return o, false, err
	}
	m, err := c.try(ctx, waitOnce+readTime, "result", data)
	if err != nil {
		return o, false, err
	}
	var reply drover.ResultReply
	if err := read("result", m, &reply); err != nil || !reply.Status.Terminal() {
		return o, false, err
	}
	return c.outcome(ctx, req.RunID)
}
