package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

const patience = time.Minute

// fleet plays the workers: it answers the API as it is told.
type fleet struct {
	t     *testing.T
	srv   *natstest.Server
	nc    *nats.Conn
	names subjects.Names

	mu      sync.Mutex
	hints   bool             // each status is followed by a hint
	asked   []string         // verb and request
	answers map[string][]any // verb: what is answered in turn, the last one for ever
	heard   chan string      // each verb
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, srv: natstest.New(t), names: subjects.Default(), answers: map[string][]any{}, heard: make(chan string, 1000)}
	f.nc = f.srv.Connect()
	return f
}

func (f *fleet) client(opts client.Options) *client.Client {
	f.t.Helper()
	c, err := client.New(f.srv.Connect(), opts)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// work begins to answer.
func (f *fleet) work() *fleet {
	f.t.Helper()
	_, err := f.nc.Subscribe(f.names.API(">"), func(m *nats.Msg) {
		verb := strings.TrimPrefix(m.Subject, f.names.API(""))
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked = append(f.asked, verb+" "+string(m.Data))
		f.heard <- verb
		list := f.answers[verb]
		if len(list) == 0 {
			return // a worker that is gone
		}
		if len(list) > 1 {
			f.answers[verb] = list[1:]
		}
		reply := nats.NewMsg(m.Reply)
		if e, ok := list[0].(*drover.Error); ok {
			reply.Header.Set(subjects.HeaderCode, string(e.Code))
		}
		reply.Data, _ = json.Marshal(list[0])
		_ = m.RespondMsg(reply)
		for range 100 { // many changes are one look
			if f.hints && verb == "status" {
				_ = f.nc.Publish(f.names.Event("run1"), nil)
			}
		}
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		f.t.Fatal(err)
	}
	return f
}

// answer sets what a verb is answered, in turn.
func (f *fleet) answer(verb string, answers ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[verb] = answers
}

func (f *fleet) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fleet) publish(subject string, v any) {
	f.t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = f.nc.Publish(subject, data)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) awaitHeard(verb string) {
	f.t.Helper()
	for await(f.t, f.heard, verb) != verb {
	}
}

func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("gave up waiting for %s", what)
		panic("unreachable")
	}
}

func run(status drover.Status, applied uint64) drover.StatusReply {
	return drover.StatusReply{Run: drover.Run{ID: "run1", Status: status, Applied: applied, Tags: map[string]string{"a": "b"}}}
}

