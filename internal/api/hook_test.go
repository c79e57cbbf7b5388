package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// fleet is a server with a real worker.
type fleet struct {
	*client.Client
	t  testing.TB
	nc *nats.Conn
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	s := natstest.New(t)
	return fleetOn(t, func() *nats.Conn { return s.Connect() })
}

// fleetOn is a fleet whose worker and client have such connections.
func fleetOn(t testing.TB, connect func() *nats.Conn) *fleet {
	t.Helper()
	w, err := worker.New(connect(), worker.Options{Alone: true, Settings: topology.Settings{Partitions: partitions}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("end of the worker: %v", err)
		}
	})
	select {
	case <-w.Ready():
	case <-time.After(patience):
		t.Fatal("gave up waiting for the worker")
	}
	f := &fleet{t: t, nc: connect()}
	if f.Client, err = client.New(f.nc, client.Options{Patience: patience}); err != nil {
		t.Fatal(err)
	}
	return f
}

// put registers a definition.
func (f *fleet) put(name drover.WorkflowName, definition string) {
	f.t.Helper()
	text, err := json.Marshal(definition)
	if err == nil {
		_, err = f.PutDefinition(f.t.Context(), drover.DefinitionRequest{Name: name, Definition: text})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// begin starts a run.
func (f *fleet) begin(workflow drover.WorkflowName, run drover.RunID, input any) {
	f.t.Helper()
	if _, err := f.Start(f.t.Context(), drover.StartRequest{Workflow: workflow, RunID: run, Input: raw(input)}); err != nil {
		f.t.Fatal(err)
	}
}

// held waits until a token is held by a run's node.
func (f *fleet) held(token string) drover.Hook {
	f.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		h, err := f.ShowHook(f.t.Context(), token)
		if err == nil && h.Node != "" {
			return h
		}
		if err != nil && !errors.Is(err, drover.CodeNotFound) || time.Now().After(deadline) {
			f.t.Fatalf("nobody has token %q: %+v, %v", token, h, err)
		}
	}
}

// free waits until nobody has a token.
func (f *fleet) free(token string) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		h, err := f.ShowHook(f.t.Context(), token)
		if errors.Is(err, drover.CodeNotFound) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			f.t.Fatalf("token %q is not free: %+v, %v", token, h, err)
		}
	}
}

// give delivers, and expects that it is accepted.
func (f *fleet) give(token, id string, payload any) drover.HookReply {
	f.t.Helper()
	reply, err := f.DeliverHook(f.t.Context(), drover.HookRequest{Token: token, ID: id, Payload: raw(payload)})
	if err != nil {
		f.t.Fatalf("deliver to %q: %v", token, err)
	}
	return reply
}

// refuse delivers, and expects an error.
func (f *fleet) refuse(code drover.Code, says string, req drover.HookRequest) {
	f.t.Helper()
	if reply, err := f.DeliverHook(f.t.Context(), req); !errors.Is(err, code) || !strings.Contains(err.Error(), says) {
		f.t.Errorf("deliver to %.40q: %+v, error %v; want %s: %s", req.Token, reply, err, code, says)
	}
}

// over waits for the outcome of a run.
func (f *fleet) over(run drover.RunID, status drover.Status) drover.Outcome {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	o, err := f.Wait(ctx, run)
	if err != nil || o.Status != status {
		f.t.Fatalf("outcome of %s: %+v, error %v; want %s", run, o, err, status)
	}
	return o
}

