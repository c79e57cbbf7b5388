package api

import (
	"bytes"
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
)

const (
	// maxWaits is how many requests may wait for outcomes at a time. Each costs a
	// goroutine, a subscription, and the bytes of its request.
	maxWaits     = 10_000
	maxWaitBytes = 4 << 10
	// holdSlack is how much longer than it may wait a waiter has to say that it
	// has the outcome.
	holdSlack = 10 * time.Second
)

// Between two looks at a run of which nothing was heard. What is published may be
// missed while a connection is bad.
const (
	lookFirst = 2 * time.Second
	lookMost  = 30 * time.Second
)

// as is the endpoint for one request: what waits keeps nothing quick from being
// answered.
func (e endpoint) as(data []byte) endpoint {
	if e.verb == "result" && bytes.Contains(data, []byte(`"wait`)) {
		e.class, e.limit = waits, drover.MaxWait+2*e.limit+holdSlack
	}
	return e
}

func (s *Service) hold(ctx context.Context, req *drover.HoldRequest) (any, error) {
	run := req.RunID
	req.RunID = ""
	var reply drover.HoldReply
	return &reply, s.send(ctx, run, drover.VerbHold, req, &reply)
}

func (s *Service) consume(ctx context.Context, req *drover.WaiterRequest) (any, error) {
	return s.waiter(ctx, drover.VerbConsume, req)
}

func (s *Service) release(ctx context.Context, req *drover.WaiterRequest) (any, error) {
	return s.waiter(ctx, drover.VerbRelease, req)
}

func (s *Service) waiter(ctx context.Context, verb drover.Verb, req *drover.WaiterRequest) (any, error) {
	run := req.RunID
	req.RunID = ""
	var reply drover.HoldReply
	return &reply, s.send(ctx, run, verb, req, &reply)
}

// resultOrWait gives the result of a run, and waits for it where that is asked
// for. A run that is not over by then is answered as it is.
func (s *Service) resultOrWait(ctx context.Context, req *drover.RunRequest) (any, error) {
	if req.Wait == 0 && req.Waiter == "" {
		return s.result(ctx, req)
	}
	switch {
	case req.Wait <= 0 || time.Duration(req.Wait) > drover.MaxWait:
		return nil, drover.Errorf(drover.CodeInvalidRequest, "wait is %s, and must be more than 0 and at most %s: ask again where it was too short", req.Wait, drover.MaxWait)
	case req.Node != "" || req.Item != nil:
		return nil, drover.Errorf(drover.CodeInvalidRequest, "wait is for the result of a run: leave node and item out")
	}
	if _, err := drover.ParseRunID(string(req.RunID)); err != nil {
		return nil, err
	}
	var held drover.HoldReply
	if req.Waiter != "" {
		hold := drover.HoldRequest{Waiter: req.Waiter, For: req.Wait + drover.Duration(holdSlack)}
		if err := s.send(ctx, req.RunID, drover.VerbHold, &hold, &held); err != nil {
			return nil, err
		}
	}
	reply, err := s.await(ctx, req.RunID, time.Duration(req.Wait))
	if err != nil {
		return nil, err
	}
	reply.HeldUntil = held.HeldUntil
	return reply, nil
}

// await looks at a run until it is over, the time is, or the service ends. It
// looks again when an outcome is heard of, and, as that may be missed, now and
// then. Anyone may have published what is heard, so the record decides; what was
// wrong once is not believed again before the next look.
func (s *Service) await(ctx context.Context, run drover.RunID, wait time.Duration) (*drover.ResultReply, error) {
	heard := make(chan *nats.Msg, 8)
	sub, err := s.Conn.ChanSubscribe(s.Names.DoneOf(run), heard)
	if err != nil {
		return nil, drover.Errorf(drover.CodeUnavailable, "worker %s cannot listen for run %s: %v", s.Worker, run, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	over := time.NewTimer(wait)
	defer over.Stop()
	for last, hint, quiet := false, heard, lookFirst; ; {
		reply, err := s.look(ctx, run)
		if err != nil || last || reply.Status.Terminal() {
			return reply, err
		}
		next := time.NewTimer(quiet)
		select {
		case <-hint:
			hint, quiet = nil, lookFirst
		case <-next.C:
			hint, quiet = heard, min(2*quiet, lookMost)
		case <-over.C:
			last = true
		case <-s.ending:
			next.Stop()
			return reply, nil
		}
		next.Stop()
	}
}

// look reads the result of a run as it is.
func (s *Service) look(ctx context.Context, run drover.RunID) (*drover.ResultReply, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	got, err := s.result(ctx, &drover.RunRequest{RunID: run})
	if err != nil {
		return nil, err
	}
	reply, ok := got.(drover.ResultReply)
	if !ok {
		return nil, drover.Errorf(drover.CodeInternal, "the result of run %s is a %T", run, got)
	}
	return &reply, nil
}