func TestRequests(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	tests := []struct {
		verb, request string
		answer        any
		do            func(ctx context.Context) (any, error)
	}{
		{
			"start", `{"run_id":"run1","workflow":"w"}`,
			drover.StartReply{RunID: "run1", Created: true},
			func(ctx context.Context) (any, error) {
				return c.Start(ctx, drover.StartRequest{RunID: "run1", Workflow: "w"})
			},
		},
		{
			"start", `{"workflow":"w","idempotency_key":"k"}`,
			drover.StartReply{RunID: "run1"},
			func(ctx context.Context) (any, error) {
				return c.Start(ctx, drover.StartRequest{Workflow: "w", IdempotencyKey: "k"})
			},
		},
		{
			"stop", `{"run_id":"run1","reason":"why"}`,
			drover.StopReply{RunID: "run1", Status: "running"},
			func(ctx context.Context) (any, error) { return c.Stop(ctx, "run1", "why") },
		},
		{
			"tick", `{"run_id":"run1"}`,
			struct{}{},
			func(ctx context.Context) (any, error) { return struct{}{}, c.Tick(ctx, "run1") },
		},
		{
			"deliver", `{"run_id":"run1","name":"n","payload":1,"id":"x"}`,
			drover.DeliverReply{RunID: "run1", Unread: 1},
			func(ctx context.Context) (any, error) {
				return c.Deliver(ctx, drover.DeliverRequest{RunID: "run1", Name: "n", Payload: json.RawMessage("1"), ID: "x"})
			},
		},
		{
			"result", `{"run_id":"run1","node":"n"}`,
			drover.ResultReply{RunID: "run1", Output: json.RawMessage("1")},
			func(ctx context.Context) (any, error) {
				return c.Result(ctx, drover.RunRequest{RunID: "run1", Node: "n"})
			},
		},
		{
			"why", `{"run_id":"run1"}`,
			drover.WhyReply{RunID: "run1", Reasons: []drover.Reason{{Text: "so"}}},
			func(ctx context.Context) (any, error) { return c.Why(ctx, "run1") },
		},
		{
			"list", `{"limit":3}`,
			drover.ListReply{More: true, Runs: []drover.Run{}},
			func(ctx context.Context) (any, error) { return c.List(ctx, drover.ListRequest{Limit: 3}) },
		},
		{
			"definition.put", `{"name":"w","definition":"version: 1"}`,
			drover.DefinitionReply{Hash: "h"},
			func(ctx context.Context) (any, error) {
				return c.PutDefinition(ctx, drover.DefinitionRequest{Name: "w", Definition: json.RawMessage(`"version: 1"`)})
			},
		},
		{
			"definition.get", `{"name":"w"}`,
			drover.DefinitionReply{Hash: "h"},
			func(ctx context.Context) (any, error) {
				return c.GetDefinition(ctx, drover.DefinitionRequest{Name: "w"})
			},
		},
		{
			"definition.list", `{}`,
			drover.DefinitionList{Definitions: []drover.DefinitionReply{{Name: "w", Hash: "h"}}},
			func(ctx context.Context) (any, error) { return c.ListDefinitions(ctx) },
		},
		{
			"dead.list", `{"code":"not_found"}`,
			drover.DeadList{Letters: []drover.DeadLetter{{Sequence: 7}}, More: true},
			func(ctx context.Context) (any, error) {
				return c.ListDead(ctx, drover.DeadListRequest{Code: drover.CodeNotFound})
			},
		},
		{
			"dead.show", `{"sequence":7}`,
			drover.DeadLetter{Sequence: 7, RunID: "a$b", Payload: []byte{0, 255}},
			func(ctx context.Context) (any, error) { return c.ShowDead(ctx, 7) },
		},
		{
			"dead.requeue", `{"sequence":7}`,
			drover.RequeueReply{RunID: "run1", Verb: "stop", Sequence: 9},
			func(ctx context.Context) (any, error) { return c.RequeueDead(ctx, 7) },
		},
		{
			"hook.deliver", `{"token":"order:1","payload":1,"id":"x"}`,
			drover.HookReply{Token: "order:1", RunID: "run1", Unread: 1},
			func(ctx context.Context) (any, error) {
				return c.DeliverHook(ctx, drover.HookRequest{Token: "order:1", Payload: json.RawMessage("1"), ID: "x"})
			},
		},
		{
			"hook.list", `{"tags":{"k":"v"},"prefix":"order:","limit":3}`,
			drover.HookList{Hooks: []drover.Hook{{Token: "order:1", RunID: "run1"}}, More: true},
			func(ctx context.Context) (any, error) {
				filter := drover.HookFilter{Tags: map[string]string{"k": "v"}, Prefix: "order:"}
				return c.ListHooks(ctx, drover.HookListRequest{HookFilter: filter, Limit: 3})
			},
		},
		{
			"hook.show", `{"token":"order:1"}`,
			drover.Hook{Token: "order:1", RunID: "run1", Node: "n"},
			func(ctx context.Context) (any, error) { return c.ShowHook(ctx, "order:1") },
		},
		{
			"hook.release", `{"token":"order:1","force":true}`,
			drover.Hook{Token: "order:1", RunID: "run1"},
			func(ctx context.Context) (any, error) {
				return c.ReleaseHook(ctx, drover.HookTokenRequest{Token: "order:1", Force: true})
			},
		},
		{
			"delivery.list", `{"status":"dead","to":"x.done","limit":5}`,
			drover.DeliveryList{Deliveries: []drover.RunDelivery{{RunID: "run1", Delivery: drover.Delivery{ID: "run1:terminal:0", Status: drover.DeliveryDead, Attempts: 3}}}, More: true},
			func(ctx context.Context) (any, error) {
				filter := drover.DeliveryFilter{Status: drover.DeliveryDead, To: "x.done"}
				return c.ListDeliveries(ctx, drover.DeliveryListRequest{DeliveryFilter: filter, Limit: 5})
			},
		},
		{
			"delivery.show", `{"delivery_id":"run1:terminal:0"}`,
			drover.RunDelivery{RunID: "run1", Delivery: drover.Delivery{ID: "run1:terminal:0", Receipt: "ok"}},
			func(ctx context.Context) (any, error) { return c.ShowDelivery(ctx, "run1:terminal:0") },
		},
		{
			"delivery.replay", `{"delivery_id":"run1:terminal:0"}`,
			drover.ReplayReply{Matched: 1, Replayed: 1},
			func(ctx context.Context) (any, error) {
				return c.ReplayDeliveries(ctx, drover.ReplayRequest{DeliveryID: "run1:terminal:0"})
			},
		},
		{
			"fleet", `{}`,
			drover.FleetReply{Members: []drover.Member{{ID: "w"}}, Partitions: []drover.Partition{{Number: 1, Lag: 2}}},
			func(ctx context.Context) (any, error) { return c.Fleet(ctx) },
		},
	}
	for _, test := range tests {
		t.Run(test.verb, func(t *testing.T) {
			f.answer(test.verb, test.answer)
			got, err := test.do(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if g, w := text(got), text(test.answer); g != w {
				t.Errorf("answer %s, want %s", g, w)
			}
			asked := f.requests()
			if g := asked[len(asked)-1]; g != test.verb+" "+test.request {
				t.Errorf("asked %s, want %s", g, test.request)
			}
			f.answer(test.verb, &drover.Error{Code: drover.CodeConflict, Message: "no", Problems: []drover.Problem{{Place: "p"}}})
			_, err = test.do(t.Context())
			var e *drover.Error
			if !errors.As(err, &e) || e.Code != drover.CodeConflict || e.Message != "no" || len(e.Problems) != 1 {
				t.Errorf("error %v", err)
			}
		})
	}
}

func text(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

func TestDefinitions14StartsCarryAnID(t *testing.T) {
	f := newFleet(t).work()
	f.answer("start", drover.Errorf(drover.CodeUnavailable, "later"), drover.StartReply{Created: true})
	f.answer("deliver", drover.Errorf(drover.CodeUnavailable, "later"), drover.DeliverReply{})
	c := f.client(client.Options{})
	if _, err := c.Start(t.Context(), drover.StartRequest{Workflow: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Deliver(t.Context(), drover.DeliverRequest{RunID: "run1"}); err != nil {
		t.Fatal(err)
	}
	asked := f.requests()
	if len(asked) != 4 || asked[0] != asked[1] || !strings.Contains(asked[0], `"run_id":"r_`) ||
		asked[2] != asked[3] || !strings.Contains(asked[2], `"id":"d_`) {
		t.Errorf("asked %q", asked)
	}
}

func TestNoWorker(t *testing.T) {
	f := newFleet(t)
	_, err := f.client(client.Options{Patience: 500 * time.Millisecond}).Why(t.Context(), "run1")
	if !errors.Is(err, drover.CodeUnavailable) || !strings.Contains(err.Error(), "no worker answers at drover.api.why") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = f.client(client.Options{}).Why(ctx, "run1")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, drover.CodeUnavailable) {
		t.Errorf("error %v", err)
	}
	// One that comes a little later is found.
	f.answer("why", drover.WhyReply{RunID: "run1"})
	answered := make(chan error, 1)
	c := f.client(client.Options{Patience: patience})
	go func() {
		_, err := c.Why(context.Background(), "run1")
		answered <- err
	}()
	f.work()
	if err := await(t, answered, "an answer"); err != nil {
		t.Error(err)
	}
}

func TestAnswersThatCannotBeRead(t *testing.T) {
	f := newFleet(t).work()
	c := f.client(client.Options{})
	f.answer("why", "no object")
	if _, err := c.Why(t.Context(), "run1"); !errors.Is(err, drover.CodeInternal) {
		t.Errorf("error %v", err)
	}
	f.answer("why", &drover.Error{Code: "new_code"})
	if _, err := c.Why(t.Context(), "run1"); !errors.Is(err, drover.Code("new_code")) {
		t.Errorf("error %v", err)
	}
	if _, err := c.Wait(t.Context(), "a.b"); !errors.Is(err, drover.CodeInvalidID) {
		t.Errorf("error %v", err)
	}
	_, err := c.Start(t.Context(), drover.StartRequest{Input: json.RawMessage(text(strings.Repeat("x", 9<<20)))})
	if !errors.Is(err, drover.CodeTooLarge) {
		t.Errorf("error %v", err)
	}
	if _, err := client.New(f.nc, client.Options{Prefix: "No"}); err == nil {
		t.Error("a prefix that is none was taken")
	}
}
