package machine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// Why says what a run is waiting for, or which subscribers a terminal one still
// has to tell. It is empty only where nothing is left to happen. Items of a
// fan-out that wait for the same come as one reason.
func Why(p *Plan, s *State) []drover.Reason {
	if s.Terminal() {
		return s.untold()
	}
	var list []drover.Reason
	if p = s.grown(p); s.Program != nil {
		list = s.whyDriven(p)
	}
	for _, g := range s.groups(p) {
		list = append(list, g.reason())
	}
	for i := range s.Nodes {
		if it := s.Nodes[i].Items; it != nil && !s.Nodes[i].Status.over() && it.Next < it.Total {
			left := it.Total - it.Next
			list = append(list, drover.Reason{
				Node: p.nodes[i].id, Count: left, Waiting: "slot",
				Text: fmt.Sprintf("%d of %s of node %s %s until a call in flight ends", left, counted(it.Total, "item"), p.nodes[i].id, plural(left, "waits", "wait")),
			})
		}
	}
	return list
}

// untold lists the subscribers that were not told.
func (s *State) untold() []drover.Reason {
	var list []drover.Reason
	for i := range s.Notify {
		sub := &s.Notify[i]
		if sub.Status == drover.DeliveryDelivered || sub.Status == drover.DeliveryConsumed {
			continue
		}
		who := fmt.Sprintf("%s %s", strings.ReplaceAll(sub.Notify.Kind(), "_", " "), sub.Notify.To())
		r := drover.Reason{Waiting: "subscriber", On: sub.Notify.To(), DeliveryID: s.deliveryID(i), Since: spell(sub.Since), Until: spell(sub.Next)}
		switch {
		case sub.Status == drover.DeliveryHeld:
			r.Since = spell(s.Ended)
			r.Text = fmt.Sprintf("%s is not told before %s, as %s for the run and may take its outcome", who, r.Until, s.waiters())
		case sub.Status == drover.DeliveryDead:
			r.Until = ""
			r.Text = fmt.Sprintf("%s was not told: it was given up at %s after %s, as %s; replay delivery %s to try again",
				who, spell(sub.At), counted(sub.Tried, "attempt"), sub.because(), s.deliveryID(i))
		case sub.called():
			r.Until = spell(sub.ends())
			r.Text = fmt.Sprintf("%s was not told yet: attempt %d is a call in its queue, or under way, until %s", who, sub.Tried+1, r.Until)
		default:
			r.Text = fmt.Sprintf("%s was not told yet: attempt %d is under way, or comes at %s at the latest", who, sub.Tried+1, r.Until)
		}
		if sub.Error != nil {
			r.Text += "; the last one failed: " + sub.Error.Message
		}
		if sub.Failed != nil {
			r.Text += "; the last one that found somebody: " + sub.Failed.Message
		}
		list = append(list, r)
	}
	return list
}

// because spells why a delivery was given up.
func (sub *Subscriber) because() string {
	switch sub.gaveUp() {
	case drover.GaveUpPermanent:
		return "no attempt will do (permanent)"
	case drover.GaveUpAttempts:
		return fmt.Sprintf("its max_attempts is %d", sub.Notify.MaxAttempts)
	}
	return fmt.Sprintf("its max_age of %s was used up", sub.age())
}

// QueuedFor gives the function in whose queue the call is that a reason waits for to
// tell a subscriber; "": it waits for something else.
func QueuedFor(s *State, r *drover.Reason) drover.FunctionName {
	if i := (&fold{s: s}).subscriber(r.DeliveryID); i >= 0 && s.Notify[i].called() {
		return s.Notify[i].Notify.Function
	}
	return ""
}

// waiters names those who wait for the outcome.
func (s *State) waiters() string {
	if len(s.Waiters) == 1 {
		return s.Waiters[0].Name + " waits"
	}
	return counted(len(s.Waiters), "other") + " wait"
}

// group is what of one node waits for the same.
type group struct {
	p    *Plan
	s    *State
	n    *node
	list []Active // at least one; all of a kind
}

// ready is the kind of a group that waits for a free slot.
const ready ActiveKind = 0

// groups puts together what is outstanding, in its order, and what waits for a
// slot.
func (s *State) groups(p *Plan) []*group {
	type key struct {
		node int
		kind ActiveKind
		undo bool
	}
	var list []*group
	known := map[key]*group{}
	add := func(a Active) {
		k := key{a.Node, a.Kind, a.Undo}
		if known[k] == nil {
			known[k] = &group{p: p, s: s, n: p.nodes[a.Node]}
			list = append(list, known[k])
		}
		known[k].list = append(known[k].list, a)
	}
	for _, a := range s.Active {
		add(a)
	}
	for _, a := range s.Ready {
		a.Kind = ready
		add(a)
	}
	return list
}

// reason says what a group is waiting for.
func (g *group) reason() drover.Reason {
	r := drover.Reason{Node: g.n.id}
	if g.several() {
		r.Count, r.Items = len(g.list), g.few()
	} else if item := g.list[0].Item; item != drover.NoItem {
		r.Item = &item
	}
	since, until := g.times()
	r.Since, r.Until = spell(since), spell(until)
	g.say(&r)
	return r
}

