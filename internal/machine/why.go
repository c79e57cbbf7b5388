package machine

import (
	"fmt"
	"time"

	"github.com/droverhq/drover"
)

// Why says what a run is waiting for, or which subscribers a terminal one still
// has to tell. It is empty only where nothing is left to happen.
func Why(p *Plan, s *State) []drover.Reason {
	if s.Terminal() {
		return s.untold()
	}
	var list []drover.Reason
	for i := range s.Active {
		list = append(list, s.reason(p.nodes[s.Active[i].Node], &s.Active[i]))
	}
	for i := range s.Ready {
		r := where(p.nodes[s.Ready[i].Node], s.Ready[i].Item)
		r.Waiting, r.Text = "slot", fmt.Sprintf("%s waits until one of the %d calls that may be in flight ends", name(r), p.maxParallel)
		list = append(list, r)
	}
	for i := range s.Nodes {
		if it := s.Nodes[i].Items; it != nil && !s.Nodes[i].Status.over() && it.Next < it.Total {
			r := where(p.nodes[i], drover.NoItem)
			r.Waiting, r.Text = "slot", fmt.Sprintf("%d of %d items of node %s wait until a call in flight ends", it.Total-it.Next, it.Total, r.Node)
			list = append(list, r)
		}
	}
	return list
}

// untold lists the subscribers without a receipt.
func (s *State) untold() []drover.Reason {
	var list []drover.Reason
	for i := range s.Notify {
		sub := &s.Notify[i]
		if sub.Done {
			continue
		}
		r := drover.Reason{Waiting: "subscriber", On: sub.Notify.Subject, Since: spell(s.Ended), Until: spell(sub.Next)}
		r.Text = fmt.Sprintf("attempt %d to deliver the outcome to %s is queued or under way", sub.Tried+1, sub.Notify.Subject)
		if sub.Next > 0 {
			r.Text = fmt.Sprintf("attempt %d to deliver the outcome to %s comes at %s", sub.Tried+1, sub.Notify.Subject, r.Until)
		}
		if sub.Error != nil {
			r.Text += "; the last one failed: " + sub.Error.Message
		}
		list = append(list, r)
	}
	return list
}

func where(n *node, item int) drover.Reason {
	r := drover.Reason{Node: n.id}
	if item != drover.NoItem {
		r.Item = &item
	}
	return r
}

func name(r drover.Reason) string {
	if r.Item != nil {
		return fmt.Sprintf("item %d of node %s", *r.Item, r.Node)
	}
	return "node " + string(r.Node)
}

// reason says what one outstanding thing is waiting for.
func (s *State) reason(n *node, a *Active) drover.Reason {
	r := where(n, a.Item)
	ends, _ := a.ends()
	r.Since, r.Until = spell(a.Since), spell(ends)
	who := name(r)
	if a.Undo {
		who = "the compensation of " + who
	}
	switch a.Kind {
	case ActiveCall:
		fn := n.function
		if a.Undo {
			fn = n.undo.function
		}
		r.Waiting, r.On = "call", string(fn)
		life := "nothing was heard of it yet: it is queued, or its function does not send heartbeats"
		if a.Lost > 0 {
			life = "it gave a sign of life"
		}
		r.Text = fmt.Sprintf("%s waits for attempt %d by function %s; %s; it times out at %s", who, a.Attempt, fn, life, r.Until)
	case ActiveChild:
		child := drover.ChildRunID(drover.CallID{Run: s.Run, Node: n.id, Item: a.Item, Attempt: a.Attempt})
		r.Waiting, r.On = "child", string(child)
		r.Text = fmt.Sprintf("%s waits for its child run %s to end", who, child)
	case ActivePause:
		r.Waiting, r.On = "retry", string(n.function)
		r.Text = fmt.Sprintf("%s failed, and is tried again (attempt %d) at %s", who, a.Attempt, r.Until)
	case ActiveSleep:
		r.Waiting = "timer"
		r.Text = fmt.Sprintf("%s sleeps until %s", who, r.Until)
	case ActiveWait:
		r.Waiting, r.On = "delivery", n.step.Wait.Name
		r.Text = fmt.Sprintf("%s waits for a delivery named %q", who, n.step.Wait.Name)
		if a.Due > 0 {
			r.Text += ", at the latest until " + r.Until
		}
	}
	return r
}

func spell(m Millis) string {
	if m == 0 {
		return ""
	}
	return m.Time().Format(time.RFC3339Nano)
}