func raw(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// one reads one delivery to the token that is its input.
const one = `
nodes:
  in: {wait: {hook: "${{ input }}", tags: {half: "${{ len(input) % 2 }}"}, schema: {type: [integer, string]}}}
output: {from: node:in}
`

func TestHooks01OneOfManyRacersOwnsTheToken(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	const racers = 20
	var starting sync.WaitGroup
	for i := range racers {
		starting.Go(func() { f.begin("one", drover.RunID(fmt.Sprint("r", i)), "t") })
	}
	starting.Wait()
	owner := f.held("t").RunID
	for i := range racers {
		run := drover.RunID(fmt.Sprint("r", i))
		if run == owner {
			continue
		}
		f.over(run, drover.StatusFailed)
		r, err := f.Result(t.Context(), drover.RunRequest{RunID: run, Node: "in"})
		if err != nil || r.Error == nil || r.Error.Code != drover.CodeConflict || r.Error.Run != owner || !strings.Contains(r.Error.Message, "since ") {
			t.Errorf("run %s: %+v, error %v; want a conflict with %s", run, r.Error, err, owner)
		}
	}
	f.give("t", "", 7) // not before: whoever comes late would find the token free
	if o := f.over(owner, drover.StatusCompleted); string(o.Result) != "7" {
		t.Errorf("outcome %+v", o)
	}
}

func TestHooks03TokensAreAnyText(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	tokens := []string{
		"order:1", "a b", "a.b", "*", ">", "a.*.>", "$JS.API.INFO", "_aGk", "ÄÖ 😀", "\x00", "line\nend", `"quoted\`, "%s", "h_1", strings.Repeat("ü", 256),
	}
	for i, token := range tokens {
		f.begin("one", drover.RunID(fmt.Sprint("r", i)), token)
		h := f.held(token)
		if h.Token != token || h.RunID != drover.RunID(fmt.Sprint("r", i)) || h.Node != "in" {
			t.Errorf("token %q: hook %+v", token, h)
		}
		list, err := f.ListHooks(t.Context(), drover.HookListRequest{HookFilter: drover.HookFilter{Prefix: token}})
		if err != nil || len(list.Hooks) != 1 || list.Hooks[0].Token != token {
			t.Errorf("token %q: list %+v, error %v", token, list, err)
		}
		if reply := f.give(token, "", token); reply.Token != token || reply.RunID != h.RunID {
			t.Errorf("token %q: reply %+v", token, reply)
		}
		var got string
		if o := f.over(h.RunID, drover.StatusCompleted); json.Unmarshal(o.Result, &got) != nil || got != token {
			t.Errorf("token %q: result %s", token, o.Result)
		}
	}
	f.refuse(drover.CodeInvalidRequest, "1 to 512 bytes", drover.HookRequest{})
	f.refuse(drover.CodeInvalidRequest, "1 to 512 bytes", drover.HookRequest{Token: strings.Repeat("x", 513)})
}

func TestHooks08NotFoundStoresNothingAndAnIDIsCheckedFirst(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	f.refuse(drover.CodeNotFound, `"t"`, drover.HookRequest{Token: "t", ID: "x", Payload: raw(1)})
	f.begin("one", "r1", "t")
	if h := f.held("t"); h.Unread == nil || *h.Unread != 0 {
		t.Errorf("hook %+v", h)
	}
	if reply := f.give("t", "x", 2); reply.RunID != "r1" || reply.Repeat { // the first try was none
		t.Errorf("reply %+v", reply)
	}
	if o := f.over("r1", drover.StatusCompleted); string(o.Result) != "2" {
		t.Errorf("outcome %+v", o)
	}
	// The hook is gone, then another's: the id still tells.
	if reply := f.give("t", "x", 2); !reply.Repeat || reply.RunID != "r1" {
		t.Errorf("reply %+v", reply)
	}
	f.refuse(drover.CodeNotFound, "", drover.HookRequest{Token: "t", ID: "y", Payload: raw(3)})
	f.begin("one", "r2", "t")
	f.held("t")
	if reply := f.give("t", "x", 2); !reply.Repeat || reply.RunID != "r1" {
		t.Errorf("reply %+v", reply)
	}
	f.give("t", "z", 4)
	if o := f.over("r2", drover.StatusCompleted); string(o.Result) != "4" {
		t.Errorf("outcome %+v", o)
	}
}

func TestHooks08AsyncIsAnsweredOnceItIsDurable(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	f.begin("one", "r1", "t")
	f.held("t")
	reply, err := f.DeliverHook(t.Context(), drover.HookRequest{Token: "t", Payload: raw(1), Async: true})
	if err != nil || !reply.Async || reply.RunID != "r1" {
		t.Errorf("reply %+v, error %v", reply, err)
	}
	if o := f.over("r1", drover.StatusCompleted); string(o.Result) != "1" {
		t.Errorf("outcome %+v", o)
	}
}

func TestHooks09TheSameIDWithAnotherPayloadIsAConflict(t *testing.T) {
	f := newFleet(t)
	f.put("held", `
nodes:
  first: {wait: {hook: t, hold: true}}
  end: {wait: {name: end}, depends_on: [first]}
output: {from: node:end}
`)
	f.begin("held", "r1", nil)
	f.held("t")
	f.give("t", "x", 1)
	if reply := f.give("t", "x", 1); !reply.Repeat || reply.Unread != 0 {
		t.Errorf("reply %+v", reply)
	}
	f.refuse(drover.CodeConflict, "", drover.HookRequest{Token: "t", ID: "x", Payload: raw(2)})
	if reply := f.give("t", "y", 1); reply.Repeat || reply.Unread != 1 {
		t.Errorf("reply %+v", reply)
	}
	if h := f.held("t"); *h.Unread != 1 {
		t.Errorf("hook %+v", h)
	}
}

func TestHooks12ABadPayloadIsRefusedToItsSender(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	f.begin("one", "r1", "t")
	if h := f.held("t"); len(h.Schema) == 0 {
		t.Errorf("hook %+v", h)
	}
	f.refuse(drover.CodeInvalidInput, "schema", drover.HookRequest{Token: "t", ID: "x", Payload: raw(true)})
	f.refuse(drover.CodeInvalidInput, "schema", drover.HookRequest{
		Token: "new", Payload: raw(true), Start: &drover.StartRequest{RunID: "r2", Workflow: "one", Input: raw("new")},
	})
	if _, err := f.Status(t.Context(), drover.RunRequest{RunID: "r2"}); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("a run was started in vain: %v", err)
	}
	if reply := f.give("t", "x", 5); reply.Repeat {
		t.Errorf("reply %+v", reply)
	}
	f.over("r1", drover.StatusCompleted)
}

func TestHooks13AFullInboxTellsItsSender(t *testing.T) {
	f := newFleet(t)
	f.put("full", `
nodes:
  first: {wait: {hook: t, hold: true}}
  go: {wait: {name: go}, depends_on: [first]}
  rest: {release: {hook: first, unread: take}, depends_on: [go]}
output: {from: node:rest}
`)
	f.begin("full", "r1", nil)
	f.held("t")
	f.give("t", "", -1)
	var sending sync.WaitGroup
	for i := range drover.MaxUnread {
		sending.Go(func() {
			if _, err := f.DeliverHook(t.Context(), drover.HookRequest{Token: "t", Payload: raw(i)}); err != nil {
				t.Errorf("delivery %d: %v", i, err)
			}
		})
	}
	sending.Wait()
	f.refuse(drover.CodeFull, "1000", drover.HookRequest{Token: "t", Payload: raw("too much")})
	// What a wait reads at once needs no room.
	if _, err := f.Deliver(t.Context(), drover.DeliverRequest{RunID: "r1", Name: "go"}); err != nil {
		t.Fatal(err)
	}
	var got []int
	if o := f.over("r1", drover.StatusCompleted); json.Unmarshal(o.Result, &got) != nil {
		t.Fatalf("result %s", o.Result)
	}
	slices.Sort(got)
	if len(got) != drover.MaxUnread || got[0] != 0 || got[len(got)-1] != drover.MaxUnread-1 {
		t.Errorf("%d deliveries were taken", len(got))
	}
}

func TestHooks18StartOrDeliver(t *testing.T) {
	f := newFleet(t)
	f.put("list", `
nodes: {all: {wait: {hook: "list:${{ input }}", count: 20}}}
output: {from: node:all}
`)
	var mu sync.Mutex
	started, runs := 0, map[drover.RunID]bool{}
	var sending sync.WaitGroup
	for i := range 20 {
		sending.Go(func() {
			reply, err := f.StartOrDeliver(t.Context(), "list:1", raw(i), drover.StartRequest{Workflow: "list", Input: raw(1)})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if reply.Started {
				started++
			}
			runs[reply.RunID] = true
		})
	}
	sending.Wait()
	if started != 1 || len(runs) != 1 {
		t.Fatalf("%d started, in runs %v", started, runs)
	}
	for run := range runs {
		var got []int
		if o := f.over(run, drover.StatusCompleted); json.Unmarshal(o.Result, &got) != nil || len(got) != 20 {
			t.Errorf("outcome %+v", o)
		}
	}
}

func TestStartOrDeliverIsCheckedBeforeAnythingIsDurable(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	f.put("made", "nodes: {in: {wait: {hook: true}}}\noutput: {from: node:in}")
	f.put("plain", "nodes: {in: {wait: {hook: other}}}\noutput: {from: node:in}")
	f.put("strict", "input_schema: {type: object}\nnodes: {in: {wait: {hook: t}}}\noutput: {from: node:in}")
	for _, c := range []struct {
		start drover.StartRequest
		code  drover.Code
		says  string
	}{
		{drover.StartRequest{}, drover.CodeInvalidRequest, "does not say what to run"},
		{drover.StartRequest{Workflow: "none"}, drover.CodeNotFound, "none"},
		{drover.StartRequest{Workflow: "made"}, drover.CodeInvalidRequest, `no wait for the token "t" (one with hook: true claims`},
		{drover.StartRequest{Workflow: "plain"}, drover.CodeInvalidRequest, `no wait for the token "t": give it`},
		{drover.StartRequest{Workflow: "strict", Input: raw(1)}, drover.CodeInvalidInput, "input_schema"},
		{drover.StartRequest{Workflow: "one", Hooks: []string{"u"}}, drover.CodeInvalidRequest, "hooks is set by Drover alone"},
		{drover.StartRequest{Workflow: "one", RunID: "a.b"}, drover.CodeInvalidID, "a.b"},
		{drover.StartRequest{Definition: raw("nodes: {a: {cal: f}, b: {wait: {hook: t}, timeout: soon}}")}, drover.CodeInvalidDefinition, "timeout"},
	} {
		f.refuse(c.code, c.says, drover.HookRequest{Token: "t", Start: &c.start})
	}
	if list, err := f.List(t.Context(), drover.ListRequest{}); err != nil || len(list.Runs) != 0 {
		t.Errorf("runs %+v, error %v", list.Runs, err)
	}
	if list, err := f.ListHooks(t.Context(), drover.HookListRequest{}); err != nil || len(list.Hooks) != 0 {
		t.Errorf("hooks %+v, error %v", list.Hooks, err)
	}
	stream, err := natstest.JetStream(t, f.nc).Stream(t.Context(), subjects.Default().Commands())
	if err != nil || stream.CachedInfo().State.LastSeq != 0 {
		t.Errorf("commands were stored: %+v, error %v", stream.CachedInfo().State, err)
	}
	f.refuse(drover.CodeForbidden, "belongs to Drover", drover.HookRequest{Token: "t", Respond: "drover.in.r.stop"})
	if _, err := f.Deliver(t.Context(), drover.DeliverRequest{RunID: "r", Hook: "t", Claim: 7}); !errors.Is(err, drover.CodeInvalidRequest) {
		t.Errorf("error %v", err)
	}
	// The id that a caller chose is that of the run.
	reply, err := f.StartOrDeliver(t.Context(), "t", raw(1), drover.StartRequest{Workflow: "one", RunID: "mine", Input: raw("t")})
	if err != nil || reply.RunID != "mine" || !reply.Started {
		t.Errorf("reply %+v, error %v", reply, err)
	}
	f.over("mine", drover.StatusCompleted)
}

func TestReleaseFreesWhatNobodyCanUse(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	release := func(force bool) (drover.Hook, error) {
		return f.ReleaseHook(t.Context(), drover.HookTokenRequest{Token: "t", Force: force})
	}
	if _, err := release(true); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("a free token: %v", err)
	}
	f.begin("one", "r1", "t")
	f.held("t")
	if _, err := release(false); !errors.Is(err, drover.CodeConflict) || !strings.Contains(err.Error(), "run r1 holds") {
		t.Errorf("a token that is held: %v", err)
	}
	if h, err := release(true); err != nil || h.RunID != "r1" || h.Node != "in" {
		t.Errorf("by force: %+v, error %v", h, err)
	}
	if o := f.over("r1", drover.StatusFailed); !strings.Contains(o.Error.Message, "released") {
		t.Errorf("outcome %+v", o.Error)
	}
	f.begin("one", "r2", "t") // it is free at once
	if h := f.held("t"); h.RunID != "r2" {
		t.Errorf("hook %+v", h)
	}

	// What a crash left: a claim of a run that never was.
	js := natstest.JetStream(t, f.nc)
	claim := `{"token":"dead","run":"gone","id":"gone/in","node":"in","since":"2026-01-02T03:04:05Z"}`
	subject := subjects.BucketKey(subjects.Default().Hooks(), subjects.HookKey("dead"))
	if _, err := js.Publish(t.Context(), subject, []byte(claim)); err != nil {
		t.Fatal(err)
	}
	if h, err := f.ShowHook(t.Context(), "dead"); err != nil || h.RunID != "gone" || h.Unread != nil {
		t.Errorf("hook %+v, error %v", h, err)
	}
	if h, err := f.ReleaseHook(t.Context(), drover.HookTokenRequest{Token: "dead"}); err != nil || h.RunID != "gone" {
		t.Errorf("hook %+v, error %v", h, err)
	}
	if _, err := f.ShowHook(t.Context(), "dead"); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("error %v", err)
	}
}
