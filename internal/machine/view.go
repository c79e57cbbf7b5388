package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
)

// fewItems is how many items of a fan-out a view lists without being asked.
const fewItems = 20

// View shows a run, without its secret. With all, outputs that are not inline
// are shown as far as v has them, and so is each item of every fan-out.
func View(p *Plan, s *State, v Values, all bool) drover.Run {
	p = s.grown(p)
	w := viewer{p: p, s: s, v: v, all: all, undo: compensations(p, s)}
	r := drover.Run{
		ID: s.Run, Workflow: s.Workflow, Definition: s.Hash, Status: s.Status, Error: s.Error, Tags: maps.Clone(s.Tags),
		Input: w.json(s.Input), CreatedAt: s.Created.Time(), StartedAt: moment(s.Created), EndedAt: moment(s.Ended),
		Deadline: moment(s.Due), Unread: len(s.Unread), Successor: s.successor(), Applied: s.Applied, Nodes: make([]drover.Node, 0, len(s.Nodes)),
	}
	if s.Status == drover.StatusCompleted {
		r.Result = w.json(s.Result)
	}
	if s.Parent != nil {
		call := s.Parent.Call
		r.Parent = &call
	}
	for i := range s.Nodes {
		if s.Program == nil || s.Program.Slots[i].ID != "" {
			r.Nodes = append(r.Nodes, w.node(i))
		}
	}
	r.Program = s.program(p)
	if s.Meta != nil {
		r.Metadata = maps.Clone(s.Meta.Values)
	}
	for i := range s.Notify {
		r.Deliveries = append(r.Deliveries, s.delivery(i))
	}
	if s.Dropped > 0 {
		r.Notes = append(r.Notes, drover.Note{At: s.Created.Time(), Text: fmt.Sprintf("%d older notes were dropped", s.Dropped)})
	}
	for _, n := range s.Notes {
		r.Notes = append(r.Notes, drover.Note{At: n.At.Time(), Text: n.Text})
	}
	return r
}

// ViewProgram shows how far the body of a program is; nil: the run is none.
func ViewProgram(p *Plan, s *State) *drover.ProgramView { return s.program(p) }

// ViewNode shows one node of a run, as View does, or false where there is none.
func ViewNode(p *Plan, s *State, v Values, id drover.NodeID, all bool) (drover.Node, bool) {
	p = s.grown(p)
	i, ok := p.index[id]
	if !ok {
		return drover.Node{}, false
	}
	w := viewer{p: p, s: s, v: v, all: all, undo: compensations(p, s)}
	return w.node(i), true
}

// Output gives the output of a node, or with item of one item of its fan-out.
// The output of a fan-out is the array of its items' outputs. Its error is a
// *NeedError, or a *drover.Error: no such node or item, or it has no output,
// and why.
func Output(p *Plan, s *State, v Values, id drover.NodeID, item *int) (drover.NodeStatus, json.RawMessage, error) {
	p = s.grown(p)
	i, mark, bad := s.locate(p, id, item)
	if bad != nil {
		return "", nil, bad
	}
	if mark.status() != drover.NodeDone {
		err := drover.Errorf(drover.CodeNotFound, "node %s of run %s is %s, and has no output", id, s.Run, mark.status())
		if e := s.Nodes[i].Error; e != nil && item == nil {
			err.Message += ": " + e.Message
		}
		return mark.status(), nil, err
	}
	s.derive(p)
	f := newFold(p, s, v)
	f.frozen = true
	var out Value
	var err error
	if item != nil {
		out = f.itemOutput(i, *item)
	} else {
		out, err = f.output(i)
	}
	var raw json.RawMessage
	if err == nil {
		raw, err = f.load(out)
	}
	if len(f.need) > 0 {
		err = &NeedError{Keys: f.need}
	}
	return mark.status(), raw, err
}

// locate finds a node, or one item of it.
func (s *State) locate(p *Plan, id drover.NodeID, item *int) (int, Mark, *drover.Error) {
	i, ok := p.index[id]
	if !ok {
		var known []string
		for id := range p.index {
			known = append(known, string(id))
		}
		slices.Sort(known)
		return 0, 0, drover.Errorf(drover.CodeNotFound, "run %s has no node %q: its nodes are %s", s.Run, cut(string(id), 60), names(known))
	}
	ns := &s.Nodes[i]
	if item == nil {
		return i, ns.Status, nil
	}
	total := 0
	if ns.Items != nil {
		total = ns.Items.Total
	}
	if *item < 0 || *item >= total {
		return 0, 0, drover.Errorf(drover.CodeNotFound, "node %s of run %s has no item %d: it has %s", id, s.Run, *item, counted(total, "item"))
	}
	return i, ns.Items.Marks[*item], nil
}

