package delivery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

func TestDelivery08AThousandSlowSubscribersDelayNobodyElse(t *testing.T) {
	w := newWorld(t, natstest.New(t), func(o *Options) { o.DrainTimeout = time.Millisecond })
	stop := w.run()
	got := make(chan *nats.Msg, 1<<17)
	w.serve("slow.*", func(m *nats.Msg) { got <- m })
	var slow []drover.DeliveryID
	for i := range 1000 {
		n := subject(fmt.Sprint("slow.", i))
		n.Timeout = drover.Duration(drover.MaxReceiptTime)
		for range 60 {
			j := w.job(n)
			slow = append(slow, j.ID)
			w.d.Deliver(j)
		}
	}
	w.serve("quick", func(m *nats.Msg) { w.reply(m, "ok") })
	w.until(func() bool { return len(w.heard) > 0 }) // some of the slow find no room: the worker is full
	var quick []*Job
	for range 1000 {
		j := w.job(subject("quick"))
		quick = append(quick, j)
		w.d.Deliver(j)
	}
	w.until(func() bool { return w.over() == len(quick) })
	w.mu.Lock()
	for _, id := range slow {
		if r := w.records[id]; r.made > 0 {
			t.Errorf("%s was answered", id)
		}
	}
	w.mu.Unlock()
	stop()
	if w.d.held > maxHeld {
		t.Errorf("%d bytes are held", w.d.held)
	}
	for key, tg := range w.d.targets {
		if tg.notify.Subject != "quick" && (tg.flying == 0 || tg.flying > maxFlying) {
			t.Errorf("%d attempts are under way to %q", tg.flying, key)
		}
	}
}

func TestDelivery08WhoeverComesNextFindsRoom(t *testing.T) {
	d := &Deliverer{}
	fill := func(most int) (n int) {
		tg, j := &target{}, &Job{Body: make([]byte, 300)}
		for n < most && d.room(tg, j) {
			tg.held += cost(j)
			d.held += cost(j)
			n++
		}
		return n
	}
	for range 1000 {
		fill(80)
	}
	if n := fill(80); n < 16 {
		t.Errorf("there is room for %d jobs, after a thousand subscribers took what they could", n)
	}
}

func TestWhatHasNoRoomComesAgain(t *testing.T) {
	w := newWorld(t, natstest.New(t))
	w.run()
	got := make(chan *nats.Msg, 1<<12)
	w.serve("slow", func(m *nats.Msg) { got <- m })
	const more = 500
	var jobs []*Job
	for range maxFlying + maxQueued + more {
		j := w.job(subject("slow"))
		jobs = append(jobs, j)
		w.d.Deliver(j)
	}
	w.until(func() bool { return len(w.heard) >= more }) // more, where the loop reads many before it sends
	for _, m := range w.heard {
		if !m.Unmade || m.Error.Code != drover.CodeUnavailable {
			t.Fatalf("heard %+v", m)
		}
	}
	done := make(chan struct{})
	defer func() { <-done }()
	defer close(got)
	go func() {
		defer close(done)
		for m := range got {
			w.reply(m, "ok")
		}
	}()
	w.until(func() bool { return w.over() == len(jobs) })
	for _, j := range jobs {
		if r := w.of(j); r.made != 1 {
			t.Errorf("%s counts %d attempts", j.ID, r.made)
		}
	}
}

func TestOneAttemptOfADeliveryIsUnderWay(t *testing.T) {
	w := newWorld(t, natstest.New(t))
	w.run()
	got := make(chan *nats.Msg, 10)
	w.serve("once", func(m *nats.Msg) { got <- m })
	j := w.job(subject("once"))
	w.d.Deliver(j)
	m := <-got
	w.d.Deliver(j)
	w.d.Found(j)
	w.serve("other", func(m *nats.Msg) { w.reply(m, "ok") })
	w.attempt(w.job(subject("other"))) // the repeats have been read
	if len(got) != 0 {
		t.Errorf("%d repeats were sent", len(got))
	}
	w.reply(m, "ok")
	w.until(func() bool { return w.over() == 2 })
	if len(w.heard) != 2 {
		t.Errorf("heard %d messages", len(w.heard))
	}
}

