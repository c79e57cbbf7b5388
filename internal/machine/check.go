package machine

import (
	"fmt"

	"github.com/droverhq/drover"
)

// Check says which invariant the state breaks, or nil. It is for tests, and
// looks at everything.
func (s *State) Check(p *Plan) error {
	if why := s.sound(); why != "" {
		return fmt.Errorf("run %s: %s", s.Run, why)
	}
	if p = s.grown(p); p.Hash != s.Hash || len(p.nodes) != len(s.Nodes) {
		return fmt.Errorf("run %s: the plan is of another definition", s.Run)
	}
	if err := s.checkHooks(p); err != nil {
		return err
	}
	if err := s.checkDeliveries(); err != nil {
		return err
	}
	if s.Terminal() {
		return s.checkTerminal()
	}
	if s.Ended != 0 || !s.Result.zero() {
		return fmt.Errorf("run %s is %s, and has an end or a result", s.Run, s.Status)
	}
	if s.Undo != nil {
		return s.checkUndo()
	}
	if s.Error != nil {
		return fmt.Errorf("run %s is %s, and has an error", s.Run, s.Status)
	}
	busy, err := s.checkActive(p)
	if err != nil {
		return err
	}
	if s.Program != nil {
		return s.checkProgram(busy)
	}
	return s.checkNodes(p, busy)
}

func (s *State) checkTerminal() error {
	if s.Ended == 0 || len(s.Active)+len(s.Ready) > 0 {
		return fmt.Errorf("run %s is %s, and has no end, or something outstanding", s.Run, s.Status)
	}
	if (s.Error == nil) != (s.Status == drover.StatusCompleted) {
		return fmt.Errorf("run %s is %s with error %v", s.Run, s.Status, s.Error)
	}
	for i := range s.Nodes {
		if !s.Nodes[i].Status.over() {
			return fmt.Errorf("run %s is %s, and its node %d is %s", s.Run, s.Status, i, s.Nodes[i].Status.status())
		}
	}
	return nil
}

func (s *State) checkUndo() error {
	if len(s.Active) != 1 || !s.Active[0].Undo || s.Active[0].Due == 0 || len(s.Ready) > 0 {
		return fmt.Errorf("run %s compensates, and not exactly one compensation is outstanding, with a deadline", s.Run)
	}
	return nil
}

// checkActive holds what is outstanding to its nodes, and counts it by node.
func (s *State) checkActive(p *Plan) (map[int]int, error) {
	busy, seen, calls := map[int]int{}, map[place]bool{}, 0
	for at, list := range [][]Active{s.Active, s.Ready} {
		for i := range list {
			a := &list[i]
			n, where := p.nodes[a.Node], place{a.Node, a.Item}
			name := fmt.Sprintf("run %s: what node %s (item %d) does", s.Run, n.id, a.Item)
			switch {
			case seen[where]:
				return nil, fmt.Errorf("%s is there twice", name)
			case a.Undo, a.Attempt < 1:
				return nil, fmt.Errorf("%s is a compensation, or no attempt", name)
			case (a.Item == drover.NoItem) == n.fans():
				return nil, fmt.Errorf("%s does not fit its fan-out", name)
			case s.Nodes[a.Node].Status.over(), a.Item != drover.NoItem && s.Nodes[a.Node].Items.Marks[a.Item].over():
				return nil, fmt.Errorf("%s is over", name)
			case at == 0 && a.Due == 0 && (a.Kind == ActiveCall || a.Kind == ActivePause || a.Kind == ActiveSleep):
				return nil, fmt.Errorf("%s would never end", name)
			}
			if at == 0 && (a.Kind == ActiveCall || a.Kind == ActiveChild) {
				calls++
			}
			seen[where] = true
			busy[a.Node]++
		}
	}
	if calls > p.maxParallel {
		return nil, fmt.Errorf("run %s has %d calls in flight, more than its %d", s.Run, calls, p.maxParallel)
	}
	if len(s.Ready) > 0 && len(s.Active) == 0 {
		return nil, fmt.Errorf("run %s has attempts that wait for a slot, and all slots are free", s.Run)
	}
	return busy, nil
}

// checkNodes recomputes by the definition alone which nodes must be busy.
func (s *State) checkNodes(p *Plan, busy map[int]int) error {
	left := 0
	for i, n := range p.nodes {
		ns := &s.Nodes[i]
		if n.needed && !ns.Status.over() {
			left++
		}
		ready := true
		for _, dep := range n.deps {
			ready = ready && s.Nodes[dep].Status.over()
		}
		switch {
		case ns.Status.over():
			if (ns.Status == MarkFailed || ns.Status == MarkCancelled) && n.vital && !n.continues() {
				return fmt.Errorf("run %s is %s, and node %s failed", s.Run, s.Status, n.id)
			}
		case ready != (busy[i] > 0 || ns.Items != nil):
			return fmt.Errorf("run %s: all that node %s needs is over: %t, and it does %d things", s.Run, n.id, ready, busy[i])
		case ns.Items != nil:
			if err := ns.checkItems(busy[i]); err != nil {
				return fmt.Errorf("run %s, node %s: %w", s.Run, n.id, err)
			}
		}
	}
	if left == 0 {
		return fmt.Errorf("run %s is %s, and all that its output needs is over", s.Run, s.Status)
	}
	return nil
}

func (ns *NodeState) checkItems(busy int) error {
	it := ns.Items
	over := 0
	for k, m := range it.Marks {
		if m.over() {
			over++
		}
		if k >= it.Next && m != MarkPending {
			return fmt.Errorf("item %d is %s, and was not set off", k, m.status())
		}
	}
	if over != it.Over || over == it.Total {
		return fmt.Errorf("%d of %d items are over, %d were counted", over, it.Total, it.Over)
	}
	if busy != it.Next-over {
		return fmt.Errorf("%d items were set off, %d are over, and %d do something", it.Next, over, busy)
	}
	return nil
}
