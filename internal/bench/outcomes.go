package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/publish"
)

// receipts measures from the end of runs to the receipts of those who are told:
// both are commits, of which events tell.
type receipts struct {
	f        *fleet
	w        workload
	inFlight int
	data     []byte // of a start
	errs     chan error
	ended    chan struct{} // all runs have, and in a backlog everyone knows that nobody is there
	heard    chan struct{} // all have been told

	mu     sync.Mutex
	next   int
	states map[string]*told
	gone   int // runs whose first attempt found nobody
	done   int // receipts
	opened bool
	gauge
}

// told is how far a run is.
type told struct {
	events int       // since it ended
	at     time.Time // when it ended
}

// ofReceipts measures the time from the end of a run to its receipt, one run
// after the other.
func ofReceipts(f *fleet, w workload, inFlight int) loader {
	return &receipts{
		f: f, w: w, inFlight: inFlight, errs: make(chan error, 1), states: map[string]*told{},
		ended: make(chan struct{}), heard: make(chan struct{}),
	}
}

// run starts runs and waits for their receipts. Those of a backlog have ended
// before there is a stream for them.
func (r *receipts) run(ctx context.Context) error {
	req := drover.StartRequest{Hash: r.f.hash, Notify: drover.NotifyList{{Subject: r.subject()}}}
	if r.w.backlog {
		req.Notify = drover.NotifyList{{StreamSubject: r.subject()}}
	}
	var err error
	if r.data, err = json.Marshal(req); err != nil {
		return err
	}
	stop, err := r.f.listen(r.f.names.EventAll(), r.event)
	if err != nil {
		return err
	}
	defer stop()
	if !r.w.backlog {
		stop, err := r.f.listen(r.subject(), func(m *nats.Msg) { _ = m.Respond(nil) })
		if err != nil {
			return err
		}
		defer stop()
	}
	r.begin()
	if r.w.backlog {
		if err := r.await(ctx, r.ended); err != nil {
			return err
		}
		remove, err := r.open(ctx)
		if err != nil {
			return err
		}
		defer remove()
	}
	return r.await(ctx, r.heard)
}

func (r *receipts) subject() string { return r.f.names.Prefix() + "_told" }

func (r *receipts) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gauge = newGauge(time.Now(), r.f.opts)
	r.whole = r.whole || r.w.backlog
	for range min(r.inFlight, 256) {
		r.start()
	}
}

// start sends the start of one run. It is called with the lock held.
func (r *receipts) start() {
	run := strings.ToLower(r.w.name) + "-" + strconv.Itoa(r.next)
	r.next++
	r.states[run] = &told{}
	msg := &nats.Msg{Subject: r.f.names.In(drover.RunID(run), drover.VerbStart), Data: r.data}
	r.f.publisher.PublishNow(msg, func(_ publish.Ack, err error) {
		if err != nil {
			r.failed(fmt.Errorf("the start of run %s was not stored: %w", run, err))
		}
	})
}

func (r *receipts) failed(err error) {
	select {
	case r.errs <- err:
	default:
	}
}

// event takes a commit: the first one that shows a run to be over, then that of
// its receipt, and in a backlog before that the one that says that nobody is there.
func (r *receipts) event(m *nats.Msg) {
	now := time.Now()
	var e drover.Event
	if json.Unmarshal(m.Data, &e) != nil || !e.Status.Terminal() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.states[string(e.RunID)]
	if state == nil {
		return
	}
	state.events++
	switch {
	case state.events == 1:
		state.at = now
	case r.w.backlog && !r.opened:
		if state.events == 2 {
			r.left()
		}
	case !r.w.backlog || state.events > 2:
		delete(r.states, string(e.RunID))
		r.receipt(state, now)
	}
}

// left counts a run that nobody was told of, and starts the next.
func (r *receipts) left() {
	r.gone++
	switch {
	case r.next < r.inFlight:
		r.start()
	case r.gone == r.inFlight:
		r.opened = true
		close(r.ended)
	}
}

// receipt counts one.
func (r *receipts) receipt(state *told, now time.Time) {
	r.done++
	begun := state.at
	if r.w.backlog {
		if r.done == 1 {
			r.first, r.from = now, now
		}
		begun = r.first
	}
	r.count(begun, now)
	switch {
	case r.w.backlog:
		if r.done == r.inFlight {
			close(r.heard)
		}
	case r.more(now):
		r.start()
	case len(r.states) == 0:
		close(r.heard)
	}
}

func (r *receipts) more(now time.Time) bool {
	if r.f.opts.Runs > 0 {
		return r.next < r.f.opts.Runs
	}
	return now.Before(r.until)
}

// open makes the stream that takes the outcomes.
func (r *receipts) open(ctx context.Context) (remove func(), err error) {
	js, err := jetstream.New(r.f.listener)
	if err != nil {
		return nil, err
	}
	name := strings.ToUpper(r.subject())
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{r.subject()}, Replicas: max(r.f.opts.Replicas, 1)})
	return func() { _ = js.DeleteStream(context.WithoutCancel(ctx), name) }, err
}

func (r *receipts) await(ctx context.Context, done <-chan struct{}) error {
	timer := time.NewTimer(2 * patience)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case err := <-r.errs:
		return err
	case err := <-r.f.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.New("of " + strconv.Itoa(r.next) + " runs " + strconv.Itoa(r.done) + " had their receipts in " + (2 * patience).String())
}

// fill writes what was measured.
func (r *receipts) fill(row *Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row.Runs, row.Steps = r.done, r.done
	row.RunsPerSecond = r.rate()
	row.StepsPerSecond = row.RunsPerSecond
	row.P50, row.P99, row.Max = percentiles(r.times)
}
