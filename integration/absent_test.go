package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

const oneCall = "nodes: {a: {call: %s}}\noutput: {from: \"node:a\"}\n"

// still reports what grew while so many other runs went from their start to
// their end: the commands of a run that waits, and how often its call was given
// to somebody.
func (f *fleet) still(waits drover.RunID, fn drover.FunctionName, others int) {
	f.t.Helper()
	before, calls := f.applied(waits), f.delivered(fn)
	for n := range others {
		run := drover.RunID(fmt.Sprintf("beside-%s-%d", waits, n))
		f.publish(run, drover.VerbStart, drover.StartRequest{Definition: text(sequence), Input: number(n)})
		f.completes(run, fmt.Sprint(n+3))
	}
	if after := f.applied(waits); after != before {
		f.t.Errorf("run %s was at command %d, and is at %d although nothing happened", waits, before, after)
	}
	if after := f.delivered(fn); after != calls {
		f.t.Errorf("calls of %s were given to somebody %d times, then %d times", fn, calls, after)
	}
}

func (f *fleet) applied(run drover.RunID) uint64 {
	f.t.Helper()
	s, err := f.Status(context.Background(), drover.RunRequest{RunID: run, Brief: true})
	if err != nil {
		f.t.Fatal(err)
	}
	return s.Run.Applied
}

// delivered is how often calls of a function were given to somebody.
func (f *fleet) delivered(fn drover.FunctionName) uint64 {
	f.t.Helper()
	c, err := f.js.Consumer(context.Background(), names.Calls(), names.Consumer(fn))
	if err != nil {
		return 0 // nobody ever came
	}
	return c.CachedInfo().Delivered.Consumer
}

// why demands that a run waits for one thing, and what is said of it.
func (f *fleet) why(run drover.RunID, waiting, on, says string) {
	f.t.Helper()
	reasons := f.reasons(run)
	if len(reasons) != 1 || reasons[0].Waiting != waiting || reasons[0].On != on || !strings.Contains(reasons[0].Text, says) {
		f.t.Errorf("run %s waits for %+v; want %s of %s, and the words %q", run, reasons, waiting, on, says)
	}
}

func TestSlowOrAbsentFunction(t *testing.T) {
	t.Parallel()
	f, _ := dev(t)
	f.serve(functionsOf(newTally())...)

	t.Run("definitions 13: a function that is not there", func(t *testing.T) {
		f := f.in(t)
		f.publish("absent", drover.VerbStart, drover.StartRequest{Definition: text(fmt.Sprintf(oneCall, "late")), Input: number(7)})
		until(t, "the run", func() bool { _, err := f.Why(t.Context(), "absent"); return err == nil })
		f.why("absent", "call", "late", "no function named late has ever connected")
		f.still("absent", "late", 20)
		status, stdout, _ := launch(t, "why", "absent", "--nats", f.url).wait()
		if status != 0 || !strings.Contains(stdout, "no function named late") {
			t.Errorf("exit status %d, %q", status, stdout)
		}
		f.serve(function.New("late", func(_ context.Context, n int) (int, error) { return n + 1, nil }))
		f.completes("absent", "8")
		f.nothing("absent")
	})

	t.Run("a function that is slow", func(t *testing.T) {
		f := f.in(t)
		begun, release := make(chan struct{}, 10), make(chan struct{})
		f.serve(function.New("slow", func(_ context.Context, n int) (int, error) {
			begun <- struct{}{}
			<-release
			return n, nil
		}))
		f.publish("slow", drover.VerbStart, drover.StartRequest{Definition: text(fmt.Sprintf(oneCall, "slow")), Input: number(7)})
		await(t, begun, "the call")
		f.why("slow", "call", "slow", "1 is being performed")
		f.still("slow", "slow", 20)
		close(release)
		f.completes("slow", "7")
		if len(begun) > 0 {
			t.Errorf("the call was performed %d times", 1+len(begun))
		}
	})

	t.Run("definitions 13: its timeout ends the wait", func(t *testing.T) {
		f := f.in(t)
		f.publish("never", drover.VerbStart, drover.StartRequest{
			Definition: text("nodes: {a: {call: nobody, timeout: 200ms}}\noutput: {from: \"node:a\"}\n"),
		})
		o := f.outcome("never")
		if o.Status != drover.StatusFailed || o.Error == nil || !strings.Contains(o.Error.Message, "node a") {
			t.Errorf("the outcome is %+v, %v", o, o.Error)
		}
	})
}

