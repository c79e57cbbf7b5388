package machine

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// Calls that are still queued when their run ends are never performed, also those
// that the fold took back before it saw that the run ends.
func TestTheEndOfARunWithdrawsWhatTheFoldHasCancelled(t *testing.T) {
	fanout := `"a":{"call":"f","fanout":{"over":"run_input"}}`
	t.Run("items of a fan-out", func(t *testing.T) {
		w := newWorld(t, `{"nodes":{`+fanout+`},"output":{"from":"node:a"}}`)
		w.start(`[1,2,3]`)
		w.fail("a#1@1", drover.Error{Message: "bad item"})
		w.wantStatus(drover.StatusFailed)
		w.wantEffects("withdraw [f]", "done")
		effects, err := Effects(w.p, w.decode(w.record), Compact(w.last.Effects), nil)
		if err != nil || showEffects(effects) != "withdraw [f], done" {
			t.Errorf("made again is %s (%v)", showEffects(effects), err)
		}
	})
	t.Run("but for a queue of a compensation", func(t *testing.T) {
		w := newWorld(t, `{"nodes":{"b":{"call":"g","compensate":{"call":"f"}},`+fanout+`},"output":{"with":["${{ nodes.a.output }}","${{ nodes.b.output }}"]}}`)
		w.start(`[1,2,3]`)
		w.ok("b@1", `1`)
		w.fail("a#1@1", drover.Error{Message: "bad item"})
		w.wantEffects("cancel a#0@1", "cancel a#2@1", "call b/undo@1")
	})
	t.Run("an attempt whose time was up at the end of the run", func(t *testing.T) {
		w := newWorld(t, `{"nodes":{"a":{"call":"f","timeout":"1m","retry":{"max_attempts":1}}},"output":{"from":"node:a"}}`)
		w.start(`1`)
		w.pass(time.Minute).tick()
		w.wantStatus(drover.StatusFailed)
		w.wantEffects("withdraw [f]", "done")
	})
}

// A cancel names its call as the queue does, so that no other is taken out.
func TestACancelHasTheTokenOfItsCall(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","timeout":"1m"}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	sent := w.effect(EffectCall).Call
	w.pass(time.Minute).tick()
	w.wantEffects("cancel a@1", "call a@2")
	for _, call := range []*Call{w.effect(EffectCancel).Call, w.again(EffectCancel).Call} {
		if call.ID != sent.ID || call.Token != sent.Token || call.Function != "f" {
			t.Errorf("sent was %s, cancelled %s", show(sent), show(call))
		}
	}
}

// again makes the effect of the last step again, from its record.
func (w *world) again(kind EffectKind) Effect {
	w.t.Helper()
	effects, err := Effects(w.p, w.decode(w.record), Compact(w.last.Effects), nil)
	for _, e := range effects {
		if e.Kind == kind {
			return e
		}
	}
	w.t.Fatalf("%s is not made again (%v)", kind, err)
	return Effect{}
}
