package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// told is what a world knows of outcomes and those who are told.
type told struct {
	windows map[string][]window // when a target is away
	plain   bool                // nobody notices that a target is there again: there are the times of the records only
	calmAt  time.Time           // when the faults stop

	// By the token of a delivery, which a run that is begun anew does not have again:
	sent   map[string][]byte      // what whoever is told got
	texts  map[string][]byte      // and a session
	made   map[string]map[int]int // attempts that were sent, by their numbers
	last   map[string]time.Time   // the latest of those
	got    map[string]bool        // a worker has a receipt
	failed []string               // that were in a batch, and had none

	callers  map[drover.RunID]string // the sessions that asked for runs with reply_to
	forged   map[drover.RunID]uint64 // commands that name a session with a wrong seal
	heirs    map[drover.RunID]bool   // runs that were started as successors, in worlds in which all are told; nil in others
	rotation rotation

	listed   map[drover.DeliveryID]string              // the list of the fleet: the target, by delivery
	latest   map[drover.RunID]deliveries               // as the records say
	takers   map[drover.RunID]map[string]*drover.Error // waiters who heard what became of their consume; nil: they have it
	cleaning bool                                      // runs are removed when their retention is over
	removals int

	busy int // waiters and operators who are not done

	attempts, unmade, atOnce, calls, deaths, replays, refused int
}

// deliveries is what a record says of those who are told.
type deliveries struct {
	over   bool
	secret string
	subs   []machine.Subscriber
	taker  string
}

type window struct{ from, to time.Time }

func newTold() *told {
	return &told{
		windows: map[string][]window{},
		sent:    map[string][]byte{}, texts: map[string][]byte{}, made: map[string]map[int]int{}, last: map[string]time.Time{}, got: map[string]bool{},
		callers: map[drover.RunID]string{}, forged: map[drover.RunID]uint64{},
		listed: map[drover.DeliveryID]string{}, latest: map[drover.RunID]deliveries{},
		takers: map[drover.RunID]map[string]*drover.Error{},
	}
}

func targetOf(n *drover.Notify) string { return n.Kind() + " " + n.To() }

// broken reports a target that answers with errors only.
func broken(to string) bool { return strings.HasSuffix(to, "broken") }

// back is when a target that is away is there again; zero: it is there.
func (t *told) back(to string, now time.Time) time.Time {
	for _, w := range t.windows[to] {
		if !now.Before(w.from) && now.Before(w.to) {
			return w.to
		}
	}
	return time.Time{}
}

// present is since when a target has been there, as the world is now.
func (t *told) present(to string, now time.Time) time.Time {
	var since time.Time
	for _, w := range t.windows[to] {
		if !w.from.After(now) && w.to.After(since) {
			since = w.to
		}
	}
	return since
}

// changed notes what a record that is about to be written says of deliveries, and
// holds it to the promises.
func (w *World) changed(run drover.RunID, state *machine.State) {
	was := w.told.latest[run]
	is := deliveries{over: state.Terminal(), secret: state.Secret, subs: slices.Clone(state.Notify), taker: state.Taker}
	w.told.latest[run] = is
	for i := range is.subs {
		before := machine.Subscriber{}
		if len(was.subs) > i {
			before = was.subs[i]
		}
		if why := w.improper(drover.DeliveryIDOf(run, i), &before, &is.subs[i], state); why != "" {
			w.violated("delivery %s %s\nbefore %+v\nafter  %+v", drover.DeliveryIDOf(run, i), why, before, is.subs[i])
		}
	}
	if was.taker != "" && was.taker != is.taker {
		w.violated("the outcome of %s was taken by %q, and now by %q", run, was.taker, is.taker)
	}
}

// improper says which promise a delivery breaks, or "". Several commands may be
// between before and after.
func (w *World) improper(id drover.DeliveryID, before, after *machine.Subscriber, state *machine.State) string {
	token := machine.Token(state.Secret, string(id))
	reached := w.told.made[token]
	for n := 1; n <= after.Tried; n++ {
		if reached[n] == 0 {
			return fmt.Sprintf("has %d attempts, of which nobody made number %d", after.Tried, n)
		}
	}
	ended := before.Status == drover.DeliveryConsumed || before.Status == drover.DeliveryDelivered
	switch {
	case (after.Status == drover.DeliveryNone) == state.Terminal():
		return fmt.Sprintf("is %q, and the run %s", after.Status, state.Status)
	case ended && before.Status != after.Status:
		return "was over, and is not any more"
	case after.Tried < before.Tried:
		return "has lost attempts"
	case before.Status == drover.DeliveryDead && after.Status == drover.DeliveryPending && after.Base < before.Tried:
		return "is delivered again, and its earlier attempts count"
	case (after.Status == drover.DeliveryPending || after.Status == drover.DeliveryHeld) == (after.Next == 0):
		return "waits for nothing, or is over and waits"
	case after.Next > 0 && after.Next <= state.Now:
		return "is overdue: no wake-up would count as one that comes"
	case (after.Status == drover.DeliveryHeld || after.Status == drover.DeliveryConsumed) && !after.Notify.Inline:
		return "is not told inline, and waits for one who waits"
	case after.Status == drover.DeliveryConsumed && state.Taker == "", after.Notify.Inline && state.Taker != "" && after.Status != drover.DeliveryConsumed:
		return fmt.Sprintf("is %s, and the outcome was taken by %q", after.Status, state.Taker)
	case after.Status == drover.DeliveryDelivered && !w.told.got[token]:
		return "is delivered, and nobody gave a receipt"
	case !after.Listed && (after.Status == drover.DeliveryDead || after.Status == drover.DeliveryPending && after.Error != nil):
		return "did not succeed at once, and is not listed"
	case !after.Listed && after.Status == drover.DeliveryPending && after.Notify.Function != "" && after.Next > state.Now+6000:
		return "is a call that may be in its queue for long, and is not listed"
	}
	if after.Status == drover.DeliveryDead && (before.Status != drover.DeliveryDead || before.At != after.At) {
		return w.died(id, token, after)
	}
	return ""
}

