package machine

import (
	"encoding/json"
	"slices"

	"github.com/droverhq/drover"
)

// JournalPart is a part of a program's journal: a segment, or what the record has.
type JournalPart struct {
	First int    // the number of its first entry that is asked for
	Key   string // of the segment; "": it is in the record
	begin int    // the number of its first entry
	after int    // of the first one behind it
}

// JournalParts are the parts that have entries of a program's journal from a number
// on, oldest first, for whoever reads one after the other. The last one is what the
// record has. Its error is a *NeedError for pages of the journal that v does not
// know, or says that one is gone.
func (s *State) JournalParts(from int, v Values) ([]JournalPart, error) {
	g := s.Program
	if g == nil {
		return nil, nil
	}
	tail := g.Entries - len(g.Tail) + 1
	latest := append(slices.Clone(g.Segments), tail)
	older, err := s.paged(from, append(slices.Clone(g.Pages), latest[0]), v)
	if err != nil {
		return nil, err
	}
	firsts := append(older, latest...)
	var parts []JournalPart
	for i, first := range firsts[:len(firsts)-1] {
		if firsts[i+1] > from {
			parts = append(parts, JournalPart{First: max(first, from), Key: s.segmentKey(first), begin: first, after: firsts[i+1]})
		}
	}
	return append(parts, JournalPart{First: max(tail, from), begin: tail, after: g.Entries + 1}), nil
}

// JournalLines gives the lines of a part from its First on, where raw is the segment
// behind its key.
func (s *State) JournalLines(p JournalPart, raw json.RawMessage) ([]Line, error) {
	lines := s.Program.Tail
	if p.Key != "" {
		var err error
		if lines, err = DecodeSegment(raw); err != nil || len(lines) != p.after-p.begin {
			return nil, drover.Errorf(drover.CodeInternal, "the journal of run %s has no entries from %d to %d any more: a part of it was deleted", s.Run, p.begin, p.after-1)
		}
	}
	return lines[min(p.First-p.begin, len(lines)):], nil
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
