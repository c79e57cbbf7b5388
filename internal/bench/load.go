package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/publish"
)

// patience is how long nothing may end before a row is given up.
const patience = 30 * time.Second

// load is the publisher and subscriber of one row. Its methods below run are
// called by the one goroutine of its subscription, but for failed.
type load struct {
	f        *fleet
	w        workload
	inFlight int
	told     string // subject of notifications
	data     []byte // of a start
	ended    chan struct{}
	progress chan struct{}
	errs     chan error

	mu    sync.Mutex
	begun map[string]time.Time // runs in flight: when, or when they are due
	next  int
	over  bool
	runs  int // that ended
	gauge
}

// ofRuns measures runs from their beginning to their end.
func ofRuns(f *fleet, w workload, inFlight int) loader { return newLoad(f, w, inFlight) }

func newLoad(f *fleet, w workload, inFlight int) *load {
	return &load{
		f: f, w: w, inFlight: inFlight, told: f.names.Prefix() + "_told",
		ended: make(chan struct{}), progress: make(chan struct{}, 1), errs: make(chan error, 1),
		begun: map[string]time.Time{},
	}
}

// run starts runs and waits until all have ended.
func (l *load) run(ctx context.Context) error {
	l.data = l.w.start(l.f.hash, l.told, time.Time{})
	stop, err := l.f.listen(l.subject(), l.outcome)
	if err != nil {
		return err
	}
	defer stop()
	if l.w.deliver {
		stop, err := l.f.listen(l.f.names.EventAll(), l.event)
		if err != nil {
			return err
		}
		defer stop()
	}
	l.begin()
	return l.wait(ctx)
}

func (l *load) subject() string {
	if l.w.notify {
		return l.told
	}
	return l.f.names.DoneAll()
}

// begin starts the first runs.
func (l *load) begin() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gauge = newGauge(now, l.f.opts)
	if l.w.timers {
		l.from = now.Truncate(time.Millisecond).Add(l.f.opts.Lead)
		l.first, l.whole = l.from, true
	}
	for range l.inFlight {
		l.start(now)
	}
}

// start sends the start of one run. It is called with the lock held.
func (l *load) start(now time.Time) {
	run := strings.ToLower(l.w.name) + "-" + strconv.Itoa(l.next)
	data := l.data
	if l.w.timers {
		now = l.from.Add(spread * time.Duration(l.next) / time.Duration(l.inFlight)).Truncate(time.Millisecond)
		data = l.w.start(l.f.hash, "", now)
	}
	l.next++
	l.begun[run] = now
	l.send(run, drover.VerbStart, data)
}

// send publishes a command.
func (l *load) send(run string, verb drover.Verb, data []byte) {
	msg := &nats.Msg{Subject: l.f.names.In(drover.RunID(run), verb), Data: data}
	l.f.publisher.PublishNow(msg, func(_ publish.Ack, err error) {
		if err != nil {
			l.failed(fmt.Errorf("the %s of run %s was not stored: %w", verb, run, err))
		}
	})
}

func (l *load) failed(err error) {
	select {
	case l.errs <- err:
	default:
	}
}

// event delivers to a run that is parked now.
func (l *load) event(m *nats.Msg) {
	var e drover.Event
	if json.Unmarshal(m.Data, &e) != nil || e.Status != drover.StatusWaiting {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	run := string(e.RunID)
	if _, ok := l.begun[run]; !ok {
		return
	}
	l.begun[run] = time.Now()
	data, _ := json.Marshal(drover.DeliverRequest{Name: delivered})
	l.send(run, drover.VerbDeliver, data)
}

// outcome takes the end of a run, and starts the next.
func (l *load) outcome(m *nats.Msg) {
	now := time.Now()
	run := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	if l.w.notify {
		_ = m.Respond(nil)
		run = runOf(m.Data)
	}
	if !bytes.Contains(m.Data, []byte(`"status":"completed"`)) {
		l.failed(fmt.Errorf("run %s did not complete: %.300s", run, m.Data))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	begun, ok := l.begun[run]
	if !ok {
		return // told before
	}
	delete(l.begun, run)
	l.runs++
	l.count(begun, now)
	if l.more(now) {
		l.start(now)
	} else if len(l.begun) == 0 && !l.over {
		l.over = true
		close(l.ended)
	}
	select {
	case l.progress <- struct{}{}:
	default:
	}
}

func runOf(outcome []byte) string {
	var o struct {
		RunID string `json:"run_id"`
	}
	_ = json.Unmarshal(outcome, &o)
	return o.RunID
}

// more reports whether another run is to be started.
func (l *load) more(now time.Time) bool {
	switch {
	case l.w.timers:
		return false
	case l.f.opts.Runs > 0:
		return l.next < l.f.opts.Runs
	}
	return now.Before(l.until)
}

// wait returns when all runs have ended, or for too long none has.
func (l *load) wait(ctx context.Context) error {
	limit := patience
	if l.w.timers {
		limit += l.f.opts.Lead
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-l.ended:
			return nil
		case err := <-l.errs:
			return err
		case err := <-l.f.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.progress:
			timer.Reset(limit)
		case <-timer.C:
			l.mu.Lock()
			defer l.mu.Unlock()
			return fmt.Errorf("%d runs ended, and %d did not within %v", l.runs, len(l.begun), limit)
		}
	}
}

// fill writes what was measured.
func (l *load) fill(row *Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row.Runs, row.Steps = l.runs, l.runs*l.w.steps
	row.RunsPerSecond = l.rate()
	row.StepsPerSecond = row.RunsPerSecond * float64(l.w.steps)
	row.P50, row.P99, row.Max = percentiles(l.times)
}