// died says what is wrong with a death, or "".
func (w *World) died(id drover.DeliveryID, token string, sub *machine.Subscriber) string {
	w.told.deaths++
	w.follow("delivery %s dies after %d attempts: %v", id, sub.Tried, sub.Error)
	age := drover.DefaultDeliveryAge
	if sub.Notify.MaxAge > 0 {
		age = time.Duration(sub.Notify.MaxAge)
	}
	old := sub.At.Time().Sub(sub.Since.Time()) >= age
	switch {
	case sub.Error == nil:
		return "is dead without a reason"
	case sub.Error.Permanent || sub.Notify.MaxAttempts > 0 && sub.Tried-sub.Base >= sub.Notify.MaxAttempts:
		return ""
	case !old:
		return "is dead, and neither its attempts nor its age are used up"
	}
	// What died of age was tried, if its target was there for long enough.
	since := sub.Since.Time()
	for _, t := range []time.Time{w.told.calmAt.Add(time.Minute), w.told.present(targetOf(&sub.Notify), w.now)} {
		if t.After(since) {
			since = t
		}
	}
	enough := 30 * time.Second
	if w.told.plain && sub.Notify.Function == "" {
		enough = 10 * time.Minute
	}
	if w.told.back(targetOf(&sub.Notify), w.now).IsZero() && sub.At.Time().Sub(since) > enough && w.told.last[token].Before(sub.Since.Time()) {
		return fmt.Sprintf("has died, and was never tried, though its target was there since %s", since.Format("15:04:05"))
	}
	return ""
}

// untold names a delivery that is not over, or "".
func (w *World) untold() string {
	for _, run := range slices.Sorted(maps.Keys(w.starts)) {
		subs := w.told.latest[run].subs
		if w.records[run].data == nil && w.gone(run) {
			continue
		}
		for i := range w.starts[run].Notify {
			if i >= len(subs) || !subs[i].Status.Over() {
				return fmt.Sprintf("delivery %d of run %s is not over: %+v", i, run, subs)
			}
		}
	}
	if w.told.busy > 0 {
		return fmt.Sprintf("%d waiters or operators are not done", w.told.busy)
	}
	return ""
}

// account holds what is left of deliveries in the end against what happened.
func (w *World) account() {
	for _, run := range slices.Sorted(maps.Keys(w.finals)) {
		w.published(run)
	}
	w.forgedToo()
	w.orphans()
	for _, run := range slices.Sorted(maps.Keys(w.told.latest)) {
		d := w.told.latest[run]
		inline := false
		for i := range d.subs {
			id, sub := drover.DeliveryIDOf(run, i), &d.subs[i]
			inline = inline || sub.Notify.Inline
			made := w.told.made[machine.Token(d.secret, string(id))]
			if sub.Status == drover.DeliveryConsumed && len(made) > 0 {
				w.violated("the outcome of %s was taken by %q, and %s was told: %v", run, d.taker, id, made)
			}
			if sub.Status == drover.DeliveryDelivered && sub.Notify.StreamSubject != "" {
				w.storedToo(id)
			}
			if sub.Status == drover.DeliveryDead && w.told.listed[id] == "" {
				w.violated("delivery %s is dead, and is not on the list", id)
			}
		}
		for name, refused := range w.told.takers[run] {
			if inline && (refused == nil) != (name == d.taker) {
				w.violated("waiter %q of %s was told %v, and the taker is %q", name, run, refused, d.taker)
			}
		}
	}
}

// look holds the list against the records, while nothing is under way.
func (w *World) look() {
	if w.faults != (Faults{}) || !w.quiet() {
		return
	}
	for _, run := range slices.Sorted(maps.Keys(w.told.latest)) {
		for i, sub := range w.told.latest[run].subs {
			id := drover.DeliveryIDOf(run, i)
			if sub.Listed && w.told.listed[id] == "" && sub.Status != drover.DeliveryDelivered {
				w.violated("delivery %s is %s, and is not on the list", id, sub.Status)
			}
		}
	}
}
