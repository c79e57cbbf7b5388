package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
)

// logged makes a log with so many commands of one partition.
func logged(t *testing.T, s *natstest.Server, commands int) (*Worker, jetstream.JetStream) {
	t.Helper()
	nc := s.Connect()
	js := natstest.JetStream(t, nc)
	names := subjects.Default()
	if _, err := topology.Ensure(t.Context(), js, names, topology.Settings{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	logMore(t, js, 0, commands)
	w, err := New(nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return w, js
}

func logMore(t *testing.T, js jetstream.JetStream, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := js.PublishAsync(subjects.Default().In("r", "tick"), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
}

// reading reads from a sequence until the test ends.
func reading(t *testing.T, w *Worker, from uint64) (r *reader, commands <-chan *partition.Message, full <-chan struct{}) {
	t.Helper()
	got := make(chan *partition.Message, 100_000)
	filled := make(chan struct{})
	fill := sync.OnceFunc(func() { close(filled) })
	r = &reader{w: w, next: from, room: newGate(16 << 20), log: zerolog.Nop(), give: func(m *partition.Message) {
		got <- m
		if len(got) == maxQueued {
			fill()
		}
	}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		r.room.open()
		<-ended
		w.work.Wait()
	})
	return r, got, filled
}

// inOrder takes commands, which must be those with these sequences.
func inOrder(t *testing.T, r *reader, got <-chan *partition.Message, from, to uint64) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		m := <-got
		if m.Seq != seq || string(m.Data) != fmt.Sprint(seq-1) {
			t.Fatalf("command %d %q came, want %d", m.Seq, m.Data, seq)
		}
		r.room.set(load{1, len(m.Data)}, load{}, maxQueued)
	}
}

func TestTheLogIsReadInOrderWhateverBecomesOfItsConsumers(t *testing.T) {
	s := natstest.New(t)
	w, js := logged(t, s, maxQueued+3000)
	r, got, full := reading(t, w, 1)
	// The reader waits at the gate, and the connection breaks meanwhile.
	<-full
	s.Restart()
	inOrder(t, r, got, 1, maxQueued+3000)
	stream, err := js.Stream(t.Context(), subjects.Default().Commands())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		list := stream.ConsumerNames(t.Context())
		for name := range list.Name() {
			_ = stream.DeleteConsumer(t.Context(), name)
		}
		from := maxQueued + 3000 + i*10
		logMore(t, js, from, from+10)
		inOrder(t, r, got, uint64(from)+1, uint64(from)+10)
	}
}

// A cursor may point to commands that were purged, or behind the last one.
func TestTheLogIsReadFromAnyCursor(t *testing.T) {
	s := natstest.New(t)
	w, js := logged(t, s, 100)
	stream, err := js.Stream(t.Context(), subjects.Default().Commands())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(51)); err != nil {
		t.Fatal(err)
	}
	r, got, _ := reading(t, w, 10)
	inOrder(t, r, got, 51, 100)
	late, rest, _ := reading(t, w, 101)
	logMore(t, js, 100, 110)
	inOrder(t, r, got, 101, 110)
	inOrder(t, late, rest, 101, 110)
	// Purged while it is read: what is left comes in order.
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	logMore(t, js, 110, 120)
	inOrder(t, r, got, 111, 120)
}

// Commands that are larger than all that is asked for at a time come in their
// turn, each alone, and also where all partitions wait for one.
func TestLargeCommandsAreRead(t *testing.T) {
	s := natstest.New(t)
	w, js := logged(t, s, 0)
	w.settings.Partitions = 1 << 20 // whose share is the least there is
	const readers, commands = 2 * maxAlone, 12
	large := strings.Repeat("x", 2*minRead)
	for i := range commands {
		text := fmt.Sprint(i)
		if i%3 > 0 {
			text += large
		}
		if _, err := js.Publish(t.Context(), subjects.Default().In("r", "tick"), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for range readers {
		r, got, _ := reading(t, w, 1)
		for i := range commands {
			m := <-got
			if want := fmt.Sprint(i); m.Seq != uint64(i+1) || !strings.HasPrefix(string(m.Data), want) || len(m.Data) != len(want)+len(large)*min(i%3, 1) {
				t.Fatalf("command %d of %d bytes came, want %d", m.Seq, len(m.Data), i+1)
			}
			r.room.set(load{1, len(m.Data)}, load{}, maxQueued)
		}
	}
	if len(w.alone) > 0 {
		t.Errorf("%d slots are taken, and nothing is asked for", len(w.alone))
	}
}

func TestTheGateBoundsCommandsAndBytes(t *testing.T) {
	g := newGate(16 << 20)
	for range maxQueued {
		g.enter(1)
	}
	passed := make(chan int, 1)
	enter := func(bytes int) {
		go func() { g.enter(bytes); passed <- bytes }()
	}
	enter(7)
	select {
	case <-passed:
		t.Fatal("one too many has passed")
	default:
	}
	g.set(load{maxQueued, maxQueued}, load{maxQueued, maxQueued}, maxQueued) // they are with the owner
	select {
	case <-passed:
		t.Fatal("one has passed although nothing was folded")
	default:
	}
	g.set(load{}, load{maxQueued - 1, 16 << 20}, maxQueued)
	select {
	case <-passed:
		t.Fatal("one has passed although there are too many bytes")
	default:
	}
	g.set(load{}, load{}, 0)
	select {
	case <-passed:
		t.Fatal("one has passed although there is no room for its run")
	default:
	}
	g.set(load{}, load{}, 1)
	<-passed
	g.set(load{1, 7}, load{}, maxQueued)
	g.set(load{}, load{maxQueued, 0}, maxQueued)
	enter(8)
	g.open()
	<-passed
}
