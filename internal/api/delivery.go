package api

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// maxReplayErrors is how many errors the reply to a replay has.
const maxReplayErrors = 10

// listDeliveries gives the first deliveries that a filter chooses.
func (s *Service) listDeliveries(ctx context.Context, req *drover.DeliveryListRequest) (any, error) {
	limit := cmp.Or(req.Limit, defaultList)
	if limit < 0 || limit > maxList {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "limit %d must be from 1 to %d", req.Limit, maxList)
	}
	reply := drover.DeliveryList{Deliveries: []drover.RunDelivery{}}
	err := s.undelivered(ctx, &req.DeliveryFilter, func(d drover.RunDelivery) bool {
		reply.More = len(reply.Deliveries) == limit
		if !reply.More {
			reply.Deliveries = append(reply.Deliveries, d)
		}
		return !reply.More
	})
	return reply, err
}

// showDelivery shows any delivery of a run that is over.
func (s *Service) showDelivery(ctx context.Context, req *drover.DeliveryRequest) (any, error) {
	run, i, err := drover.ParseDeliveryID(string(req.DeliveryID))
	if err != nil {
		return nil, err
	}
	rec, err := s.record(ctx, run)
	if err != nil {
		return nil, err
	}
	state, err := machine.Decode(rec.Data)
	if err != nil {
		return nil, err
	}
	d, ok := state.DeliveryOf(i)
	switch {
	case !ok:
		return nil, drover.Errorf(drover.CodeNotFound, "run %s has no delivery %s: it has %d subscribers, counted from 0", run, req.DeliveryID, len(state.Notify))
	case !state.Terminal():
		return nil, drover.Errorf(drover.CodeConflict, "run %s is %s: there is no outcome to deliver before it is over", run, state.Status)
	}
	return d, nil
}

// replayDeliveries has one delivery, or all that a filter chooses, tried again.
func (s *Service) replayDeliveries(ctx context.Context, req *drover.ReplayRequest) (any, error) {
	filtered := req.DeliveryFilter != drover.DeliveryFilter{}
	switch {
	case req.DeliveryID != "" && filtered:
		return nil, drover.Errorf(drover.CodeInvalidRequest, "which deliveries? give delivery_id or a filter, not both")
	case filtered:
		return s.replayMany(ctx, &req.DeliveryFilter)
	case req.DeliveryID == "":
		return nil, drover.Errorf(drover.CodeInvalidRequest, "which deliveries? give delivery_id, status, run_id, workflow or to")
	}
	run, _, err := drover.ParseDeliveryID(string(req.DeliveryID))
	if err != nil {
		return nil, err
	}
	replayed, err := s.replay(ctx, run, req.DeliveryID)
	if err != nil {
		return nil, err
	}
	return drover.ReplayReply{Matched: 1, Replayed: replayed}, nil
}

// replay asks the owner of a run, which decides. Once more is harmless.
func (s *Service) replay(ctx context.Context, run drover.RunID, id drover.DeliveryID) (int, error) {
	var reply drover.ReplayedReply
	err := s.send(ctx, run, drover.VerbReplay, drover.ReplayMessage{DeliveryID: id}, &reply)
	return reply.Replayed, err
}

// replayMany replays, many at a time, while it goes through the list.
func (s *Service) replayMany(ctx context.Context, f *drover.DeliveryFilter) (any, error) {
	var (
		mu    sync.Mutex
		sum   drover.ReplayReply
		going sync.WaitGroup
	)
	slots := make(chan struct{}, maxInFlight)
	err := s.undelivered(ctx, f, func(d drover.RunDelivery) bool {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		going.Go(func() {
			defer func() { <-slots }()
			n, err := s.replayOne(ctx, &d)
			mu.Lock()
			defer mu.Unlock()
			sum.Matched++
			sum.Replayed += n
			if err != nil && len(sum.Errors) < maxReplayErrors {
				sum.Errors = append(sum.Errors, problem(err))
			}
		})
		return true
	})
	going.Wait()
	if ctx.Err() != nil {
		err = drover.Errorf(drover.CodeUnavailable,
			"there was no time for all deliveries: %d were asked for, and %d are tried again: send the same request again", sum.Matched, sum.Replayed)
	}
	return sum, err
}

// replayOne is replay of one of many. A panic is an error of this one only.
func (s *Service) replayOne(ctx context.Context, d *drover.RunDelivery) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.Logger.Error().Str("run", string(d.RunID)).Interface("panic", v).Bytes("stack", debug.Stack()).Msg("a replay failed")
			err = drover.Errorf(drover.CodeInternal, "delivery %s could not be replayed: the log of worker %s tells more", d.ID, s.Worker)
		}
	}()
	n, err = s.replay(ctx, d.RunID, d.ID)
	if errors.Is(err, drover.CodeNotFound) {
		return 0, drover.Errorf(drover.CodeNotFound, "delivery %s is gone with its run, whose retention is over", d.ID)
	}
	return n, err
}
