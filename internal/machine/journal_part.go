package machine

import (
	"encoding/json"
	"slices"

	"github.com/droverhq/drover"
)

// JournalPart is a part of a program's journal: a segment, or what the record has.
type JournalPart struct {
	First int    // the number of its first entry
	Key   string // of the segment; "": it is in the record
	after int    // the number of the first entry behind it
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
			parts = append(parts, JournalPart{First: first, Key: s.segmentKey(first), after: firsts[i+1]})
		}
	}
	return append(parts, JournalPart{First: tail, after: g.Entries + 1}), nil
}

// JournalLines gives the lines of a part, where raw is the segment behind its key.
func (s *State) JournalLines(p JournalPart, raw json.RawMessage) ([]Line, error) {
	if p.Key == "" {
		return s.Program.Tail, nil
	}
	lines, err := DecodeSegment(raw)
	if err != nil || len(lines) != p.after-p.First {
		return nil, drover.Errorf(drover.CodeInternal, "the journal of run %s has no entries from %d to %d any more: a part of it was deleted", s.Run, p.First, p.after-1)
	}
	return lines, nil
}

// Entry is the line as processes see it, with its number and its output.
func (l *Line) Entry(number int, output json.RawMessage) drover.Entry { return l.entry(number, output) }
