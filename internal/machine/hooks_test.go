package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

const held = `{"nodes":{
	"in":{"wait":{"hook":"t","hold":true,"timeout":"1m"},"on_error":"continue"},
	"two":{"wait":{"from":"in","timeout":"1m"},"on_error":"continue"},
	"go":{"wait":{"name":"go"},"depends_on":["two"],"require":"terminal"}
},"output":{"with":["${{ nodes.in.output }}","${{ nodes.two.output }}","${{ nodes.go.output }}"]}}`

func TestHooks01AConflictNamesTheOwner(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.wantEffects("claim t for r1/in")
	w.taken("in", "t", false)
	w.wantNode("in", drover.CodeConflict, "other", `"t"`, "run other since 2029-12-31T23:00:00Z")
	w.wantEffects()
	if len(w.s.Hooks) != 0 {
		t.Errorf("the hook is still there: %+v", w.s.Hooks)
	}
}

func TestHooks01ForgedClaimsAreRefused(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	proof := w.last.Effects[0].Claim.Proof
	for _, m := range []drover.ClaimedMessage{
		{Revision: 9, Proof: "forged"},
		{Owner: "other", Lost: true, Proof: Token("s3cret", "r1/in")},
	} {
		w.says("in", "t", m)
		w.wantRefused(drover.CodeForbidden, "proof")
	}
	w.says("two", "t", drover.ClaimedMessage{Revision: 9, Proof: proof})
	w.wantRefused(drover.CodeForbidden)
	w.says("in", "u", drover.ClaimedMessage{Revision: 9, Proof: proof})
	w.wantRefused(drover.CodeForbidden)
	if w.s.Hooks[0].Mark != HookClaiming {
		t.Errorf("a forged claim counted: %+v", w.s.Hooks)
	}
}

func TestHooks02TheSameClaimAgainChangesNothing(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.owned("in", "t")
	record := string(w.record)
	w.owned("in", "t")
	w.says("in", "t", drover.ClaimedMessage{Revision: 5})
	w.taken("in", "t", false)
	if w.last.Changed || string(w.record) != record {
		t.Errorf("what was known already changed the run: %s", w.record)
	}
	w.says("in", "t", drover.ClaimedMessage{Revision: 8})
	if w.s.Hooks[0].Revision != 8 {
		t.Errorf("%+v", w.s.Hooks[0])
	}
}

func TestHooks02TwoNodesWithOneTokenConflict(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"wait":{"hook":"t"}},"b":{"wait":{"hook":"t"},"on_error":"continue"},"c":{"wait":{"hook":"t"},"depends_on":["a"]}},
		"output":{"with":["${{ nodes.a.output }}","${{ nodes.b.output }}","${{ nodes.c.output }}"]}}`)
	w.start(`1`)
	w.wantNode("b", drover.CodeConflict, "r1", "node a", "from: a")
	w.owned("a", "t")
	w.deliverHook("t", `1`, "")
	w.wantEffects("release t of r1/a", "claim t for r1/c")
	w.says("a", "t", drover.ClaimedMessage{Owner: "other", Lost: true})
	w.taken("c", "t", false)
	w.wantNode("c", drover.CodeConflict, "other")
}

func TestHooks03Tokens(t *testing.T) {
	for token, want := range map[string]string{
		`order:${{ input }}`: "order:5", `${{ input }}`: "5", `a b.*.>`: "a b.*.>", `äöü`: "äöü",
	} {
		w := newWorld(t, `{"nodes":{"a":{"wait":{"hook":`+show(token)+`}}},"output":{"from":"node:a"}}`)
		w.start(`5`)
		if got := w.effect(EffectClaim).Claim.Token; got != want {
			t.Errorf("%s gives token %q, want %q", token, got, want)
		}
	}
	for input, code := range map[string]drover.Code{
		`""`: drover.CodeInvalidRequest, `null`: drover.CodeExpression, `{}`: drover.CodeExpression, `"` + strings.Repeat("x", 513) + `"`: drover.CodeTooLarge,
	} {
		w := newWorld(t, `{"nodes":{"a":{"wait":{"hook":"${{ input }}"},"on_error":"continue"}},"output":{"from":"node:a"}}`)
		w.start(input)
		w.wantNode("a", code, "", "the hook of node a", "token")
	}
	made := newWorld(t, `{"nodes":{"a":{"wait":{"hook":true}},"b":{"wait":{"hook":true}}},"output":{"with":["${{ nodes.a.output }}","${{ nodes.b.output }}"]}}`)
	made.start(`1`)
	a, b := made.node("a").Hook, made.node("b").Hook
	if len(a) < 40 || a == b || strings.Contains(a, Token("other", "hook/a")) || a != "h_"+Token("s3cret", "hook/a") {
		t.Errorf("tokens %q and %q", a, b)
	}
}

func TestHooks05TagsAndMetadataAreFixedAtTheClaim(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"wait":{"hook":"t","tags":{"user":"${{ input.user }}"},"metadata":{"at":"${{ input.user + 1 }}"},
		"schema":{"type":"integer"},"takeover":true,"respond":{"status":201,"with":{"hi":"${{ input.user }}"}}}}},"output":{"from":"node:a"}}`)
	w.start(`{"user":7}`)
	c := w.effect(EffectClaim).Claim
	if c.Tags["user"] != "7" || string(c.Metadata) != `{"at":8}` || string(c.Schema) != `{"type":"integer"}` || !c.Takeover || c.Public ||
		string(c.Answer.With) != `{"hi":7}` || c.Answer.Status != 201 || c.Since != epoch || c.ID != "r1/a" {
		t.Errorf("%s", show(c))
	}
	big := newWorld(t, `{"nodes":{"a":{"wait":{"hook":"t","metadata":"${{ input }}"},"on_error":"continue"}},"output":{"from":"node:a"}}`)
	big.start(`"` + strings.Repeat("x", drover.MaxMetadata) + `"`)
	big.wantNode("a", drover.CodeTooLarge, "", "metadata")
}

