package hook

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// inOrder is a world in which one thing happens after the other.
func inOrder(t *testing.T) *world {
	w := newWorld(t, func([]option) int { return 0 })
	w.eager = true
	return w
}

// ask delivers, and waits for the end of all that follows.
func (w *world) ask(req drover.HookRequest) (*drover.HookReply, error) {
	out := &sent{}
	w.client("client", &req, out)
	w.rest()
	return out.reply, out.err
}

func (w *world) held(t *testing.T) *Held {
	t.Helper()
	held, err := Read(t.Context(), w.hooks, "t")
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func wants(t *testing.T, err error, code drover.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatalf("error %v, want %s", err, code)
	}
}

const fancy = `
output: {from: node:inbox}
nodes:
  inbox:
    wait: {hook: t, retain: 1h, schema: {type: number}, tags: {kind: a}, metadata: {b: 1}}`

// Whenever the state of a run says that it owns the token, whoever reads the key
// is led to that run, in every order of what two claimants do.
func TestHooks04AClaimIsVisibleOnceTheRunKnows(t *testing.T) {
	seen := 0
	explore(t, 2, 0, func(w *world) {
		w.start("one", reader)
		w.start("two", reader)
		for w.step() {
			for _, id := range w.order {
				r := w.runs[id]
				if r.record == nil {
					continue
				}
				s := w.state(r)
				if at := slices.IndexFunc(s.Hooks, func(h machine.Hook) bool { return h.Mark == machine.HookOwned }); at < 0 {
					continue
				}
				seen++
				if held := w.held(t); held == nil || held.Run != id {
					t.Fatalf("run %s owns the token, and its key says %+v", id, held)
				}
			}
		}
	})
	if seen == 0 {
		t.Error("no run owned the token")
	}
}

func TestHooks05WhatTheNodeSaysIsInTheKey(t *testing.T) {
	w := inOrder(t)
	w.start("one", fancy)
	w.rest()
	shown := w.held(t).Shown()
	if shown.RunID != "one" || shown.Node != "inbox" || shown.Tags["kind"] != "a" || string(shown.Metadata) != `{"b":1}` || shown.Schema == nil || shown.Starting || shown.Retained != nil {
		t.Errorf("the hook is %+v", shown)
	}
}

func TestHooks12ASchemaRefusesBeforeAnythingIsStored(t *testing.T) {
	w := inOrder(t)
	w.start("one", fancy)
	w.rest()
	before := w.seq
	_, err := w.ask(drover.HookRequest{Token: "t", ID: "a", Payload: json.RawMessage(`"text"`)})
	wants(t, err, drover.CodeInvalidInput)
	if w.seq != before {
		t.Error("a command was stored")
	}
	if _, err := w.hooks.Reserved(t.Context(), "t", "a"); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("the id was stored: %v", err)
	}
	if reply, err := w.ask(drover.HookRequest{Token: "t", ID: "a", Payload: json.RawMessage(` 7 `)}); err != nil || reply.RunID != "one" {
		t.Errorf("reply %+v, error %v", reply, err)
	}
	if reply, err := w.ask(drover.HookRequest{Token: "t", ID: "a", Payload: json.RawMessage(`7`)}); err != nil || !reply.Repeat {
		t.Errorf("reply %+v, error %v", reply, err)
	}
}

func TestHooks06RetainedTokensAreTakenButNotDeliverable(t *testing.T) {
	w := inOrder(t)
	w.start("one", fancy)
	w.rest()
	if _, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`7`)}); err != nil {
		t.Fatal(err)
	}
	if held := w.held(t); held == nil || held.Retained.IsZero() || held.Shown().Retained == nil || held.Tags["kind"] != "a" {
		t.Fatalf("after the end the hook is %+v", held)
	}
	start := &drover.StartRequest{Hash: w.plan(leader).Hash}
	_, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`8`), Start: start})
	wants(t, err, drover.CodeNotFound)
	w.start("two", reader)
	w.rest()
	if e := w.state(w.runs["two"]).Nodes[0].Error; e == nil || e.Code != drover.CodeConflict || e.Run != "one" {
		t.Fatalf("a claim of a retained token ends with %v", e)
	}
	w.now = w.now.Add(2 * time.Hour)
	if reply, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`8`), Start: start}); err != nil || !reply.Started {
		t.Fatalf("reply %+v, error %v", reply, err)
	}
}

func TestHooks11NobodyHoldsTheToken(t *testing.T) {
	w := inOrder(t)
	_, err := w.ask(drover.HookRequest{Token: "t", ID: "a", Payload: json.RawMessage(`1`)})
	wants(t, err, drover.CodeNotFound)
	if len(w.runs) > 0 {
		t.Error("something was stored")
	}
}

func TestHooks18ARunThatIsOverIsNotStartedAgain(t *testing.T) {
	w := inOrder(t)
	start := &drover.StartRequest{RunID: "mine", Hash: w.plan(reader).Hash}
	if reply, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`1`), Start: start}); err != nil || reply.RunID != "mine" || !reply.Started {
		t.Fatalf("reply %+v, error %v", reply, err)
	}
	_, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`2`), Start: start})
	wants(t, err, drover.CodeTerminal)
	start = &drover.StartRequest{RunID: "mine", Hash: w.plan(reader).Hash, Input: json.RawMessage(`"other"`)}
	_, err = w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`3`), Start: start})
	wants(t, err, drover.CodeConflict)
	if held := w.held(t); held != nil {
		t.Errorf("the token is stuck: %+v", held)
	}
}

