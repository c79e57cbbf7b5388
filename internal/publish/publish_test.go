package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

const lastSequence = "Nats-Expected-Last-Subject-Sequence"

// open starts a server with a stream S on s.>, and a publisher.
func open(t testing.TB, opts Options, server ...natstest.Option) (*natstest.Server, *nats.Conn, *Publisher) {
	t.Helper()
	s := natstest.New(t, server...)
	nc := s.Connect()
	js := natstest.JetStream(t, nc)
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, MaxMsgSize: 1 << 20, AllowAtomicPublish: true}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	p, err := New(nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return s, nc, p
}

func message(subject, data string, headers ...string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte(data)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	return m
}

func TestEveryMessageIsCalledBackWithItsOwnAck(t *testing.T) {
	_, nc, p := open(t, Options{MaxInFlight: 64})
	const senders, each = 8, 500
	acks := make([][]Ack, senders)
	var all, senderGroup sync.WaitGroup
	var running atomic.Int32
	all.Add(senders * each)
	for s := range senders {
		acks[s] = make([]Ack, each)
		senderGroup.Go(func() {
			for i := range each {
				p.Publish(message(fmt.Sprintf("s.%d.%d", s, i), "x"), func(a Ack, err error) {
					if running.Add(1) != 1 {
						t.Error("two callbacks run at the same time")
					}
					if err != nil {
						t.Error(err)
					}
					acks[s][i] = a
					running.Add(-1)
					all.Done()
				})
			}
		})
	}
	senderGroup.Wait()
	all.Wait()
	stream, err := natstest.JetStream(t, nc).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	for s := range senders {
		for i, a := range acks[s] {
			if a.Stream != "S" || a.Duplicate {
				t.Fatalf("ack %+v", a)
			}
			if i%100 != 0 {
				continue
			}
			m, err := stream.GetMsg(t.Context(), a.Sequence)
			if err != nil || m.Subject != fmt.Sprintf("s.%d.%d", s, i) {
				t.Fatalf("sequence %d of sender %d message %d holds %v (%v)", a.Sequence, s, i, m, err)
			}
		}
	}
	if n := p.InFlight(); n != 0 {
		t.Fatalf("%d in flight after all acks", n)
	}
}

