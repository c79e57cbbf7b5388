package api

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// maxPart is how many bytes of entries one part of a journal has, more or less.
const maxPart = 256 << 10

// journal gives the journal of a program, from an entry on, in parts.
func (s *Service) journal(ctx context.Context, req *drover.JournalRequest) (any, error) {
	_, state, err := s.load(ctx, req.RunID)
	if err != nil {
		return nil, err
	}
	g := state.Program
	if g == nil {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "run %s is no program, and has no journal: ask for its status", req.RunID)
	}
	from := max(req.From, 1)
	if from > g.Entries+1 {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "the journal of run %s has %d entries, and none from %d on", req.RunID, g.Entries, from)
	}
	entries, err := s.entries(ctx, state, from)
	if err != nil {
		return nil, err
	}
	first := drover.JournalReply{RunID: req.RunID, Records: g.Records, Entries: g.Entries, Journal: []drover.Entry{}}
	if first.Input, err = s.inputOf(ctx, state); err != nil {
		return nil, err
	}
	return parts(func(more func(any)) (any, error) {
		part, size := first, 0
		for i := range entries {
			n := len(entries[i].Output) + len(entries[i].Step) + 256
			if size > 0 && size+n > maxPart {
				more(&part)
				part, size = drover.JournalReply{RunID: req.RunID, Records: g.Records, Entries: g.Entries}, 0
			}
			part.Journal = append(part.Journal, entries[i])
			size += n
		}
		return &part, nil
	}), nil
}

// entries reads the entries of a journal from a number on.
func (s *Service) entries(ctx context.Context, state *machine.State, from int) ([]drover.Entry, error) {
	keys, err := state.JournalKeys(from, none)
	var need *machine.NeedError
	if errors.As(err, &need) {
		var pages machine.Values
		if pages, err = s.fetch(ctx, need.Keys); err == nil {
			keys, err = state.JournalKeys(from, known(pages))
		}
	}
	if err != nil {
		return nil, err
	}
	var segments []json.RawMessage
	if len(keys) > 0 {
		got, err := s.Values.Get(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			segments = append(segments, got[key])
		}
	}
	list, err := state.Journal(from, segments, none)
	if !errors.As(err, &need) {
		return list, err
	}
	values, err := s.fetch(ctx, need.Keys)
	if err != nil {
		return nil, err
	}
	list, err = state.Journal(from, segments, values)
	if errors.As(err, &need) {
		return nil, drover.Errorf(drover.CodeInternal, "value %s of the journal of run %s is not there any more", need.Keys[0], state.Run)
	}
	return list, err
}

// known gives null for values that are gone.
func known(values machine.Values) machine.Values {
	return func(key string) (json.RawMessage, bool) {
		raw, _ := values(key)
		return raw, true
	}
}

// inputOf is the input of a run, null where it is gone.
func (s *Service) inputOf(ctx context.Context, state *machine.State) (json.RawMessage, error) {
	if state.Input.Key == "" {
		return state.Input.JSON, nil
	}
	values, err := s.fetch(ctx, []string{state.Input.Key})
	if err != nil {
		return nil, err
	}
	raw, _ := values(state.Input.Key)
	return raw, nil
}
