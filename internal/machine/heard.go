package machine

import (
	"strconv"
	"time"

	"github.com/droverhq/drover"
)

// deliveryID is the id of the outcome's delivery to one subscriber.
func (s *State) deliveryID(i int) drover.DeliveryID {
	return drover.DeliveryID(string(s.Run) + ":terminal:" + strconv.Itoa(i))
}

// notify is the effect that delivers the outcome to one subscriber.
func (f *fold) notify(i int) Effect {
	sub := &f.s.Notify[i]
	id := f.s.deliveryID(i)
	return Effect{
		Owed: Owed{Kind: EffectDeliver, Index: i, Attempt: sub.Tried + 1}, Run: f.s.Run,
		Value: f.s.Result, Outcome: f.outcome(id),
		Delivery: &Delivery{ID: id, Notify: sub.Notify, Token: f.token(string(id)), Attempt: sub.Tried + 1},
	}
}

// heard takes how one attempt to deliver the outcome went. It is the one
// command that changes a terminal run.
func (f *fold) heard(m *drover.HeardMessage) {
	i := f.subscriber(m.DeliveryID)
	switch {
	case i < 0:
		f.refused = drover.Errorf(drover.CodeNotFound, "run %s has no delivery %q", f.s.Run, cut(string(m.DeliveryID), 160))
		return
	case !f.fits(string(m.DeliveryID), m.Token):
		f.refused = drover.Errorf(drover.CodeForbidden, "what was heard of delivery %s does not have the token that came with it", m.DeliveryID)
		return
	case !f.s.Terminal():
		f.refused = drover.Errorf(drover.CodeConflict, "run %s is not over, and delivered nothing yet", f.s.Run)
		return
	}
	sub := &f.s.Notify[i]
	current := sub.Next == 0 && m.Attempt == sub.Tried+1
	switch {
	case sub.Done:
	case m.Error == nil: // also of an earlier attempt: whoever answered was told
		if current {
			sub.Tried++
		}
		sub.Done, sub.Next, sub.Error, sub.Receipt = true, 0, nil, cut(m.Receipt, receipt)
		f.changed = true
	case current:
		sub.Tried++
		e := *clip(m.Error)
		e.Message, e.Stack, e.Problems = cut(e.Message, receipt), "", nil
		sub.Error = &e
		sub.Next = after(f.ceil, deliveryPause(m.DeliveryID, sub.Tried))
		f.changed = true
	}
}

// receipt is how many bytes are kept of what a subscriber says.
const receipt = 256

// deliveryPause is how long the next attempt to deliver waits, after so many.
func deliveryPause(id drover.DeliveryID, tried int) time.Duration {
	const first, most = time.Second, 5 * time.Minute
	d := most
	if tried < 10 {
		d = min(first<<(tried-1), most)
	}
	return jitter(d, string(id)+"@"+strconv.Itoa(tried))
}

// subscriber gives the index of a delivery id, or -1.
func (f *fold) subscriber(id drover.DeliveryID) int {
	for i := range f.s.Notify {
		if f.s.deliveryID(i) == id {
			return i
		}
	}
	return -1
}

// dueDeliveries queues the deliveries whose next attempt is due.
func (f *fold) dueDeliveries() {
	for i := range f.s.Notify {
		if sub := &f.s.Notify[i]; sub.Next > 0 && sub.Next <= f.now {
			sub.Next = 0
			f.effect(f.notify(i))
			f.changed = true
		}
	}
}
