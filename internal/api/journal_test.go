package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/subjects"
)

// shelf has values, and notes the most bytes that it was asked for at a time.
type shelf struct {
	values map[string]json.RawMessage
	most   int
}

func (s *shelf) Get(_ context.Context, keys []string) (map[string]json.RawMessage, error) {
	got, size := map[string]json.RawMessage{}, 0
	for _, key := range keys {
		if raw, ok := s.values[key]; ok {
			got[key] = raw
			size += len(raw)
		}
	}
	s.most = max(s.most, size)
	return got, nil
}

// However long a journal is, it is read and answered a little at a time, and all of
// it, from any entry on.
func TestPrograms14ALongJournalIsReadInPieces(t *testing.T) {
	const segments, lines, tail = 40, 100, 7
	big := json.RawMessage(`"` + strings.Repeat("x", 20<<10) + `"`)
	shelf := &shelf{values: map[string]json.RawMessage{}}
	state := &machine.State{Run: "r", Program: &machine.Program{Entries: segments*lines + tail}}
	line := func(n int) machine.Line {
		key := fmt.Sprint("r.value.", n)
		shelf.values[key] = big
		return machine.Line{Kind: drover.EntryStep, ID: fmt.Sprint("s", n), Output: machine.Value{Key: key, Size: len(big)}}
	}
	for i := range segments {
		var list []machine.Line
		for k := range lines {
			list = append(list, line(i*lines+k+1))
		}
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		first := i*lines + 1
		state.Program.Segments = append(state.Program.Segments, first)
		shelf.values[subjects.JournalKey("r", 0, "segment", first)] = raw
	}
	for k := range tail {
		state.Program.Tail = append(state.Program.Tail, line(segments*lines+k+1))
	}
	s := &Service{Config: Config{Values: shelf}}
	stream := func(from int) (next int, err error) {
		read, err := s.partsOf(t.Context(), state, from)
		if err != nil {
			t.Fatal(err)
		}
		next = from
		err = s.stream(t.Context(), state, read, func(entries []drover.Entry) {
			size := 0
			for _, e := range entries {
				if e.Number != next || e.ID != fmt.Sprint("s", next) || string(e.Output) != string(big) {
					t.Fatalf("entry %d is %d, %s", next, e.Number, e.ID)
				}
				next++
				size += len(e.Output)
			}
			if size > maxPart {
				t.Errorf("a part has %d bytes", size)
			}
		})
		return next, err
	}
	for _, from := range []int{1, 2, 100, 101, 1234, segments * lines, segments*lines + 1, segments*lines + tail} {
		if next, err := stream(from); err != nil || next != segments*lines+tail+1 {
			t.Errorf("from %d on it ends before %d, error %v", from, next, err)
		}
	}
	if shelf.most > 2*maxPart {
		t.Errorf("%d bytes were read at a time", shelf.most)
	}
	delete(shelf.values, subjects.JournalKey("r", 0, "segment", 2001))
	if _, err := stream(1); !errors.Is(err, drover.CodeInternal) || !strings.Contains(err.Error(), "2001") {
		t.Errorf("a segment is gone: error %v", err)
	}
}
