package publish

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// oneLane groups all messages but those to "alone".
func oneLane(subject string) string {
	if subject == "alone" {
		return ""
	}
	return "S"
}

// group is a publisher that groups, over a stream S that takes batches.
type group struct {
	t      testing.TB
	p      *Publisher
	nc     *nats.Conn
	stream jetstream.Stream

	mu    sync.Mutex
	calls []int // of each message
	acks  []Ack
	errs  []error
	all   sync.WaitGroup
}

func newGroup(t testing.TB, server ...natstest.Option) *group {
	t.Helper()
	nc := natstest.New(t, server...).Connect()
	stream, err := natstest.JetStream(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, MaxMsgSize: 1 << 20,
		AllowAtomicPublish: true, AllowMsgTTL: true, AllowMsgSchedules: true, AllowRollup: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(nc, Options{Group: oneLane})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &group{t: t, p: p, nc: nc, stream: stream}
}

// hold keeps the lane busy until the function that it gives is called.
func (g *group) hold() (release func()) {
	g.t.Helper()
	sub, err := g.nc.SubscribeSync("hold")
	if err != nil {
		g.t.Fatal(err)
	}
	held := make(chan error, 1)
	g.p.Publish(message("hold", ""), func(_ Ack, err error) { held <- err })
	m, err := sub.NextMsg(nats.DefaultTimeout)
	if err != nil {
		g.t.Fatal(err)
	}
	return func() {
		_ = sub.Unsubscribe()
		if err := m.Respond([]byte(`{"stream":"S","seq":1}`)); err != nil {
			g.t.Error(err)
		}
		if err := <-held; err != nil {
			g.t.Error(err)
		}
	}
}

// publish sends messages without waiting.
func (g *group) publish(msgs ...*nats.Msg) {
	for _, m := range msgs {
		g.mu.Lock()
		i := len(g.calls)
		g.calls, g.acks, g.errs = append(g.calls, 0), append(g.acks, Ack{}), append(g.errs, nil)
		g.mu.Unlock()
		g.all.Add(1)
		g.p.Publish(m, func(a Ack, err error) {
			g.mu.Lock()
			g.calls[i]++
			g.acks[i], g.errs[i] = a, err
			g.mu.Unlock()
			g.all.Done() // panics where it is one too many
		})
	}
}

// wait returns when all callbacks have been called, once each.
func (g *group) wait() {
	g.t.Helper()
	g.all.Wait()
	if n := g.p.InFlight(); n != 0 {
		g.t.Errorf("%d in flight after all acks", n)
	}
}

// batches gives how many messages of each batch the stream holds, in its order.
// What was sent by itself is a batch of 1.
func (g *group) batches() []int {
	g.t.Helper()
	info, err := g.stream.Info(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	var sizes []int
	last := ""
	for seq := range info.State.LastSeq {
		m, err := g.stream.GetMsg(g.t.Context(), seq+1)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			g.t.Fatal(err)
		}
		id := m.Header.Get(subjects.HeaderBatch)
		if id == "" || id != last {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1]++
		last = id
	}
	return sizes
}

func numbered(n int) []*nats.Msg {
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = message("s."+strconv.Itoa(i), strconv.Itoa(i), "Own", "x")
	}
	return msgs
}

func TestWhatWaitsIsOneBatch(t *testing.T) {
	for _, tc := range []struct {
		messages int
		want     []int
	}{
		{1, []int{1}},
		{minBatch - 1, slices.Repeat([]int{1}, minBatch-1)},
		{minBatch, []int{minBatch}},
		{maxBatch + 40, []int{maxBatch, 40}},
	} {
		t.Run(strconv.Itoa(tc.messages), func(t *testing.T) {
			g := newGroup(t)
			release := g.hold()
			msgs := numbered(tc.messages)
			g.publish(msgs...)
			if n := g.p.InFlight(); n != tc.messages+1 {
				t.Errorf("%d messages are under way, want %d", n, tc.messages+1)
			}
			release()
			g.wait()
			if got := g.batches(); !slices.Equal(got, tc.want) {
				t.Errorf("batches of %v messages, want %v", got, tc.want)
			}
			for i, m := range msgs {
				g.own(i, m)
				if len(m.Header) != 1 {
					t.Fatalf("the message of the caller has the headers %v", m.Header)
				}
			}
		})
	}
}

