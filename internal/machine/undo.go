package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/droverhq/drover"
)

// undoKey orders what is compensated: by its end, then by its place.
type undoKey struct {
	end        Millis
	node, item int
}

func (k undoKey) compare(o undoKey) int {
	return cmp.Or(cmp.Compare(k.end, o.end), cmp.Compare(k.node, o.node), cmp.Compare(k.item, o.item))
}

// undoable lists what is to be compensated, in order, after one of them or from
// the first.
func (f *fold) undoable(last *undoKey) []undoKey {
	var list []undoKey
	add := func(k undoKey) {
		if last == nil || k.compare(*last) < 0 {
			list = append(list, k)
		}
	}
	for i, n := range f.p.nodes {
		ns := &f.s.Nodes[i]
		switch {
		case n.undo == nil:
		case ns.Items != nil:
			for k, mark := range ns.Items.Marks {
				if mark.status() == drover.NodeDone {
					add(undoKey{ns.itemEnd(k), i, k})
				}
			}
		case ns.Status == MarkDone:
			add(undoKey{ns.Ended, i, drover.NoItem})
		}
	}
	slices.SortFunc(list, func(x, y undoKey) int { return y.compare(x) })
	return list
}

// itemEnd is when an item ended.
func (ns *NodeState) itemEnd(k int) Millis {
	return ns.Started + Millis(ns.Items.Starts[k]+ns.Items.Lasts[k]-1)
}

// nextUndo sets off the next compensation, or ends the run after the last.
func (f *fold) nextUndo() {
	f.changed = true
	for len(f.d.undo) > 0 {
		k := f.d.undo[0]
		f.d.undo = f.d.undo[1:]
		f.s.Undo.End, f.s.Undo.Node, f.s.Undo.Item = k.end, k.node, k.item
		if f.launchUndo(Active{Node: k.node, Item: k.item, Undo: true, Attempt: 1}) {
			return
		}
	}
	u := f.s.Undo
	if len(u.Failed) == 0 {
		f.terminal(drover.StatusCompensated)
		return
	}
	e := *f.s.Error
	e.Message += "; " + strings.Join(u.Failed, "; ")
	if u.Lost > 0 {
		e.Message += fmt.Sprintf("; and %d other compensations failed", u.Lost)
	}
	f.s.Error = &e
	f.terminal(drover.StatusCompensationFailed)
}

// resumeUndo goes on after the compensation that ended.
func (f *fold) resumeUndo() {
	u := f.s.Undo
	last := undoKey{u.End, u.Node, u.Item}
	if f.d.undo == nil {
		f.d.undo = f.undoable(&last)
	}
	f.nextUndo()
}

// launchUndo makes an attempt of a compensation. It is false where there is
// none: its input could not be made, and it failed.
func (f *fold) launchUndo(a Active) bool {
	n := f.p.nodes[a.Node]
	a.Kind, a.Since = ActiveCall, f.now
	a.Due = after(f.ceil, n.undo.timeout)
	e, err := f.attempt(n, &a)
	if errors.Is(err, errMissing) {
		return true
	}
	if err != nil {
		f.undoFailure(a, drover.AsError(err, drover.CodeExpression))
		return false
	}
	f.add(a)
	f.effect(e)
	return true
}

// undoInput makes what a compensation gets.
func (f *fold) undoInput(n *node, item int) (Value, error) {
	if n.undo.input != nil {
		return f.value(n.undo.input, n, item)
	}
	src := n.input
	if n.childInput != nil {
		src = n.childInput
	}
	in, err := f.raw(src, n, item)
	if err != nil && !errors.Is(err, errMissing) {
		return Value{}, err
	}
	var v Value
	if item != drover.NoItem {
		v = f.itemOutput(n.at, item)
	} else {
		v = f.s.Nodes[n.at].Output
	}
	out, missing := f.load(v)
	if err = errors.Join(err, missing); err != nil {
		return Value{}, err
	}
	b := append([]byte(`{"input":`), in...)
	b = append(append(b, `,"output":`...), out...)
	return Value{JSON: append(b, '}')}, nil
}

// undone ends a compensation that succeeded.
func (f *fold) undone(a Active) {
	f.remove(f.find(a.Node, a.Item))
	f.s.Undo.Count++
	f.resumeUndo()
}

// undoFailed ends a compensation that failed for good.
func (f *fold) undoFailed(a Active, err *drover.Error) {
	f.undoFailure(a, err)
	f.resumeUndo()
}

func (f *fold) undoFailure(a Active, err *drover.Error) {
	const most = 50
	u := f.s.Undo
	if len(u.Failed) >= most {
		u.Lost++
		return
	}
	u.Failed = append(u.Failed, undoName(f.p.nodes[a.Node], a.Item)+undoFailedBy+cut(err.Message, maxUndoMessage))
}

const (
	undoFailedBy   = " failed: " // between the name of a compensation and why it failed
	maxUndoMessage = 300         // bytes
)

// undoName names the compensation of a node or an item.
func undoName(n *node, item int) string {
	if item == drover.NoItem {
		return fmt.Sprintf("the compensation of node %s", n.id)
	}
	return fmt.Sprintf("the compensation of node %s (item %d)", n.id, item)
}
