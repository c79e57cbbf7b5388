package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/droverhq/drover"
)

// Deadline is the earliest time at which the run has something to do without
// any message, also when it is terminal: its deliveries are tried again. 0 is
// never. The caller sees to it that a tick comes then.
func (s *State) Deadline() Millis {
	var first Millis
	earlier := func(m Millis) {
		if m > 0 && (first == 0 || m < first) {
			first = m
		}
	}
	if s.Terminal() {
		for i := range s.Notify {
			earlier(s.Notify[i].Next)
		}
		return first
	}
	if s.Undo == nil {
		earlier(s.Due)
	}
	if s.Program != nil {
		earlier(s.Program.Due)
		earlier(s.Program.Limit)
	}
	for i := range s.Active {
		m, _ := s.Active[i].ends()
		earlier(m)
	}
	return first
}

// ends says when an active thing ends by itself, and whether that is because
// it was silent for too long. 0 is never.
func (a *Active) ends() (Millis, ending) {
	if a.Lost > 0 && (a.Due == 0 || a.Lost < a.Due) {
		return a.Lost, byLoss
	}
	return a.Due, byTimeout
}

// due does what time asks for, in the order of the times. The call that a
// command speaks of is not silent.
func (f *fold) due(speaks *drover.CallID) {
	if f.s.Terminal() {
		f.dueDeliveries()
		return
	}
	whole := f.s.Due > 0 && f.s.Due <= f.now && f.s.Undo == nil
	type entry struct {
		at  Millis
		how ending
		a   Active
	}
	var list []entry
	for i := range f.s.Active {
		a := &f.s.Active[i]
		at, how := a.ends()
		if at == 0 || at > f.now || whole && at > f.s.Due || how == byLoss && f.speaks(a, speaks) {
			continue
		}
		list = append(list, entry{at, how, *a})
	}
	slices.SortFunc(list, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.a.Node, y.a.Node), cmp.Compare(x.a.Item, y.a.Item))
	})
	for _, e := range list {
		if at := f.find(e.a.Node, e.a.Item); at >= 0 && f.s.Active[at] == e.a {
			f.changed = true
			f.timeUp(e.a, e.how)
		}
	}
	if f.s.Program != nil {
		f.programDue(whole)
		return
	}
	if !whole {
		return
	}
	f.advance()
	if len(f.need) == 0 && !f.s.Terminal() && f.s.Undo == nil {
		f.changed = true
		f.end(drover.StatusFailed, drover.Errorf(drover.CodeTimeout, "the run took longer than its timeout of %s", f.p.Definition.Timeout))
	}
}

func (f *fold) speaks(a *Active, id *drover.CallID) bool {
	return id != nil && f.p.nodes[a.Node].id == id.Node && a.Item == id.Item && a.Attempt == id.Attempt
}

// timeUp ends one thing whose time is up.
func (f *fold) timeUp(a Active, how ending) {
	n := f.p.nodes[a.Node]
	switch a.Kind {
	case ActiveCall, ActiveChild:
		f.recall(n, a)
		code, text := drover.CodeTimeout, "took longer than "+timeout(n, a.Undo).String()
		if how == byLoss {
			code, text = drover.CodeLost, "was silent for longer than its heartbeat of "+n.heartbeat.String()
		}
		id := f.callID(n, a.Item, a.Undo, a.Attempt)
		f.fail(a, drover.Errorf(code, "attempt %d of node %s %s (call %s)%s", a.Attempt, n.id, text, id, unheard(n, a, how)), how, 0)
	case ActivePause:
		f.remove(f.find(a.Node, a.Item))
		f.again(a, 0)
	case ActiveSleep:
		f.remove(f.find(a.Node, a.Item))
		f.finish(a.Node, MarkDone, Value{}, nil)
	case ActiveWait:
		f.remove(f.find(a.Node, a.Item))
		f.waitOver(a.Node)
	}
}

// unheard says of a call that timed out what may be the cause. A run does not hear
// whether anybody has taken a call.
func unheard(n *node, a Active, how ending) string {
	switch {
	case how != byTimeout || a.Kind != ActiveCall:
		return ""
	case a.Undo:
		return ": function " + string(n.undo.function) + " took too long, or nobody serves it"
	case n.kind == drover.KindCall:
		return ": function " + string(n.function) + " took too long, or nobody serves it"
	}
	return ""
}

func timeout(n *node, undo bool) time.Duration {
	if undo {
		return n.undo.timeout
	}
	return n.timeout
}
