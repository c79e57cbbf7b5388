package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// The commands of those who wait for the outcome, and of those who were told it.

func (w *world) hold(waiter string, d time.Duration) Step {
	w.t.Helper()
	return w.send(&Command{Verb: drover.VerbHold, Hold: &drover.HoldRequest{Waiter: waiter, For: drover.Duration(d)}})
}

func (w *world) consume(waiter string) Step {
	w.t.Helper()
	return w.send(&Command{Verb: drover.VerbConsume, Waiter: &drover.WaiterRequest{Waiter: waiter}})
}

func (w *world) release(waiter string) Step {
	w.t.Helper()
	return w.send(&Command{Verb: drover.VerbRelease, Waiter: &drover.WaiterRequest{Waiter: waiter}})
}

// replay replays the delivery to a subscriber; "": all.
func (w *world) replay(index string) Step {
	w.t.Helper()
	m := &drover.ReplayMessage{}
	if index != "" {
		m.DeliveryID = drover.DeliveryID(string(w.run) + ":terminal:" + index)
	}
	return w.send(&Command{Verb: drover.VerbReplay, Replay: m})
}

// hears has the run hear of an attempt, with the token of the delivery.
func (w *world) hears(index int, m drover.HeardMessage) Step {
	w.t.Helper()
	m.DeliveryID = w.s.deliveryID(index)
	if m.Token == "" {
		m.Token = Token("s3cret", string(m.DeliveryID))
	}
	return w.send(&Command{Verb: drover.VerbHeard, Heard: &m})
}

// told has the run hear of a call that delivered its outcome.
func (w *world) told(index, attempt int, m drover.ResultMessage) Step {
	w.t.Helper()
	m.Call = drover.CallID{Run: w.run, Node: outcomeNode, Item: index, Attempt: attempt}
	if m.Token == "" {
		m.Token = Token("s3cret", "deliver "+m.Call.String())
	}
	return w.send(&Command{Verb: drover.VerbResult, Result: &m})
}

// begin starts a run that tells some.
func (w *world) begin(notify ...drover.Notify) *world {
	w.t.Helper()
	w.startAs(drover.StartRequest{Notify: notify})
	return w
}

// over is begin, and has a run of oneCall complete.
func (w *world) over(notify ...drover.Notify) *world {
	w.t.Helper()
	w.begin(notify...).ok("a@1", `1`)
	w.wantStatus(drover.StatusCompleted)
	return w
}

const oneCall = `{"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`

// statuses spells the deliveries: status, and attempts where there were some.
func (w *world) statuses() string {
	var list []string
	for _, sub := range w.s.Notify {
		text := string(sub.Status)
		if text == "" {
			text = "none"
		}
		if sub.Tried > 0 {
			text += fmt.Sprintf("@%d", sub.Tried)
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

func (w *world) wantDeliveries(want string) {
	w.t.Helper()
	if got := w.statuses(); got != want {
		w.t.Fatalf("deliveries are %s, want %s\n%s", got, want, w.record)
	}
}

// wantHeld holds that the answer of the last step says that a waiter has the
// outcome until then; 0: that it has nothing.
func (w *world) wantHeld(d time.Duration) {
	w.t.Helper()
	reply, ok := w.last.Answer.(drover.HoldReply)
	if !ok || reply.RunID != w.run || (reply.HeldUntil != nil) != (d > 0) || d > 0 && !reply.HeldUntil.Equal(w.now.Add(d)) {
		w.t.Fatalf("the answer is %s (%v), want it held for %s", show(w.last.Answer), w.last.Refused, d)
	}
}

// next lets time pass until something is due, and ticks.
func (w *world) next() Step {
	w.t.Helper()
	deadline := w.s.Deadline()
	if deadline == 0 {
		w.t.Fatal("nothing is due")
	}
	w.now = deadline.Time()
	return w.tick()
}

// attempt gives the attempt to deliver that the last step set off.
func (w *world) attempt() Effect {
	w.t.Helper()
	return w.effect(EffectDeliver)
}

func bad(text string) *drover.Error { return drover.Errorf("x", "%s", text) }

func raw(text string) json.RawMessage { return json.RawMessage(text) }
