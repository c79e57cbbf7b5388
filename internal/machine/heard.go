package machine

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/droverhq/drover"
)

// deliveryID is the id of the outcome's delivery to one subscriber.
func (s *State) deliveryID(i int) drover.DeliveryID { return drover.DeliveryIDOf(s.Run, i) }

// happens has something happen to a delivery, and sees to what follows. It is false
// where nothing does.
func (f *fold) happens(i int, ev Event) bool {
	sub := &f.s.Notify[i]
	was := sub.Status
	if !sub.step(ev) {
		return false
	}
	f.changed = true
	switch {
	case sub.Status == drover.DeliveryPending && sub.Next == 0:
		f.attemptDelivery(i)
	case sub.Status == drover.DeliveryDead && ev.Kind == EventDue:
		f.withdrawDelivery(i)
	}
	f.listed(i, was, ev)
	return true
}

// withdrawDelivery takes the call of a delivery that died out of its queue, and no
// other that is there.
func (f *fold) withdrawDelivery(i int) {
	if sub := &f.s.Notify[i]; sub.Notify.Function != "" {
		f.effect(Effect{Owed: Owed{Kind: EffectWithdraw, Index: i, Attempt: sub.Tried + 1}, Call: f.deliveryCall(i)})
	}
}

// tells reports whether the function is, or will be, told the outcome by a call.
func (s *State) tells(function drover.FunctionName) bool {
	return slices.ContainsFunc(s.Notify, func(sub Subscriber) bool { return sub.Notify.Function == function && !sub.Status.Over() })
}

// listed sees to it that a delivery that did not succeed at once is listed for
// whoever looks for such, as one that waits or as one that is dead, and is not any
// more once it was heard.
func (f *fold) listed(i int, was drover.DeliveryStatus, ev Event) {
	sub := &f.s.Notify[i]
	late := ev.Kind == EventFailed || ev.Kind == EventUnmade || ev.Kind == EventDue && sub.called()
	want := sub.Status == drover.DeliveryDead || sub.Status == drover.DeliveryPending && (sub.Listed || late)
	if want == sub.Listed && (!want || sub.Status == was) {
		return
	}
	sub.Listed = want
	f.effect(f.listing(i))
}

// listing is the effect that lists a delivery, or takes it off the list.
func (f *fold) listing(i int) Effect {
	sub := &f.s.Notify[i]
	kind := EffectList
	if !sub.Listed {
		kind = EffectUnlist
	}
	return Effect{Owed: Owed{Kind: kind, Index: i}, Delivery: &Delivery{
		ID: f.s.deliveryID(i), Notify: sub.Notify, Dead: sub.Status == drover.DeliveryDead,
	}}
}

// attemptDelivery sets off the next attempt.
func (f *fold) attemptDelivery(i int) {
	f.s.Notify[i].setOff(f.s.deliveryID(i), f.ceil)
	f.effect(f.notify(i))
}

// setOff notes that an attempt is set off, and when the next one is, should nobody
// hear of how it went, as when its worker dies. That is no attempt that counts, for
// it may not have been made; but the pauses grow as if it had failed, so that what
// kills workers is not tried all the time.
func (sub *Subscriber) setOff(id drover.DeliveryID, now Millis) {
	if sub.Notify.Function != "" { // its queue keeps the call until it ends
		sub.Next = sub.ends()
		if !sub.Listed {
			sub.Next = min(after(now, unanswered), sub.ends())
		}
		return
	}
	sub.Unheard++
	pause := deliveryPause(id, sub.Tried-sub.Base+sub.Unheard)
	sub.Next = max(after(now, sub.lease()), min(after(now, pause), sub.ends()))
}

// unanswered is how long the call of a delivery is waited for before the delivery
// is listed: most are answered sooner, and cost no key then.
const unanswered = 5 * time.Second

// slack is how much longer than it may take an attempt is waited for.
const slack = 5 * time.Second

// lease is how long an attempt may be under way.
func (sub *Subscriber) lease() time.Duration {
	took := cmp.Or(time.Duration(sub.Notify.Timeout), drover.DefaultReceiptTime) + slack
	if b := sub.Notify.Batch; b != nil {
		took += time.Duration(b.Wait)
	}
	return took
}

// notify is the effect that delivers the outcome to one subscriber.
func (f *fold) notify(i int) Effect {
	sub := &f.s.Notify[i]
	id := f.s.deliveryID(i)
	e := Effect{
		Owed: Owed{Kind: EffectDeliver, Index: i, Attempt: sub.Tried + 1}, Run: f.s.Run,
		Value: f.s.Result, Outcome: f.outcome(id),
		Delivery: &Delivery{ID: id, Notify: sub.Notify, Token: f.token(string(id)), Attempt: sub.Tried + 1},
	}
	if sub.Notify.Function != "" {
		e.Call = f.deliveryCall(i)
	}
	return e
}

// deliveryCall is the call by which the next attempt tells a function.
func (f *fold) deliveryCall(i int) *Call {
	sub := &f.s.Notify[i]
	id := drover.CallID{Run: f.s.Run, Node: outcomeNode, Item: i, Attempt: sub.Tried + 1}
	return &Call{ID: id, Function: sub.Notify.Function, Token: f.token(deliveryToken(id)), Deadline: sub.ends().Time()}
}

// outcomeNode stands for the node in the id of a call that delivers an outcome;
// its item is the subscriber.
const outcomeNode drover.NodeID = "_outcome"

