package machine

import (
	"errors"

	"github.com/droverhq/drover"
)

// Effects makes owed effects again, as Apply made them, in the same order.
// Those that were overtaken, such as a call that is not outstanding any more,
// are left out. The only error is a *NeedError; the state stays as it is.
func Effects(p *Plan, s *State, owed []Owed, v Values) ([]Effect, error) {
	p = s.grown(p)
	s.derive(p)
	s.derived.plan = p
	f := newFold(p, s, v)
	f.frozen = true
	for _, o := range owed {
		first, last := o.Item, max(o.Item, o.Last)
		o.Last = 0
		for o.Item = first; o.Item <= last; o.Item++ {
			if err := f.remake(o); errors.Is(err, errMissing) {
				continue // and find out what else is
			}
		}
	}
	if len(f.need) > 0 {
		return nil, &NeedError{Keys: f.need}
	}
	return f.effects, nil
}

// remake makes one effect again.
func (f *fold) remake(o Owed) error {
	switch o.Kind {
	case EffectTell:
		if f.s.Parent != nil && f.s.Terminal() {
			f.effect(f.tell())
		}
	case EffectDone:
		if f.s.Terminal() {
			f.effect(f.done())
		}
	case EffectDeliver:
		if o.Index >= 0 && o.Index < len(f.s.Notify) {
			if sub := &f.s.Notify[o.Index]; sub.Status == drover.DeliveryPending && sub.Tried+1 == o.Attempt {
				f.effect(f.notify(o.Index))
			}
		}
	case EffectDrive:
		if g := f.s.Program; g != nil && g.Drive == o.Attempt && g.State == DriveQueued {
			f.effect(f.driveEffect())
		}
	case EffectMeta:
		f.remakeMeta(o.Attempt)
	case EffectForget:
		if f.s.Program != nil {
			f.effect(f.forgetEffect(o.Attempt))
		}
	case EffectNudge, EffectLook: // the process asks by itself, a little later; and it is looked for once more
	case EffectLetter:
		if g := f.s.Program; g != nil && g.Letter > 0 {
			f.effect(f.letter())
		}
	case EffectList, EffectUnlist:
		if o.Index >= 0 && o.Index < len(f.s.Notify) && f.s.Notify[o.Index].Listed == (o.Kind == EffectList) {
			f.effect(f.listing(o.Index))
		}
	case EffectWithdraw:
		if o.Attempt == 0 {
			if f.withdrawn() {
				f.withdraw()
			}
		} else if o.Index >= 0 && o.Index < len(f.s.Notify) && f.s.Notify[o.Index].Status == drover.DeliveryDead {
			f.withdrawDelivery(o.Index)
		}
	case EffectCall, EffectCancel, EffectStart, EffectStop:
		return f.remakeNode(o)
	case EffectClaim, EffectRelease, EffectHandOver, EffectRespond:
		return f.remakeHook(o)
	}
	return nil
}

// remakeHook makes an effect of a hook again.
func (f *fold) remakeHook(o Owed) error {
	switch o.Kind {
	case EffectClaim:
		at := f.s.hook(o.Token)
		if at < 0 || f.s.Hooks[at].Mark == HookHanded {
			return nil
		}
		h, c := &f.s.Hooks[at], &Claim{}
		if h.Node > 0 {
			var err error
			if c, err = f.said(h.Node - 1); err != nil {
				return err
			}
		}
		if e := f.claimEffect(c, h); e.Node == o.Node {
			f.effect(e)
		}
	case EffectRelease:
		f.effect(f.releaseEffect(o))
	case EffectHandOver:
		if f.s.successor() != "" {
			f.effect(f.handOver())
		}
	case EffectRespond:
		if i, ok := f.p.index[o.Node]; ok && f.p.nodes[i].kind == drover.KindRespond {
			e, ok, err := f.response(i)
			if err != nil {
				return err
			}
			if ok {
				f.effect(e)
			}
		}
	case EffectCall, EffectCancel, EffectWithdraw, EffectStart, EffectStop, EffectTell, EffectDone, EffectDeliver, EffectDrive, EffectMeta, EffectForget, EffectNudge, EffectLook, EffectLetter, EffectList, EffectUnlist:
	}
	return nil
}

// remakeNode makes an effect of a node or an item again.
func (f *fold) remakeNode(o Owed) error {
	i, ok := f.p.index[o.Node]
	if !ok && f.s.Program != nil { // its slot is free by now
		f.remakeGone(o)
	}
	if !ok {
		return nil
	}
	n, item := f.p.nodes[i], o.Item-1
	if o.Undo && n.undo == nil || item >= 0 && (f.s.Nodes[i].Items == nil || item >= f.s.Nodes[i].Items.Total) {
		return nil
	}
	id := f.callID(n, item, o.Undo, o.Attempt)
	switch o.Kind {
	case EffectCancel:
		f.effect(f.cancel(n, id))
		return nil
	case EffectStop:
		f.effect(f.stopChild(n, id))
		return nil
	case EffectCall, EffectStart, EffectTell, EffectDone, EffectDeliver, EffectDrive, EffectMeta, EffectForget, EffectNudge, EffectLook, EffectLetter, EffectList, EffectUnlist, EffectWithdraw, EffectClaim, EffectRelease, EffectHandOver, EffectRespond:
	}
	a := &Active{Node: i, Item: item, Attempt: o.Attempt}
	if o.Kind != EffectStart || o.Undo || !n.outlives() {
		kind := ActiveCall
		if o.Kind == EffectStart {
			kind = ActiveChild
		}
		at := f.outstanding(&id, kind)
		if at < 0 {
			return nil
		}
		a = &f.s.Active[at]
	}
	e, err := f.attempt(n, a)
	if err == nil {
		f.effect(e)
	}
	return err
}

// remakeGone makes an effect again of a node that the body of a program does not
// have any more.
func (f *fold) remakeGone(o Owed) {
	gone := &node{id: o.Node, function: drover.FunctionName(o.Token)}
	id := f.callID(gone, o.Item-1, false, o.Attempt)
	switch {
	case o.Kind == EffectStop:
		f.effect(f.stopChild(gone, id))
	case o.Kind == EffectCancel && o.Token != "":
		f.effect(f.cancel(gone, id))
	}
}

// Compact names effects as a record keeps them: those of consecutive items as
// one range.
func Compact(effects []Effect) []Owed {
	var list []Owed
	for i := range effects {
		o := effects[i].Owed
		if n := len(list) - 1; n >= 0 && o.Item > 0 && o.Last == 0 {
			if prev := &list[n]; o.Item == max(prev.Item, prev.Last)+1 && prev.Item > 0 &&
				o == (Owed{Kind: prev.Kind, Node: prev.Node, Item: o.Item, Undo: prev.Undo, Attempt: prev.Attempt, Index: prev.Index}) {
				prev.Last = o.Item
				continue
			}
		}
		list = append(list, o)
	}
	return list
}