// say fills in what is waited for.
func (g *group) say(r *drover.Reason) {
	waits := g.who() + " " + g.verb("waits", "wait")
	switch a := g.list[0]; a.Kind {
	case ActiveCall:
		r.Waiting, r.On = "call", string(g.function())
		r.Text = g.call() + g.last() + g.life() + "; " + g.verb("it times out at ", "the first times out at ") + r.Until
	case ActiveChild:
		child := string(drover.ChildRunID(drover.CallID{Run: g.s.Run, Node: g.n.id, Item: a.Item, Attempt: a.Attempt}))
		r.Waiting, r.On = "child", child
		r.Text = fmt.Sprintf("%s for its child run %s to end", waits, child)
		if g.several() {
			r.On, r.Text = "", fmt.Sprintf("%s for their child runs to end, such as %s", waits, child)
		}
	case ActivePause:
		r.Waiting, r.On = "retry", string(g.function())
		r.Text = g.pause(r.Until)
	case ActiveSleep:
		r.Waiting, r.Text = "timer", fmt.Sprintf("%s %s until %s", g.who(), g.verb("sleeps", "sleep"), r.Until)
	case ActiveWait:
		g.wait(r)
	case ready:
		r.Waiting = "slot"
		r.Text = fmt.Sprintf("%s until one of the %d calls that may be in flight ends", waits, g.p.maxParallel) + g.last()
	}
}

func (g *group) several() bool { return len(g.list) > 1 }

// verb chooses between the words for one and for several.
func (g *group) verb(one, several string) string { return plural(len(g.list), one, several) }

// few are the first items.
func (g *group) few() []int {
	const most = 5
	var items []int
	for _, a := range g.list[:min(len(g.list), most)] {
		items = append(items, a.Item)
	}
	return items
}

// times are the earliest beginning, and the earliest end by itself.
func (g *group) times() (since, until Millis) {
	for _, a := range g.list {
		if a.Since > 0 && (since == 0 || a.Since < since) {
			since = a.Since
		}
		if ends, _ := a.ends(); ends > 0 && (until == 0 || ends < until) {
			until = ends
		}
	}
	return since, until
}

// who names what a group is of.
func (g *group) who() string {
	a, what := g.list[0], ""
	switch {
	case g.several():
		var items []string
		for _, k := range g.few() {
			items = append(items, strconv.Itoa(k))
		}
		if len(items) < len(g.list) {
			items = append(items, "...")
		}
		what = fmt.Sprintf("%d items of node %s (%s)", len(g.list), g.n.id, strings.Join(items, ", "))
	case a.Item != drover.NoItem:
		what = fmt.Sprintf("item %d of node %s", a.Item, g.n.id)
	default:
		what = "node " + string(g.n.id)
	}
	if a.Undo {
		what = "the compensation of " + what
	}
	return what
}

func (g *group) function() drover.FunctionName {
	if g.list[0].Undo {
		return g.n.undo.function
	}
	return g.n.function
}

func (g *group) call() string {
	if g.several() {
		return fmt.Sprintf("%s wait for function %s", g.who(), g.function())
	}
	return fmt.Sprintf("%s waits for attempt %d by function %s", g.who(), g.list[0].Attempt, g.function())
}

// life tells of signs of life, where they are asked for.
func (g *group) life() string {
	heard := 0
	for _, a := range g.list {
		if a.Lost > 0 {
			heard++
		}
	}
	switch {
	case g.n.heartbeat == 0 || g.list[0].Undo:
		return ""
	case !g.several() && heard == 1:
		return "; it gave a sign of life"
	case heard == 0:
		return "; " + g.verb("it has given", "they have given") + " no sign of life yet"
	}
	return fmt.Sprintf("; %d of them gave a sign of life", heard)
}

// last tells of the attempts before this one, as far as they were kept.
func (g *group) last() string {
	failed := g.failures()
	switch {
	case len(failed) == 0:
		return ""
	case g.several():
		return fmt.Sprintf("; %d of them failed before, item %d with: %s", len(failed), failed[0].Item-1, failed[0].Error.Message)
	}
	return fmt.Sprintf("; attempt %d failed: %s", failed[0].Attempt, failed[0].Error.Message)
}

// pause tells of what failed and is tried again.
func (g *group) pause(at string) string {
	failed := g.failures()
	if g.several() {
		text := fmt.Sprintf("%s failed and are tried again, the first at %s", g.who(), at)
		if len(failed) > 0 {
			text += fmt.Sprintf("; item %d failed with: %s", failed[0].Item-1, failed[0].Error.Message)
		}
		return text
	}
	a := g.list[0]
	text := fmt.Sprintf("attempt %d of %s failed", a.Attempt-1, g.who())
	if len(failed) > 0 && failed[0].Attempt == a.Attempt-1 {
		text += ": " + failed[0].Error.Message
	}
	return text + fmt.Sprintf("; attempt %d is due at %s", a.Attempt, at)
}

// failures are the last failed attempts of the group's members, in the order of
// the members.
func (g *group) failures() []*Failure {
	last := map[int]*Failure{} // by item
	for i := range g.s.Nodes[g.list[0].Node].Failed {
		if x := &g.s.Nodes[g.list[0].Node].Failed[i]; x.Undo == g.list[0].Undo && x.Error != nil {
			last[x.Item-1] = x
		}
	}
	var list []*Failure
	for _, a := range g.list {
		if x := last[a.Item]; x != nil {
			list = append(list, x)
		}
	}
	return list
}

func plural(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

func counted(n int, thing string) string { return fmt.Sprintf("%d %s", n, plural(n, thing, thing+"s")) }

func spell(m Millis) string {
	if m == 0 {
		return ""
	}
	return m.Time().Format(time.RFC3339Nano)
}
