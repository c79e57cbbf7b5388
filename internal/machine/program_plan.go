package machine

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

// grown gives the plan of a run: that of its definition, or of a program, with
// the nodes that its body has asked for. It is the run's own then, and grows with
// it.
func (s *State) grown(p *Plan) *Plan {
	if s.Program == nil || p == nil || p.Definition.Program == "" {
		return p
	}
	if s.derived != nil && s.derived.plan != nil {
		return s.derived.plan
	}
	own := *p
	own.nodes = make([]*node, len(s.Program.Slots))
	own.index, own.waits, own.undoes = map[drover.NodeID]int{}, map[string][]*node{}, map[drover.FunctionName]bool{}
	own.claimers = nil
	for i := range s.Program.Slots {
		own.nodes[i] = vacant(i)
	}
	for i := range s.Program.Slots { // a node may name one that stands behind it
		if s.Program.Slots[i].ID != "" {
			if n, err := s.compileSlot(i); err == nil { // it compiled when it came
				own.put(n)
			}
		}
	}
	for _, n := range own.nodes {
		_ = own.link(n) // likewise
	}
	return &own
}

// vacant stands in a slot that is free.
func vacant(i int) *node { return &node{at: i, step: &drover.Step{}, input: &source{}} }

// put places a node in its slot.
func (p *Plan) put(n *node) {
	p.nodes[n.at] = n
	p.index[n.id] = n.at
	if n.kind == drover.KindWait && !n.hooked() {
		p.waits[n.step.Wait.Name] = append(p.waits[n.step.Wait.Name], n)
	}
}

// take removes the node of a slot.
func (p *Plan) take(i int) {
	n := p.nodes[i]
	delete(p.index, n.id)
	if n.kind == drover.KindWait && !n.hooked() {
		name := n.step.Wait.Name
		if p.waits[name] = slices.DeleteFunc(p.waits[name], func(o *node) bool { return o == n }); len(p.waits[name]) == 0 {
			delete(p.waits, name)
		}
	}
	if n.hook != nil {
		p.claimers = slices.DeleteFunc(p.claimers, func(o *node) bool { return o == n })
	} else if n.hooked() {
		owner := p.nodes[n.target]
		owner.sharers = slices.DeleteFunc(owner.sharers, func(at int) bool { return at == i })
	}
	p.nodes[i] = vacant(i)
}

// nodeID is the id of what the body knows under another: a body that began anew
// uses its ids again, and calls and children must not.
func (s *State) nodeID(id string) drover.NodeID { return idIn(s.Program.Generation, id) }

// idIn is the nodeID of a generation.
func idIn(generation int, id string) drover.NodeID {
	if generation > 0 {
		id += "~" + strconv.Itoa(generation+1)
	}
	return drover.NodeID(id)
}

// generationOf is the generation of a nodeID.
func generationOf(id drover.NodeID) int {
	_, after, _ := strings.Cut(string(id), "~")
	digits, _, _ := strings.Cut(after, "@") // of a pause
	n, _ := strconv.Atoi(digits)
	return max(n-1, 0)
}

// slotOf gives the slot of what the body knows under an id, or -1. Pauses have
// no id of their own.
func (s *State) slotOf(id string) int {
	return slices.IndexFunc(s.Program.Slots, func(slot Slot) bool { return slot.ID == id && slot.Pause == 0 && slot.Older == 0 })
}

// compileSlot makes the node of a slot, whose step was checked when it came. The
// hook that it names may be gone by now.
func (s *State) compileSlot(i int) (*node, error) {
	slot := &s.Program.Slots[i]
	step := &drover.Step{}
	if err := json.Unmarshal([]byte(slot.Step), step); err != nil {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "the step of node %q is none of a definition: %s", slot.ID, err)
	}
	if name, _ := target(step); name != "" {
		if s.slotOf(string(name)) < 0 {
			return nil, noHook(slot.ID, name)
		}
		rename(step, s.nodeID(string(name))) // it has another id inside
	}
	id := idIn(s.Program.Generation-slot.Older, slot.ID)
	if slot.Pause > 0 {
		id = drover.NodeID(string(id) + "@pause" + strconv.Itoa(slot.Pause))
	}
	c := compiler{known: map[string]bool{}, reads: map[drover.NodeID]bool{}}
	n, err := c.node(id, step)
	if err != nil {
		return nil, err
	}
	n.at = i
	input := slot.Input
	n.input = &source{fixed: &input}
	return n, nil
}

func noHook(id string, name drover.NodeID) *drover.Error {
	return drover.Errorf(drover.CodeNotFound, "node %q names the hook of node %q, which the run does not hold", cut(id, 60), cut(string(name), 60))
}

