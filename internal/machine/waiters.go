package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/droverhq/drover"
)

// tellSubscribers tells everyone how the run ended, but for those who are told
// only inline while somebody waits who may take the outcome.
func (f *fold) tellSubscribers() {
	held := f.heldUntil()
	for i := range f.s.Notify {
		f.happens(i, Event{Kind: EventEnded, Now: f.now, Ceil: f.ceil, Until: held, ID: f.s.deliveryID(i)})
	}
	f.settleWaiters()
}

// heldUntil is when the last hold is over; 0: there is none.
func (f *fold) heldUntil() Millis {
	var last Millis
	for _, w := range f.s.Waiters {
		if w.Until > f.now {
			last = max(last, w.Until)
		}
	}
	return last
}

// holding reports whether a delivery is held.
func (f *fold) holding() bool {
	return slices.ContainsFunc(f.s.Notify, func(sub Subscriber) bool { return sub.Status == drover.DeliveryHeld })
}

// settleWaiters forgets waiters that have nothing more to wait for.
func (f *fold) settleWaiters() {
	if f.s.Terminal() && !f.holding() {
		f.s.Waiters = nil
	}
}

// held has something happen to all deliveries that are held.
func (f *fold) held(kind EventKind, until Millis) {
	for i := range f.s.Notify {
		if f.s.Notify[i].Status == drover.DeliveryHeld {
			f.happens(i, Event{Kind: kind, Now: f.now, Ceil: f.ceil, Until: until, ID: f.s.deliveryID(i)})
		}
	}
	f.settleWaiters()
}

// inline reports whether somebody is told only inline.
func (s *State) inline() bool {
	return slices.ContainsFunc(s.Notify, func(sub Subscriber) bool { return sub.Notify.Inline })
}

func holdTime(m *drover.HoldRequest) time.Duration {
	const usual = 30 * time.Second
	return cmp.Or(time.Duration(m.For), usual)
}

// hold makes the hold of a waiter, or another in its place. A run that is over
// is held on only while nobody else was told.
func (f *fold) hold(m *drover.HoldRequest) {
	reply := drover.HoldReply{RunID: f.s.Run, Status: f.shown()}
	if f.s.Terminal() && !f.holding() {
		f.answer = reply
		return
	}
	w := Waiter{Name: m.Waiter, Until: after(f.ceil, holdTime(m))}
	waiters := []Waiter{w}
	for _, other := range f.s.Waiters {
		if other.Name != w.Name && other.Until > f.now {
			waiters = append(waiters, other)
		}
	}
	if len(waiters) > drover.MaxWaiters {
		f.refused = drover.Errorf(drover.CodeFull, "%d others wait for the outcome of run %s already: ask for its result without a waiter", drover.MaxWaiters, f.s.Run)
		return
	}
	f.s.Waiters = waiters
	f.changed = true
	if f.s.Terminal() {
		f.held(EventHeld, f.heldUntil())
	}
	reply.HeldUntil = moment(w.Until)
	f.answer = reply
}

// consume records that a waiter has the outcome. Of this and the end of its hold
// one comes first in the log, and the other changes nothing.
func (f *fold) consume(m *drover.WaiterRequest) {
	switch waits := f.waits(m.Waiter); {
	case !f.s.Terminal():
		f.refused = drover.Errorf(drover.CodeConflict, "run %s is not over: there is no outcome that waiter %q could have", f.s.Run, m.Waiter)
	case f.s.Taker == m.Waiter:
		f.answer = drover.HoldReply{RunID: f.s.Run, Status: f.s.Status}
	case f.s.Taker != "":
		f.refused = drover.Errorf(drover.CodeConflict, "the outcome of run %s was taken by another who waited", f.s.Run)
	case !f.s.inline():
		f.answer = drover.HoldReply{RunID: f.s.Run, Status: f.s.Status} // nobody minds
	case f.holding() && !waits:
		f.refused = drover.Errorf(drover.CodeConflict, "the outcome of run %s is held, and not for waiter %q, who has no hold or whose hold is over", f.s.Run, m.Waiter)
	case !f.holding():
		f.refused = drover.Errorf(drover.CodeConflict, "the outcome of run %s is not held for waiter %q any more: its subscribers are told", f.s.Run, m.Waiter)
	default:
		f.s.Taker = m.Waiter
		f.held(EventConsumed, 0)
		f.answer = drover.HoldReply{RunID: f.s.Run, Status: f.s.Status}
	}
}

func (f *fold) waits(name string) bool {
	return slices.ContainsFunc(f.s.Waiters, func(w Waiter) bool { return w.Name == name && w.Until > f.now })
}

// letGo ends the hold of a waiter. The run goes on.
func (f *fold) letGo(m *drover.WaiterRequest) {
	f.answer = drover.HoldReply{RunID: f.s.Run, Status: f.shown()}
	if !slices.ContainsFunc(f.s.Waiters, func(w Waiter) bool { return w.Name == m.Waiter }) {
		return
	}
	f.s.Waiters = slices.DeleteFunc(f.s.Waiters, func(w Waiter) bool { return w.Name == m.Waiter })
	f.changed = true
	switch until := f.heldUntil(); {
	case !f.s.Terminal():
	case until == 0:
		f.held(EventReleased, 0)
	default:
		f.held(EventHeld, until)
	}
}
