package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// expand freezes the items of a fan-out.
func (f *fold) expand(i int) {
	n := f.p.nodes[i]
	f.begins(i)
	raw, err := f.array(n)
	var items itemsCache
	if err == nil {
		items, err = split(raw)
	}
	if errors.Is(err, errMissing) {
		return
	}
	if err != nil {
		f.finish(i, MarkFailed, Value{}, drover.Errorf(drover.CodeUnexpandable, "node %s cannot fan out over %s: %s", n.id, n.step.Fanout.Over, err))
		return
	}
	if !f.count(n, max(len(items), 1)) {
		return
	}
	if len(items) == 0 {
		f.s.Nodes[i].Items = newItems(0)
		f.finish(i, MarkDone, Value{JSON: json.RawMessage("[]")}, nil)
		return
	}
	it := newItems(len(items))
	f.s.Nodes[i].Items = it
	f.d.items[i] = items
	if n.over.formula != nil {
		it.List = f.keep(raw, subjects.ItemsKey(f.s.Run, n.id))
	}
	switch n.kind {
	case drover.KindSet:
		f.setItems(i)
		return
	case drover.KindRun:
		f.s.Nodes[i].Status = MarkWaiting
	default:
		f.s.Nodes[i].Status = MarkRunning
	}
	f.d.open = append(f.d.open, i)
	slices.Sort(f.d.open)
}

// array is what a fan-out goes over.
func (f *fold) array(n *node) (json.RawMessage, error) {
	v, err := f.value(n.over, n, drover.NoItem)
	if err != nil {
		return nil, err
	}
	raw, err := f.load(v)
	if err != nil {
		return nil, err
	}
	if bad := fit(raw, "list of items", n); bad != nil {
		return nil, bad
	}
	return raw, nil
}

// split takes an array apart.
func split(raw json.RawMessage) (itemsCache, error) {
	if kind(raw) != "an array" {
		return nil, fmt.Errorf("it must be an array, and is %s", kind(raw))
	}
	var items itemsCache
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, err
	}
	if len(items) > drover.MaxFanout {
		return nil, fmt.Errorf("it has %d items, more than the %d that a fan-out may have: split it into child runs", len(items), drover.MaxFanout)
	}
	return items, nil
}

// item gives an item of a fan-out.
func (f *fold) item(n *node, k int) (json.RawMessage, error) {
	if items, ok := f.d.items[n.at]; ok && k < len(items) {
		return items[k], nil
	}
	it := f.s.Nodes[n.at].Items
	if it == nil || k < 0 || k >= it.Total {
		return nil, drover.Errorf(drover.CodeInternal, "node %s has no item %d", n.id, k)
	}
	var raw json.RawMessage
	var err error
	if n.over.formula != nil {
		raw, err = f.load(it.List)
	} else {
		raw, err = f.array(n)
	}
	if err != nil {
		return nil, err
	}
	items, err := split(raw)
	if err != nil || len(items) != it.Total {
		return nil, drover.Errorf(drover.CodeInternal, "the items of node %s are not those that it began with", n.id)
	}
	f.d.items[n.at] = items
	return items[k], nil
}

// setItems computes all items of a set node.
func (f *fold) setItems(i int) {
	n, it := f.p.nodes[i], f.s.Nodes[i].Items
	for k := 0; k < it.Total && !f.s.Nodes[i].Status.over(); k++ {
		it.Next, it.Attempts[k] = k+1, 1
		raw, err := f.computed(n, k)
		if errors.Is(err, errMissing) {
			return
		}
		if err != nil {
			f.spoil(i, k, "the value", err)
			continue
		}
		f.itemOver(i, k, MarkDone, raw, subjects.OutputKey(f.callID(n, k, false, 1)), nil)
	}
}

// itemOver ends an item, and with the last one, or with the first that must not
// fail, the fan-out.
func (f *fold) itemOver(i, k int, mark Mark, output json.RawMessage, key string, err *drover.Error) {
	n, ns := f.p.nodes[i], &f.s.Nodes[i]
	it := ns.Items
	if ns.Status.over() || it.Marks[k].over() {
		return
	}
	f.changed = true
	f.markItem(ns, k, mark)
	if mark == MarkDone && !isNull(output) {
		it.Size += len(output)
		if f.inline(output) {
			it.setOutput(k, output)
		} else {
			f.puts = append(f.puts, Put{Key: key, JSON: output})
			it.Marks[k] = MarkStored
		}
	}
	if mark != MarkDone && it.Attempts[k] == 0 {
		f.failure(Failure{Item: k + 1, Started: f.now, Ended: f.now, Error: err}, i)
	}
	switch {
	case mark != MarkDone && !n.continues():
		f.stopItems(i)
		e := *err
		e.Message = fmt.Sprintf("item %d: %s", k, err.Message)
		f.finish(i, mark, Value{}, &e)
	case it.Over == it.Total:
		f.finish(i, MarkDone, Value{}, nil)
	}
}

// markItem ends an item with a mark.
func (f *fold) markItem(ns *NodeState, k int, mark Mark) {
	it := ns.Items
	it.Marks[k] = mark
	it.Over++
	if mark != MarkSkipped {
		it.Lasts[k] = max(int64(f.now-ns.Started)-it.Starts[k], 0) + 1
	}
}

// stopItems stops what is left of a fan-out that ends before its last item.
func (f *fold) stopItems(i int) {
	n, ns := f.p.nodes[i], &f.s.Nodes[i]
	for k, mark := range ns.Items.Marks {
		if mark.over() {
			continue
		}
		if at := f.find(i, k); at >= 0 {
			a := f.s.Active[at]
			f.remove(at)
			f.recall(n, a)
		}
		f.stopItem(ns, k)
	}
}

// stopItem marks an item that was stopped.
func (f *fold) stopItem(ns *NodeState, k int) {
	if k < ns.Items.Next {
		f.markItem(ns, k, MarkCancelled)
	} else {
		f.markItem(ns, k, MarkSkipped)
	}
}

// recall takes back one attempt that is outstanding.
func (f *fold) recall(n *node, a Active) {
	if a.Kind == ActiveChild && n.abandons() || f.retract(n, a) {
		return
	}
	id := f.callID(n, a.Item, a.Undo, a.Attempt)
	switch a.Kind {
	case ActiveCall:
		f.effect(f.cancel(n, id))
	case ActiveChild:
		f.effect(f.stopChild(n, id))
	case ActivePause, ActiveSleep, ActiveWait:
	}
}

// retract takes back the effect of an attempt that was made in this fold.
func (f *fold) retract(n *node, a Active) bool {
	if a.Since != f.now {
		return false
	}
	for i := range f.effects {
		e := &f.effects[i].Owed
		if (e.Kind == EffectCall || e.Kind == EffectStart) && e.Node == n.id && e.Item == a.Item+1 && e.Attempt == a.Attempt && e.Undo == a.Undo {
			f.effects = slices.Delete(f.effects, i, i+1)
			return true
		}
	}
	return false
}

// cancel is the effect that takes back one call.
func (f *fold) cancel(n *node, id drover.CallID) Effect {
	e := Effect{Owed: owed(EffectCancel, n, id.Item, id.Attempt), Run: f.s.Run, Call: &Call{ID: id, Function: n.function, Token: f.token(id.String())}}
	if e.Undo = id.Undo; id.Undo {
		e.Call.Function = n.undo.function
	}
	if f.s.Program != nil { // the slot of the node may be another's by then
		e.Token = string(n.function)
	}
	return e
}
