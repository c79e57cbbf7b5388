package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/subjects"
)

// asks is the load of a row that asks for deliveries to hooks, and waits for the
// answers.
type asks struct {
	f        *fleet
	w        workload
	inFlight int
	client   *client.Client
	ends     chan error // one for each run that ended

	mu    sync.Mutex
	next  int // run
	steps int // deliveries
	gauge
}

func newAsks(f *fleet, w workload, inFlight int) asks {
	return asks{f: f, w: w, inFlight: inFlight, ends: make(chan error, endsKept)}
}

// endsKept is how many runs may have ended before a row looks.
const endsKept = 1 << 20

// listen has the ends of runs told.
func (a *asks) listen() (stop func(), err error) {
	if a.client, err = client.New(a.f.listener, client.Options{Prefix: a.f.names.Prefix()}); err != nil {
		return nil, err
	}
	return a.f.listen(a.f.names.DoneAll(), func(m *nats.Msg) {
		var err error
		if !strings.Contains(string(m.Data), `"status":"completed"`) {
			err = fmt.Errorf("a run did not complete: %.300s", m.Data)
		}
		a.ends <- err
	})
}

// ended waits until all runs have ended.
func (a *asks) ended(ctx context.Context) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for n := range a.next {
		select {
		case err := <-a.ends:
			if err != nil {
				return err
			}
			timer.Reset(patience)
		case err := <-a.f.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("%d runs ended, and %d did not within %v", n, a.next-n, patience)
		}
	}
	return nil
}

// deliver delivers to a token, which nobody holds where it is the first time.
func (a *asks) deliver(ctx context.Context, token string, first, payload bool) error {
	req := drover.HookRequest{Token: token, Payload: json.RawMessage(strconv.FormatBool(payload))}
	if first {
		input, _ := json.Marshal(token)
		req.Start = &drover.StartRequest{Hash: a.f.hash, Input: input}
	}
	_, err := a.client.DeliverHook(ctx, req)
	return err
}

// fill writes what was measured.
func (a *asks) fill(row *Row) {
	row.Runs, row.Steps = a.next, a.steps
	row.StepsPerSecond = a.rate()
	row.RunsPerSecond = row.StepsPerSecond * float64(a.next) / float64(a.steps)
	row.P50, row.P99, row.Max = percentiles(a.times)
}

// deliveries is a closed loop: each lane delivers to a run of its own, again when
// the answer is there, until the run is over, and then to the next one.
type deliveries struct{ asks }

// ofDeliveries measures deliveries until they are answered: of W8 the ones that
// start a run, of W7 the others.
func ofDeliveries(f *fleet, w workload, inFlight int) loader {
	return &deliveries{newAsks(f, w, inFlight)}
}

func (d *deliveries) run(ctx context.Context) error {
	stop, err := d.listen()
	if err != nil {
		return err
	}
	defer stop()
	lanes, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.gauge = newGauge(time.Now(), d.f.opts)
	var all sync.WaitGroup
	for range d.inFlight {
		all.Go(func() {
			if err := d.lane(lanes); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	if lanes.Err() != nil {
		return context.Cause(lanes)
	}
	return d.ended(ctx)
}

// lane sees one run after the other through.
func (d *deliveries) lane(ctx context.Context) error {
	for {
		token, ok := d.token()
		if !ok {
			return nil
		}
		for n, last := 1, false; !last; n++ {
			last = n == d.w.steps || n > 1 && d.over()
			begun := time.Now()
			if err := d.deliver(ctx, token, n == 1, last); err != nil {
				return fmt.Errorf("delivery %d to token %s: %w", n, token, err)
			}
			d.delivered(begun, time.Now(), n)
		}
	}
}

// token is that of the next run, if there is to be one.
func (d *deliveries) token() (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if limit := d.f.opts.Runs; limit > 0 && d.next >= limit || limit == 0 && !time.Now().Before(d.until) {
		return "", false
	}
	d.next++
	return strings.ToLower(d.w.name) + ":" + strconv.Itoa(d.next), true
}

// over reports whether runs are to end early, as the time is over.
func (d *deliveries) over() bool { return d.f.opts.Runs == 0 && !time.Now().Before(d.until) }

// delivered counts the nth delivery to a run.
func (d *deliveries) delivered(begun, now time.Time, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.steps++
	if n > 1 || d.w.steps == 1 {
		d.count(begun, now)
	}
}

// many delivers once, by a tag.
type many struct{ asks }

// ofMany measures one delivery to as many hooks as are in flight, until the last
// of them has answered.
func ofMany(f *fleet, w workload, inFlight int) loader { return &many{newAsks(f, w, inFlight)} }

func (m *many) run(ctx context.Context) error {
	stop, err := m.listen()
	if err != nil {
		return err
	}
	defer stop()
	if err := m.hold(ctx); err != nil {
		return err
	}
	m.gauge = newGauge(time.Now(), m.f.opts)
	m.whole = true
	for result, err := range m.client.DeliverHooks(ctx, drover.HookManyRequest{
		HookFilter: drover.HookFilter{Tags: map[string]string{tag: tagged}}, Payload: json.RawMessage("1"),
	}) {
		if err != nil {
			return err
		}
		if result.Error != nil {
			return fmt.Errorf("delivery to token %s: %w", result.Token, result.Error)
		}
		m.steps++
	}
	m.count(m.first, time.Now())
	m.counted = m.steps
	if m.steps != m.inFlight {
		return fmt.Errorf("%d hooks got the delivery, of %d", m.steps, m.inFlight)
	}
	return m.ended(ctx)
}

// hold starts runs until so many hold a token.
func (m *many) hold(ctx context.Context) error {
	failed := make(chan error, 1)
	for range m.inFlight {
		m.next++
		run := "w9-" + strconv.Itoa(m.next)
		input, _ := json.Marshal(run)
		data, _ := json.Marshal(drover.StartRequest{Hash: m.f.hash, Input: input})
		msg := &nats.Msg{Subject: m.f.names.In(drover.RunID(run), drover.VerbStart), Data: data}
		m.f.publisher.PublishNow(msg, func(_ publish.Ack, err error) {
			if err != nil {
				select {
				case failed <- fmt.Errorf("the start of run %s was not stored: %w", run, err):
				default:
				}
			}
		})
	}
	if err := m.claimed(ctx, failed); err != nil {
		return err
	}
	_, err := m.f.settled(ctx) // the runs know that they hold it
	return err
}

// claimed waits until all tokens are taken.
func (m *many) claimed(ctx context.Context, failed <-chan error) error {
	pause := time.NewTicker(settlePause)
	defer pause.Stop()
	last, at := uint64(0), time.Now()
	for {
		s, err := m.f.js.Stream(ctx, subjects.BucketStream(m.f.names.Hooks()))
		if err != nil {
			return err
		}
		switch now := s.CachedInfo().State.Msgs; {
		case now >= uint64(m.inFlight):
			return nil
		case now > last:
			last, at = now, time.Now()
		case time.Since(at) > patience:
			return fmt.Errorf("%d runs hold a token, and %d do not within %v", now, m.inFlight-int(now), patience)
		}
		select {
		case <-pause.C:
		case err := <-failed:
			return err
		case err := <-m.f.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
