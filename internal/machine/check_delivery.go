package machine

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover"
)

// checkDeliveries holds the deliveries to the run, and to each other.
func (s *State) checkDeliveries() error {
	held, consumed := false, false
	for i := range s.Notify {
		sub := &s.Notify[i]
		if why := sub.unsound(s.Terminal()); why != "" {
			return fmt.Errorf("run %s is %s, and delivery %d is %q, %s: %+v", s.Run, s.Status, i, sub.Status, why, *sub)
		}
		held = held || sub.Status == drover.DeliveryHeld
		consumed = consumed || sub.Status == drover.DeliveryConsumed
		waited := func(w Waiter) bool { return w.Until == sub.Next }
		if sub.Status == drover.DeliveryHeld && !slices.ContainsFunc(s.Waiters, waited) {
			return fmt.Errorf("run %s: delivery %d is held until %d, and nobody holds it so long: %v", s.Run, i, sub.Next, s.Waiters)
		}
	}
	switch {
	case consumed != (s.Taker != "") || consumed && held:
		return fmt.Errorf("run %s: its outcome was taken by %q, deliveries are consumed: %t, held: %t", s.Run, s.Taker, consumed, held)
	case s.Terminal() && !held && len(s.Waiters) > 0:
		return fmt.Errorf("run %s is %s, nothing is held, and there are waiters: %v", s.Run, s.Status, s.Waiters)
	case len(s.Waiters) > drover.MaxWaiters:
		return fmt.Errorf("run %s has %d waiters", s.Run, len(s.Waiters))
	}
	return nil
}

// unsound says what is wrong with the delivery by itself, or "".
func (sub *Subscriber) unsound(ended bool) string {
	status := sub.Status
	begun := sub.Tried != 0 || sub.Base != 0 || sub.Since != 0 || sub.Next != 0 || sub.At != 0 || sub.Listed || sub.Error != nil
	switch {
	case ended == (status == drover.DeliveryNone):
		return "which does not fit"
	case status == drover.DeliveryNone && begun:
		return "and has begun"
	case (sub.Next > 0) != (status == drover.DeliveryPending || status == drover.DeliveryHeld):
		return "and is looked at again, or never is"
	case (sub.At > 0) != status.Over():
		return "and has an end, or none"
	case (sub.Since > 0) != (status == drover.DeliveryPending || status == drover.DeliveryDelivered || status == drover.DeliveryDead):
		return "and has a time since when it is tried, or none"
	case !sub.Notify.Inline && (status == drover.DeliveryHeld || status == drover.DeliveryConsumed):
		return "and is none that is held"
	case status == drover.DeliveryDead && (sub.Error == nil || !sub.Listed), status != drover.DeliveryPending && status != drover.DeliveryDead && sub.Listed:
		return "and is listed without need, or was not, or has no error"
	case status == drover.DeliveryDelivered && (sub.Error != nil || sub.Tried < 1):
		return "and has an error, or no attempt"
	case sub.Tried < sub.Base || sub.Base < 0:
		return "and lost attempts"
	case sub.Unheard < 0 || sub.Unheard > 0 && status != drover.DeliveryPending:
		return "and has attempts that may be heard of, or less than none"
	}
	return ""
}
