package drover

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/droverhq/drover/internal/expression"
	"github.com/droverhq/drover/internal/schema"
)

// Reads gives what From refers to. It is nil for a nil Source, and for one
// with expressions, whose reads only their compilation tells.
func (s *Source) Reads() []Ref {
	if s == nil {
		return nil
	}
	var refs []Ref
	for _, name := range s.From.Names {
		if ref, err := ParseRef(name); err == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

// linker checks what the parts of a definition say of each other. Its shape is
// known to be right.
type linker struct {
	*problems
	source *tree     // for the lines
	idle   *problems // gets the nodes that are not needed; nil: nobody asks
}

func (l *linker) fail(place, fix, format string, args ...any) {
	l.add(Problem{Place: place, Line: l.source.lineAt(place), Message: fmt.Sprintf(format, args...), Fix: fix})
}

// graph is what each node needs.
type graph map[NodeID]map[NodeID]bool

func (g graph) need(node, other NodeID) {
	if g[node] == nil {
		g[node] = map[NodeID]bool{}
	}
	g[node][other] = true
}

// references checks every reference of d, that stands at place, and of the
// definitions within it.
func (l *linker) references(d *Definition, place string) {
	before, needs := len(l.list), graph{}
	for _, id := range slices.Sorted(maps.Keys(d.Nodes)) {
		n := nodeLinker{linker: l, d: d, needs: needs, id: id, place: below(place, "nodes."+string(id))}
		n.references(d.Nodes[id])
	}
	out := nodeLinker{linker: l, d: d, needs: graph{}, place: place}
	out.sourceRefs(d.Output, below(place, "output"))
	if len(l.list) == before {
		l.circles(needs, below(place, "nodes"))
	}
}

// nodeLinker checks one node.
type nodeLinker struct {
	*linker
	d     *Definition
	needs graph
	id    NodeID
	place string
	item  bool
}

func (n *nodeLinker) references(step *Step) {
	n.item = step.Fanout != nil
	for i, dep := range step.DependsOn {
		n.known(dep, fmt.Sprintf("%s.depends_on[%d]", n.place, i))
	}
	n.sourceRefs(step.Input, n.place+".input")
	n.deliveries(step)
	if step.Run != nil {
		n.sourceRefs(step.Run.Input, n.place+".run.input")
		if step.Run.Definition != nil {
			n.linker.references(step.Run.Definition, n.place+".run.definition")
		}
	}
	if step.Compensate != nil {
		undo := *n
		undo.needs = graph{}
		undo.sourceRefs(step.Compensate.Input, n.place+".compensate.input")
		for other := range undo.needs[n.id] {
			switch {
			case other != n.id:
				n.needs.need(n.id, other)
			case n.item:
				n.selfRead(n.id, n.place+".compensate.input")
			}
		}
	}
	if step.Fanout != nil && !expression.HasExpression(step.Fanout.Over) {
		n.over(step.Fanout.Over, n.place+".fanout.over")
	}
}

// selfRead tells of the compensation of an item that reads the whole fan-out,
// which may have no result when it is undone.
func (l *linker) selfRead(id NodeID, place string) {
	l.fail(place, "leave input out: the function then gets {input, output} of its node",
		"the compensation of an item of %s cannot read %s itself", id, id)
}

// known checks that a node exists, and notes that it is needed.
func (n *nodeLinker) known(other NodeID, place string) bool {
	if n.d.Nodes[other] == nil {
		fix := "name a node of the definition"
		var names []string
		for _, id := range slices.Sorted(maps.Keys(n.d.Nodes)) {
			names = append(names, string(id))
		}
		if near := expression.Nearest(string(other), names); near != "" {
			fix = fmt.Sprintf("did you mean %s?", near)
		}
		n.fail(place, fix, "there is no node %s", quote(string(other)))
		return false
	}
	n.needs.need(n.id, other)
	return true
}

func (n *nodeLinker) sourceRefs(s *Source, place string) {
	if s == nil {
		return
	}
	seen := map[NodeID]bool{}
	for i, ref := range s.Reads() {
		at := place + ".from"
		if s.From.List {
			at = fmt.Sprintf("%s[%d]", at, i)
		}
		switch {
		case ref.Kind == RefItem && !n.item:
			n.fail(at, "give the node a fanout, or read run_input or node:<id>", "fanout_item is there only within a fan-out")
		case ref.Kind == RefNode:
			n.known(ref.Node, at)
			if seen[ref.Node] {
				n.fail(at, "read them with an expression in with", "the list makes an object by node id, and %s is in it twice", ref.Node)
			}
			seen[ref.Node] = true
		}
	}
}

// over checks what a fan-out goes over, as far as it is declared.
func (n *nodeLinker) over(text, place string) {
	ref, err := ParseRef(text)
	switch {
	case err != nil:
		n.fail(place, "an expression goes into ${{ }}", "%s", err.Error())
	case ref.Kind == RefItem:
		n.fail(place, "read a node or run_input, or flatten the list with an expression", "a fan-out cannot go over its own item")
	case ref.Kind == RefInput:
		if what, proven := schema.NotArray(n.d.InputSchema, ref.Path); proven {
			n.fail(place, "name an array of the input", "input_schema says that %s is %s, and a fan-out needs an array", quote(text), what)
		}
	case n.known(ref.Node, place):
		if what, proven := notArray(n.d.Nodes[ref.Node], ref.Path); proven {
			n.fail(place, fmt.Sprintf("name an array of the output of %s", ref.Node),
				"node %s declares that %s is %s, and a fan-out needs an array", ref.Node, quote(text), what)
		}
	}
}

// notArray reports whether what a node declares of its output proves that at
// path there is no array. A first key `result` or `output` may be one of the
// output's, or mean the output itself.
func notArray(step *Step, path []string) (string, bool) {
	what, proven := notArrayAt(step, path)
	if proven && len(path) > 0 && (path[0] == "result" || path[0] == "output") {
		what, proven = notArrayAt(step, path[1:])
	}
	return what, proven
}

func notArrayAt(step *Step, path []string) (string, bool) {
	if step.Fanout != nil {
		switch {
		case len(path) == 0:
			return "", false
		case !isIndex(path[0]):
			return "a key of the array that a fan-out gives", true
		}
		path = path[1:]
	}
	contract := step.Output
	if step.Agent != nil && step.Agent.Output != nil {
		contract = step.Agent.Output
	}
	switch {
	case contract != nil && contract.Type == "text":
		return "text", true
	case contract != nil && contract.Schema != nil:
		return schema.NotArray(contract.Schema, path)
	case step.Wait != nil:
		return step.Wait.notArray(path)
	case step.Respond != nil:
		return "null, as it responds", true
	case step.Sleep != nil:
		return "null, as it sleeps", true
	}
	return "", false
}

func isIndex(key string) bool {
	_, err := strconv.Atoi(key)
	return err == nil
}

// circles tells of nodes that need each other, one problem for each circle
// that has no node in common with another.
func (l *linker) circles(needs graph, place string) {
	left := graph{}
	for id, others := range needs {
		left[id] = maps.Clone(others)
	}
	for l.prune(left); len(left) > 0; l.prune(left) {
		circle := walkCircle(left)
		names := make([]string, len(circle))
		for i, id := range circle {
			names[i] = string(id)
			delete(left, id)
		}
		l.fail(below(place, names[0]), "take out one of the dependencies",
			"the nodes need each other in a circle: %s -> %s", strings.Join(names, " -> "), names[0])
	}
}

// prune takes out what is in no circle: nodes that need nothing that is left,
// and then those that needed only them.
func (l *linker) prune(left graph) {
	users, unmet := map[NodeID][]NodeID{}, map[NodeID]int{}
	var free []NodeID
	for id, others := range left {
		for other := range others {
			if left[other] != nil {
				users[other] = append(users[other], id)
				unmet[id]++
			}
		}
		if unmet[id] == 0 {
			free = append(free, id)
		}
	}
	for len(free) > 0 {
		id := free[len(free)-1]
		free = free[:len(free)-1]
		delete(left, id)
		for _, user := range users[id] {
			if unmet[user]--; unmet[user] == 0 {
				free = append(free, user)
			}
		}
	}
}

// walkCircle follows needs from the first node until one comes again. All of
// left need something that is left.
func walkCircle(left graph) []NodeID {
	id := slices.Min(slices.Collect(maps.Keys(left)))
	var path []NodeID
	seen := map[NodeID]int{}
	for {
		if at, again := seen[id]; again {
			path = path[at:]
			break
		}
		seen[id] = len(path)
		path = append(path, id)
		var next []NodeID
		for other := range left[id] {
			if left[other] != nil {
				next = append(next, other)
			}
		}
		id = slices.Min(next)
	}
	// From the smallest on, so that the same circle reads the same.
	first := slices.Index(path, slices.Min(path))
	return slices.Concat(path[first:], path[:first])
}
