package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/api"
)

// gated ends when it is told to go.
const gated = `
nodes:
  gate: {wait: {name: go}}
output: {from: node:gate}
`

// hearer is a subscriber that counts what it is told of each run.
type hearer struct {
	mu    sync.Mutex
	heard map[drover.RunID]int
	more  chan drover.Outcome
}

func (f *fleet) hearer(subject string) *hearer {
	f.t.Helper()
	h := &hearer{heard: map[drover.RunID]int{}, more: make(chan drover.Outcome, 1000)}
	_, err := f.nc.Subscribe(subject, func(m *nats.Msg) {
		var o drover.Outcome
		if err := json.Unmarshal(m.Data, &o); err != nil {
			f.t.Error(err)
		}
		h.mu.Lock()
		h.heard[o.RunID]++
		h.mu.Unlock()
		_ = m.Respond([]byte("thanks"))
		h.more <- o
	})
	if err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

func (h *hearer) count(run drover.RunID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard[run]
}

// next is the next outcome that is told.
func (h *hearer) next(t *testing.T) drover.Outcome {
	t.Helper()
	select {
	case o := <-h.more:
		return o
	case <-time.After(patience):
		t.Fatal("nobody was told")
		panic("unreachable")
	}
}

// goOn ends a gated run.
func (f *fleet) goOn(run drover.RunID) {
	f.t.Helper()
	if _, err := f.Deliver(f.t.Context(), drover.DeliverRequest{RunID: run, Name: "go", Payload: raw("done")}); err != nil {
		f.t.Fatal(err)
	}
}

// settled waits until nothing more happens to the deliveries of a run.
func (f *fleet) settled(run drover.RunID) []drover.Delivery {
	f.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		reply, err := f.Status(f.t.Context(), drover.RunRequest{RunID: run})
		if err != nil || time.Now().After(deadline) {
			f.t.Fatalf("run %s: %+v, %v", run, reply.Run.Deliveries, err)
		}
		over := reply.Run.Status.Terminal()
		for _, d := range reply.Run.Deliveries {
			over = over && d.Status.Over()
		}
		if over {
			return reply.Run.Deliveries
		}
	}
}

type taken struct {
	o   drover.Outcome
	err error
}

func inBackground(do func() (drover.Outcome, error)) <-chan taken {
	got := make(chan taken, 1)
	go func() {
		o, err := do()
		got <- taken{o, err}
	}()
	return got
}

// wanted is a start of a gated run, of which inline and always are told.
func wanted(run drover.RunID) drover.StartRequest {
	return drover.StartRequest{Workflow: "gated", RunID: run, Notify: drover.NotifyList{{Subject: "inline", Inline: true}, {Subject: "always"}}}
}

func newGated(t *testing.T) (f *fleet, inline, always *hearer) {
	t.Helper()
	f = newFleet(t)
	f.put("gated", gated)
	return f, f.hearer("inline"), f.hearer("always")
}

func TestDelivery04WhoWaitsHasTheOutcomeAndNobodyElseIsToldInline(t *testing.T) {
	f, inline, always := newGated(t)
	got := inBackground(func() (drover.Outcome, error) { return f.Run(context.Background(), wanted("r")) })
	f.until("the run", func() bool {
		reply, err := f.Status(t.Context(), drover.RunRequest{RunID: "r"})
		return err == nil && reply.Run.Status == drover.StatusWaiting
	})
	f.goOn("r")
	if g := <-got; g.err != nil || g.o.Status != drover.StatusCompleted || string(g.o.Result) != `"done"` || g.o.RunID != "r" {
		t.Errorf("outcome %+v, error %v", g.o, g.err)
	}
	d := f.settled("r")
	if d[0].Status != drover.DeliveryConsumed || d[0].Attempts != 0 || d[1].Status != drover.DeliveryDelivered {
		t.Errorf("deliveries %+v", d)
	}
	if always.next(t); always.count("r") != 1 || inline.count("r") != 0 {
		t.Errorf("told %d and, inline, %d times", always.count("r"), inline.count("r"))
	}
	// The same again: the run is over, and was taken by another.
	if o, err := f.Run(t.Context(), wanted("r")); !errors.Is(err, drover.CodeConflict) || o.Status != drover.StatusCompleted {
		t.Errorf("outcome %+v, error %v", o, err)
	}
}

