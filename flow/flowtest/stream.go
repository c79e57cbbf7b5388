package flowtest

import (
	"context"
	"maps"
	"slices"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
)

// StreamTail gives the last message of a stream of the run.
func (l live) StreamTail(_ context.Context, _ drover.RunID, id string) (flow.StreamTail, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail(id), nil
}

// StreamAppend stores messages. Where the process dies after each record, it dies
// after each chunk as well.
func (l live) StreamAppend(_ context.Context, _ drover.RunID, id string, after uint64, messages []flow.StreamMessage) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if has := l.tail(id).Sequence; has != after {
		return 0, drover.Errorf(drover.CodeConflict, "the last message of stream %q has sequence %d, not %d", id, has, after)
	}
	if l.env.crash {
		messages = messages[:1]
	}
	l.streams[id] = append(l.streams[id], messages...)
	if l.env.crash {
		return 0, errCrash
	}
	return l.tail(id).Sequence, nil
}

func (w *world) tail(id string) (tail flow.StreamTail) {
	if n := len(w.streams[id]); n > 0 {
		tail = flow.StreamTail{Sequence: uint64(n), Message: w.streams[id][n-1]}
	}
	return tail
}

// chunks is what readers get of each stream.
func (w *world) chunks() map[string][]drover.Chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string][]drover.Chunk{}
	for _, id := range slices.Sorted(maps.Keys(w.streams)) {
		for i, m := range w.streams[id] {
			if m.Number != i+1 {
				w.tb.Errorf("flowtest: message %d of stream %q has the number %d", i+1, id, m.Number)
			}
			if !m.End {
				all[id] = append(all[id], drover.Chunk{Number: m.Number, Type: m.Type, Data: m.Data})
			}
		}
	}
	return all
}

// StreamTail gives the last message of a stream, that no later drive has written.
func (f *finished) StreamTail(_ context.Context, _ drover.RunID, id string) (flow.StreamTail, error) {
	tail := f.tails(id)
	tail.Message.Writer = flow.StreamWriter{Base: tail.Message.Writer.Base, Generation: tail.Message.Writer.Generation}
	return tail, nil
}

// StreamAppend refuses what is not there.
func (f *finished) StreamAppend(_ context.Context, _ drover.RunID, id string, _ uint64, messages []flow.StreamMessage) (uint64, error) {
	return 0, drover.Errorf(drover.CodeInternal, "with the whole journal it writes chunk %d of stream %q, which it did not write in the run", messages[0].Number, id)
}
