package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// world is a fleet's records of deliveries in memory, and a deliverer: what is
// heard is folded at once, as the records would, but for their times.
type world struct {
	t  testing.TB
	nc *nats.Conn
	d  *Deliverer

	mu      sync.Mutex
	changed chan struct{} // closed, and made again, when something was heard
	records map[drover.DeliveryID]*record
	order   map[string][]drover.DeliveryID // by when they were listed, for each target
	done    int                            // deliveries that are over
	heard   []drover.HeardMessage
	lists   int
	failing bool // the source
}

type record struct {
	job     Job
	listed  bool
	over    bool
	made    int // attempts that were
	unmade  int
	receipt string
	errs    []*drover.Error
}

func newWorld(t testing.TB, s *natstest.Server, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, nc: s.Connect(), changed: make(chan struct{}), records: map[drover.DeliveryID]*record{}, order: map[string][]drover.DeliveryID{}}
	opts := Options{
		Names: subjects.Default(), Conn: s.Connect(), HTTP: http.DefaultClient,
		Source: w, Heard: w.hear, Logger: zerolog.Nop(),
	}
	for _, c := range change {
		c(&opts)
	}
	w.d = New(opts)
	return w
}

// run runs the deliverer until the test ends, or stop is called.
func (w *world) run() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		w.check()
	})
	w.t.Cleanup(stop)
	return stop
}

// check looks at the accounts of a deliverer that has ended.
func (w *world) check() {
	w.t.Helper()
	held, canaries, known := 0, 0, 0
	for _, t := range w.d.targets {
		held += t.held
		if t.canary != nil {
			canaries += cost(t.canary)
			known++
		}
		if t.queued != 0 || t.away != (t.place != nil) {
			w.t.Errorf("target %q is left with %d bytes queued, away %v", t.key, t.queued, t.away)
		}
	}
	if held != w.d.held || canaries != w.d.canaries || w.d.flying == 0 && (held != 0 || known != len(w.d.known)) {
		w.t.Errorf("%d bytes are held and counted as %d, %d of canaries as %d; %d canaries, %d known, %d under way",
			held, w.d.held, canaries, w.d.canaries, known, len(w.d.known), w.d.flying)
	}
}

// job makes a pending delivery of a new run.
func (w *world) job(n drover.Notify) *Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	run := drover.RunID(fmt.Sprintf("r%d", len(w.records)))
	id := drover.DeliveryIDOf(run, 0)
	outcome := &drover.Outcome{DeliveryID: id, RunID: run, Workflow: "w", Status: drover.StatusCompleted}
	told := *outcome
	told.Result = json.RawMessage(`{"n":1}`)
	body, err := json.Marshal(told)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &record{job: Job{Run: run, ID: id, Attempt: 1, Token: "t-" + string(run), Notify: n, Outcome: outcome, Body: body}}
	w.records[id] = r
	j := r.job
	return &j
}

// listedJob is a job that did not succeed at once.
func (w *world) listedJob(n drover.Notify) *Job {
	j := w.job(n)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list(w.records[j.ID])
	return j
}

func (w *world) list(r *record) {
	if !r.listed {
		r.listed = true
		key := Target(&r.job.Notify)
		w.order[key] = append(w.order[key], r.job.ID)
	}
}

func (w *world) hear(run drover.RunID, m drover.HeardMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, m)
	r := w.records[m.DeliveryID]
	if r == nil || r.job.Run != run || r.job.Token != m.Token {
		w.t.Errorf("run %s heard of %s with token %q", run, m.DeliveryID, m.Token)
		return
	}
	switch {
	case m.Error == nil:
		if r.over {
			w.t.Errorf("%s was delivered again", m.DeliveryID)
		}
		r.made, r.over, r.listed, r.receipt = r.made+1, true, false, m.Receipt
		w.done++
	case m.Unmade:
		r.unmade++
		w.list(r)
	default:
		r.made++
		w.list(r)
	}
	if m.Error != nil {
		r.errs = append(r.errs, m.Error)
	}
	r.job.Attempt = r.made + 1
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) Listed(_ context.Context, target string, visit func(drover.RunID, int) bool) error {
	w.mu.Lock()
	w.lists++
	var runs []drover.RunID
	for _, id := range w.order[target] {
		if r := w.records[id]; r.listed {
			runs = append(runs, r.job.Run)
		}
	}
	failing := w.failing
	w.mu.Unlock()
	for _, run := range runs {
		if !visit(run, 0) {
			break
		}
	}
	if failing {
		return drover.Errorf(drover.CodeUnavailable, "no leader")
	}
	return nil
}

func (w *world) Load(_ context.Context, run drover.RunID, i int) (*Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.records[drover.DeliveryIDOf(run, i)]
	if r == nil || r.over {
		return nil, nil
	}
	j := r.job
	return &j, nil
}

// until waits for what was heard to be so.
func (w *world) until(what func() bool) {
	w.t.Helper()
	limit := time.After(time.Minute)
	for {
		w.mu.Lock()
		ok, changed := what(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("it was not heard in time: %d messages, %d of %d over", len(w.heard), w.over(), len(w.records))
		}
	}
}

// over is how many deliveries were received. It is called with the lock held.
func (w *world) over() int { return w.done }

// of gives what is known of a delivery.
func (w *world) of(j *Job) record {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := *w.records[j.ID]
	r.errs = slices.Clone(r.errs)
	return r
}

// attempt delivers a job and gives what was heard first.
func (w *world) attempt(j *Job) drover.HeardMessage {
	w.t.Helper()
	w.d.Deliver(j)
	var m drover.HeardMessage
	w.until(func() bool {
		i := slices.IndexFunc(w.heard, func(m drover.HeardMessage) bool { return m.DeliveryID == j.ID })
		if i >= 0 {
			m = w.heard[i]
		}
		return i >= 0
	})
	return m
}

// serve answers on a subject, until the test ends or the subscription does.
func (w *world) serve(subject string, answer func(*nats.Msg)) *nats.Subscription {
	w.t.Helper()
	sub, err := w.nc.Subscribe(subject, answer)
	if err != nil {
		w.t.Fatal(err)
	}
	w.flush()
	return sub
}

// flush waits until the server has what was sent: it has answered what was sent
// after that. The flush of the connection has channels that bubbles would share.
func (w *world) flush() {
	w.t.Helper()
	if _, err := w.nc.RequestWithContext(w.t.Context(), "nobody", nil); !errors.Is(err, nats.ErrNoResponders) {
		w.t.Fatal(err)
	}
}

func (w *world) reply(m *nats.Msg, data string) {
	if err := m.Respond([]byte(data)); err != nil {
		w.t.Error(err)
	}
}

func subject(s string) drover.Notify { return drover.Notify{Subject: s} }