func TestHooks06TheTokenIsFreeAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		wait  string
		end   func(w *world)
		until string
	}{
		"read":            {`{"hook":"t"}`, func(w *world) { w.deliverHook("t", `1`, "") }, ""},
		"stopped":         {`{"hook":"t"}`, func(w *world) { w.stop("") }, ""},
		"timed out":       {`{"hook":"t","timeout":"1m"}`, func(w *world) { w.pass(time.Minute).tick() }, ""},
		"held to the end": {`{"hook":"t","hold":true}`, func(w *world) { w.deliverHook("t", `1`, "") }, ""},
		"retained":        {`{"hook":"t","retain":"1h"}`, func(w *world) { w.deliverHook("t", `1`, "") }, " at +1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, `{"nodes":{"a":{"wait":`+c.wait+`}},"output":{"from":"node:a"}}`)
			w.start(`1`)
			w.owned("a", "t")
			c.end(w)
			w.wantEffects("release t of r1/a"+c.until, "done")
		})
	}
}

// The claim may be under way still: its release comes after it.
func TestHooks06AGivenUpClaimIsReleased(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.stop("")
	w.wantEffects("release t of r1/in", "done")
	record := string(w.record)
	w.owned("in", "t")
	if w.last.Changed || w.last.Refused != nil || string(w.record) != record {
		t.Error("a claim that was given up came back")
	}
}

func TestHooks07TheVictimOfATakeoverIsTold(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.owned("in", "t")
	w.deliverHook("t", `1`, "")
	w.taken("in", "t", true)
	w.wantNode("two", drover.CodeConflict, "other", "taken over by run other")
	w.wantEffects()
	w.deliverHook("t", `2`, "")
	w.wantRefused(drover.CodeNotFound)

	early := newWorld(t, held)
	early.start(`1`)
	early.taken("in", "t", true) // before it is known that the claim was won
	early.wantNode("in", drover.CodeConflict, "other")
	early.owned("in", "t")
	if early.last.Changed {
		t.Error("a lost claim came back")
	}
	byHand := newWorld(t, held)
	byHand.start(`1`)
	byHand.owned("in", "t")
	byHand.says("in", "t", drover.ClaimedMessage{Lost: true})
	byHand.wantNode("in", drover.CodeReleased, "", "operator")
}

func TestHooks08TheIDComesFirst(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.owned("in", "t")
	w.deliverHook("t", `1`, "a")
	w.deliverHook("t", `2`, "b")
	for range 2 {
		w.deliverHook("t", `1`, "a")
		if got, ok := w.last.Answer.(drover.DeliverReply); !ok || !got.Repeat || w.last.Changed {
			t.Fatalf("%+v", w.last)
		}
		w.deliverHook("t", `9`, "a")
		w.wantRefused(drover.CodeConflict, `"a"`, "token")
		w.deliverHook("u", `1`, "a")
		w.wantRefused(drover.CodeConflict)
		w.stop("") // and once more, when the hook and the run are gone
	}
	w.deliverHook("t", `3`, "c")
	w.wantRefused(drover.CodeNotFound, "run r1 does not hold hook")
}

func TestHooks11ADeliveryAndAClaim(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.hookFrom(drover.DeliverRequest{Hook: "t", Payload: json.RawMessage(`1`)})
	w.wantRefused(drover.CodeNotFound)
	w.deliverHook("t", `1`, "") // has read the claim, and so it is won
	w.wantOutput("in", `1`)
	if h := w.s.Hooks[0]; h.Mark != HookOwned || h.Revision != 7 {
		t.Errorf("%+v", h)
	}
	w.owned("in", "t")
	if w.last.Changed {
		t.Error("the claim was known")
	}
}

func TestHooks12ASchemaRefusesPayloads(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"wait":{"hook":"t","schema":{"type":"integer"}}}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.deliverHook("t", `"x"`, "")
	w.wantRefused(drover.CodeInvalidInput, "node a", "want integer")
	w.deliverHook("t", `5`, "")
	w.wantResult(`5`)
}

