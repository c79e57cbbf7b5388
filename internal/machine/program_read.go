package machine

import (
	"encoding/json"

	"github.com/droverhq/drover"
)

// JournalKeys are the keys of the segments that have entries of a program's
// journal from a number on, oldest first. The entries after those are the tail.
func (s *State) JournalKeys(from int) []string {
	g := s.Program
	if g == nil {
		return nil
	}
	var keys []string
	for i, first := range g.Segments {
		next := g.Entries - len(g.Tail) + 1
		if i+1 < len(g.Segments) {
			next = g.Segments[i+1]
		}
		if next > from {
			keys = append(keys, s.segmentKey(first))
		}
	}
	return keys
}

// Journal is the entries of a journal from a number on, as processes see them.
// segments are those behind JournalKeys; v knows the outputs behind keys. Its
// error is a *NeedError for these, or says that a segment is gone.
func (s *State) Journal(from int, segments []json.RawMessage, v Values) ([]drover.Entry, error) {
	g := s.Program
	if g == nil {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "run %s is no program: it has no journal", s.Run)
	}
	var lines []Line
	for i, raw := range segments {
		list, err := DecodeSegment(raw)
		if err != nil {
			return nil, drover.Errorf(drover.CodeInternal, "segment %d of the journal of run %s: %v", i, s.Run, err)
		}
		lines = append(lines, list...)
	}
	lines = append(lines, g.Tail...)
	number := g.Entries - len(lines) + 1
	if from < number {
		return nil, drover.Errorf(drover.CodeInternal, "the journal of run %s has no entry %d any more: a part of it was deleted", s.Run, from)
	}
	var entries []drover.Entry
	var need []string
	for i := from - number; i < len(lines); i++ {
		l := &lines[i]
		raw := l.Output.JSON
		if key := l.Output.Key; key != "" {
			var ok bool
			if raw, ok = v(key); !ok {
				need = append(need, key)
			}
		}
		entries = append(entries, l.entry(number+i, raw))
	}
	if len(need) > 0 {
		return nil, &NeedError{Keys: need}
	}
	return entries, nil
}
