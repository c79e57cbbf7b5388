package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
)

// How many runs one answer lists.
const (
	defaultList = 100
	maxList     = 1000
)

// list goes through all records, and keeps the newest that fit.
func (s *Service) list(ctx context.Context, req *drover.ListRequest) (any, error) {
	limit := cmp.Or(req.Limit, defaultList)
	if limit < 0 || limit > maxList {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "limit %d must be from 1 to %d", req.Limit, maxList)
	}
	if err := knownStatus(req.Status); err != nil {
		return nil, err
	}
	reply := drover.ListReply{Runs: []drover.Run{}}
	programs := s.newPrograms()
	err := s.Records.Scan(ctx, func(key string, rec kv.Record) bool {
		if rec.Retired {
			return true
		}
		state, err := machine.Decode(rec.Data)
		if err != nil {
			s.Logger.Warn().Err(err).Str("key", key).Msg("a record cannot be read")
			return true
		}
		if !matches(state, req) {
			return true
		}
		run := summary(state)
		run.Program = programs.view(ctx, state)
		if name, ok := programOf(req.Workflow); ok && !ofProgram(run.Program, name) {
			return true
		}
		reply.Runs = append(reply.Runs, run)
		if len(reply.Runs) >= 2*limit+100 { // now and then, so that sorting costs little
			reply.More = keep(&reply.Runs, limit) || reply.More
		}
		return true
	})
	reply.More = keep(&reply.Runs, limit) || reply.More
	return reply, err
}

// keep sorts runs, newest first, and drops all after the limit. Of a run that
// was visited twice it keeps the later state.
func keep(runs *[]drover.Run, limit int) (more bool) {
	slices.SortFunc(*runs, func(a, b drover.Run) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID), cmp.Compare(b.Applied, a.Applied))
	})
	*runs = slices.CompactFunc(*runs, func(a, b drover.Run) bool { return a.ID == b.ID })
	more = len(*runs) > limit
	*runs = (*runs)[:min(len(*runs), limit)]
	return more
}

func knownStatus(s drover.Status) error {
	switch s {
	case "", drover.StatusRunning, drover.StatusWaiting, drover.StatusBlocked, drover.StatusCompleted, drover.StatusFailed,
		drover.StatusCancelled, drover.StatusCompensated, drover.StatusCompensationFailed:
		return nil
	}
	return drover.Errorf(drover.CodeInvalidRequest,
		"status %.80q is none: running, waiting, blocked, completed, failed, cancelled, compensated, compensation_failed", string(s))
}

func matches(state *machine.State, req *drover.ListRequest) bool {
	_, program := programOf(req.Workflow)
	if req.Status != "" && state.Status != req.Status || req.Open && state.Terminal() || req.Workflow != "" && !program && state.Workflow != req.Workflow || program && state.Program == nil {
		return false
	}
	for k, v := range req.Tags {
		if has, ok := state.Tags[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// programOf is the program that a filter asks for in the place of a workflow, whose
// name cannot have a colon.
func programOf(workflow drover.WorkflowName) (string, bool) {
	return strings.CutPrefix(string(workflow), "program:")
}

// ofWorkflow reports whether a run is of the workflow, or of the program, that a
// filter asks for; "": any is.
func (p programs) ofWorkflow(ctx context.Context, state *machine.State, filter drover.WorkflowName) bool {
	name, program := programOf(filter)
	if !program {
		return filter == "" || state.Workflow == filter
	}
	return ofProgram(p.view(ctx, state), name)
}

// ofProgram reports whether a run is of the program that a filter asks for: of any
// version, unless that names one.
func ofProgram(run *drover.ProgramView, filter string) bool {
	name, version, only := strings.Cut(filter, "@")
	return run != nil && run.Name == name && (!only || run.Version == version)
}

// programs knows the definitions of the programs in one list.
type programs struct {
	s  *Service
	of map[drover.Hash]*machine.Plan // nil: it cannot be read
}

func (s *Service) newPrograms() programs { return programs{s: s, of: map[drover.Hash]*machine.Plan{}} }

// view shows how far the body of a run is; nil: it is no program, or nobody knows
// which.
func (p programs) view(ctx context.Context, state *machine.State) *drover.ProgramView {
	if state.Program == nil {
		return nil
	}
	plan, ok := p.of[state.Hash]
	if !ok {
		var err error
		if plan, err = p.s.Resolve(ctx, nil, state.Hash); err != nil {
			p.s.Logger.Warn().Err(err).Str("run", string(state.Run)).Msg("the definition of a listed run cannot be read")
		}
		p.of[state.Hash] = plan
	}
	if plan == nil {
		return nil
	}
	return machine.ViewProgram(plan, state)
}

// summary shows a run without its nodes and values.
func summary(state *machine.State) drover.Run {
	created := state.Created.Time()
	r := drover.Run{
		ID: state.Run, Workflow: state.Workflow, Definition: state.Hash, Status: state.Status, Error: state.Error,
		Tags: state.Tags, CreatedAt: created, StartedAt: &created,
		Unread: len(state.Unread), Applied: state.Applied,
	}
	if state.Ended != 0 {
		ended := state.Ended.Time()
		r.EndedAt = &ended
	}
	if state.Due != 0 {
		due := state.Due.Time()
		r.Deadline = &due
	}
	if state.Parent != nil {
		call := state.Parent.Call
		r.Parent = &call
	}
	return r
}
