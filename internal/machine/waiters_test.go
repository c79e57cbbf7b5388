package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

var inline = drover.Notify{Subject: "told.me", Inline: true}

// orders gives every order of some words.
func orders(words []string) [][]string {
	if len(words) == 0 {
		return [][]string{nil}
	}
	var all [][]string
	for i := range words {
		for _, rest := range orders(slices.Concat(words[:i], words[i+1:])) {
			all = append(all, append([]string{words[i]}, rest...))
		}
	}
	return all
}

// Of "the waiter got it" and "the waiter left", exactly one is recorded, in
// whichever order the two, the end of the run, the end of the hold and a second
// waiter come; the loser changes nothing.
func TestDelivery06ExactlyOneOfConsumedAndPending(t *testing.T) {
	taken, left := 0, 0
	for _, order := range orders([]string{"end", "consume", "release", "expire", "hold", "other"}) {
		w := newWorld(t, oneCall).begin(inline)
		w.hold("ann", time.Minute)
		told, took := 0, 0
		play := func(step Step, consumes bool) {
			for _, e := range step.Effects {
				if e.Kind == EffectDeliver {
					told = 1 // and again, as nobody says how that went
				}
			}
			if consumes && step.Refused == nil {
				took++
			}
		}
		for _, what := range order {
			switch what {
			case "end":
				play(w.ok("a@1", `1`), false)
			case "consume":
				play(w.consume("ann"), true)
			case "release":
				play(w.release("ann"), false)
			case "expire":
				play(w.pass(61*time.Second).tick(), false)
			case "hold":
				play(w.hold("ann", time.Minute), false)
			case "other":
				play(w.hold("bob", 30*time.Second), false)
			}
		}
		if w.s.Status != drover.StatusCompleted {
			t.Fatalf("%v: the run is %s", order, w.s.Status) // giving up never stops a run
		}
		if w.s.Deadline() > 0 && w.s.Notify[0].Status == drover.DeliveryHeld {
			play(w.pass(10*time.Minute).tick(), false)
		}
		if took+told != 1 || (took == 1) != (w.s.Notify[0].Status == drover.DeliveryConsumed) || (took == 1) != (w.s.Taker == "ann") {
			t.Errorf("%v: taken %d times, told %d times: %s", order, took, told, w.statuses())
		}
		taken, left = taken+took, left+told
	}
	if taken == 0 || left == 0 {
		t.Errorf("the orders are all alike: %d taken, %d told", taken, left)
	}
}

func TestDelivery06WhoWaits(t *testing.T) {
	t.Run("the waiter has it, and says so twice", func(t *testing.T) {
		w := newWorld(t, oneCall).begin(inline, drover.Notify{Subject: "always"})
		w.hold("ann", time.Minute)
		w.wantHeld(time.Minute)
		w.ok("a@1", `1`)
		w.wantEffects("done", "deliver 1@1") // who is told in any case is told at once
		w.wantDeliveries("held pending")
		w.consume("ann")
		w.wantEffects()
		first := show(w.last.Answer)
		w.wantDeliveries("consumed pending")
		if w.consume("ann"); w.last.Changed || show(w.last.Answer) != first {
			t.Errorf("said twice, it is answered %s, after %s", show(w.last.Answer), first)
		}
		w.release("ann")
		w.consume("bob")
		w.wantRefused(drover.CodeConflict, "another")
		w.replay("")
		w.wantEffects("deliver 1@1")
		w.hold("bob", time.Minute)
		w.wantHeld(0)
		w.wantDeliveries("consumed pending")
	})
	t.Run("the waiter leaves", func(t *testing.T) {
		w := newWorld(t, oneCall).begin(inline)
		w.hold("ann", time.Minute)
		w.ok("a@1", `1`)
		w.release("ann")
		w.wantEffects("deliver 0@1")
		w.consume("ann")
		w.wantRefused(drover.CodeConflict, "ann", "its subscribers are told")
		if w.release("ann"); w.last.Changed {
			t.Error("a waiter left twice")
		}
	})
	t.Run("the waiter dies", func(t *testing.T) {
		w := newWorld(t, oneCall).begin(inline)
		w.hold("ann", 0) // 30 s
		w.wantHeld(30 * time.Second)
		w.ok("a@1", `1`)
		if w.pass(29 * time.Second).tick(); w.last.Changed {
			t.Error("a hold was over too early")
		}
		w.next()
		w.wantEffects("deliver 0@1")
		if w.now.Sub(epoch) != 30*time.Second || len(w.s.Waiters) > 0 {
			t.Errorf("at %s, with %v", w.now, w.s.Waiters)
		}
	})
	t.Run("a hold of the start", func(t *testing.T) {
		w := newWorld(t, oneCall)
		w.startAs(drover.StartRequest{Hold: &drover.HoldRequest{Waiter: "ann", For: drover.Duration(time.Minute)}, Notify: drover.NotifyList{inline}})
		w.ok("a@1", `1`)
		w.wantDeliveries("held")
		w.consume("ann")
		w.wantDeliveries("consumed")
	})
	t.Run("a hold that was over before the run", func(t *testing.T) {
		w := newWorld(t, oneCall).begin(inline)
		w.hold("ann", time.Second)
		w.pass(2*time.Second).ok("a@1", `1`)
		w.wantEffects("done", "deliver 0@1")
	})
	t.Run("a stranger", func(t *testing.T) {
		w := newWorld(t, oneCall).begin(inline)
		w.consume("eve")
		w.wantRefused(drover.CodeConflict, "not over")
		w.hold("ann", time.Minute)
		w.ok("a@1", `1`)
		w.consume("eve")
		w.wantRefused(drover.CodeConflict, "eve", "no hold")
		if w.release("eve"); w.last.Changed {
			t.Error("a stranger ended a hold")
		}
		w.wantDeliveries("held")
	})
	t.Run("nobody minds", func(t *testing.T) {
		w := newWorld(t, oneCall).begin(drover.Notify{Subject: "always"})
		w.hold("ann", time.Minute)
		w.ok("a@1", `1`)
		if w.consume("ann"); w.last.Refused != nil || w.last.Changed || len(w.s.Waiters) > 0 {
			t.Errorf("%v, %v", w.last.Refused, w.s.Waiters)
		}
		w.wantDeliveries("pending")
	})
}