func TestAnswersOfTheServer(t *testing.T) {
	_, nc, p := open(t, Options{})
	for _, m := range []*nats.Msg{message("s.taken", "1"), message("s.id", "1", "Nats-Msg-Id", "a")} {
		if _, err := p.Do(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	sub, err := nc.Subscribe("strange", func(m *nats.Msg) { _ = m.Respond([]byte(`{"hello":1}`)) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()

	var api *jetstream.APIError
	for _, tc := range []struct {
		name string
		msg  *nats.Msg
		want error
	}{
		{"stored", message("s.new", "1"), nil},
		{"right revision", message("s.taken", "2", lastSequence, "1"), nil},
		{"wrong revision", message("s.taken", "2", lastSequence, "1"), ErrConflict},
		{"must not exist", message("s.taken", "2", lastSequence, "0"), ErrConflict},
		{"no stream", message("nobody", "1"), drover.CodeUnavailable},
		{"not JetStream", message("strange", "1"), drover.CodeUnavailable},
		{"over the stream's limit", message("s.big", strings.Repeat("x", 1<<20+1)), drover.CodeTooLarge},
		{"over the server's limit", message("s.big", strings.Repeat("x", 9<<20)), drover.CodeTooLarge},
		{"no subject", message("", "1"), drover.CodeInvalidRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := p.Do(t.Context(), tc.msg); !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
		})
	}

	if a, err := p.Do(t.Context(), message("s.id", "2", "Nats-Msg-Id", "a")); err != nil || !a.Duplicate || a.Sequence != 2 {
		t.Errorf("repeat: ack %+v, error %v", a, err)
	}
	_, err = p.Do(t.Context(), message("s.x", "1", "Nats-Expected-Stream", "OTHER"))
	if !errors.As(err, &api) || errors.Is(err, drover.CodeUnavailable) {
		t.Errorf("any other error must keep its code, got %v", err)
	}
}

func TestShutdownCallsBackOnceForEach(t *testing.T) {
	for _, tc := range []struct {
		name  string
		group func(string) string
		opts  []natstest.Option
	}{
		{"in process", nil, nil},
		{"sockets", nil, []natstest.Option{natstest.Listen()}},
		{"grouped, in process", oneLane, nil},
		{"grouped, sockets", oneLane, []natstest.Option{natstest.Listen()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// No message may have to wait for its time to be over.
			s, _, p := open(t, Options{MaxInFlight: 256, Timeout: time.Hour, Group: tc.group}, tc.opts...)
			const total = 20000
			calls := make([]atomic.Int32, total)
			var all sync.WaitGroup
			all.Add(total)
			var acked, failed atomic.Int64
			half := make(chan struct{})
			go func() {
				for i := range total {
					p.Publish(message(fmt.Sprintf("s.%d", i), "x"), func(_ Ack, err error) {
						calls[i].Add(1)
						switch {
						case err == nil:
							if acked.Add(1) == total/4 {
								close(half)
							}
						case errors.Is(err, drover.CodeUnavailable):
							failed.Add(1)
						default:
							t.Errorf("message %d: %v", i, err)
						}
						all.Done()
					})
				}
			}()
			<-half
			s.Stop()
			s.Start()
			all.Wait()
			if _, err := p.Do(t.Context(), message("s.after", "x")); errors.Is(err, ErrConflict) {
				t.Error(err)
			}
			for i := range calls {
				if n := calls[i].Load(); n != 1 {
					t.Fatalf("message %d was called back %d times", i, n)
				}
			}
			info, err := s.JetStream().Stream(t.Context(), "S")
			if err != nil {
				t.Fatal(err)
			}
			if stored := info.CachedInfo().State.LastSeq; stored < uint64(acked.Load()) {
				t.Fatalf("%d acks, but only %d messages", acked.Load(), stored)
			}
			t.Logf("%d acked, %d failed", acked.Load(), failed.Load())
		})
	}
}

func TestCloseFailsWhatIsInFlight(t *testing.T) {
	_, nc, p := open(t, Options{MaxInFlight: 3})
	silent(t, nc)
	var calls atomic.Int32
	done := func(_ Ack, err error) {
		if !errors.Is(err, drover.CodeUnavailable) {
			t.Errorf("error %v, want unavailable", err)
		}
		calls.Add(1)
	}
	for range 3 {
		p.Publish(message("silent", ""), done)
	}
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		p.Publish(message("silent", ""), done)
	}()
	p.Close()
	p.Close()
	<-blocked
	p.Publish(message("s.late", ""), done)
	if n := calls.Load(); n != 5 {
		t.Fatalf("%d callbacks after Close, want 5", n)
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	_, nc, p := open(t, Options{})
	silent(t, nc)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Do(ctx, message("silent", ""))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, drover.CodeUnavailable) {
		t.Fatalf("error %v", err)
	}
}

func TestRequestGivesTheAnswerAsItCame(t *testing.T) {
	_, nc, p := open(t, Options{MaxInFlight: 1})
	if _, err := nc.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(append([]byte("re: "), m.Data...)) }); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	p.Request(message("echo", "a"), func(m *nats.Msg, err error) {
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		first := string(m.Data)
		// The one place is taken again, and a callback must not wait for it.
		p.PublishNow(message("s.x", ""), func(a Ack, err error) {
			p.RequestNow(message("nobody", ""), func(_ *nats.Msg, err error) {
				if !errors.Is(err, drover.CodeUnavailable) {
					t.Errorf("error %v, want unavailable", err)
				}
				got <- first
			})
		})
	})
	if g := <-got; g != "re: a" {
		t.Fatalf("answer %q", g)
	}
}

func TestClosedConnection(t *testing.T) {
	_, nc, p := open(t, Options{})
	nc.Close()
	if _, err := p.Do(t.Context(), message("s.x", "")); !errors.Is(err, drover.CodeUnavailable) {
		t.Fatalf("error %v, want unavailable", err)
	}
	if _, err := New(nc, Options{}); !errors.Is(err, drover.CodeUnavailable) {
		t.Fatalf("error %v, want unavailable", err)
	}
}

// silent answers the subject "silent" never.
func silent(t testing.TB, nc *nats.Conn) {
	t.Helper()
	sub, err := nc.SubscribeSync("silent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
}
