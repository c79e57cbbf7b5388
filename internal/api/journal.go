package api

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// maxPart is how many bytes of entries one part of a journal has, more or less, and
// segmentsAtOnce how many segments are read at a time.
const (
	maxPart        = 256 << 10
	segmentsAtOnce = 16
)

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
	read, err := s.partsOf(ctx, state, from)
	if err != nil {
		return nil, err
	}
	first := drover.JournalReply{RunID: req.RunID, Records: g.Records, Entries: g.Entries, Journal: []drover.Entry{}}
	if first.Input, err = s.inputOf(ctx, state); err != nil {
		return nil, err
	}
	return parts(func(more func(any)) (any, error) {
		next := first
		err := s.stream(ctx, state, read, func(entries []drover.Entry) {
			if len(next.Journal) > 0 {
				more(&next)
				next = drover.JournalReply{RunID: req.RunID, Records: g.Records, Entries: g.Entries}
			}
			next.Journal = entries
		})
		return &next, err
	}), nil
}

// partsOf finds what a journal is made of, from an entry on.
func (s *Service) partsOf(ctx context.Context, state *machine.State, from int) ([]machine.JournalPart, error) {
	read, err := state.JournalParts(from, none)
	var need *machine.NeedError
	if !errors.As(err, &need) {
		return read, err
	}
	pages, err := s.fetch(ctx, need.Keys)
	if err != nil {
		return nil, err
	}
	return state.JournalParts(from, known(pages))
}

// numbered is a line of a journal.
type numbered struct {
	machine.Line
	number int
}

// stream reads the parts of a journal, a few segments at a time, and gives its
// entries in pieces that are not larger than a part of an answer, but for one entry
// that is by itself. However long a journal is, and its outputs are, no more of it
// is in memory.
func (s *Service) stream(ctx context.Context, state *machine.State, read []machine.JournalPart, give func([]drover.Entry)) error {
	var piece []numbered
	size := 0
	flush := func() error {
		entries, err := s.piece(ctx, state, piece)
		if err == nil && len(entries) > 0 {
			give(entries)
		}
		piece, size = piece[:0], 0
		return err
	}
	for some := range slices.Chunk(read, segmentsAtOnce) {
		segments, err := s.segments(ctx, some)
		if err != nil {
			return err
		}
		for _, part := range some {
			lines, err := state.JournalLines(part, segments[part.Key])
			if err != nil {
				return err
			}
			for i := range lines {
				n := len(lines[i].Output.JSON) + lines[i].Output.Size + len(lines[i].Step) + 256
				if size > 0 && size+n > maxPart {
					if err := flush(); err != nil {
						return err
					}
				}
				piece, size = append(piece, numbered{lines[i], part.First + i}), size+n
			}
		}
	}
	return flush()
}

// segments reads segments, by their keys. One that is gone is missing.
func (s *Service) segments(ctx context.Context, read []machine.JournalPart) (map[string]json.RawMessage, error) {
	var keys []string
	for _, part := range read {
		if part.Key != "" {
			keys = append(keys, part.Key)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	return s.Values.Get(ctx, keys)
}

// piece makes entries of lines, with their outputs.
func (s *Service) piece(ctx context.Context, state *machine.State, lines []numbered) ([]drover.Entry, error) {
	var keys []string
	for i := range lines {
		if key := lines[i].Output.Key; key != "" {
			keys = append(keys, key)
		}
	}
	values, err := s.fetch(ctx, keys)
	if err != nil {
		return nil, err
	}
	entries := make([]drover.Entry, len(lines))
	for i := range lines {
		output := lines[i].Output.JSON
		if key := lines[i].Output.Key; key != "" {
			var ok bool
			if output, ok = values(key); !ok {
				return nil, drover.Errorf(drover.CodeInternal, "value %s of the journal of run %s is not there any more", key, state.Run)
			}
		}
		entries[i] = lines[i].Entry(lines[i].number, output)
	}
	return entries, nil
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
