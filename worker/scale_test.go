package worker_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// fewer is a number of something that a test has many of, and with -short less.
func fewer(many, short int) int {
	if testing.Short() {
		return short
	}
	return many
}

// herd is runs with timers that are due at nearly the same time.
type herd struct {
	t   *testing.T
	js  jetstream.JetStream
	due map[drover.RunID]time.Time
}

const sleeper = `{"nodes":{"z":{"sleep":{"until":"${{ input }}"}},"a":{"set":{"with":"awake"},"depends_on":["z"]}},"output":{"from":"node:a"}}`

// begin starts runs that sleep until times within a second. It returns when all
// starts are durable.
func (h *herd) begin(n int, first time.Time) {
	h.t.Helper()
	h.due = map[drover.RunID]time.Time{}
	acks := make([]jetstream.PubAckFuture, 0, n)
	for i := range n {
		run := drover.RunID(fmt.Sprintf("z%d", i))
		h.due[run] = first.Add(time.Second * time.Duration(i) / time.Duration(n)).Truncate(time.Millisecond)
		input, _ := json.Marshal(h.due[run].UTC())
		data, _ := json.Marshal(drover.StartRequest{Definition: json.RawMessage(sleeper), Input: input})
		ack, err := h.js.PublishAsync(subjects.Default().In(run, drover.VerbStart), data, jetstream.WithStallWait(time.Minute))
		if err != nil {
			h.t.Fatal(err)
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			h.t.Fatal(err)
		}
	}
}

// check reads the outcomes as they are stored, until every run has one. None may
// be early by any clock, and none may come twice.
func (h *herd) check(begun time.Time) {
	h.t.Helper()
	cons, err := h.js.OrderedConsumer(h.t.Context(), subjects.Default().Outcomes(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		h.t.Fatal(err)
	}
	it, err := cons.Messages()
	if err != nil {
		h.t.Fatal(err)
	}
	defer it.Stop()
	ended := map[drover.RunID]bool{}
	var latest time.Duration
	for len(ended) < len(h.due) {
		m, err := it.Next(jetstream.NextMaxWait(time.Minute))
		if err != nil {
			h.t.Fatalf("%d of %d timers fired: %v", len(ended), len(h.due), err)
		}
		meta, err := m.Metadata()
		if err != nil {
			h.t.Fatal(err)
		}
		var o drover.Outcome
		if err := json.Unmarshal(m.Data(), &o); err != nil {
			h.t.Fatal(err)
		}
		due := h.due[o.RunID]
		if due.IsZero() || ended[o.RunID] || o.Status != drover.StatusCompleted || string(o.Result) != `"awake"` {
			h.t.Errorf("an outcome that nobody expects, or that came before: %s", m.Data())
		}
		if o.EndedAt.Before(due) || meta.Timestamp.Before(due) {
			h.t.Errorf("run %s ended at %v, and its outcome was stored at %v; it was to sleep until %v", o.RunID, o.EndedAt, meta.Timestamp, due)
		}
		latest = max(latest, meta.Timestamp.Sub(due))
		ended[o.RunID] = true
	}
	h.t.Logf("%d timers; the latest outcome came %v after its time, and %v after the start of the fleet", len(ended), latest, time.Since(begun))
}

// timers is how many durable timers the server holds.
func (h *herd) timers() uint64 {
	h.t.Helper()
	return h.holds(subjects.Default().Commands(), subjects.Default().TimerAll())
}

// holds is how many messages a stream has on subjects that match.
func (h *herd) holds(stream, subject string) uint64 {
	h.t.Helper()
	s, err := h.js.Stream(h.t.Context(), stream)
	if err != nil {
		h.t.Fatal(err)
	}
	info, err := s.Info(h.t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		h.t.Fatal(err)
	}
	n := uint64(0)
	for _, messages := range info.State.Subjects {
		n += messages
	}
	return n
}

// eventually looks now and then until it is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(time.Minute); !so(); {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// faults 13: a herd of timers is due in one second. They are in the memory of
// their owners, or with the server.
func TestFaults13ManyTimersAreDueAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		cover time.Duration
		lead  time.Duration
	}{
		"in memory": {cover: time.Hour, lead: 2 * time.Second},
		"durable":   {cover: time.Millisecond, lead: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.New(t)
			beginOn(t, s.Connect(), worker.Options{Name: "one", CoverAfter: tc.cover, Settings: topology.Settings{Partitions: 64}})
			h := herd{t: t, js: s.JetStream()}
			begun := time.Now()
			h.begin(fewer(2000, 500), begun.Add(tc.lead))
			h.check(begun)
		})
	}
}

// faults 13: timers come due while the whole fleet is away, after it was asked
// to end, or died. Those that died with it are found in the log, and the others
// have been fired by the server.
func TestFaults13TimersAreDueInAnOutage(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, m *member){
		"asked to end": func(t *testing.T, m *member) { m.end(t) },
		"died":         func(_ *testing.T, m *member) { m.nc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			// A machine that is busy needs more time until all runs sleep.
			for lead := time.Duration(fewer(10, 4)) * time.Second; !outage(t, lead, leave); lead *= 3 {
				t.Logf("timers were due before all runs slept: once more, with more than %v", lead)
			}
		})
	}
}

// outage has timers come due while nobody is there. It gives false where the
// fleet was not gone by then, so that nothing was tried.
func outage(t *testing.T, lead time.Duration, leave func(t *testing.T, m *member)) bool {
	t.Helper()
	s := natstest.New(t)
	settings := topology.Settings{Partitions: 64}
	first := beginOn(t, s.Connect(), worker.Options{Name: "first", Settings: settings})
	h := herd{t: t, js: s.JetStream()}
	n := fewer(10_000, 1_000)
	due := time.Now().Add(lead)
	h.begin(n, due)
	records := subjects.BucketStream(subjects.Default().Runs())
	eventually(t, "runs that sleep", func() bool { return h.holds(records, ">") == uint64(n) })
	leave(t, first)
	if time.Now().After(due) {
		first.end(t)
		return false
	}
	durable := h.timers()
	eventually(t, "the end of the outage", func() bool {
		return time.Now().After(due.Add(time.Second)) && h.timers() == 0
	})
	if ended := h.holds(subjects.Default().Outcomes(), ">"); ended > 0 {
		t.Errorf("%d runs ended while nobody was there", ended)
	}
	t.Logf("%d of %d timers were durable", durable, n)
	begun := time.Now()
	beginOn(t, s.Connect(), worker.Options{Name: "second", Settings: settings})
	h.check(begun)
	return true
}