func TestHooks13TheInboxIsBoundedAndSmall(t *testing.T) {
	w := newWorld(t, held)
	w.sparing = true
	w.start(`1`)
	w.owned("in", "t")
	for i := range 2 {
		w.deliverHook("t", fmt.Sprintf(`"first %d"`, i), "")
	}
	for i := range drover.MaxUnread {
		w.deliverHook("t", fmt.Sprintf(`{"seq":%d,"text":"a small delivery"}`, i), fmt.Sprintf("id-%d", i))
	}
	if len(w.record) > 256<<10 || len(w.s.Unread) != drover.MaxUnread {
		t.Errorf("%d unread deliveries make a record of %d bytes", len(w.s.Unread), len(w.record))
	}
	w.deliverHook("t", `1`, "one too many")
	w.wantRefused(drover.CodeFull, "1000")
	w.deliverHook("t", `{"seq":7,"text":"a small delivery"}`, "id-7")
	if got, ok := w.last.Answer.(drover.DeliverReply); !ok || !got.Repeat {
		t.Errorf("a repeat of what is there: %+v", w.last.Refused)
	}
	t.Logf("the record has %d bytes", len(w.record))
}

func TestHooks14ADeliveryOrATimeout(t *testing.T) {
	w := newWorld(t, held)
	w.start(`1`)
	w.owned("in", "t")
	w.pass(time.Minute-time.Millisecond).deliverHook("t", ``, "")
	w.wantOutput("in", `null`) // an empty payload is no timeout

	late := newWorld(t, held)
	late.start(`1`)
	late.owned("in", "t")
	record := string(late.record)
	late.pass(time.Minute).deliverHook("t", `1`, "")
	late.wantRefused(drover.CodeNotFound) // its time was up before
	if string(late.record) != record {
		t.Error("a refusal changed the run")
	}
	late.tick()
	late.wantNode("in", drover.CodeTimeout, "", "nothing was delivered", `"t"`, "1m0s")
	late.wantEffects("release t of r1/in")

	claiming := newWorld(t, held)
	claiming.start(`1`)
	claiming.pass(time.Minute).tick()
	claiming.wantNode("in", drover.CodeTimeout, "", "has token")
	claiming.wantEffects("release t of r1/in")
}

func TestHooks15AReleaseIsRefusedWhileSomethingIsUnread(t *testing.T) {
	text := `{"nodes":{"in":{"wait":{"hook":"t","hold":true}},"go":{"wait":{"name":"go"},"depends_on":["in"]},
		"out":{"release":{"hook":"in","unread":"%s"},"depends_on":["go"],"on_error":"continue"},"end":{"wait":{"name":"end"},"depends_on":["out"],"require":"terminal"}},
		"output":{"with":["${{ nodes.out.output }}","${{ nodes.end.output }}"]}}`
	big := `"` + strings.Repeat("x", 3000) + `"`
	for way, output := range map[string]string{"drain": "", "take": `[` + big + `,null,3]`, "discard": `{"discarded":3}`} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, fmt.Sprintf(text, way))
			w.start(`1`)
			w.owned("in", "t")
			for _, payload := range []string{`1`, big, `null`, `3`} {
				w.deliverHook("t", payload, "")
			}
			w.deliver("go", `1`, "")
			if output == "" {
				w.wantNode("out", drover.CodeUnread, "", "3 deliveries", "node in")
				w.wantEffects()
				if len(w.s.Unread) != 3 || len(w.s.Hooks) != 1 {
					t.Errorf("%+v %+v", w.s.Unread, w.s.Hooks)
				}
				return
			}
			w.wantOutput("out", output)
			w.wantEffects("release t of r1/in")
			if len(w.s.Unread) != 0 || (way == "discard") != (len(w.s.Notes) == 1) {
				t.Errorf("%+v %+v", w.s.Unread, w.s.Notes)
			}
		})
	}
}

func TestHooks17WaitersOnAReleasedHookFail(t *testing.T) {
	w := newWorld(t, `{"nodes":{"in":{"wait":{"hook":"t","hold":true}},"go":{"wait":{"name":"go"},"depends_on":["in"]},
		"one":{"wait":{"from":"in"},"on_error":"continue"},"two":{"wait":{"from":"in"},"on_error":"continue"},
		"out":{"release":{"hook":"in"},"depends_on":["go"]},"late":{"wait":{"from":"in"},"depends_on":["out"],"on_error":"continue"}},
		"output":{"with":["${{ nodes.one.output }}","${{ nodes.two.output }}","${{ nodes.late.output }}","${{ nodes.out.output }}"]}}`)
	w.start(`1`)
	w.owned("in", "t")
	w.deliverHook("t", `1`, "")
	w.deliver("go", `1`, "")
	w.wantNode("one", drover.CodeReleased, "", "node out")
	w.wantNode("two", drover.CodeReleased, "")
	w.wantNode("late", drover.CodeReleased, "", "node in")
	w.wantStatus(drover.StatusCompleted)
}
