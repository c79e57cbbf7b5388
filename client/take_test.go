package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// asked gives the verbs that were asked, in order.
func (f *fleet) verbs() string {
	var verbs []string
	for _, r := range f.requests() {
		verb, _, _ := strings.Cut(r, " ")
		verbs = append(verbs, verb)
	}
	return strings.Join(verbs, " ")
}

func waiting() drover.ResultReply {
	return drover.ResultReply{RunID: "run1", Status: drover.StatusRunning}
}

func ended() drover.ResultReply {
	return drover.ResultReply{RunID: "run1", Status: drover.StatusCompleted}
}

func held() drover.HoldReply { return drover.HoldReply{RunID: "run1"} }

func TestDelivery04RunHoldsAndTakesTheOutcome(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	completed := run(drover.StatusCompleted, 9)
	completed.Run.Result = json.RawMessage(`"big"`)
	f.answer("start", drover.StartReply{RunID: "run1", Created: true, Inline: true})
	f.answer("result", waiting(), ended())
	f.answer("status", completed)
	f.answer("consume", held())
	o, err := c.Run(t.Context(), drover.StartRequest{Workflow: "w", RunID: "run1"})
	if err != nil || o.Status != drover.StatusCompleted || string(o.Result) != `"big"` {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	if got := f.verbs(); got != "start result result status consume" {
		t.Errorf("asked %s", got)
	}
	var start drover.StartRequest
	var first, second drover.RunRequest
	var consume drover.WaiterRequest
	for i, into := range []any{&start, &first, &second, nil, &consume} {
		_, body, _ := strings.Cut(f.requests()[i], " ")
		if into != nil && json.Unmarshal([]byte(body), into) != nil {
			t.Errorf("asked %s", body)
		}
	}
	waiter := consume.Waiter
	if waiter == "" || start.Hold == nil || start.Hold.Waiter != waiter || second.Waiter != waiter || consume.RunID != "run1" {
		t.Errorf("it waits under several names: %q", f.requests())
	}
	// The start has held it already, for longer than the first request waits.
	if first.Waiter != "" || first.Wait <= 0 || first.Wait >= start.Hold.For {
		t.Errorf("asked first %+v after a hold for %v", first, start.Hold.For)
	}
}

func TestDelivery06ARaceThatWasLostIsTold(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	f.answer("result", ended())
	f.answer("status", run(drover.StatusFailed, 9))
	f.answer("consume", drover.Errorf(drover.CodeConflict, "its subscribers are told"))
	o, err := c.Take(t.Context(), "run1", "w")
	if o.Status != drover.StatusFailed || !errors.Is(err, drover.CodeConflict) || !strings.Contains(err.Error(), "its subscribers are told") {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	if got := f.verbs(); got != "result status consume" {
		t.Errorf("asked %s", got)
	}
	if asked := f.requests()[0]; !strings.Contains(asked, `"waiter":"w"`) {
		t.Errorf("what was not held by a start is waited for without a hold: %s", asked)
	}
}

func TestDelivery06AWaiterThatGivesUpSaysSo(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	f.answer("release", held())
	ctx, cancel := context.WithCancelCause(t.Context())
	ch := waitFor(func() (drover.Outcome, error) { return c.Take(ctx, "run1", "w") })
	f.awaitHeard("result") // nobody answers
	enough := errors.New("enough")
	cancel(enough)
	if got := await(t, ch, "the end"); !errors.Is(got.err, enough) || got.o.Status != "" {
		t.Errorf("outcome %+v, error %v", got.o, got.err)
	}
	if got := f.verbs(); got != "result release" {
		t.Errorf("asked %s", got)
	}
	f.answer("result", drover.Errorf(drover.CodeNotFound, "no such run"))
	if _, err := c.Take(t.Context(), "run1", "w"); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("error %v", err)
	}
}

// A worker that ends answers a wait at once; one that is away is waited for.
func TestDelivery04AWaitOutlivesWorkers(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	f.answer("result", waiting(), drover.Errorf(drover.CodeUnavailable, "ends"), waiting(), ended())
	f.answer("consume", drover.Errorf(drover.CodeUnavailable, "ends"), held())
	completed := run(drover.StatusCompleted, 9)
	completed.Run.Result = json.RawMessage("1")
	f.answer("status", drover.Errorf(drover.CodeUnavailable, "ends"), completed)
	if o, err := c.Take(t.Context(), "run1", "w"); err != nil || o.Status != drover.StatusCompleted {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	if got := f.verbs(); got != "result result result result status status consume consume" {
		t.Errorf("asked %s", got)
	}
}

func TestDelivery02AStartOnBehalfOfACallSaysSo(t *testing.T) {
	f := newFleet(t)
	headers := make(chan nats.Header, 10)
	if _, err := f.nc.Subscribe("drover.api.>", func(m *nats.Msg) {
		headers <- m.Header
		_ = m.Respond([]byte("{}"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c := f.client(client.Options{})
	ctx := client.WithCall(t.Context(), drover.CallID{Run: "r", Node: "a", Item: drover.NoItem, Attempt: 2}, "secret")
	for name, c := range map[string]struct {
		do   func() error
		says bool
	}{
		"start": {func() error { _, err := c.Start(ctx, drover.StartRequest{ReplyTo: &drover.ReplyTo{}}); return err }, true},
		"hook": {func() error {
			_, err := c.StartOrDeliver(ctx, "t", nil, drover.StartRequest{})
			return err
		}, true},
		"stop":      {func() error { _, err := c.Stop(ctx, "r", ""); return err }, false},
		"elsewhere": {func() error { _, err := c.Start(t.Context(), drover.StartRequest{}); return err }, false},
	} {
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		h := await(t, headers, name)
		if says := h.Get("Drover-Call") == "r/a@2" && h.Get("Drover-Token") == "secret"; says != c.says || !says && len(h) > 0 {
			t.Errorf("%s: headers %v", name, h)
		}
	}
}