// own checks that the ack of a message is that of this message.
func (g *group) own(i int, want *nats.Msg) {
	g.t.Helper()
	if g.errs[i] != nil {
		g.t.Fatalf("message %d: %v", i, g.errs[i])
	}
	m, err := g.stream.GetMsg(g.t.Context(), g.acks[i].Sequence)
	if err != nil || m.Subject != want.Subject || string(m.Data) != string(want.Data) || g.acks[i].Stream != "S" {
		g.t.Fatalf("the ack of message %d on %s is %+v, which is %+v (%v)", i, want.Subject, g.acks[i], m, err)
	}
}

func TestALoneMessageDoesNotWait(t *testing.T) {
	g := newGroup(t)
	release := g.hold()
	if _, err := g.p.Do(t.Context(), message("alone", "")); !errors.Is(err, drover.CodeUnavailable) {
		t.Errorf("error %v of a message without a stream that was not grouped", err)
	}
	release()
	for i := range 3 {
		g.publish(message("s.x", strconv.Itoa(i)))
		g.wait()
	}
	if got := g.batches(); !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("batches of %v messages", got)
	}
}

func TestOnlyTheCulpritOfABatchFails(t *testing.T) {
	var api *jetstream.APIError
	for name, tc := range map[string]struct {
		culprit *nats.Msg
		want    func(error) bool
	}{
		"revision":          {message("s.there", "", lastSequence, "7"), func(err error) bool { return errors.Is(err, ErrConflict) }},
		"must not be there": {message("s.there", "", lastSequence, "0"), func(err error) bool { return errors.Is(err, ErrConflict) }},
		"larger than the stream takes": {
			message("s.large", strings.Repeat("x", 1<<20+1)),
			func(err error) bool { return errors.Is(err, drover.CodeTooLarge) },
		},
		"larger than the server takes": {
			message("s.large", strings.Repeat("x", 9<<20)),
			func(err error) bool { return errors.Is(err, drover.CodeTooLarge) },
		},
		"bad subject": {message("s.a b", ""), func(err error) bool { return errors.Is(err, drover.CodeInvalidRequest) }},
		"another stream's": {
			message("nobody", ""), func(err error) bool { return errors.Is(err, drover.CodeUnavailable) },
		},
		"unknown schedule": {
			message("s.timer", "", subjects.HeaderSchedule, "whenever", subjects.HeaderScheduleTarget, "s.due"),
			func(err error) bool { return errors.As(err, &api) },
		},
	} {
		for _, at := range []int{0, 30, 60} {
			t.Run(fmt.Sprint(name, " at ", at), func(t *testing.T) {
				g := newGroup(t)
				g.publish(message("s.there", ""))
				g.wait()
				release := g.hold()
				msgs := slices.Insert(numbered(60), at, tc.culprit)
				msgs[1].Subject, msgs[50].Subject = "s.same", "s.same"
				g.publish(msgs...)
				release()
				g.wait()
				for i, m := range msgs {
					if m == tc.culprit {
						if err := g.errs[i+1]; !tc.want(err) {
							t.Errorf("the culprit failed with %v", err)
						}
						continue
					}
					g.own(i+1, m)
				}
				if g.acks[2].Sequence > g.acks[51].Sequence {
					t.Error("two messages of one subject are stored in the wrong order")
				}
			})
		}
	}
}

func TestWhatTheServerTakesInABatch(t *testing.T) {
	g := newGroup(t)
	release := g.hold()
	msgs := append(numbered(40), message("s.id", "", subjects.HeaderMessageID, "new"), message("s.new", "", lastSequence, "0"))
	g.publish(msgs...)
	release()
	g.wait()
	for i, m := range msgs {
		g.own(i, m)
	}
	if got := g.batches(); !slices.Equal(got, []int{len(msgs)}) {
		t.Errorf("batches of %v messages, want one of %d", got, len(msgs))
	}
}

func TestRepeatsInABatchAreNoErrors(t *testing.T) {
	g := newGroup(t)
	g.publish(message("s.id", "", subjects.HeaderMessageID, "old"))
	g.wait()
	release := g.hold()
	g.publish(numbered(40)...)
	g.publish(
		message("s.id", "", subjects.HeaderMessageID, "old"),
		message("s.id", "", subjects.HeaderMessageID, "new"),
		message("s.id", "", subjects.HeaderMessageID, "new"),
	)
	release()
	g.wait()
	if err := errors.Join(g.errs...); err != nil {
		t.Fatal(err)
	}
	if a := g.acks[41]; !a.Duplicate || a.Sequence != 1 {
		t.Errorf("a repeat of what was stored before has the ack %+v", a)
	}
	if a, b := g.acks[42], g.acks[43]; a.Duplicate || !b.Duplicate || a.Sequence != b.Sequence {
		t.Errorf("a repeat in the same batch has the acks %+v and %+v", a, b)
	}
}