// in is the same fleet for a part of a test.
func (f *fleet) in(t *testing.T) *fleet {
	part := *f
	part.t = t
	return &part
}

// nothing demands that a run comes to wait for nothing.
func (f *fleet) nothing(run drover.RunID) {
	f.t.Helper()
	until(f.t, "an end of all reasons", func() bool { return len(f.reasons(run)) == 0 })
}

func TestAbsentSubscriber(t *testing.T) {
	t.Parallel()
	f, _ := dev(t)
	f.serve(functionsOf(newTally())...)
	f.publish("alone", drover.VerbStart, drover.StartRequest{
		Definition: text(sequence), Input: number(1), Notify: drover.NotifyList{{Subject: "letters.done"}},
	})
	f.completes("alone", "4")

	// It is tried again by its time, and its subject is asked whether somebody is
	// there. None of that is an attempt, as nothing is sent, and the run has a
	// commit only where it says when it is tried next.
	now := func() (uint64, drover.Delivery) {
		t.Helper()
		s, err := f.Status(t.Context(), drover.RunRequest{RunID: "alone"})
		if err != nil || len(s.Run.Deliveries) != 1 || s.Run.Deliveries[0].Attempts != 0 {
			t.Fatalf("%+v, %v", s.Run.Deliveries, err)
		}
		return s.Run.Applied, s.Run.Deliveries[0]
	}
	var first *time.Time
	until(t, "a second try", func() bool {
		_, d := now()
		if first == nil && d.LastError != nil {
			first = d.NextAt
		}
		return first != nil && d.NextAt != nil && d.NextAt.After(*first)
	})
	f.why("alone", "subscriber", "letters.done", "letters.done")
	before, was := now()
	for n := range 20 {
		run := drover.RunID(fmt.Sprintf("beside-%d", n))
		f.publish(run, drover.VerbStart, drover.StartRequest{Definition: text(sequence), Input: number(n)})
		f.completes(run, fmt.Sprint(n+3))
	}
	if after, is := now(); after != before && is.NextAt.Equal(*was.NextAt) {
		t.Errorf("the run was at command %d, and is at %d although nothing happened", before, after)
	}

	heard := make(chan *nats.Msg, 10)
	if _, err := f.nc.Subscribe("letters.done", func(m *nats.Msg) {
		heard <- m
		_ = m.Respond([]byte("got it"))
	}); err != nil {
		t.Fatal(err)
	}
	m := await(t, heard, "the delivery")
	var o drover.Outcome
	if err := json.Unmarshal(m.Data, &o); err != nil || o.RunID != "alone" || compact(o.Result) != "4" ||
		m.Header.Get("Drover-Delivery") != string(o.DeliveryID) {
		t.Errorf("delivered %s with %v, %v", m.Data, m.Header, err)
	}
	f.nothing("alone")
	s, err := f.Status(t.Context(), drover.RunRequest{RunID: "alone"})
	if err != nil || s.Run.Deliveries[0].Status != drover.DeliveryDelivered || s.Run.Deliveries[0].Receipt != "got it" {
		t.Errorf("deliveries %+v, %v", s.Run.Deliveries, err)
	}
	if letters := f.letters(); len(heard) > 0 || len(letters) > 0 {
		t.Errorf("%d more deliveries, dead letters %v", len(heard), letters)
	}
}