// The record of a run may be behind, where a worker has just taken it over: an
// attempt comes by its time and out of the list.
func TestDelivery10AnAttemptIsMadeOnceUnderItsNumber(t *testing.T) {
	heard := make(chan drover.HeardMessage, 10)
	w := newWorld(t, natstest.New(t), func(o *Options) { o.Heard = func(_ drover.RunID, m drover.HeardMessage) { heard <- m } })
	w.run()
	asked := 0
	w.serve("app", func(m *nats.Msg) {
		asked++
		if asked == 1 {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error": {"busy"}}})
			return
		}
		w.reply(m, "ok")
	})
	j := w.job(subject("app"))
	for i, step := range []struct {
		attempt int
		token   string
		asked   int // so far
		failed  bool
	}{
		{1, j.Token, 1, true},
		{1, j.Token, 1, true},
		{2, j.Token, 2, false},
		{2, j.Token, 2, false},
		{1, j.Token, 2, false},
		{3, j.Token, 2, false}, // nothing is attempted after a receipt
		{1, "another run's", 3, false},
	} {
		next := *j
		next.Attempt, next.Token = step.attempt, step.token
		w.d.Deliver(&next)
		h := <-heard
		if asked != step.asked || h.Attempt != step.attempt || h.Token != step.token || (h.Error != nil) != step.failed {
			t.Errorf("step %d: asked %d times, heard %+v", i, asked, h)
		}
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	var m made
	for i := range 3 * maxMade {
		m.note(&Job{ID: drover.DeliveryIDOf("r", i), Attempt: 1}, verdict{receipt: strings.Repeat("x", 1000)})
	}
	if len(m.of) != maxMade || len(m.order) != maxMade {
		t.Errorf("%d are remembered, in %d places", len(m.of), len(m.order))
	}
	for i, want := range map[int]bool{2*maxMade - 1: false, 2 * maxMade: true, 3*maxMade - 1: true} {
		if v, ok := m.was(&Job{ID: drover.DeliveryIDOf("r", i), Attempt: 1}); ok != want || len(v.receipt) > maxReceipt {
			t.Errorf("%d is remembered: %v, with %d bytes", i, ok, len(v.receipt))
		}
	}
}

func TestWhatIsUnderWayIsHeardBeforeTheEnd(t *testing.T) {
	w := newWorld(t, natstest.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.d.Run(ctx) }()
	got := make(chan *nats.Msg, 200)
	w.serve("slow", func(m *nats.Msg) { got <- m })
	jobs := make([]*Job, 200)
	for i := range jobs {
		jobs[i] = w.job(subject("slow"))
		w.d.Deliver(jobs[i])
	}
	var flying []*nats.Msg
	for range maxFlying {
		flying = append(flying, <-got)
	}
	cancel()
	for _, m := range flying {
		w.reply(m, "ok")
	}
	sent := len(flying)
	for over := false; !over; {
		select {
		case m := <-got: // sent before it was seen that this is the end
			sent++
			w.reply(m, "ok")
		case err := <-ended:
			over = true
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(w.heard) != sent || w.over() != sent {
		t.Errorf("%d were sent, heard %d messages, %d are over", sent, len(w.heard), w.over())
	}
	w.check()
	w.d.Deliver(jobs[0]) // goes nowhere
	if len(w.d.mailbox) != 0 {
		t.Error("a deliverer that has ended takes jobs")
	}
}

func TestTheEndWaitsForNobodyForLong(t *testing.T) {
	w := newWorld(t, natstest.New(t), func(o *Options) { o.DrainTimeout = time.Millisecond })
	stop := w.run()
	got := make(chan *nats.Msg, 1)
	w.serve("slow", func(m *nats.Msg) { got <- m })
	posted := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(posted)
		<-r.Context().Done()
	}))
	defer srv.Close()
	w.d.opts.Secrets = func(string) [][]byte { return [][]byte{make([]byte, 24)} }
	w.d.Deliver(w.job(subject("slow")))
	w.d.Deliver(w.job(drover.Notify{URL: srv.URL}))
	<-got
	<-posted
	stop()
	if len(w.heard) != 0 {
		t.Errorf("heard %+v", w.heard)
	}
}

