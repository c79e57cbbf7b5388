package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// The table is of times in seconds from here.
const noon = Millis(1_000_000)

func at(seconds int) Millis { return noon + Millis(seconds*1000) }

// spellSub tells all of a delivery, with times as seconds.
func spellSub(sub Subscriber) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s tried=%d", sub.Status, sub.Tried)
	if sub.Base > 0 {
		fmt.Fprintf(&b, " base=%d", sub.Base)
	}
	for _, m := range []struct {
		name string
		at   Millis
	}{{"since", sub.Since}, {"next", sub.Next}, {"at", sub.At}} {
		if m.at > 0 {
			fmt.Fprintf(&b, " %s=%v", m.name, float64(m.at-noon)/1000)
		}
	}
	if sub.Error != nil {
		fmt.Fprintf(&b, " (%s)", sub.Error.Message)
	}
	if sub.Receipt != "" {
		fmt.Fprintf(&b, " %q", sub.Receipt)
	}
	return strings.TrimSpace(b.String())
}

// The deliveries of the table. Those that are tried began at 10, and may be tried
// for 100 s.
func deliveries() map[string]Subscriber {
	n := drover.Notify{Subject: "a.b", MaxAge: drover.Duration(100 * time.Second)}
	inline, call, few := n, n, n
	inline.Inline, few.MaxAttempts = true, 3
	call.Subject, call.Function = "", "f"
	bad := drover.Errorf("x", "bad")
	pending := Subscriber{Notify: n, Status: drover.DeliveryPending, Tried: 2, Since: at(10), Next: at(60), Error: bad}
	with := func(change func(sub *Subscriber)) Subscriber {
		sub := pending
		change(&sub)
		return sub
	}
	return map[string]Subscriber{
		"none":              {Notify: n},
		"none inline":       {Notify: inline},
		"held":              {Notify: inline, Status: drover.DeliveryHeld, Next: at(60)},
		"consumed":          {Notify: inline, Status: drover.DeliveryConsumed, At: at(20)},
		"pending":           pending,
		"pending few":       with(func(sub *Subscriber) { sub.Notify = few }),
		"pending replayed":  with(func(sub *Subscriber) { sub.Notify, sub.Base = few, 2 }),
		"pending last":      with(func(sub *Subscriber) { sub.Next = at(125) }),
		"pending old":       with(func(sub *Subscriber) { sub.Since, sub.Next = at(-50), at(50) }),
		"pending old last":  with(func(sub *Subscriber) { sub.Since, sub.Next = at(-50), at(55) }),
		"pending call":      with(func(sub *Subscriber) { sub.Notify, sub.Next = call, at(110) }),
		"pending call late": with(func(sub *Subscriber) { sub.Notify, sub.Since, sub.Next = call, at(-50), at(50) }),
		"pending call rest": with(func(sub *Subscriber) { sub.Notify, sub.Listed = call, true }),
		"pending call new":  with(func(sub *Subscriber) { sub.Notify, sub.Tried, sub.Error = call, 0, nil }),
		"delivered":         {Notify: n, Status: drover.DeliveryDelivered, Tried: 1, Since: at(10), At: at(20), Receipt: "ok"},
		"dead":              with(func(sub *Subscriber) { sub.Status, sub.Next, sub.At = drover.DeliveryDead, 0, at(50) }),
		"dead call":         with(func(sub *Subscriber) { sub.Notify, sub.Status, sub.Next, sub.At = call, drover.DeliveryDead, 0, at(50) }),
	}
}

// The events of the table. All come at 60.
func events() map[string]Event {
	now := Event{Now: at(60), Ceil: at(60), ID: "r:terminal:0"}
	with := func(kind EventKind, change func(ev *Event)) Event {
		ev := now
		ev.Kind = kind
		if change != nil {
			change(&ev)
		}
		return ev
	}
	heard := func(kind EventKind, attempt int, e *drover.Error) Event {
		return with(kind, func(ev *Event) { ev.Attempt, ev.Error, ev.Receipt = attempt, e, "thanks" })
	}
	bad := drover.Errorf("x", "worse")
	final, later, never := *bad, *bad, *bad
	final.Permanent, later.RetryAfter, never.RetryAfter = true, drover.Duration(20*time.Second), drover.Duration(1000*time.Hour)
	return map[string]Event{
		"ended":             with(EventEnded, nil),
		"ended while held":  with(EventEnded, func(ev *Event) { ev.Until = at(90) }),
		"ended, held once":  with(EventEnded, func(ev *Event) { ev.Until = at(60) }),
		"held longer":       with(EventHeld, func(ev *Event) { ev.Until = at(90) }),
		"held as long":      with(EventHeld, func(ev *Event) { ev.Until = at(60) }),
		"consumed":          with(EventConsumed, nil),
		"released":          with(EventReleased, nil),
		"due":               with(EventDue, nil),
		"received":          heard(EventReceived, 3, nil),
		"received of first": heard(EventReceived, 1, nil),
		"received of none":  heard(EventReceived, 4, nil),
		"received of 0":     heard(EventReceived, 0, nil),
		"failed":            heard(EventFailed, 3, bad),
		"failed before":     heard(EventFailed, 2, bad),
		"failed for good":   heard(EventFailed, 3, &final),
		"failed for 20s":    heard(EventFailed, 3, &later),
		"failed for long":   heard(EventFailed, 3, &never),
		"unmade":            heard(EventUnmade, 3, bad),
		"unmade before":     heard(EventUnmade, 2, bad),
		"replayed":          with(EventReplayed, nil),
	}
}

