package machine

import (
	"cmp"
	"time"

	"github.com/droverhq/drover"
)

// Subscriber is one who is told the outcome, and how far that is. It changes by
// its step alone.
type Subscriber struct {
	Notify  drover.Notify         `json:"n"`
	Status  drover.DeliveryStatus `json:"s,omitempty"`
	Tried   int                   `json:"a,omitempty"` // attempts that were made
	Base    int                   `json:"o,omitempty"` // as many of them were before the last replay
	Since   Millis                `json:"b,omitempty"` // when it became pending: its age counts from here
	Next    Millis                `json:"t,omitempty"` // pending: the next attempt, unless the one under way is heard of before; held: the hold is over
	At      Millis                `json:"e,omitempty"` // when it was delivered or consumed, or died
	Listed  bool                  `json:"l,omitempty"` // among those that did not succeed at once
	Missed  bool                  `json:"u,omitempty"` // the last attempt found nobody: the next one is due once somebody is there
	Unheard int                   `json:"h,omitempty"` // attempts that were set off since one was heard of
	Error   *drover.Error         `json:"x,omitempty"` // the last
	Absent  bool                  `json:"m,omitempty"` // it is of an attempt that found nobody
	Failed  *drover.Error         `json:"f,omitempty"` // that of the last attempt that was made before it
	Receipt string                `json:"r,omitempty"`

	Done bool `json:"d,omitempty"` // of records of earlier versions: delivered
}

// EventKind says what happens to a delivery.
type EventKind byte

// What may happen to a delivery.
const (
	EventEnded    EventKind = iota // the run is over; Until: somebody holds its outcome until then
	EventHeld                      // a hold was made longer or shorter; Until: it ends then
	EventConsumed                  // a waiter has the outcome
	EventReleased                  // nobody waits any more
	EventDue                       // Next has come
	EventReceived                  // an attempt has a receipt
	EventFailed                    // an attempt was made, and has none
	EventUnmade                    // an attempt found nobody
	EventReplayed                  // somebody wants it tried again
)

// Event is one thing that happens to a delivery.
type Event struct {
	Kind    EventKind
	Now     Millis
	Ceil    Millis // Now, rounded up: pauses count from here
	Until   Millis
	ID      drover.DeliveryID // of the delivery: pauses differ by it
	Attempt int               // received, failed, unmade
	Receipt string
	Error   *drover.Error
}

// step takes an event, and reports whether it changed anything. A delivery that
// is pending after it, with Next 0, wants an attempt at once. All that is not
// in the table of its test changes nothing.
func (sub *Subscriber) step(ev Event) bool {
	switch sub.Status {
	case drover.DeliveryNone:
		return ev.Kind == EventEnded && sub.begin(ev)
	case drover.DeliveryHeld:
		return sub.stepHeld(ev)
	case drover.DeliveryPending:
		return sub.stepPending(ev)
	case drover.DeliveryDead:
		switch ev.Kind {
		case EventReplayed:
			return sub.revive(ev)
		case EventReceived: // late, of an attempt that was given up
			return sub.receive(ev)
		}
	case drover.DeliveryConsumed, drover.DeliveryDelivered:
	}
	return false
}

func (sub *Subscriber) begin(ev Event) bool {
	if sub.Notify.Inline && ev.Until > ev.Now {
		sub.Status, sub.Next = drover.DeliveryHeld, ev.Until
		return true
	}
	return sub.pend(ev)
}

func (sub *Subscriber) stepHeld(ev Event) bool {
	switch ev.Kind {
	case EventHeld:
		changed := sub.Next != ev.Until
		sub.Next = ev.Until
		return changed
	case EventConsumed:
		sub.Status, sub.At, sub.Next = drover.DeliveryConsumed, ev.Now, 0
		return true
	case EventReleased, EventDue:
		return sub.pend(ev)
	}
	return false
}