func TestDelivery04AFailureIsAnOutcome(t *testing.T) {
	f := newFleet(t)
	f.put("fails", "nodes: {a: {wait: {name: x, timeout: 1ms}}}\noutput: {from: node:a}\n")
	inline := f.hearer("inline")
	start := wanted("r")
	start.Workflow, start.Notify = "fails", start.Notify[:1]
	if o, err := f.Run(t.Context(), start); err != nil || o.Status != drover.StatusFailed || o.Error == nil {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	if d := f.settled("r"); d[0].Status != drover.DeliveryConsumed || inline.count("r") != 0 {
		t.Errorf("deliveries %+v", d)
	}
}

func TestDelivery06GivingUpStopsNoRun(t *testing.T) {
	f, inline, _ := newGated(t)
	enough := errors.New("enough")
	ctx, giveUp := context.WithCancelCause(t.Context())
	got := inBackground(func() (drover.Outcome, error) { return f.Run(ctx, wanted("r")) })
	f.until("the run", func() bool {
		_, err := f.Status(t.Context(), drover.RunRequest{RunID: "r"})
		return err == nil
	})
	giveUp(enough)
	if g := <-got; !errors.Is(g.err, enough) || g.o.Status != "" {
		t.Errorf("outcome %+v, error %v", g.o, g.err)
	}
	if reply, err := f.Status(t.Context(), drover.RunRequest{RunID: "r"}); err != nil || reply.Run.Status.Terminal() {
		t.Errorf("the run is %s, %v", reply.Run.Status, err)
	}
	f.goOn("r")
	if o := inline.next(t); o.RunID != "r" || o.Status != drover.StatusCompleted {
		t.Errorf("told %+v", o)
	}
	if d := f.settled("r"); d[0].Status != drover.DeliveryDelivered {
		t.Errorf("deliveries %+v", d)
	}
}

func TestDelivery06ADeadWaiterFreesTheOutcome(t *testing.T) {
	f, inline, _ := newGated(t)
	start := wanted("r")
	start.Hold = &drover.HoldRequest{Waiter: "dead", For: drover.Duration(300 * time.Millisecond)}
	if reply, err := f.Start(t.Context(), start); err != nil || !reply.Inline {
		t.Fatalf("%+v, %v", reply, err)
	}
	f.goOn("r")
	if o := inline.next(t); o.RunID != "r" {
		t.Errorf("told %+v", o)
	}
	if _, err := f.Consume(t.Context(), "r", "dead"); !errors.Is(err, drover.CodeConflict) {
		t.Errorf("after its hold the waiter took the outcome: %v", err)
	}
	if o, err := f.Take(t.Context(), "r", "late"); !errors.Is(err, drover.CodeConflict) || o.Status != drover.StatusCompleted {
		t.Errorf("outcome %+v, error %v", o, err)
	}
}

func TestDelivery06OneOfTwoWaitersTakesTheOutcome(t *testing.T) {
	f, inline, _ := newGated(t)
	if _, err := f.Start(t.Context(), wanted("r")); err != nil {
		t.Fatal(err)
	}
	var gots []<-chan taken
	for _, name := range []string{"a", "b"} {
		if held, err := f.Hold(t.Context(), drover.HoldRequest{RunID: "r", Waiter: name}); err != nil || held.HeldUntil == nil {
			t.Fatalf("%+v, %v", held, err)
		}
		gots = append(gots, inBackground(func() (drover.Outcome, error) { return f.Take(context.Background(), "r", name) }))
	}
	f.goOn("r")
	won := 0
	for _, got := range gots {
		switch g := <-got; {
		case g.o.Status != drover.StatusCompleted:
			t.Errorf("outcome %+v, error %v", g.o, g.err)
		case g.err == nil:
			won++
		case !errors.Is(g.err, drover.CodeConflict):
			t.Error(g.err)
		}
	}
	if d := f.settled("r"); won != 1 || d[0].Status != drover.DeliveryConsumed || inline.count("r") != 0 {
		t.Errorf("%d took it, deliveries %+v", won, d)
	}
}

// Whoever comes first in the log decides, and the answers say who that was.
func TestDelivery06OfTakingAndLeavingExactlyOneHappens(t *testing.T) {
	f, inline, _ := newGated(t)
	const runs = 60
	var left atomic.Int64
	var racing sync.WaitGroup
	for i := range runs {
		run := drover.RunID(fmt.Sprint("r", i))
		start := wanted(run)
		start.Hold = &drover.HoldRequest{Waiter: "w"}
		if _, err := f.Start(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		f.goOn(run)
		racing.Go(func() { f.over(run, drover.StatusCompleted) })
	}
	racing.Wait()
	took := make([]error, runs)
	for i := range runs {
		run := drover.RunID(fmt.Sprint("r", i))
		racing.Go(func() { _, took[i] = f.Consume(t.Context(), run, "w") })
		racing.Go(func() {
			if _, err := f.Release(t.Context(), run, "w"); err != nil {
				t.Errorf("release of %s: %v", run, err)
			}
		})
	}
	racing.Wait()
	for i := range runs {
		run := drover.RunID(fmt.Sprint("r", i))
		status, want := f.settled(run)[0].Status, drover.DeliveryConsumed
		if took[i] != nil {
			want = drover.DeliveryDelivered
			left.Add(1)
		}
		if told := inline.count(run); status != want || told > 0 != (took[i] != nil) || took[i] != nil && !errors.Is(took[i], drover.CodeConflict) {
			t.Errorf("run %s: consume gave %v, and its subscriber is %s and was told %d times", run, took[i], status, told)
		}
	}
	t.Logf("of %d waiters %d left", runs, left.Load())
}

func TestDelivery04ResultWaits(t *testing.T) {
	f, _, _ := newGated(t)
	if _, err := f.Start(t.Context(), drover.StartRequest{Workflow: "gated", RunID: "r"}); err != nil {
		t.Fatal(err)
	}
	reply, err := f.Result(t.Context(), drover.RunRequest{RunID: "r", Wait: drover.Duration(time.Millisecond)})
	if err != nil || reply.Status != drover.StatusWaiting || reply.HeldUntil != nil {
		t.Errorf("before its end: %+v, %v", reply, err)
	}
	got := make(chan drover.ResultReply, 1)
	go func() {
		reply, err := f.Result(context.Background(), drover.RunRequest{RunID: "r", Wait: drover.Duration(time.Minute), Waiter: "w"})
		if err != nil {
			t.Error(err)
		}
		got <- reply
	}()
	f.goOn("r")
	if reply := <-got; reply.Status != drover.StatusCompleted || string(reply.Output) != `"done"` {
		t.Errorf("at its end: %+v", reply)
	}
	for name, req := range map[string]drover.RunRequest{
		"too long":            {RunID: "r", Wait: drover.Duration(drover.MaxWait + 1)},
		"negative":            {RunID: "r", Wait: -1, Waiter: "w"},
		"of a node":           {RunID: "r", Wait: 1, Node: "gate"},
		"a waiter, no wait":   {RunID: "r", Waiter: "w"},
		"a name of 129 bytes": {RunID: "r", Wait: 1, Waiter: fmt.Sprintf("%129d", 1)},
	} {
		if _, err := f.Result(t.Context(), req); !errors.Is(err, drover.CodeInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, waiter := range []string{"", "w"} {
		if _, err := f.Result(t.Context(), drover.RunRequest{RunID: "nobody", Wait: 1, Waiter: waiter}); !errors.Is(err, drover.CodeNotFound) {
			t.Errorf("no such run: %v", err)
		}
	}
}

// until asks until it is so.
func (f *fleet) until(what string, so func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			f.t.Fatalf("gave up waiting for %s", what)
		}
	}
}

func TestDelivery04WaitsKeepNothingFromBeingAnswered(t *testing.T) {
	o := newOwner(t)
	answers := make(chan *nats.Msg, 3)
	var late *time.Timer
	t.Cleanup(func() { // the service has ended
		late.Stop()
		for range cap(answers) {
			var reply drover.ResultReply
			if m := <-answers; json.Unmarshal(m.Data, &reply) != nil || reply.Status != drover.StatusRunning {
				t.Errorf("at the end of the service: %s", m.Data)
			}
		}
	})
	o.serve(func(c *api.Config) { c.Concurrency = 1 })
	t.Cleanup(func() { // it is asked to end
		late = time.AfterFunc(patience, func() { t.Error("the service waits for those who wait") })
	})
	o.start(`{"run_id":"r","definition":` + plan + `}`)
	inbox := o.nc.NewInbox()
	if _, err := o.nc.ChanSubscribe(inbox, answers); err != nil {
		t.Fatal(err)
	}
	before := o.nc.NumSubscriptions()
	for range cap(answers) {
		if err := o.nc.PublishRequest(o.names.API("result"), inbox, []byte(`{"run_id":"r","wait":"5m"}`)); err != nil {
			t.Fatal(err)
		}
	}
	o.until("three waits", func() bool { return o.nc.NumSubscriptions() == before+cap(answers) })
	o.until("an answer to who does not wait", func() bool {
		var reply drover.ResultReply
		err := o.ask("result", `{"run_id":"r"}`, &reply)
		return err == nil && reply.Status == drover.StatusRunning
	})
	if err := o.ask("result", `{"run_id":"r","wait":"1s","x":"`+fmt.Sprintf("%5000d", 1)+`"}`, nil); !errors.Is(err, drover.CodeTooLarge) {
		t.Errorf("a big request that waits: %v", err)
	}
}
