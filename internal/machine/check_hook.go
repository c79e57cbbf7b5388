package machine

import (
	"fmt"

	"github.com/droverhq/drover"
)

// checkHooks holds hooks to their nodes, and waits to their hooks. Deliveries
// to a hook that is gone may be there.
func (s *State) checkHooks(p *Plan) error {
	over := s.Terminal() || s.Undo != nil
	for i := range s.Hooks {
		h := &s.Hooks[i]
		name := fmt.Sprintf("run %s is %s, and its hook %q (%c)", s.Run, s.Status, cut(h.Token, shownToken), h.Mark)
		switch {
		case over != (h.Mark == HookHanded):
			return fmt.Errorf("%s is still there, or is handed over too early", name)
		case h.Node == 0:
			continue
		}
		n, mark := p.nodes[h.Node-1], s.Nodes[h.Node-1].Status
		switch {
		case n.hook == nil:
			return fmt.Errorf("%s is of node %s, which claims none", name, n.id)
		case over && (h.Read == 0 || s.unreadOf(h.Token) == 0 || !n.hook.restart):
			return fmt.Errorf("%s was handed over for nothing", name)
		case !over && mark != MarkWaiting && (mark != MarkDone || !n.hook.holds || h.Mark != HookOwned):
			return fmt.Errorf("%s is of node %s, which is %s", name, n.id, mark.status())
		}
	}
	if over {
		return nil
	}
	return s.checkWaits(p)
}

// checkWaits holds that every wait has what it reads from, and that nothing
// lies there which it could read.
func (s *State) checkWaits(p *Plan) error {
	for i := range s.Active {
		a := &s.Active[i]
		if a.Kind != ActiveWait {
			continue
		}
		n := p.nodes[a.Node]
		switch {
		case n.kind != drover.KindWait:
			return fmt.Errorf("run %s: node %s is no wait, and waits", s.Run, n.id)
		case n.hooked() && s.hookOf(n.target) < 0:
			return fmt.Errorf("run %s: node %s waits on a hook that is gone", s.Run, n.id)
		}
		for j := range s.Unread {
			if s.fits(p, a.Node, s.Unread[j].Name, s.Unread[j].Hook) {
				return fmt.Errorf("run %s: node %s waits, and delivery %d is unread", s.Run, n.id, j)
			}
		}
	}
	return nil
}
