package machine

import (
	"maps"
	"slices"
	"strconv"

	"github.com/droverhq/drover"
)

// giveUp ends every hook of a run whose end is decided. Those that are to last,
// of which something was read and something is unread, go to its successor; the
// others are released.
func (f *fold) giveUp() {
	if len(f.s.Hooks) == 0 {
		return
	}
	f.changed = true
	handed := false
	hooks := f.s.Hooks
	f.s.Hooks = nil
	for _, h := range hooks {
		if h.Node > 0 && f.p.nodes[h.Node-1].hook.restart && h.Mark == HookOwned && h.Read > 0 && f.s.unreadOf(h.Token) > 0 {
			h.Mark = HookHanded
			f.s.Hooks = append(f.s.Hooks, h)
			handed = true
			continue
		}
		f.free(&h)
	}
	if handed {
		f.effects = slices.DeleteFunc(f.effects, func(e Effect) bool { return e.Kind == EffectClaim })
		f.effect(f.handOver())
	}
}

// successor is the run that has what this one has handed over, or "".
func (s *State) successor() drover.RunID {
	for i := range s.Hooks {
		if s.Hooks[i].Mark == HookHanded {
			return drover.SuccessorID(s.Run)
		}
	}
	return ""
}

// handOver is the effect that gives hooks, and what nothing has read of them,
// to the successor. It has no parent: nobody waits for it.
func (f *fold) handOver() Effect {
	e := Effect{
		Owed: Owed{Kind: EffectHandOver}, Run: f.s.Run, To: drover.SuccessorID(f.s.Run), Value: f.s.Input,
		Start: &drover.StartRequest{Hash: f.s.Hash, Workflow: f.s.Workflow, Tags: maps.Clone(f.s.Tags)},
	}
	for i := len(f.p.Definition.Notify); i < len(f.s.Notify); i++ { // the definition brings its own
		e.Start.Notify = append(e.Start.Notify, f.s.Notify[i].Notify)
	}
	handed := map[string]bool{}
	for i := range f.s.Hooks {
		if h := &f.s.Hooks[i]; h.Mark == HookHanded {
			handed[h.Token] = true
			e.Start.Hooks = append(e.Start.Hooks, h.Token)
			e.ClaimIDs = append(e.ClaimIDs, ClaimID(f.s.Run, f.p.nodes[h.Node-1].id))
		}
	}
	for i := range f.s.Unread {
		if u := &f.s.Unread[i]; u.Hook != "" && handed[u.Hook] {
			id := string(f.s.Run) + "/" + strconv.Itoa(len(e.Deliveries)+1)
			e.Deliveries = append(e.Deliveries, Handed{ID: id, Token: u.Hook, Payload: u.Payload, Respond: u.Respond})
		}
	}
	return e
}
