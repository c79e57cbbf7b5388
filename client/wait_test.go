package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

type waited struct {
	o   drover.Outcome
	err error
}

func waitFor(do func() (drover.Outcome, error)) <-chan waited {
	ch := make(chan waited, 1)
	go func() {
		o, err := do()
		ch <- waited{o, err}
	}()
	return ch
}

func TestWaitIsTold(t *testing.T) {
	f := newFleet(t).work()
	f.answer("status", run(drover.StatusRunning, 1))
	c := f.client(client.Options{})
	ch := waitFor(func() (drover.Outcome, error) { return c.Wait(context.Background(), "run1") })
	f.awaitHeard("status")
	done := f.names.Done("w", "run1")
	f.publish(done, "junk")
	f.publish(done, drover.Outcome{RunID: "run2", Status: drover.StatusFailed})
	f.publish(done, drover.Outcome{RunID: "run1", Status: drover.StatusRunning})
	want := drover.Outcome{RunID: "run1", Status: drover.StatusCompleted, Result: json.RawMessage(`{"a":1}`), DeliveryID: "d"}
	f.publish(done, want)
	if got := await(t, ch, "the outcome"); got.err != nil || text(got.o) != text(want) {
		t.Errorf("outcome %+v", got)
	}
}

func TestWaitForRunThatEndedBefore(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	completed := run(drover.StatusCompleted, 9)
	f.answer("status", completed)
	f.answer("result", drover.ResultReply{Output: json.RawMessage(`"big"`)})
	o, err := c.Wait(t.Context(), "run1")
	if err != nil || o.Status != drover.StatusCompleted || string(o.Result) != `"big"` || o.Tags["a"] != "b" || o.DeliveryID != "run1:terminal" {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	completed.Run.Result = json.RawMessage("1")
	f.answer("status", completed)
	if o, err := c.Wait(t.Context(), "run1"); err != nil || string(o.Result) != "1" {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	failed := run(drover.StatusFailed, 9)
	failed.Run.Error = drover.Errorf(drover.CodeNodesFailed, "n failed")
	f.answer("status", failed)
	if o, err := c.Wait(t.Context(), "run1"); err != nil || string(o.Result) != "null" || o.Error.Message != "n failed" {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	f.answer("status", drover.Errorf(drover.CodeNotFound, "no such run"))
	if _, err := c.Wait(t.Context(), "run1"); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("error %v", err)
	}
}

func TestWaitOverALostConnection(t *testing.T) {
	f := newFleet(t).work()
	f.answer("status", run(drover.StatusRunning, 1))
	c := f.client(client.Options{})
	ch := waitFor(func() (drover.Outcome, error) { return c.Wait(context.Background(), "run1") })
	f.awaitHeard("status")
	f.srv.Stop()
	f.answer("status", run(drover.StatusCancelled, 2)) // nobody is told
	f.srv.Start()
	if got := await(t, ch, "the outcome"); got.err != nil || got.o.Status != drover.StatusCancelled {
		t.Errorf("outcome %+v", got)
	}
}

func TestWaitEnds(t *testing.T) {
	f := newFleet(t).work()
	f.answer("status", run(drover.StatusRunning, 1))
	ctx, cancel := context.WithCancelCause(t.Context())
	c := f.client(client.Options{})
	ch := waitFor(func() (drover.Outcome, error) { return c.Wait(ctx, "run1") })
	f.awaitHeard("status")
	enough := errors.New("enough")
	cancel(enough)
	if got := await(t, ch, "the end"); !errors.Is(got.err, enough) {
		t.Errorf("error %v", got.err)
	}
	nc := f.srv.Connect()
	c, err := client.New(nc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ch = waitFor(func() (drover.Outcome, error) { return c.Wait(context.Background(), "run1") })
	f.awaitHeard("status")
	nc.Close()
	if got := await(t, ch, "the end"); !errors.Is(got.err, drover.CodeUnavailable) {
		t.Errorf("error %v", got.err)
	}
}

func TestRun(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	req := drover.StartRequest{Workflow: "w", RunID: "run1"}
	f.answer("start", drover.StartReply{RunID: "run1", Created: true})
	ch := waitFor(func() (drover.Outcome, error) { return c.Run(context.Background(), req) })
	f.awaitHeard("start")
	f.publish(f.names.Done("w", "run1"), drover.Outcome{RunID: "run1", Status: drover.StatusCompleted})
	if got := await(t, ch, "the outcome"); got.err != nil || got.o.Status != drover.StatusCompleted {
		t.Errorf("outcome %+v", got)
	}
	if n := len(f.requests()); n != 1 {
		t.Errorf("asked %q, a start is enough", f.requests())
	}
	// The same again: the run is over, and nobody will tell.
	f.answer("start", drover.StartReply{RunID: "run1"})
	f.answer("status", run(drover.StatusFailed, 3))
	if o, err := c.Run(t.Context(), req); err != nil || o.Status != drover.StatusFailed {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	f.answer("start", drover.Errorf(drover.CodeInvalidDefinition, "no"))
	for _, key := range []string{"", "k"} {
		if _, err := c.Run(t.Context(), drover.StartRequest{IdempotencyKey: key}); !errors.Is(err, drover.CodeInvalidDefinition) {
			t.Errorf("error %v", err)
		}
	}
}

// The id that a key makes depends on who asks, and only the fleet knows that.
func TestDefinitions14RunWithAKeyTakesTheIDOfTheFleet(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	id := drover.KeyRunID("another account", "k")
	f.answer("start", drover.StartReply{RunID: id, Created: true})
	f.answer("status", run(drover.StatusRunning, 1))
	ch := waitFor(func() (drover.Outcome, error) {
		return c.Run(context.Background(), drover.StartRequest{Workflow: "w", IdempotencyKey: "k"})
	})
	f.awaitHeard("status")
	f.publish(f.names.Done("w", id), drover.Outcome{RunID: id, Status: drover.StatusCompleted})
	if got := await(t, ch, "the outcome"); got.err != nil || got.o.RunID != id {
		t.Errorf("outcome %+v", got)
	}
	if start := f.requests()[0]; strings.Contains(start, "run_id") {
		t.Errorf("asked %s", start)
	}
}

func TestWatch(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	f.answer("status", run(drover.StatusRunning, 1), run(drover.StatusRunning, 1), run(drover.StatusWaiting, 5), run(drover.StatusFailed, 9))
	f.mu.Lock()
	f.hints = true
	f.mu.Unlock()
	var got []uint64
	for r, err := range c.Watch(t.Context(), "run1") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Applied)
	}
	if text(got) != "[1,5,9]" {
		t.Errorf("saw %v", got)
	}
	f.answer("status", drover.Errorf(drover.CodeNotFound, "no such run"))
	for _, err := range c.Watch(t.Context(), "run1") {
		if !errors.Is(err, drover.CodeNotFound) {
			t.Errorf("error %v", err)
		}
	}
	f.answer("status", run(drover.StatusRunning, 1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range c.Watch(ctx, "run1") {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		cancel()
	}
	for range c.Watch(t.Context(), "run1") {
		break
	}
}