func (sub *Subscriber) stepPending(ev Event) bool {
	current := ev.Attempt == sub.Tried+1
	switch ev.Kind {
	case EventReceived: // also of an earlier attempt: whoever answered was told
		return sub.receive(ev)
	case EventFailed:
		if !current {
			return false
		}
		sub.Tried++
		sub.Missed, sub.Unheard = false, 0
		sub.fail(ev)
		sub.Absent, sub.Failed = false, nil
		sub.later(ev, deliveryPause(ev.ID, sub.Tried-sub.Base))
		return true
	case EventUnmade:
		if !current {
			return false
		}
		if !sub.Absent && !sub.Missed { // Missed: of a record that an earlier version wrote
			sub.Failed = sub.Error
		}
		sub.Missed, sub.Absent, sub.Unheard = true, true, 0
		sub.fail(ev)
		sub.later(ev, absencePause(ev.ID, ev.Now.Time().Sub(sub.Since.Time())))
		return true
	case EventDue:
		switch {
		case sub.spent(ev.Now):
			sub.die(ev)
		case sub.Notify.Function != "" && !sub.Listed: // nobody has answered, and its queue still has the call
			sub.Next = sub.ends()
		default:
			sub.Next = 0
		}
		return true
	case EventReplayed:
		if ev.Now >= sub.ends() {
			return sub.revive(ev)
		}
		sub.Next, sub.Unheard = 0, 0 // a call that is in its queue is queued again: it may have been lost there
		return true
	}
	return false
}

// spent reports whether the age is used up, and the attempt that comes last has
// been made: one whose end was waited for past the age. A call in a queue has all
// of the age.
func (sub *Subscriber) spent(now Millis) bool {
	return now >= sub.ends() && (sub.Next > sub.ends() || sub.Notify.Function != "")
}

// called reports whether the delivery is a call in a queue, which has it until the
// age is used up.
func (sub *Subscriber) called() bool {
	return sub.Notify.Function != "" && sub.Status == drover.DeliveryPending && (sub.Next == sub.ends() || !sub.Listed)
}

// pend begins to try.
func (sub *Subscriber) pend(ev Event) bool {
	sub.Status, sub.Since, sub.Next, sub.At = drover.DeliveryPending, ev.Now, 0, 0
	sub.Missed, sub.Unheard = false, 0
	return true
}

// revive begins anew: age and attempts count from here.
func (sub *Subscriber) revive(ev Event) bool {
	sub.Base = sub.Tried
	return sub.pend(ev)
}

func (sub *Subscriber) receive(ev Event) bool {
	if ev.Attempt > sub.Tried+1 || ev.Attempt < 1 {
		return false // no attempt has this number
	}
	sub.Tried = max(sub.Tried, ev.Attempt)
	sub.Status, sub.At, sub.Next, sub.Unheard = drover.DeliveryDelivered, ev.Now, 0, 0
	sub.Error, sub.Failed, sub.Absent = nil, nil, false
	sub.Receipt = cut(ev.Receipt, receipt)
	return true
}

func (sub *Subscriber) fail(ev Event) {
	e := *clip(ev.Error)
	e.Message, e.Stack, e.Problems = cut(e.Message, receipt), "", nil
	sub.Error = &e
}

// receipt is how many bytes are kept of what a subscriber says.
const receipt = 256

// later waits for the next attempt, or gives up. The last one comes when the age
// is used up.
func (sub *Subscriber) later(ev Event, pause time.Duration) {
	most := sub.Notify.MaxAttempts
	if ev.Now >= sub.ends() || most > 0 && sub.Tried-sub.Base >= most || ev.Error.Permanent {
		sub.die(ev)
		return
	}
	sub.Next = min(after(ev.Ceil, max(pause, time.Duration(ev.Error.RetryAfter))), sub.ends())
}

func (sub *Subscriber) die(ev Event) {
	sub.Status, sub.At, sub.Next, sub.Unheard = drover.DeliveryDead, ev.Now, 0, 0
	if sub.Error == nil {
		sub.Error = drover.Errorf(drover.CodeTimeout, "there was no receipt in %s", sub.age())
	}
}

// gaveUp says why the delivery is dead, or "".
func (sub *Subscriber) gaveUp() drover.GaveUp {
	most := sub.Notify.MaxAttempts
	switch {
	case sub.Status != drover.DeliveryDead:
		return ""
	case sub.Error != nil && sub.Error.Permanent:
		return drover.GaveUpPermanent
	case sub.At < sub.ends() && most > 0 && sub.Tried-sub.Base >= most:
		return drover.GaveUpAttempts
	}
	return drover.GaveUpAge
}

func (sub *Subscriber) age() time.Duration {
	return cmp.Or(time.Duration(sub.Notify.MaxAge), drover.DefaultDeliveryAge)
}

// ends is when the age is used up.
func (sub *Subscriber) ends() Millis { return sub.Since + Millis(sub.age()/time.Millisecond) }
