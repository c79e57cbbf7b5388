package machine

import (
	"cmp"
	"slices"

	"github.com/droverhq/drover"
)

// derive makes what follows from the state, unless it is there already.
func (s *State) derive(p *Plan) {
	if s.derived != nil {
		return
	}
	d := &derived{
		unmet: make([]int32, len(p.nodes)), inFlight: make([]int32, len(p.nodes)),
		items: map[int]itemsCache{}, values: map[int]any{},
	}
	s.derived = d
	for i, n := range p.nodes {
		ns := &s.Nodes[i]
		if n.needed && !ns.Status.over() {
			d.left++
		}
		for _, dep := range n.deps {
			if !s.Nodes[dep].Status.over() {
				d.unmet[i]++
			}
		}
		if ns.Items != nil && !ns.Status.over() && ns.Items.Next < ns.Items.Total {
			d.open = append(d.open, i)
		}
	}
	for i := range s.Active {
		d.flies(&s.Active[i], 1)
	}
}

// flies counts something that came into flight, or out of it.
func (d *derived) flies(a *Active, by int) {
	if a.Undo || a.Kind != ActiveCall && a.Kind != ActiveChild {
		return
	}
	d.calls += by
	d.inFlight[a.Node] += int32(by)
}

// search gives the place in Active of what a node or an item of it is doing, or
// where it would stand. There is at most one, and Active is in this order.
func search(list []Active, node, item int) (int, bool) {
	return slices.BinarySearchFunc(list, place{node, item}, func(a Active, p place) int {
		return cmp.Or(cmp.Compare(a.Node, p.node), cmp.Compare(a.Item, p.item))
	})
}

// add makes something active.
func (f *fold) add(a Active) {
	at, _ := search(f.s.Active, a.Node, a.Item)
	f.s.Active = slices.Insert(f.s.Active, at, a)
	f.d.flies(&a, 1)
}

// find gives the index in Active of what a node or an item of it is doing, or
// -1.
func (f *fold) find(node, item int) int {
	if at, ok := search(f.s.Active, node, item); ok {
		return at
	}
	return -1
}

// remove takes something out of Active.
func (f *fold) remove(i int) {
	f.d.flies(&f.s.Active[i], -1)
	f.s.Active = slices.Delete(f.s.Active, i, i+1)
}

// instance gives the index of a function instance in State.Instances, and 1.
func (f *fold) instance(name string) int {
	const most, length = 1000, 64
	if name == "" {
		return 0
	}
	name = cut(name, length)
	for i, known := range f.s.Instances {
		if known == name {
			return i + 1
		}
	}
	if len(f.s.Instances) == most {
		return 0 // a run that this many instances worked on forgets the others
	}
	f.s.Instances = append(f.s.Instances, name)
	return len(f.s.Instances)
}

// fill sets off attempts as long as there are free slots: those that wait
// first, then items of fan-outs. It reports whether a node was decided by that.
func (f *fold) fill() bool {
	ready := f.s.Ready
	f.s.Ready = nil
	kept := ready[:0]
	for _, a := range ready {
		switch {
		case f.gone(a.Node, a.Item):
			f.changed = true
		case f.room(a.Node):
			f.launch(a)
		default:
			kept = append(kept, a)
		}
	}
	if len(kept) > 0 {
		f.s.Ready = append(kept, f.s.Ready...)
	}
	for at := 0; at < len(f.d.open) && f.d.calls < f.p.maxParallel; {
		i := f.d.open[at]
		f.fillItems(i)
		if at < len(f.d.open) && f.d.open[at] == i { // else it was closed
			at++
		}
	}
	return len(f.queue) > 0 && !f.failed
}

// gone reports whether a node or an item is over.
func (f *fold) gone(i, item int) bool {
	ns := &f.s.Nodes[i]
	return ns.Status.over() || item != drover.NoItem && ns.Items.Marks[item].over()
}

// room reports whether an attempt of a node may be made now.
func (f *fold) room(i int) bool {
	n := f.p.nodes[i]
	if f.d.calls >= f.p.maxParallel || f.failed {
		return false
	}
	return !n.fans() || n.step.Fanout.MaxParallel == 0 || int(f.d.inFlight[i]) < n.step.Fanout.MaxParallel
}

func (f *fold) fillItems(i int) {
	it, need := f.s.Nodes[i].Items, len(f.need)
	for it.Next < it.Total && len(f.need) == need && f.room(i) && !f.s.Nodes[i].Status.over() {
		it.Next++
		f.launch(Active{Node: i, Item: it.Next - 1, Attempt: 1})
	}
	if it.Next == it.Total {
		f.close(i)
	}
}

// close takes a fan-out off the list of those with items to set off.
func (f *fold) close(i int) {
	for at, open := range f.d.open {
		if open == i {
			f.d.open = append(f.d.open[:at], f.d.open[at+1:]...)
			return
		}
	}
}
