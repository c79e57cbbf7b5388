package machine

import (
	"container/heap"
	"fmt"
	"maps"
	"slices"

	"github.com/droverhq/drover"
)

// order puts the nodes in an order in which each comes after what it needs,
// those that could change places by their id, and links them.
func (p *Plan) order(nodes map[drover.NodeID]*node, reads map[drover.NodeID]map[drover.NodeID]bool) error {
	users, unmet := map[drover.NodeID][]drover.NodeID{}, map[drover.NodeID]int{}
	var free ids
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		for dep := range reads[id] {
			if nodes[dep] == nil {
				return fmt.Errorf("node %s needs %s, which does not exist", id, dep)
			}
			users[dep] = append(users[dep], id)
		}
		if unmet[id] = len(reads[id]); unmet[id] == 0 {
			free = append(free, id)
		}
	}
	heap.Init(&free)
	for free.Len() > 0 {
		id := heap.Pop(&free).(drover.NodeID) //nolint:errcheck // the heap holds nothing else
		n := nodes[id]
		n.at = len(p.nodes)
		p.nodes, p.index[id] = append(p.nodes, n), n.at
		for dep := range reads[id] {
			n.deps = append(n.deps, p.index[dep])
		}
		slices.Sort(n.deps)
		for _, user := range users[id] {
			if unmet[user]--; unmet[user] == 0 {
				heap.Push(&free, user)
			}
		}
	}
	if len(p.nodes) < len(nodes) {
		return fmt.Errorf("%d of its nodes need each other in a circle", len(nodes)-len(p.nodes))
	}
	for _, n := range p.nodes {
		for _, dep := range n.deps {
			p.nodes[dep].users = append(p.nodes[dep].users, n.at)
		}
		if n.kind == drover.KindWait && !n.hooked() {
			p.waits[n.step.Wait.Name] = append(p.waits[n.step.Wait.Name], n)
		}
		if n.undo != nil {
			p.undoes[n.undo.function] = true
		}
		if err := p.link(n); err != nil {
			return err
		}
	}
	return nil
}

// link links a node to the hook that it reads or releases, or to the wait that
// it answers. What it names exists, and comes before it.
func (p *Plan) link(n *node) error {
	if n.hook != nil {
		p.claimers, n.target = append(p.claimers, n), n.at
	}
	id, hook := target(n.step)
	if id == "" {
		return nil
	}
	n.target = p.index[id]
	switch other := p.nodes[n.target]; {
	case hook && (other.hook == nil || !other.hook.holds):
		return fmt.Errorf("node %s names the hook of node %s, which holds none", n.id, id)
	case !hook && !other.hooked():
		return fmt.Errorf("node %s answers node %s, which reads no deliveries to a hook", n.id, id)
	case n.kind == drover.KindWait:
		other.sharers = append(other.sharers, n.at)
	case n.kind == drover.KindRespond:
		other.answered = true
	}
	return nil
}

// target is the node that a step names for its hook, or for its deliveries.
func target(step *drover.Step) (id drover.NodeID, hook bool) {
	switch {
	case step.Wait != nil:
		return step.Wait.From, true
	case step.Release != nil:
		return step.Release.Hook, true
	case step.Respond != nil:
		return step.Respond.To, false
	}
	return "", false
}

// close marks what the output needs, and whose failure fails the run. Users
// come after what they need, so one pass from the end is enough.
func (p *Plan) close(output map[drover.NodeID]bool) {
	for id := range output {
		if i, ok := p.index[id]; ok {
			p.nodes[i].needed, p.nodes[i].vital = true, true
		}
	}
	for _, n := range slices.Backward(p.nodes) {
		if !n.needed {
			continue
		}
		p.needed++
		for _, dep := range n.deps {
			d := p.nodes[dep]
			d.needed = true
			d.vital = d.vital || n.vital && n.step.Require != drover.RequireTerminal
		}
	}
}

// ids is a heap of node ids.
type ids []drover.NodeID

func (h ids) Len() int           { return len(h) }
func (h ids) Less(i, j int) bool { return h[i] < h[j] }
func (h ids) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *ids) Push(x any)        { *h = append(*h, x.(drover.NodeID)) } //nolint:errcheck // see Pop
func (h *ids) Pop() any {
	old := *h
	id := old[len(old)-1]
	*h = old[:len(old)-1]
	return id
}