// ViewKeys lists the keys of the values that View with all shows.
func ViewKeys(p *Plan, s *State) []string {
	p = s.grown(p)
	keys := key(key(nil, s.Input), s.Result)
	for i := range s.Nodes {
		keys = nodeKeys(p, s, i, keys)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func key(keys []string, v Value) []string {
	if v.Key == "" {
		return keys
	}
	return append(keys, v.Key)
}

func nodeKeys(p *Plan, s *State, i int, keys []string) []string {
	keys = key(keys, s.Nodes[i].Output)
	if it := s.Nodes[i].Items; it != nil {
		f := fold{p: p, s: s}
		for k := range it.Total {
			keys = key(keys, f.itemOutput(i, k))
		}
	}
	return keys
}

// viewer makes views of one run.
type viewer struct {
	p   *Plan
	s   *State
	v   Values
	all bool

	undo map[place]*drover.Compensation
}

// json is a value, or nil where it is not at hand.
func (w *viewer) json(v Value) json.RawMessage {
	if v.Key == "" {
		return v.JSON
	}
	if w.all && w.v != nil {
		if raw, ok := w.v(v.Key); ok {
			return raw
		}
	}
	return nil
}

func (w *viewer) node(i int) drover.Node {
	n, ns := w.p.nodes[i], &w.s.Nodes[i]
	x := drover.Node{
		ID: n.id, Kind: n.kind, Status: ns.Status.status(), StartedAt: moment(ns.Started), EndedAt: moment(ns.Ended), Error: ns.Error,
	}
	if ns.Status == MarkDone {
		x.Output = w.json(ns.Output)
	}
	if n.kind == drover.KindRun && ns.Attempts > 0 {
		x.Child = drover.ChildRunID(drover.CallID{Run: w.s.Run, Node: n.id, Item: drover.NoItem, Attempt: ns.Attempts})
	}
	if at := w.s.hookOf(i); at >= 0 && w.s.Hooks[at].Mark != HookHanded {
		x.Hook = w.s.Hooks[at].Token
	}
	if ns.Items != nil {
		x.Items, x.Compensation = w.items(i), w.sumUndo(i)
	} else {
		x.Attempts, x.Compensation = w.attempts(i), w.undo[place{i, drover.NoItem}]
	}
	return x
}

// attempts lists the attempts of a node: those that failed, the one that is
// outstanding, and the one that ended it well.
func (w *viewer) attempts(i int) []drover.Attempt {
	ns := &w.s.Nodes[i]
	var list []drover.Attempt
	last := 0
	for j := range ns.Failed {
		if x := &ns.Failed[j]; !x.Undo {
			list = append(list, w.attempt(x))
			last = x.Attempt
		}
	}
	for j := range w.s.Active {
		a := &w.s.Active[j]
		if a.Node == i && !a.Undo && (a.Kind == ActiveCall || a.Kind == ActiveChild) {
			return append(list, drover.Attempt{Attempt: a.Attempt, StartedAt: a.Since.Time(), Deadline: moment(a.Due)})
		}
	}
	if ns.Attempts > last && ns.Status.over() {
		list = append(list, drover.Attempt{
			Attempt: ns.Attempts, StartedAt: ns.Last.Time(), EndedAt: moment(ns.Ended), Instance: w.instance(ns.Instance),
		})
	}
	return list
}

func (w *viewer) attempt(x *Failure) drover.Attempt {
	return drover.Attempt{
		Attempt: x.Attempt, StartedAt: x.Started.Time(), EndedAt: moment(x.Ended), Deadline: moment(x.Deadline),
		Instance: w.instance(x.Instance), Error: x.Error,
	}
}

func (w *viewer) instance(i int) string {
	if i < 1 || i > len(w.s.Instances) {
		return ""
	}
	return w.s.Instances[i-1]
}

func (w *viewer) items(i int) *drover.Items {
	it := w.s.Nodes[i].Items
	x := &drover.Items{Total: it.Total, Counts: map[drover.NodeStatus]int{}}
	for _, m := range it.Marks {
		x.Counts[m.status()]++
	}
	if !w.all && it.Total > fewItems {
		return x
	}
	failed := map[int][]drover.Attempt{}
	for j := range w.s.Nodes[i].Failed {
		if f := &w.s.Nodes[i].Failed[j]; !f.Undo {
			failed[f.Item-1] = append(failed[f.Item-1], w.attempt(f))
		}
	}
	for k := range it.Total {
		item := w.item(i, k)
		item.Errors = failed[k]
		x.List = append(x.List, item)
	}
	return x
}

func (w *viewer) item(i, k int) drover.Item {
	ns := &w.s.Nodes[i]
	it := ns.Items
	f := fold{p: w.p, s: w.s}
	x := drover.Item{
		Index: k, Status: it.Marks[k].status(), Attempts: int(it.Attempts[k]), Instance: w.instance(int(it.By[k])),
		Output: w.json(f.itemOutput(i, k)), Compensation: w.undo[place{i, k}],
	}
	if k < it.Next {
		x.StartedAt = moment(ns.Started + Millis(it.Starts[k]))
		if it.Lasts[k] > 0 {
			x.EndedAt = moment(ns.itemEnd(k))
		}
	}
	return x
}

func (s *State) delivery(i int) drover.Delivery {
	sub := &s.Notify[i]
	d := drover.Delivery{
		ID: s.deliveryID(i), Notify: sub.Notify, Status: sub.Status, Attempts: sub.Tried,
		Since: moment(sub.Since), LastError: sub.Error, LastFailure: sub.Failed, NextAt: moment(sub.Next), EndedAt: moment(sub.At), Receipt: sub.Receipt,
	}
	d.GaveUp = sub.gaveUp()
	if sub.called() {
		d.NextAt = moment(sub.ends())
	}
	d.Notify.Seal = ""
	if d.Notify.URL != "" {
		d.Notify.URL = d.Notify.To() // its query may have a secret
	}
	return d
}

// DeliveryOf shows one delivery, and what it tells of its run; false: the run has
// no such subscriber.
func (s *State) DeliveryOf(i int) (drover.RunDelivery, bool) {
	if i < 0 || i >= len(s.Notify) {
		return drover.RunDelivery{}, false
	}
	return drover.RunDelivery{
		Delivery: s.delivery(i), RunID: s.Run, Workflow: s.Workflow, Outcome: s.Status, RunEnded: s.Ended.Time(),
	}, true
}

// moment is a time, or nil for none.
func moment(m Millis) *time.Time {
	if m == 0 {
		return nil
	}
	t := m.Time()
	return &t
}
