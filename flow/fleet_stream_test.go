package flow

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
)

func newStreams(t *testing.T) (*fleet, *natstest.Server) {
	t.Helper()
	s := natstest.New(t)
	names := subjects.Default()
	nc := s.Connect()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topology.Ensure(t.Context(), js, names, topology.Settings{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	return &fleet{nc: nc, js: js, names: names}, s
}

func written(first, last int, w StreamWriter) (list []StreamMessage) {
	for n := first; n <= last; n++ {
		list = append(list, StreamMessage{Number: n, Type: drover.ChunkText, Data: fmt.Append(nil, n), Writer: w})
	}
	return list
}

func TestPrograms13ChunksAreStoredInOrderOrNotAtAll(t *testing.T) {
	f, _ := newStreams(t)
	ctx, w := t.Context(), StreamWriter{Drive: 3, Fence: 2, Generation: 1, Base: 7}
	tail, err := f.StreamTail(ctx, "r", "log")
	if err != nil || tail.Sequence != 0 {
		t.Fatalf("%+v, %v", tail, err)
	}
	after := uint64(0)
	for _, part := range [][2]int{{1, 1}, {2, 201}, {202, 202}} {
		sequence, err := f.StreamAppend(ctx, "r", "log", after, written(part[0], part[1], w))
		if err != nil || sequence <= after {
			t.Fatalf("%v: %d, %v", part, sequence, err)
		}
		for _, list := range [][]StreamMessage{written(500, 500, w), written(500, 502, w)} { // of an old process
			if _, err := f.StreamAppend(ctx, "r", "log", after, list); !errors.Is(err, drover.CodeConflict) {
				t.Fatalf("%v: %v", part, err)
			}
		}
		if _, err := f.StreamAppend(ctx, "r", fmt.Sprint("other", part[0]), 0, written(1, 3, w)); err != nil {
			t.Fatal(err)
		}
		if tail, err = f.StreamTail(ctx, "r", "log"); err != nil || tail.Sequence != sequence || tail.Message.Number != part[1] || tail.Message.Writer != w {
			t.Fatalf("%v: %+v, %v", part, tail, err)
		}
		after = sequence
	}
	end := StreamMessage{Number: 203, End: true, Writer: StreamWriter{Drive: 4, Fence: 1}}
	if _, err := f.StreamAppend(ctx, "r", "log", after, []StreamMessage{end}); err != nil {
		t.Fatal(err)
	}
	if tail, err = f.StreamTail(ctx, "r", "log"); err != nil || !tail.Message.End || tail.Message.Number != 203 || tail.Message.Writer != end.Writer {
		t.Fatalf("%+v, %v", tail, err)
	}
	stream, err := f.js.Stream(ctx, f.names.Streams())
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 203+9 {
		t.Errorf("%d messages are stored, want 212", n)
	}
}

// TestPrograms13ManyWritersAtATime: more batches than the server has in hand at a
// time are tried again.
func TestPrograms13ManyWritersAtATime(t *testing.T) {
	f, _ := newStreams(t)
	const writers, parts = 80, 5
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			after, id := uint64(0), fmt.Sprint("s", i)
			for part := range parts {
				sequence, err := f.StreamAppend(t.Context(), "r", id, after, written(part*20+1, part*20+20, StreamWriter{Drive: 1, Fence: 1}))
				if errors.Is(err, drover.CodeConflict) { // it was stored, and the answer was lost
					tail, _ := f.StreamTail(t.Context(), "r", id)
					sequence, err = tail.Sequence, nil
					if tail.Message.Number != part*20+20 {
						t.Errorf("stream %s has %d chunks", id, tail.Message.Number)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				after = sequence
			}
		})
	}
	all.Wait()
	stream, err := f.js.Stream(t.Context(), f.names.Streams())
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != writers*parts*20 {
		t.Errorf("%d messages are stored, want %d", n, writers*parts*20)
	}
}
