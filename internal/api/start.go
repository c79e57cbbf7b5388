package api

import (
	"context"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// start checks all of a start before anything of it is durable. The command
// names the definition by its hash, as the definition itself is stored by then. Of
// a definition that came with it, the reply says what may not be meant.
func (s *Service) start(ctx context.Context, data []byte) (any, error) {
	var req drover.StartRequest
	if err := decode(data, &req); err != nil {
		return nil, err
	}
	run, err := runID(&req, callerOf(ctx).scope())
	if err != nil {
		return nil, err
	}
	inline := len(req.Definition) > 0
	plan, err := s.prepare(ctx, run, &req)
	if err != nil {
		return nil, err
	}
	req.RunID, req.IdempotencyKey = "", "" // the id holds the key, and the caller with it
	var reply drover.StartReply
	if err := s.send(ctx, run, drover.VerbStart, &req, &reply); err != nil {
		return nil, err
	}
	reply.Warnings = drover.StartWarnings(data)
	if inline {
		reply.Warnings = append(reply.Warnings, plan.Warnings...)
	}
	return &reply, nil
}

// prepare checks what the start of a run says, stores the definition that came with it,
// and has the request name that by its hash.
func (s *Service) prepare(ctx context.Context, run drover.RunID, req *drover.StartRequest) (*machine.Plan, error) {
	if req.Parent != nil {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "parent is set by Drover alone: leave it out")
	}
	if len(req.Hooks) > 0 {
		return nil, drover.Errorf(drover.CodeInvalidRequest,
			"hooks is set by Drover alone: to have a run hold a token from its first moment, deliver to it with hook.deliver and start")
	}
	if err := names(req); err != nil {
		return nil, err
	}
	if err := s.tell(ctx, run, req); err != nil {
		return nil, err
	}
	plan, err := s.Resolve(ctx, req, "")
	if err != nil {
		return nil, err
	}
	if err := s.Names.ForeignNotify(plan.Definition.Notify); err != nil {
		return nil, err
	}
	if len(req.Definition) > 0 {
		req.Definition, req.Hash = nil, plan.Hash
	}
	return plan, nil
}

// runID chooses the id of the run that a start asks for. Keys of different
// callers never meet.
func runID(req *drover.StartRequest, caller string) (drover.RunID, error) {
	var derived drover.RunID
	if n := len(req.IdempotencyKey); n > drover.MaxIdempotencyKey {
		return "", drover.Errorf(drover.CodeTooLarge,
			"idempotency_key has %d bytes, at most %d are allowed: use a digest of it", n, drover.MaxIdempotencyKey)
	} else if n > 0 {
		derived = drover.KeyRunID(caller, req.IdempotencyKey)
	}
	switch {
	case req.RunID == "" && derived != "":
		return derived, nil
	case req.RunID == "":
		return drover.RunID(chance("r_")), nil
	case derived != "" && derived != req.RunID:
		return "", drover.Errorf(drover.CodeConflict,
			"run_id %q is not the one that the idempotency_key makes, %s: leave run_id out", req.RunID, derived)
	}
	return drover.ParseRunID(string(req.RunID))
}

// names checks that a start says in one way what to run.
func names(req *drover.StartRequest) error {
	ways := 0
	for _, set := range []bool{len(req.Definition) > 0, req.Hash != "", req.Workflow != ""} {
		if set {
			ways++
		}
	}
	if ways == 0 {
		return drover.Errorf(drover.CodeInvalidRequest, "a start does not say what to run: give one of definition, hash and workflow")
	}
	if ways > 1 {
		return drover.Errorf(drover.CodeInvalidRequest,
			"a start says what to run in %d ways: give exactly one of definition, hash and workflow", ways)
	}
	if req.Hash != "" {
		_, err := drover.ParseHash(string(req.Hash))
		return err
	}
	if req.Workflow != "" {
		_, err := drover.ParseWorkflowName(string(req.Workflow))
		return err
	}
	return nil
}
