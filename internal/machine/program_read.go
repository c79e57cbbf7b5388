package machine

import (
	"encoding/json"

	"github.com/droverhq/drover"
)

// JournalKeys are the keys of the segments that have entries of a program's
// journal from a number on, oldest first. The entries after those are the tail.
// Its error is a *NeedError for pages of the journal that v does not know, or
// says that one is gone.
func (s *State) JournalKeys(from int, v Values) ([]string, error) {
	parts, err := s.JournalParts(from, v)
	if len(parts) == 0 || err != nil {
		return nil, err
	}
	var keys []string
	for _, p := range parts[:len(parts)-1] {
		keys = append(keys, p.Key)
	}
	return keys, nil
}

// paged gives the first entries of the segments on those pages that may have an
// entry from a number on. pages ends with the first entry behind all of them.
func (s *State) paged(from int, pages []int, v Values) (firsts []int, err error) {
	var need []string
	for i, page := range pages[:len(pages)-1] {
		if pages[i+1] <= from {
			continue
		}
		key := s.pageKey(page)
		raw, ok := v(key)
		if !ok {
			need = append(need, key)
			continue
		}
		var list []int
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 || list[0] != page {
			return nil, drover.Errorf(drover.CodeInternal, "the journal of run %s has no page %d any more: a part of it was deleted", s.Run, page)
		}
		firsts = append(firsts, list...)
	}
	if len(need) > 0 {
		return nil, &NeedError{Keys: need}
	}
	return firsts, nil
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