// checkStep holds what the body asks for to the rules of a definition. A hook that
// it names is one of asked.
func checkStep(id string, raw json.RawMessage, asked map[string]string) error {
	var step drover.Step
	if err := json.Unmarshal(raw, &step); err != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "the step of node %q is none of a definition: %s", cut(id, 60), err)
	}
	nodes := map[string]json.RawMessage{id: raw}
	if name, _ := target(&step); name != "" {
		if asked[string(name)] == "" || string(name) == id {
			return noHook(id, name)
		}
		nodes[string(name)] = json.RawMessage(asked[string(name)])
	}
	text, err := rawjson.Encode(map[string]any{"nodes": nodes, "output": map[string]string{"from": "node:" + id}})
	if err != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "the step of node %q is no JSON: %s", cut(id, 60), err)
	}
	def, err := drover.ParseDefinition(text)
	if err != nil {
		return err
	}
	got := def.Nodes[drover.NodeID(id)]
	if got == nil || len(def.Nodes) != len(nodes) {
		return drover.Errorf(drover.CodeInvalidRequest, "the step of node %q cannot be read", cut(id, 60))
	}
	if why := unfit(got); why != "" {
		return drover.Errorf(drover.CodeInvalidRequest, "node %q of a program %s", cut(id, 60), why)
	}
	return nil
}

// rename has a step name another node for its hook.
func rename(step *drover.Step, id drover.NodeID) {
	switch {
	case step.Wait != nil:
		step.Wait.From = id
	case step.Release != nil:
		step.Release.Hook = id
	}
}

// unfit says why a step of a definition is none of a program, or "": what its
// code can do better.
func unfit(step *drover.Step) string {
	switch {
	case step.Fanout != nil, step.When != "", step.Require != "", len(step.DependsOn) > 0, step.Compensate != nil, step.OnError != "":
		return "has fanout, when, require, depends_on, compensate or on_error: its code does that"
	case step.Input != nil:
		return "has input in its step: send it beside the step"
	case step.Set != nil, step.Respond != nil:
		return "is a set or respond, which only definitions have"
	case step.Wait != nil && step.Wait.Until != "":
		return "has until: read deliveries one by one"
	}
	return ""
}

// open makes a node of what the body asks for, and sets it off. One that cannot
// be made, as the hook that it names is gone, fails.
func (f *fold) open(slot Slot) {
	g := f.s.Program
	i := slices.IndexFunc(g.Slots, func(s Slot) bool { return !s.taken() })
	if i < 0 {
		i = len(g.Slots)
		g.Slots = append(g.Slots, Slot{})
		f.s.Nodes = append(f.s.Nodes, NodeState{})
		f.p.nodes = append(f.p.nodes, vacant(i))
		f.d.unmet, f.d.inFlight = append(f.d.unmet, 0), append(f.d.inFlight, 0)
	}
	g.Slots[i] = slot
	f.s.Nodes[i] = NodeState{}
	n, err := f.s.compileSlot(i)
	if err == nil {
		f.p.put(n)
		err = f.p.link(n)
	}
	if err != nil {
		f.p.nodes[i] = vacant(i)
		f.p.nodes[i].id = f.s.nodeID(slot.ID)
		f.finish(i, MarkFailed, Value{}, drover.AsError(err, drover.CodeInvalidRequest))
		return
	}
	f.queue = append(f.queue, i)
}

// settleProgram is what is left to do at the end of a fold of a program.
func (f *fold) settleProgram() {
	if !f.s.Terminal() {
		f.vacate()
		f.s.Inline = f.s.inlined()
	}
	f.sendDriver()
}

// vacate frees the slots of nodes that are over, that hold no token, and whose
// child is known to have been started.
func (f *fold) vacate() {
	g := f.s.Program
	f.oweStarts()
	for i := range g.Slots {
		if !g.Slots[i].taken() || !f.s.Nodes[i].Status.over() || f.s.hookOf(i) >= 0 || f.startOwed(f.p.nodes[i]) {
			continue
		}
		for _, x := range f.s.Nodes[i].Failed {
			f.s.Kept = max(0, f.s.Kept-len(x.Error.Message)-100)
		}
		g.Slots[i] = Slot{}
		f.s.Nodes[i] = NodeState{Status: MarkSkipped}
		f.p.take(i)
	}
	last := len(g.Slots)
	for last > 0 && !g.Slots[last-1].taken() {
		last--
	}
	g.Slots, f.s.Nodes, f.p.nodes = g.Slots[:last], f.s.Nodes[:last], f.p.nodes[:last]
	f.d.unmet, f.d.inFlight = f.d.unmet[:last], f.d.inFlight[:last]
}

// oweStarts notes which children this fold starts that are detached or abandoned:
// their nodes may be over at once, and the effect is made again of the slot. The
// caller replaces the list when it commits.
func (f *fold) oweStarts() {
	for i := range f.effects {
		if e := &f.effects[i]; e.Kind == EffectStart && f.p.nodes[f.p.index[e.Node]].outlives() && !slices.Contains(f.s.Owed, e.Owed) {
			f.s.Owed = append(f.s.Owed, e.Owed)
		}
	}
}

// startOwed reports whether the start of a child that is detached or abandoned may
// not have happened.
func (f *fold) startOwed(n *node) bool {
	return n.outlives() &&
		slices.ContainsFunc(f.s.Owed, func(o Owed) bool { return o.Kind == EffectStart && o.Node == n.id })
}

// OpenNodes are the ids of what the body waits for, sorted.
func (g *Program) OpenNodes() []string {
	ids := map[string]bool{}
	for _, slot := range g.Slots {
		if slot.taken() {
			ids[slot.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
