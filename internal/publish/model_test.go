package publish

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// twin is what a stream is to a publisher, as simple as can be: it takes one
// message after the other. As the order of a stream that is grouped is kept but
// where a batch is refused, it foretells every ack.
type twin struct {
	last     uint64            // sequence
	subjects map[string]uint64 // the last sequence of each
	ids      map[string]uint64
}

func newTwin() *twin { return &twin{subjects: map[string]uint64{}, ids: map[string]uint64{}} }

// result is what comes of a message.
type result struct {
	ack Ack
	err error // one of the errors that a caller tells apart, or nil
}

func (w *twin) store(m *nats.Msg) result {
	if len(m.Data) > modelMessage {
		return result{err: drover.CodeTooLarge}
	}
	id := m.Header.Get(subjects.HeaderMessageID)
	if seq, ok := w.ids[id]; ok && id != "" {
		return result{ack: Ack{Stream: "M", Sequence: seq, Duplicate: true}}
	}
	if revision := m.Header.Get(lastSequence); revision != "" && revision != strconv.FormatUint(w.subjects[m.Subject], 10) {
		return result{err: ErrConflict}
	}
	w.last++
	w.subjects[m.Subject] = w.last
	if id != "" {
		w.ids[id] = w.last
	}
	return result{ack: Ack{Stream: "M", Sequence: w.last}}
}

// modelMessage is the size that the stream takes.
const modelMessage = 512

// program makes messages of bytes: most are plain or have the right revision,
// few are refused. The subject of each is its own or one of few.
func program(prefix string, code []byte) (msgs []*nats.Msg, want []result) {
	w := newTwin()
	for i, b := range code {
		subject := prefix + ".own." + strconv.Itoa(i)
		if b&1 == 1 {
			subject = prefix + ".few." + strconv.Itoa(int(b>>1)%5)
		}
		m := message(subject, strconv.Itoa(i))
		switch b >> 3 {
		case 0:
			m.Header.Set(lastSequence, strconv.Itoa(i+1000)) // wrong
		case 1:
			m.Data = []byte(strings.Repeat("x", modelMessage+1))
		case 2:
			m.Header.Set(subjects.HeaderTTL, "1h")
		case 3:
			m.Header.Set(subjects.HeaderMessageID, strconv.Itoa(i%7))
		case 4, 5, 6, 7, 8, 9:
			m.Header.Set(lastSequence, strconv.FormatUint(w.subjects[subject], 10))
		}
		msgs, want = append(msgs, m), append(want, w.store(m))
	}
	return msgs, want
}

// runProgram publishes what a program is made of, at once or with the lane held
// until all of it waits, and compares every result with that of the twin.
func runProgram(t *testing.T, js jetstream.JetStream, nc *nats.Conn, name string, code []byte, held bool) {
	t.Helper()
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, MaxMsgSize: modelMessage, AllowAtomicPublish: true, AllowMsgTTL: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = js.DeleteStream(t.Context(), name) }()
	p, err := New(nc, Options{Group: func(string) string { return name }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	g := &group{t: t, p: p, nc: nc, stream: stream}
	msgs, want := program(name, code)
	release := func() {}
	if held {
		release = g.hold()
	}
	g.publish(msgs...)
	release()
	g.wait()
	for i := range msgs {
		got := result{g.acks[i], g.errs[i]}
		got.ack.Stream = strings.Replace(got.ack.Stream, name, "M", 1)
		if got.ack != want[i].ack || !errors.Is(got.err, want[i].err) || (got.err == nil) != (want[i].err == nil) || g.calls[i] != 1 {
			t.Fatalf("message %d of %d, %+v, gave %+v in %d calls, want %+v (code %x, held %v)",
				i, len(msgs), msgs[i], got, g.calls[i], want[i], code, held)
		}
	}
}

func TestGroupedIsAsIfOneByOne(t *testing.T) {
	nc := natstest.New(t).Connect()
	js := natstest.JetStream(t, nc)
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 0))
		code := make([]byte, 1+r.IntN(1500))
		for i := range code {
			code[i] = byte(r.Uint32())
			if seed%3 != 0 && code[i] < 32 { // most batches are taken
				code[i] = byte(64 + r.IntN(190))
			}
		}
		runProgram(t, js, nc, fmt.Sprintf("M%d", seed), code, seed%2 == 0)
	}
}

func FuzzGrouped(f *testing.F) {
	f.Add([]byte("ordinary messages, of which all are taken, in one batch"), true)
	f.Add([]byte("\x01\x09\x11\x19 and a few that are not\x00"), true)
	f.Add([]byte("\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19"), false)
	nc := natstest.New(f).Connect()
	js := natstest.JetStream(f, nc)
	var mu sync.Mutex
	n := 0
	f.Fuzz(func(t *testing.T, code []byte, held bool) {
		mu.Lock()
		n++
		name := fmt.Sprintf("F%d", n)
		mu.Unlock()
		runProgram(t, js, nc, name, code, held)
	})
}
