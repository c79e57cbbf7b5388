package machine

import (
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// Hook is a token that the run claims, holds, or has handed over.
type Hook struct {
	Token    string   `json:"t"`
	Node     int      `json:"n,omitempty"` // index of the node that claimed it, and 1; 0: a start brought it, and no node has asked for it yet
	Mark     HookMark `json:"m"`
	Brought  bool     `json:"b,omitempty"` // a start brought it
	Revision uint64   `json:"r,omitempty"` // of the claim, as far as it is known
	Since    Millis   `json:"s"`           // when the run asked for it
	Read     int      `json:"d,omitempty"` // deliveries that waits have read
}

// HookMark is the state of a hook, as one letter. A hook that was released is
// not in the state any more.
type HookMark byte

// The marks of hooks.
const (
	HookClaiming HookMark = 'c' // nobody has said yet what became of the claim
	HookOwned    HookMark = 'o'
	HookHanded   HookMark = 'h' // the run is over, and its successor has it
)

// hookOf gives the index of the hook that a node claims or holds, or -1.
func (s *State) hookOf(node int) int {
	for at := range s.Hooks {
		if s.Hooks[at].Node == node+1 {
			return at
		}
	}
	return -1
}

// hook gives the index of the hook with a token, or -1.
func (s *State) hook(token string) int {
	for at := range s.Hooks {
		if s.Hooks[at].Token == token {
			return at
		}
	}
	return -1
}

// unreadOf counts the deliveries to a token that no wait has read.
func (s *State) unreadOf(token string) int {
	n := 0
	for i := range s.Unread {
		if s.Unread[i].Hook == token {
			n++
		}
	}
	return n
}

// claim has a node claim its token, or take over what a start brought. It is
// false where the node is over by that.
func (f *fold) claim(i int) bool {
	c, err := f.said(i)
	if err != nil {
		f.spoil(i, drover.NoItem, "the hook", err)
		return false
	}
	at := f.s.hook(c.Token)
	if at < 0 || f.s.Hooks[at].Node != 0 {
		if bad := f.claimable(i, at, c.Token); bad != nil {
			f.finish(i, MarkFailed, Value{}, bad)
			return false
		}
		at = len(f.s.Hooks)
		f.s.Hooks = append(f.s.Hooks, Hook{Token: c.Token, Mark: HookClaiming, Since: f.now})
	}
	h := &f.s.Hooks[at]
	h.Node = i + 1
	f.effect(f.claimEffect(c, h))
	return true
}

// claimable says why a token that no start brought cannot be claimed, or nil.
// at is the hook that has it, or -1.
func (f *fold) claimable(i, at int, token string) *drover.Error {
	n := f.p.nodes[i]
	if at >= 0 {
		e := drover.Errorf(drover.CodeConflict, "token %q of node %s is held by the run itself, for node %s: use another token, or wait with from: %s",
			cut(token, shownToken), n.id, f.p.nodes[f.s.Hooks[at].Node-1].id, f.p.nodes[f.s.Hooks[at].Node-1].id)
		e.Run = f.s.Run
		return e
	}
	if len(f.s.Hooks) >= drover.MaxHooks {
		return drover.Errorf(drover.CodeTooLarge, "run %s holds %d hooks, and node %s cannot have one more: release some first", f.s.Run, len(f.s.Hooks), n.id)
	}
	if !n.hook.restart {
		return nil
	}
	lasting := 0
	for at := range f.s.Hooks {
		if h := &f.s.Hooks[at]; h.Node == 0 || f.p.nodes[h.Node-1].hook.restart {
			lasting++
		}
	}
	if lasting >= drover.MaxStartHooks {
		return drover.Errorf(drover.CodeTooLarge,
			"run %s holds %d hooks that a successor would get, and node %s cannot have one more: release some first, or leave on_unread out", f.s.Run, lasting, n.id)
	}
	return nil
}

const shownToken = 80 // bytes of a token in a sentence

// claimEffect is the effect that claims a token. c is what a node says of it.
func (f *fold) claimEffect(c *Claim, h *Hook) Effect {
	c.Token, c.Run, c.Since = h.Token, f.s.Run, h.Since.Time()
	if h.Node > 0 {
		c.Node = f.p.nodes[h.Node-1].id
	}
	c.ID = ClaimID(f.s.Run, c.Node)
	c.Proof = f.token(proofText(c.ID, c.Token))
	return Effect{Owed: Owed{Kind: EffectClaim, Node: c.Node, Token: c.Token}, Run: f.s.Run, Claim: c}
}

// proofText is what the proof of a claim is made of. No call and no delivery
// has such an id.
func proofText(claim, token string) string { return "claim/" + claim + "/" + token }

// bring gives a new run the tokens that its start brought.
func (s *State) bring(tokens []string, now Millis) {
	for _, token := range tokens {
		if s.hook(token) < 0 {
			s.Hooks = append(s.Hooks, Hook{Token: token, Mark: HookOwned, Brought: true, Since: now})
		}
	}
}

// sayBrought claims the tokens that a start brought and that no node has asked
// for at once, so that whoever reads their keys knows that the run lives, and
// can prove that a claim was lost.
func (f *fold) sayBrought() {
	for at := range f.s.Hooks {
		if h := &f.s.Hooks[at]; h.Node == 0 && h.Mark == HookOwned {
			f.effect(f.claimEffect(&Claim{}, h))
		}
	}
}

// claimed takes what became of a claim. What is said of a hook that is gone, or
// was said before, changes nothing.
func (f *fold) claimed(m *drover.ClaimedMessage) {
	if !strings.HasPrefix(m.Claim, string(f.s.Run)+"/") || !f.fits(proofText(m.Claim, m.Hook), m.Proof) {
		f.refused = drover.Errorf(drover.CodeForbidden, "what became of claim %s of token %q does not have the proof that came with it",
			cut(m.Claim, shownToken), cut(m.Hook, shownToken))
		return
	}
	if f.s.Terminal() || f.s.Undo != nil || f.claimOf(m) < 0 {
		return
	}
	f.due(nil)
	f.advance()
	at := f.claimOf(m)
	if at < 0 || len(f.need) > 0 {
		return
	}
	h := &f.s.Hooks[at]
	switch {
	case m.Lost:
		f.lose(at, m.Owner)
	case m.Revision > 0:
		f.own(at, m.Revision)
	case m.Owner != "" && h.Mark == HookClaiming:
		since := ""
		if t, err := time.Parse(time.RFC3339Nano, m.Since); err == nil {
			since = " since " + t.UTC().Format(time.RFC3339Nano)
		}
		e := drover.Errorf(drover.CodeConflict, "token %q of node %s is held by run %s%s: use another token, or takeover: true",
			cut(m.Hook, shownToken), f.p.nodes[h.Node-1].id, m.Owner, since)
		e.Run = m.Owner
		f.drop(at, e)
	}
	f.advance()
}

// claimOf gives the hook that a message speaks of, or -1: that of the claim's
// node, or one that a start brought, whose first claim had no node.
func (f *fold) claimOf(m *drover.ClaimedMessage) int {
	at := f.s.hook(m.Hook)
	if at < 0 || f.s.Hooks[at].Mark == HookHanded {
		return -1
	}
	h := &f.s.Hooks[at]
	_, node, _ := strings.Cut(m.Claim, "/")
	if node == "" && h.Brought || h.Node > 0 && string(f.p.nodes[h.Node-1].id) == node {
		return at
	}
	return -1
}

// own notes that a token is the run's. Its wait reads what is there already.
func (f *fold) own(at int, revision uint64) {
	h := &f.s.Hooks[at]
	if h.Mark == HookOwned && h.Revision >= revision {
		return
	}
	f.changed = true
	h.Mark, h.Revision = HookOwned, revision
	if h.Node > 0 {
		f.serve(h.Node - 1)
	}
}

// lose takes a hook from the run that another has taken, or that an operator
// has released.
func (f *fold) lose(at int, owner drover.RunID) {
	h := f.s.Hooks[at]
	e := drover.Errorf(drover.CodeReleased, "token %q was released by an operator", cut(h.Token, shownToken))
	if owner != "" {
		e = drover.Errorf(drover.CodeConflict, "token %q was taken over by run %s", cut(h.Token, shownToken), owner)
		e.Run = owner
	}
	f.drop(at, e)
}

// drop removes a hook. The waits on it that are not over fail.
func (f *fold) drop(at int, why *drover.Error) {
	waits := f.waitsOn(at)
	for _, i := range waits {
		f.handBack(i)
	}
	f.changed = true
	f.s.Hooks = append(f.s.Hooks[:at:at], f.s.Hooks[at+1:]...)
	for _, i := range waits {
		if at := f.find(i, drover.NoItem); at >= 0 {
			f.remove(at)
			e := *why
			f.finish(i, MarkFailed, Value{}, &e)
		}
	}
}

// waitsOn gives the nodes that wait on a hook, over or not.
func (f *fold) waitsOn(at int) []int {
	node := f.s.Hooks[at].Node
	if node == 0 {
		return nil
	}
	owner := f.p.nodes[node-1]
	return append([]int{owner.at}, owner.sharers...)
}