// The owner of a partition that does not know that it is none any more repeats
// what has been overtaken.
func TestLateClaimsAndReleasesDoNoHarm(t *testing.T) {
	w := inOrder(t)
	w.start("one", reader)
	early := machine.Claim{Token: "t", Run: "one", ID: "one/inbox", Node: "inbox", Since: w.now, Proof: machine.Token("secret of one", "claim/one/inbox/t")}
	w.rest()
	if _, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	late := func(do func(c *Claimant) error) {
		t.Helper()
		w.spawn("late", false, func(c *calls) {
			if err := do(&Claimant{Claims: c, Runs: c, Log: c, Now: c.clock}); err != nil {
				t.Error(err)
			}
		}, nil)
		w.rest()
	}
	late(func(c *Claimant) error { return c.Claim(t.Context(), &early) })
	if held := w.held(t); held == nil || held.Run != "one" {
		t.Fatalf("the dead claim is %+v", held)
	}
	w.start("two", reader)
	w.rest()
	late(func(c *Claimant) error { return c.Claim(t.Context(), &early) })
	late(func(c *Claimant) error { return c.Release(t.Context(), "t", "one/inbox", time.Time{}) })
	if reply, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`2`)}); err != nil || reply.RunID != "two" {
		t.Fatalf("reply %+v, error %v", reply, err)
	}
	w.check()
}

func TestBadRequestsAreRefused(t *testing.T) {
	w := inOrder(t)
	start := &drover.StartRequest{Hash: w.plan(leader).Hash}
	for name, tc := range map[string]struct {
		req  drover.HookRequest
		code drover.Code
	}{
		"no token":          {drover.HookRequest{}, drover.CodeInvalidRequest},
		"a long token":      {drover.HookRequest{Token: strings.Repeat("t", drover.MaxToken+1)}, drover.CodeInvalidRequest},
		"no UTF-8":          {drover.HookRequest{Token: "\xff"}, drover.CodeInvalidRequest},
		"no JSON":           {drover.HookRequest{Token: "t", Payload: json.RawMessage(`{`)}, drover.CodeInvalidRequest},
		"a long id":         {drover.HookRequest{Token: "t", ID: strings.Repeat("i", 257)}, drover.CodeTooLarge},
		"a big payload":     {drover.HookRequest{Token: "t", Payload: json.RawMessage(`"` + strings.Repeat("p", drover.MaxValue) + `"`)}, drover.CodeTooLarge},
		"what no run takes": {drover.HookRequest{Token: "t", Payload: json.RawMessage(strings.Repeat("[", 2000) + strings.Repeat("]", 2000)), Start: start}, drover.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.ask(tc.req)
			wants(t, err, tc.code)
		})
	}
	if len(w.runs) > 0 || w.held(t) != nil {
		t.Error("something was stored")
	}
}

func TestPublicDeliveriesReachPublicHooksOnly(t *testing.T) {
	w := inOrder(t)
	w.start("one", reader)
	w.rest()
	_, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`1`), Public: true})
	wants(t, err, drover.CodeNotFound)
}

func TestAsyncDeliveriesDoNotWait(t *testing.T) {
	w := inOrder(t)
	w.start("one", reader)
	w.rest()
	if reply, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`1`), Async: true}); err != nil || !reply.Async || reply.RunID != "one" {
		t.Fatalf("reply %+v, error %v", reply, err)
	}
	if !w.ended("one") {
		t.Error("the run has not read it")
	}
}

// What a key holds of a first delivery is what was sent, to the letter: whoever
// finishes the start for a sender that is gone must not be taken for another.
func TestHooks18AStartIsFinishedWithTheVeryPayload(t *testing.T) {
	for _, payload := range []string{`"<p>a & b</p>"`, `"\u003cp\u003e"`, "\"\u2028\"", `{ "a" : [ 1 , "é" ] }`} {
		w := inOrder(t)
		req := drover.HookRequest{Token: "t", ID: "a", Payload: json.RawMessage(payload), Start: &drover.StartRequest{Hash: w.plan(reader).Hash}}
		first := req
		w.client("first", &first, &sent{})
		for w.held(t) == nil {
			w.step()
		}
		gone := w.procs[0]
		gone.dead = true
		gone.stop()
		w.end(gone, true)
		if reply, err := w.ask(req); err != nil || reply.RunID != "r1" {
			t.Errorf("a repeat of %s: reply %+v, error %v", payload, reply, err)
		}
		if !w.ended("r1") {
			t.Errorf("the run has not read %s", payload)
		}
	}
}

func TestAStartWhoseRunFailsAtOnceIsToldSo(t *testing.T) {
	w := inOrder(t)
	const odd = `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: "${{ input }}"}}`
	_, err := w.ask(drover.HookRequest{Token: "t", Payload: json.RawMessage(`1`), Start: &drover.StartRequest{Hash: w.plan(odd).Hash}})
	wants(t, err, drover.CodeTerminal)
	if !strings.Contains(err.Error(), "is failed") {
		t.Errorf("error %v", err)
	}
	if held := w.held(t); held != nil {
		t.Errorf("the token is stuck: %+v", held)
	}
}