// transport is an http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAPanicIsAFailedAttempt(t *testing.T) {
	w := newWorld(t, natstest.New(t), func(o *Options) {
		o.HTTP = &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) { panic("no hands") })}
		o.Secrets = func(string) [][]byte { return [][]byte{make([]byte, 24)} }
	})
	w.run()
	if m := w.attempt(w.job(drover.Notify{URL: "http://x.test/"})); m.Error == nil || m.Error.Code != drover.CodePanic || m.Unmade {
		t.Errorf("heard %+v, error %v", m, m.Error)
	}
}

func TestAURLGetsFewAtOnceAndIsProbed(t *testing.T) {
	var now, most atomic.Int64
	var refused atomic.Bool
	hold := make(chan struct{})
	client := &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
		if refused.Load() {
			return nil, fmt.Errorf("connection refused")
		}
		n := now.Add(1)
		most.Store(max(most.Load(), n))
		<-hold
		now.Add(-1)
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})}
	w := newWorld(t, natstest.New(t), func(o *Options) {
		o.HTTP = client
		o.Secrets = func(string) [][]byte { return [][]byte{make([]byte, 24)} }
	})
	w.run()
	for range 50 {
		w.d.Deliver(w.job(drover.Notify{URL: "http://x.test/"}))
	}
	go func() {
		for range 50 {
			hold <- struct{}{}
		}
	}()
	w.until(func() bool { return w.over() == 50 })
	if most.Load() > maxPosts {
		t.Errorf("%d at once", most.Load())
	}
	refused.Store(true)
	if m := w.attempt(w.job(drover.Notify{URL: "http://x.test/"})); !m.Unmade {
		t.Errorf("heard %+v, error %v", m, m.Error)
	}
	refused.Store(false)
	hold <- struct{}{}
	w.until(func() bool { return w.over() == 51 })
}

func TestALostConnectionIsNoAttempt(t *testing.T) {
	s := natstest.New(t)
	lost, back := make(chan struct{}, 1), make(chan struct{}, 1)
	w := newWorld(t, s, func(o *Options) {
		o.Conn = s.Connect(nats.DisconnectErrHandler(func(*nats.Conn, error) { lost <- struct{}{} }))
	})
	w.nc.SetReconnectHandler(func(*nats.Conn) { back <- struct{}{} })
	w.run()
	w.serve("told", func(m *nats.Msg) { w.reply(m, "ok") })
	s.Stop()
	<-lost
	j := w.job(subject("told"))
	if m := w.attempt(j); !m.Unmade || m.Error.Code != drover.CodeUnavailable {
		t.Errorf("heard %+v", m)
	}
	s.Start()
	<-back
	w.until(func() bool { return w.over() == 1 })
	if r := w.of(j); r.made != 1 {
		t.Errorf("%d attempts", r.made)
	}
}

func TestTargetsAreForgotten(t *testing.T) {
	w := newWorld(t, natstest.New(t))
	stop := w.run()
	w.serve("one-off.*", func(m *nats.Msg) { w.reply(m, "ok") })
	const many = 5000
	for i := range many {
		w.d.Deliver(w.job(subject(fmt.Sprint("one-off.", i))))
	}
	w.until(func() bool { return w.over() == many })
	stop()
	if len(w.d.targets) != 0 || len(w.d.alarms.all) != 0 || len(w.d.inbox.waiting) != 0 {
		t.Errorf("%d targets, %d alarms and %d requests are left", len(w.d.targets), len(w.d.alarms.all), len(w.d.inbox.waiting))
	}
}