func TestDelivery06SeveralWait(t *testing.T) {
	w := newWorld(t, oneCall).begin(inline)
	for i := range drover.MaxWaiters {
		w.hold(fmt.Sprintf("w%02d", i), time.Duration(i+1)*time.Minute)
		w.wantHeld(time.Duration(i+1) * time.Minute)
	}
	w.hold("late", time.Minute)
	w.wantRefused(drover.CodeFull, "16")
	w.hold("w00", 20*time.Minute) // again is no other
	w.wantHeld(20 * time.Minute)
	w.ok("a@1", `1`)
	if got := w.s.Deadline().Time().Sub(w.now); got != 20*time.Minute {
		t.Fatalf("held for %s, want as long as the last waits", got)
	}
	w.release("w00")
	if got := w.s.Deadline().Time().Sub(w.now); got != 16*time.Minute {
		t.Fatalf("held for %s once the last has left", got)
	}
	w.pass(5 * time.Minute)
	w.consume("w04") // whose hold is just over
	w.wantRefused(drover.CodeConflict)
	w.hold("late", time.Minute) // there is room for as many as are gone
	w.wantHeld(time.Minute)
	w.consume("w10")
	w.wantDeliveries("consumed")
	if w.s.Taker != "w10" || len(w.s.Waiters) > 0 {
		t.Errorf("%q has it, and %v wait", w.s.Taker, w.s.Waiters)
	}
}

func TestDelivery06ARunThatIsHeldSaysSo(t *testing.T) {
	w := newWorld(t, oneCall).begin(inline)
	w.hold("ann", time.Minute)
	w.ok("a@1", `1`)
	w.wantWhy("subscriber: subject told.me is not told before 2030-01-01T00:01:00Z, as ann waits for the run and may take its outcome")
	w.consume("ann")
	w.wantWhy()
}

func TestHoldsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ verb, body, words string }{
		{"hold", `{"waiter":""}`, "1 to 128"},
		{"hold", `{"waiter":"` + strings.Repeat("w", 129) + `"}`, "1 to 128"},
		{"hold", `{"waiter":"a","for":"-1s"}`, "at most 10m"},
		{"hold", `{"waiter":"a","for":"11m"}`, "at most 10m"},
		{"consume", `{}`, "1 to 128"},
		{"release", `{}`, "1 to 128"},
		{"replay", `[]`, "object"},
		{"start", `{"workflow":"w","hold":{"waiter":""}}`, "1 to 128"},
		{"start", `{"workflow":"w","reply_to":true}`, "ask the API"},
		{"heard", `{"delivery_id":"r:terminal:0","unmade":true}`, "no error"},
	} {
		_, _, bad := DecodeCommand(1, epoch, "r", c.verb, []byte(c.body), "")
		if bad == nil || bad.Code != drover.CodeInvalidRequest || !strings.Contains(bad.Message, c.words) {
			t.Errorf("%s %.60s: %v, want %q", c.verb, c.body, bad, c.words)
		}
	}
	if c, _, bad := DecodeCommand(1, epoch, "r", "replay", nil, ""); bad != nil || c.Replay == nil {
		t.Errorf("a replay of all may be empty: %v", bad)
	}
}