// transitions is the table: what each event makes of each delivery. Pending with
// no next wants an attempt at once. What is not here changes nothing.
var transitions = map[string]map[string]string{
	"none": {
		"ended":            "pending tried=0 since=60",
		"ended while held": "pending tried=0 since=60",
		"ended, held once": "pending tried=0 since=60",
	},
	"none inline": {
		"ended":            "pending tried=0 since=60",
		"ended while held": "held tried=0 next=90",
		"ended, held once": "pending tried=0 since=60",
	},
	"held": {
		"held longer": "held tried=0 next=90",
		"consumed":    "consumed tried=0 at=60",
		"released":    "pending tried=0 since=60",
		"due":         "pending tried=0 since=60",
	},
	"pending": {
		"due":               "pending tried=2 since=10 (bad)",
		"received":          `delivered tried=3 since=10 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=10 at=60 "thanks"`,
		"failed":            "pending tried=3 since=10 next=63.939 (worse)",
		"failed for good":   "dead tried=3 since=10 at=60 (worse)",
		"failed for 20s":    "pending tried=3 since=10 next=80 (worse)",
		"failed for long":   "pending tried=3 since=10 next=110 (worse)",
		"unmade":            "pending tried=2 since=10 next=106.22 (worse)",
		"replayed":          "pending tried=2 since=10 (bad)",
	},
	"pending few": {
		"due":               "pending tried=2 since=10 (bad)",
		"received":          `delivered tried=3 since=10 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=10 at=60 "thanks"`,
		"failed":            "dead tried=3 since=10 at=60 (worse)",
		"failed for good":   "dead tried=3 since=10 at=60 (worse)",
		"failed for 20s":    "dead tried=3 since=10 at=60 (worse)",
		"failed for long":   "dead tried=3 since=10 at=60 (worse)",
		"unmade":            "pending tried=2 since=10 next=106.22 (worse)",
		"replayed":          "pending tried=2 since=10 (bad)",
	},
	"pending replayed": {
		"due":               "pending tried=2 base=2 since=10 (bad)",
		"received":          `delivered tried=3 base=2 since=10 at=60 "thanks"`,
		"received of first": `delivered tried=2 base=2 since=10 at=60 "thanks"`,
		"failed":            "pending tried=3 base=2 since=10 next=60.938 (worse)", // the first of three
		"failed for good":   "dead tried=3 base=2 since=10 at=60 (worse)",
		"failed for 20s":    "pending tried=3 base=2 since=10 next=80 (worse)",
		"failed for long":   "pending tried=3 base=2 since=10 next=110 (worse)",
		"unmade":            "pending tried=2 base=2 since=10 next=106.22 (worse)",
		"replayed":          "pending tried=2 base=2 since=10 (bad)",
	},
	"pending last": {
		"due":               "pending tried=2 since=10 (bad)",
		"received":          `delivered tried=3 since=10 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=10 at=60 "thanks"`,
		"failed":            "pending tried=3 since=10 next=63.939 (worse)",
		"failed for good":   "dead tried=3 since=10 at=60 (worse)",
		"failed for 20s":    "pending tried=3 since=10 next=80 (worse)",
		"failed for long":   "pending tried=3 since=10 next=110 (worse)",
		"unmade":            "pending tried=2 since=10 next=106.22 (worse)",
		"replayed":          "pending tried=2 since=10 (bad)",
	},
	"pending old": {
		"due":               "pending tried=2 since=-50 (bad)", // the last attempt, at the end of the age
		"received":          `delivered tried=3 since=-50 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=-50 at=60 "thanks"`,
		"failed":            "dead tried=3 since=-50 at=60 (worse)",
		"failed for good":   "dead tried=3 since=-50 at=60 (worse)",
		"failed for 20s":    "dead tried=3 since=-50 at=60 (worse)",
		"failed for long":   "dead tried=3 since=-50 at=60 (worse)",
		"unmade":            "dead tried=2 since=-50 at=60 (worse)",
		"replayed":          "pending tried=2 base=2 since=60 (bad)",
	},
	"pending old last": {
		"due":               "dead tried=2 since=-50 at=60 (bad)",
		"received":          `delivered tried=3 since=-50 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=-50 at=60 "thanks"`,
		"failed":            "dead tried=3 since=-50 at=60 (worse)",
		"failed for good":   "dead tried=3 since=-50 at=60 (worse)",
		"failed for 20s":    "dead tried=3 since=-50 at=60 (worse)",
		"failed for long":   "dead tried=3 since=-50 at=60 (worse)",
		"unmade":            "dead tried=2 since=-50 at=60 (worse)",
		"replayed":          "pending tried=2 base=2 since=60 (bad)",
	},
	"pending call": {
		"due":               "pending tried=2 since=10 next=110 (bad)", // its queue has the call: it is only listed
		"received":          `delivered tried=3 since=10 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=10 at=60 "thanks"`,
		"failed":            "pending tried=3 since=10 next=63.939 (worse)",
		"failed for good":   "dead tried=3 since=10 at=60 (worse)",
		"failed for 20s":    "pending tried=3 since=10 next=80 (worse)",
		"failed for long":   "pending tried=3 since=10 next=110 (worse)",
		"unmade":            "pending tried=2 since=10 next=106.22 (worse)",
		"replayed":          "pending tried=2 since=10 (bad)",
	},
	"pending call rest": {
		"due":               "pending tried=2 since=10 (bad)",
		"received":          `delivered tried=3 since=10 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=10 at=60 "thanks"`,
		"failed":            "pending tried=3 since=10 next=63.939 (worse)",
		"failed for good":   "dead tried=3 since=10 at=60 (worse)",
		"failed for 20s":    "pending tried=3 since=10 next=80 (worse)",
		"failed for long":   "pending tried=3 since=10 next=110 (worse)",
		"unmade":            "pending tried=2 since=10 next=106.22 (worse)",
		"replayed":          "pending tried=2 since=10 (bad)",
	},
	"pending call new": {
		"due":               "pending tried=0 since=10 next=110", // nobody has answered: it is listed
		"received of first": `delivered tried=1 since=10 at=60 "thanks"`,
		"replayed":          "pending tried=0 since=10",
	},
	"pending call late": {
		"due":               "dead tried=2 since=-50 at=60 (bad)", // its call had all of the age
		"received":          `delivered tried=3 since=-50 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=-50 at=60 "thanks"`,
		"failed":            "dead tried=3 since=-50 at=60 (worse)",
		"failed for good":   "dead tried=3 since=-50 at=60 (worse)",
		"failed for 20s":    "dead tried=3 since=-50 at=60 (worse)",
		"failed for long":   "dead tried=3 since=-50 at=60 (worse)",
		"unmade":            "dead tried=2 since=-50 at=60 (worse)",
		"replayed":          "pending tried=2 base=2 since=60 (bad)",
	},
	"dead": {
		"received":          `delivered tried=3 since=10 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=10 at=60 "thanks"`,
		"replayed":          "pending tried=2 base=2 since=60 (bad)",
	},
	"dead call": {
		"received":          `delivered tried=3 since=10 at=60 "thanks"`,
		"received of first": `delivered tried=2 since=10 at=60 "thanks"`,
		"replayed":          "pending tried=2 base=2 since=60 (bad)",
	},
}

func TestDelivery06TableOfTransitions(t *testing.T) {
	for name, before := range deliveries() {
		for event, ev := range events() {
			sub := before
			changed := sub.step(ev)
			want, wanted := transitions[name][event]
			if !wanted {
				want = spellSub(before)
			}
			if got := spellSub(sub); changed != wanted || got != want {
				t.Errorf("%s + %s\n gives %s (changed: %t)\n want  %s (changed: %t)", name, event, got, changed, want, wanted)
			}
		}
	}
	for name, row := range transitions {
		for event := range row {
			if _, known := events()[event]; !known || deliveries()[name].Notify.Subject+string(deliveries()[name].Notify.Function) == "" {
				t.Errorf("the table has %s + %s, which is never tried", name, event)
			}
		}
	}
}