func TestCanariesAreBounded(t *testing.T) {
	w := newWorld(t, natstest.New(t))
	stop := w.run()
	const many = 40
	for i := range many {
		j := w.job(subject(fmt.Sprint("gone.", i)))
		j.Body = make([]byte, 1<<20)
		w.attempt(j)
	}
	stop()
	if n := w.d.away.Len(); n != len(w.d.targets) || n != maxCanaries/(1<<20+overhead) || w.d.canaries > maxCanaries {
		t.Errorf("%d are away, of %d targets, with %d bytes", n, len(w.d.targets), w.d.canaries)
	}
	if last := w.d.away.Back().Value.(*target); last.notify.Subject != fmt.Sprint("gone.", many-1) {
		t.Errorf("the last that went away is %s", last.notify.Subject)
	}
}

func TestTheMailboxIsBounded(t *testing.T) {
	w := newWorld(t, natstest.New(t))
	w.serve("told", func(m *nats.Msg) { w.reply(m, "ok") })
	for range 40 { // Run has not begun
		j := w.job(subject("told"))
		j.Body = make([]byte, 1<<20)
		w.d.Deliver(j)
	}
	kept := 0
	for _, e := range w.d.mailbox {
		kept += len(e.job.Body)
	}
	if kept > maxMailbox {
		t.Errorf("%d bytes wait", kept)
	}
	w.run()
	w.until(func() bool { return w.over() == 40 })
	if !slices.ContainsFunc(w.heard, func(m drover.HeardMessage) bool { return m.Unmade }) {
		t.Error("what had no room was not heard of")
	}
}

// dumb keeps alarms in a list.
type dumb []*alarm

func (l *dumb) due(now time.Time) *alarm {
	var first *alarm
	for _, a := range *l {
		if !a.at.After(now) && (first == nil || a.at.Before(first.at)) {
			first = a
		}
	}
	*l = slices.DeleteFunc(*l, func(a *alarm) bool { return a == first })
	return first
}

func FuzzAlarms(f *testing.F) {
	f.Add([]byte{1, 5, 2, 3, 1, 9, 0, 4, 3, 1, 0, 255})
	f.Fuzz(func(t *testing.T, script []byte) {
		var l alarms
		var twin dumb
		start := time.Unix(0, 0)
		all := make([]alarm, 8)
		for i := range all {
			all[i].target = &target{}
		}
		for pair := range slices.Chunk(script, 2) {
			if len(pair) < 2 {
				break
			}
			a := &all[pair[0]%8]
			at := start.Add(time.Duration(pair[1])<<8 + time.Duration(pair[0]%8)) // no two are equal
			switch pair[0] / 8 % 3 {
			case 0:
				l.set(a, at)
				if !slices.Contains(twin, a) {
					twin = append(twin, a)
				}
			case 1:
				l.cancel(a)
				twin = slices.DeleteFunc(twin, func(b *alarm) bool { return a == b })
			case 2:
				if got, want := l.due(at), twin.due(at); got != want {
					t.Fatalf("due by %v: %+v, want %+v", at, got, want)
				}
			}
			if len(l.all) != len(twin) {
				t.Fatalf("%d alarms are set, want %d", len(l.all), len(twin))
			}
		}
	})
}

func BenchmarkDeliver(b *testing.B) {
	for name, n := range map[string]drover.Notify{
		"stream":  {StreamSubject: "kept"},
		"subject": {Subject: "told"},
		"batch":   {Subject: "batch", Batch: &drover.Batch{Max: 100}},
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, natstest.New(b))
			w.stream("KEPT", "kept")
			w.serve("told", func(m *nats.Msg) { w.reply(m, "ok") })
			w.serve("batch", func(m *nats.Msg) { w.receiveBatch(m) })
			job := w.job(n)
			var under sync.WaitGroup
			room := make(chan struct{}, maxQueued)
			w.d.opts.Heard = func(_ drover.RunID, m drover.HeardMessage) {
				if m.Error != nil {
					b.Error(m.Error)
				}
				<-room
				under.Done()
			}
			w.run()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				j := *job
				j.ID = drover.DeliveryIDOf(j.Run, i)
				j.Body = fmt.Appendf(nil, `{"delivery_id":%q,"run_id":%q,"status":"completed","result":{"n":1},"error":null}`, j.ID, j.Run)
				under.Add(1)
				room <- struct{}{}
				w.d.Deliver(&j)
			}
			under.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "outcomes/s")
		})
	}
}
