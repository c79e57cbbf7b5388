package api

import (
	"cmp"
	"context"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/kv"
)

// maxInFlight is how many deliveries of one request are under way.
const maxInFlight = 256

// listHooks goes through all claims, and keeps the first tokens that fit.
func (s *Service) listHooks(ctx context.Context, req *drover.HookListRequest) (any, error) {
	limit := cmp.Or(req.Limit, defaultList)
	if limit < 0 || limit > maxList {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "limit %d must be from 1 to %d", req.Limit, maxList)
	}
	reply := drover.HookList{Hooks: []drover.Hook{}}
	err := s.claims(ctx, &req.HookFilter, func(c *hook.Held) bool {
		reply.Hooks = append(reply.Hooks, c.Shown())
		if len(reply.Hooks) >= 2*limit+100 { // now and then, so that sorting costs little
			reply.More = keepHooks(&reply.Hooks, limit) || reply.More
		}
		return true
	})
	reply.More = keepHooks(&reply.Hooks, limit) || reply.More
	return reply, err
}

// keepHooks sorts hooks by token, and drops all after the limit. Of one that
// was visited twice it keeps the later visit.
func keepHooks(hooks *[]drover.Hook, limit int) (more bool) {
	slices.Reverse(*hooks)
	slices.SortStableFunc(*hooks, func(a, b drover.Hook) int { return cmp.Compare(a.Token, b.Token) })
	*hooks = slices.CompactFunc(*hooks, func(a, b drover.Hook) bool { return a.Token == b.Token })
	more = len(*hooks) > limit
	*hooks = (*hooks)[:min(len(*hooks), limit)]
	return more
}

// claims visits the claims that a filter chooses, until visit gives false. One
// that is written meanwhile may be visited twice.
func (s *Service) claims(ctx context.Context, f *drover.HookFilter, visit func(*hook.Held) bool) error {
	if f.RunID != "" {
		if _, err := drover.ParseRunID(string(f.RunID)); err != nil {
			return err
		}
	}
	return s.Hooks.Scan(ctx, func(token string, rec kv.Record) bool {
		if !strings.HasPrefix(token, f.Prefix) {
			return true
		}
		c, err := hook.Decode(token, rec)
		if err != nil {
			// Not the error, which has the token: whoever knows that may deliver.
			s.Logger.Warn().Uint64("revision", rec.Revision).Msg("a claim cannot be read")
			return true
		}
		if f.RunID != "" && c.Run != f.RunID {
			return true
		}
		for k, v := range f.Tags {
			if has, ok := c.Tags[k]; !ok || has != v {
				return true
			}
		}
		return visit(c)
	})
}

// deliverMany delivers to every hook that a filter chooses. With a stream it
// keeps nothing of a hook once its result is on its way.
func (s *Service) deliverMany(ctx context.Context, req *drover.HookManyRequest) (any, error) {
	if req.Prefix == "" && req.RunID == "" && len(req.Tags) == 0 {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "which hooks? give tags, prefix or run_id")
	}
	if req.Stream {
		return parts(func(more func(any)) (any, error) {
			return s.flood(ctx, req, func(r drover.HookResult) { more(r) })
		}), nil
	}
	results := []drover.HookResult{}
	reply, err := s.flood(ctx, req, func(r drover.HookResult) {
		results = append(results, r)
		if len(results) >= 2*maxList {
			results = worst(results)
		}
	})
	reply.Results = worst(results)
	slices.SortFunc(reply.Results, func(a, b drover.HookResult) int { return cmp.Compare(a.Token, b.Token) })
	return reply, err
}

// worst keeps as many results as a reply has, failed ones first.
func worst(results []drover.HookResult) []drover.HookResult {
	rank := func(r drover.HookResult) int {
		if r.Error != nil {
			return 0
		}
		return 1
	}
	slices.SortFunc(results, func(a, b drover.HookResult) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Token, b.Token))
	})
	return results[:min(len(results), maxList)]
}

// flood delivers, many at a time, while it goes through the claims. tell gets
// each result, one at a time.
func (s *Service) flood(ctx context.Context, req *drover.HookManyRequest, tell func(drover.HookResult)) (drover.HookManyReply, error) {
	own := req.ID == ""
	id := cmp.Or(req.ID, chance("m_"))
	var (
		mu    sync.Mutex
		sum   drover.HookManyReply
		going sync.WaitGroup
	)
	slots := make(chan struct{}, maxInFlight)
	err := s.claims(ctx, &req.HookFilter, func(c *hook.Held) bool {
		if !c.Retained.IsZero() {
			return true
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		going.Go(func() {
			defer func() { <-slots }()
			r := s.deliverTo(ctx, c, req.Payload, id)
			if own && r.Repeat {
				return // the scan has met this one before
			}
			mu.Lock()
			defer mu.Unlock()
			sum.Matched++
			if r.Error == nil {
				sum.Accepted++
			} else {
				sum.Failed++
			}
			tell(r)
		})
		return true
	})
	going.Wait()
	if err == nil && ctx.Err() != nil {
		err = drover.Errorf(drover.CodeUnavailable,
			"there was no time for all hooks: %d were tried, and %d took it: send the same request again, with an id", sum.Matched, sum.Accepted)
	}
	return sum, err
}

// deliverTo delivers to one of many hooks. A panic is an error of this hook only.
func (s *Service) deliverTo(ctx context.Context, c *hook.Held, payload json.RawMessage, id string) (result drover.HookResult) {
	result = drover.HookResult{Token: c.Token, RunID: c.Run}
	defer func() {
		if v := recover(); v != nil {
			s.Logger.Error().Str("run", string(c.Run)).Interface("panic", v).Bytes("stack", debug.Stack()).Msg("a delivery failed")
			result.Error = drover.Errorf(drover.CodeInternal, "the delivery failed: the log of worker %s tells more", s.Worker)
		}
	}()
	reply, err := s.sender.DeliverTo(ctx, c, &drover.HookRequest{Token: c.Token, Payload: payload, ID: id})
	if err != nil {
		result.Error = problem(err)
		return result
	}
	result.RunID, result.Repeat = reply.RunID, reply.Repeat
	return result
}