// deliveryToken is what the token of such a call is made of: another text than
// that of a call of a node with this name.
func deliveryToken(call drover.CallID) string { return "deliver " + call.String() }

// Redeliver makes the effect of the attempt that comes next for a delivery, for
// those who know that its subscriber is there again. It is false where nothing is
// pending, and where the subscriber was there and has failed: then its time has to
// come first.
func Redeliver(s *State, i int, now time.Time) (Effect, bool) {
	if i < 0 || i >= len(s.Notify) {
		return Effect{}, false
	}
	sub := &s.Notify[i]
	if sub.Status != drover.DeliveryPending || sub.Notify.Function != "" || !sub.Missed && sub.Next > Millis(now.UnixMilli()) {
		return Effect{}, false
	}
	f := &fold{s: s, d: &derived{}}
	return f.notify(i), true
}

// heard takes how one attempt to deliver the outcome went.
func (f *fold) heard(m *drover.HeardMessage) {
	i := f.subscriber(m.DeliveryID)
	switch {
	case i < 0:
		f.refused = drover.Errorf(drover.CodeNotFound, "run %s has no delivery %q", f.s.Run, cut(string(m.DeliveryID), 160))
	case !f.fits(string(m.DeliveryID), m.Token):
		f.refused = drover.Errorf(drover.CodeForbidden, "what was heard of delivery %s does not have the token that came with it", m.DeliveryID)
	case !f.s.Terminal():
		f.refused = drover.Errorf(drover.CodeConflict, "run %s is not over, and delivered nothing yet", f.s.Run)
	default:
		f.tried(i, m)
	}
}

// answered takes the result of a call that delivers the outcome.
func (f *fold) answered(m *drover.ResultMessage) {
	i := m.Call.Item
	switch {
	case i < 0 || i >= len(f.s.Notify) || m.Call.Undo:
		f.refused = drover.Errorf(drover.CodeNotFound, "run %s has no delivery for call %s", f.s.Run, m.Call)
	case !f.fits(deliveryToken(m.Call), m.Token):
		f.refused = drover.Errorf(drover.CodeForbidden, "the result of call %s does not have the token that came with the call", m.Call)
	case m.Progress != nil || !f.s.Terminal():
	default:
		f.tried(i, &drover.HeardMessage{Attempt: m.Call.Attempt, Receipt: string(m.Output), Error: m.Error})
	}
}

func (f *fold) tried(i int, m *drover.HeardMessage) {
	kind := EventReceived
	switch {
	case m.Error != nil && m.Unmade:
		kind = EventUnmade
	case m.Error != nil:
		kind = EventFailed
	}
	f.happens(i, Event{Kind: kind, Now: f.now, Ceil: f.ceil, ID: f.s.deliveryID(i), Attempt: m.Attempt, Receipt: m.Receipt, Error: m.Error})
}

// dueDeliveries does what time asks for.
func (f *fold) dueDeliveries() {
	for i := range f.s.Notify {
		if sub := &f.s.Notify[i]; sub.Next > 0 && sub.Next <= f.now {
			f.happens(i, Event{Kind: EventDue, Now: f.now, Ceil: f.ceil, ID: f.s.deliveryID(i)})
		}
	}
	f.settleWaiters()
}

// replay tries deliveries again at once.
func (f *fold) replay(m *drover.ReplayMessage) {
	only := -1
	if m.DeliveryID != "" {
		if only = f.subscriber(m.DeliveryID); only < 0 {
			f.refused = drover.Errorf(drover.CodeNotFound, "run %s has no delivery %q", f.s.Run, cut(string(m.DeliveryID), 160))
			return
		}
	}
	if !f.s.Terminal() {
		f.refused = drover.Errorf(drover.CodeConflict, "run %s is not over: there is nothing to deliver again", f.s.Run)
		return
	}
	count := 0
	for i := range f.s.Notify {
		if status := f.s.Notify[i].Status; (only < 0 || only == i) && (status == drover.DeliveryPending || status == drover.DeliveryDead) {
			if f.happens(i, Event{Kind: EventReplayed, Now: f.now, Ceil: f.ceil, ID: f.s.deliveryID(i)}) {
				count++
			}
		}
	}
	f.answer = drover.ReplayedReply{RunID: f.s.Run, Replayed: count}
}

// subscriber gives the index of a delivery id, or -1.
func (f *fold) subscriber(id drover.DeliveryID) int {
	run, i, err := drover.ParseDeliveryID(string(id))
	if err != nil || run != f.s.Run || i >= len(f.s.Notify) {
		return -1
	}
	return i
}

// deliveryPause is how long the next attempt to deliver waits, after so many.
func deliveryPause(id drover.DeliveryID, tried int) time.Duration {
	d := maxPause
	if tried < 10 {
		d = min(minPause<<(max(tried, 1)-1), maxPause)
	}
	return jitter(d, string(id)+"@"+strconv.Itoa(tried))
}

// absencePause is the same where attempts are not counted, as nobody was there:
// as long as that has been so. Whoever comes back is told at once, so this is for
// what nobody watches.
func absencePause(id drover.DeliveryID, since time.Duration) time.Duration {
	return jitter(min(max(since, 5*minPause), maxPause), string(id)+"+"+since.String())
}

const minPause, maxPause = time.Second, 5 * time.Minute
