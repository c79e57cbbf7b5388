package api

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// load gives the state of a run, and the plan that it follows.
func (s *Service) load(ctx context.Context, run drover.RunID) (*machine.Plan, *machine.State, error) {
	if _, err := drover.ParseRunID(string(run)); err != nil {
		return nil, nil, err
	}
	rec, err := s.record(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	state, err := machine.Decode(rec.Data)
	if err != nil {
		return nil, nil, err
	}
	plan, err := s.Resolve(ctx, nil, state.Hash)
	return plan, state, err
}

// record reads the record of a run. A start that is durable and not folded yet
// has none: before it is said that there is no such run, the owner is asked in
// the log, behind that start.
func (s *Service) record(ctx context.Context, run drover.RunID) (kv.Record, error) {
	key := subjects.RunKey(subjects.Partition(string(run), s.Partitions), run)
	rec, err := s.Records.Load(ctx, key)
	if !errors.Is(err, drover.CodeNotFound) {
		return rec, err
	}
	err = s.send(ctx, run, drover.VerbTick, struct{}{}, &struct{}{})
	if err == nil {
		rec, err = s.Records.Load(ctx, key)
	}
	switch {
	case errors.Is(err, drover.CodeNotFound):
		err = drover.Errorf(drover.CodeNotFound, "there is no run %s: check its id; a run is forgotten some time after its end", run)
	case errors.Is(err, drover.CodeUnavailable):
		err = drover.Errorf(drover.CodeUnavailable, "no record of run %s is there, and no worker says whether it is about to start: ask again", run)
	}
	return rec, err
}

// none holds no values.
func none(string) (json.RawMessage, bool) { return nil, false }

// fetch loads the values behind keys.
func (s *Service) fetch(ctx context.Context, keys []string) (machine.Values, error) {
	if len(keys) == 0 {
		return none, nil
	}
	got, err := s.Values.Get(ctx, keys)
	if err != nil {
		return nil, err
	}
	return func(key string) (json.RawMessage, bool) {
		v, ok := got[key]
		return v, ok
	}, nil
}

func (s *Service) status(ctx context.Context, req *drover.RunRequest) (any, error) {
	plan, state, err := s.load(ctx, req.RunID)
	if err != nil {
		return nil, err
	}
	values := machine.Values(none)
	if req.Values {
		if values, err = s.fetch(ctx, machine.ViewKeys(plan, state)); err != nil {
			return nil, err
		}
	}
	reply := drover.StatusReply{Run: machine.View(plan, state, values, req.Values)}
	if !req.Brief {
		reply.Definition, _, err = plan.Definition.Canonical()
	}
	return reply, err
}

func (s *Service) result(ctx context.Context, req *drover.RunRequest) (any, error) {
	plan, state, err := s.load(ctx, req.RunID)
	if err != nil {
		return nil, err
	}
	reply := drover.ResultReply{RunID: state.Run, Status: state.Status, Error: state.Error}
	if req.Node != "" {
		return s.nodeResult(ctx, plan, state, req, reply)
	}
	if req.Item != nil {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "item %d of which node? give node as well", *req.Item)
	}
	if state.Status == drover.StatusCompleted {
		reply.Output, err = s.value(ctx, state.Result)
	}
	return reply, err
}

// value gives a value wherever it is.
func (s *Service) value(ctx context.Context, v machine.Value) (json.RawMessage, error) {
	if v.Key == "" {
		if len(v.JSON) == 0 {
			return json.RawMessage("null"), nil
		}
		return v.JSON, nil
	}
	values, err := s.fetch(ctx, []string{v.Key})
	if err != nil {
		return nil, err
	}
	data, ok := values(v.Key)
	if !ok {
		return nil, drover.Errorf(drover.CodeNotFound, "the value %s is gone: values are kept until some time after the end of their run", v.Key)
	}
	return data, nil
}

// nodeResult gives the output of a node or an item, and the error of one that
// has none because it failed.
func (s *Service) nodeResult(ctx context.Context, plan *machine.Plan, state *machine.State, req *drover.RunRequest, reply drover.ResultReply) (any, error) {
	node, ok := machine.ViewNode(plan, state, none, req.Node, false)
	if !ok {
		return nil, drover.Errorf(drover.CodeNotFound, "run %s has no node %s: its status lists them", state.Run, req.Node)
	}
	node.Output = nil
	reply.Node, reply.Error = &node, node.Error
	var keys []string
	for {
		values, err := s.fetch(ctx, keys)
		if err != nil {
			return nil, err
		}
		_, output, err := machine.Output(plan, state, values, req.Node, req.Item)
		var need *machine.NeedError
		switch {
		case errors.As(err, &need) && len(keys) == 0:
			keys = need.Keys
		case errors.As(err, &need):
			return nil, drover.Errorf(drover.CodeNotFound, "values of node %s are gone, such as %s: they are kept until some time after the end of their run",
				req.Node, need.Keys[0])
		case err != nil && reply.Error != nil && req.Item == nil:
			return reply, nil
		case err != nil:
			return nil, err
		default:
			reply.Output = output
			return reply, nil
		}
	}
}