func TestWhatMayNotShareABatch(t *testing.T) {
	for name, tc := range map[string]struct {
		msg  *nats.Msg
		want []int
	}{
		"a schedule":         {message("s.x", "", subjects.HeaderSchedule, "@at 2100-01-01T00:00:00Z", subjects.HeaderScheduleTarget, "s.due"), []int{20, 1, 20}},
		"a lease":            {message("s.x", "", subjects.HeaderTTL, "1h"), []int{20, 1, 20}},
		"a roll-up":          {message("s.x", "", "Nats-Rollup", "sub"), []int{20, 1, 20}},
		"a checked sequence": {message("s.x", "", "Nats-Expected-Last-Sequence", "20"), []int{20, 1, 20}},
		"a batch":            {message("s.x", "", subjects.HeaderBatch, "b", subjects.HeaderBatchSequence, "1", subjects.HeaderBatchCommit, "1"), []int{20, 1, 20}},
		"a second revision":  {message("s.3", "", lastSequence, "4"), []int{20, 21}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			release := g.hold()
			msgs := slices.Concat(numbered(20), []*nats.Msg{tc.msg}, numbered(20))
			g.publish(msgs...)
			release()
			g.wait()
			for i, m := range msgs {
				g.own(i, m)
			}
			if got := g.batches(); !slices.Equal(got, tc.want) {
				t.Errorf("batches of %v messages, want %v", got, tc.want)
			}
		})
	}
}

func TestBatchesHaveABound(t *testing.T) {
	g := newGroup(t)
	release := g.hold()
	msgs := numbered(40)
	for _, m := range msgs {
		m.Data = make([]byte, maxBatchBytes/20)
	}
	g.publish(msgs...)
	release()
	g.wait()
	for i := range msgs {
		g.own(i, msgs[i])
	}
	if got := g.batches(); got[0] != 19 {
		t.Errorf("batches of %v messages of a twentieth of what one may have", got)
	}
}

func TestAStreamThatTakesNoBatchesIsAskedOnce(t *testing.T) {
	g := newGroup(t)
	cfg := g.stream.CachedInfo().Config
	cfg.AllowAtomicPublish = false
	if _, err := natstest.JetStream(t, g.nc).UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		release := g.hold()
		g.publish(numbered(40)...)
		release()
		g.wait()
	}
	if err := errors.Join(g.errs...); err != nil {
		t.Fatal(err)
	}
	if got := len(g.batches()); got != 80 || !g.p.lanes["S"].single {
		t.Errorf("%d messages were stored by themselves, want 80", got)
	}
}

func TestCloseFailsWhatWaitsForItsBatch(t *testing.T) {
	g := newGroup(t)
	if _, err := g.nc.SubscribeSync("hold"); err != nil {
		t.Fatal(err)
	}
	g.publish(message("hold", ""))
	g.publish(numbered(40)...)
	g.p.Close()
	g.wait()
	for i, err := range g.errs {
		if !errors.Is(err, drover.CodeUnavailable) {
			t.Fatalf("message %d: error %v", i, err)
		}
	}
	if got := g.batches(); len(got) > 0 {
		t.Errorf("batches of %v messages were stored", got)
	}
}

func BenchmarkSyncAlways(b *testing.B) {
	payload := make([]byte, 200)
	for name, group := range map[string]func(string) string{"single": nil, "grouped": oneLane} {
		b.Run(name, func(b *testing.B) {
			g := newGroup(b, natstest.With(func(o *server.Options) { o.SyncAlways = true }))
			p, err := New(g.nc, Options{Group: group, MaxInFlight: 1024})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			var all sync.WaitGroup
			all.Add(b.N)
			b.ResetTimer()
			for range b.N {
				p.Publish(&nats.Msg{Subject: "s.x", Data: payload}, func(_ Ack, err error) {
					if err != nil {
						b.Error(err)
					}
					all.Done()
				})
			}
			all.Wait()
		})
	}
}
