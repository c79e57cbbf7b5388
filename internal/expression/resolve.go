package expression

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/file"
)

// resolver walks the tree as it was written, and finds what it reads and what
// it may not say. Children are visited before their parents, so a name that is
// only good below something is held until that was seen.
type resolver struct {
	scope Scope
	lets  map[string]bool

	found   map[string]bool              // nodes that are read
	run     bool                         // run is read
	bare    map[*ast.IdentifierNode]bool // `nodes` without an id behind it
	callees map[*ast.IdentifierNode]bool // names of functions, called
	idents  []*ast.IdentifierNode        // in the order of the walk
	open    map[ast.Node]*ast.Node       // a whole node, or run: read as a value, unless a field of it is
	whole   []*ast.Node                  // what open came to
	faults  []located
}

type located struct {
	at file.Location
	fault
}

func (r *resolver) fail(n ast.Node, fix, format string, args ...any) {
	r.faults = append(r.faults, located{n.Location(), fault{fmt.Sprintf(format, args...), fix}})
}

// letNames gives every name that the expression itself declares.
func letNames(root ast.Node) map[string]bool {
	names := lets{}
	ast.Walk(&root, names)
	return names
}

type lets map[string]bool

func (l lets) Visit(n *ast.Node) {
	if let, ok := (*n).(*ast.VariableDeclaratorNode); ok {
		l[let.Name] = true
	}
}

// Visit looks at one node of the tree.
func (r *resolver) Visit(slot *ast.Node) {
	if r.found == nil {
		r.found, r.open = map[string]bool{}, map[ast.Node]*ast.Node{}
		r.bare, r.callees = map[*ast.IdentifierNode]bool{}, map[*ast.IdentifierNode]bool{}
	}
	switch n := (*slot).(type) {
	case *ast.IdentifierNode:
		r.identifier(slot, n)
	case *ast.MemberNode:
		r.member(slot, n)
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			r.callees[callee] = true
		} else {
			r.fail(n, "write it as a function: f(x)", "values have no methods")
		}
	case *ast.BinaryNode:
		r.comparison(n)
	case *ast.BytesNode:
		r.fail(n, "write it without the b", "there are no byte strings")
	}
}

func (r *resolver) identifier(slot *ast.Node, n *ast.IdentifierNode) {
	r.idents = append(r.idents, n)
	switch n.Value {
	case "nodes":
		r.bare[n] = true
	case "run":
		r.run = true
		r.open[n] = slot
	case "item", "index":
		if !r.scope.Item {
			fix := "give the node a fanout, or read input or nodes.<id>.output"
			if r.scope.Payload {
				fix = "read payload, payloads, input or nodes.<id>.output"
			}
			r.fail(n, fix, "%s is there only within a fan-out", n.Value)
		}
	case "payload", "payloads":
		if !r.scope.Payload {
			r.fail(n, "read nodes.<id>.output: a wait gives what was delivered", "%s is there only in the until of a wait", n.Value)
		}
	case "$env":
		r.fail(n, "name what is meant: input, nodes.<id>, run", "$env is not allowed")
	}
}

func (r *resolver) member(slot *ast.Node, n *ast.MemberNode) {
	if root, ok := n.Node.(*ast.IdentifierNode); ok && r.bare[root] {
		delete(r.bare, root)
		id, ok := n.Property.(*ast.StringNode)
		if !ok {
			r.fail(n, `name the node: nodes.plan or nodes["plan"]`, "which node is read must be known before the run")
			return
		}
		r.node(id)
		r.open[n] = slot
		return
	}
	if r.open[n.Node] == nil {
		return
	}
	delete(r.open, n.Node)
	fields, of := nodeFields, "a node"
	if _, isRun := n.Node.(*ast.IdentifierNode); isRun {
		fields, of = runFields, "run"
	}
	if field, ok := n.Property.(*ast.StringNode); ok && !slices.Contains(fields, field.Value) {
		fix := "read one of " + strings.Join(fields, ", ")
		if of == "a node" {
			fix += "; what the node gave is below output"
		}
		r.fail(field, fix, "%s has no %s", of, field.Value)
	}
}

func (r *resolver) node(id *ast.StringNode) {
	if r.scope.Nodes[id.Value] {
		r.found[id.Value] = true
		return
	}
	fix := "name a node of the definition"
	if near := Nearest(id.Value, slices.Sorted(maps.Keys(r.scope.Nodes))); near != "" {
		fix = fmt.Sprintf("did you mean nodes[%q]?", near)
	}
	r.fail(id, fix, "there is no node %q", id.Value)
}

// finish gives the first thing that is wrong, if anything is.
func (r *resolver) finish(src file.Source) error {
	for _, n := range r.idents {
		if r.bare[n] {
			r.fail(n, "name the node: nodes.plan or nodes[\"plan\"]", "nodes is no value by itself")
		}
		if r.callees[n] {
			if why := forbidden[n.Value]; why != "" {
				r.fail(n, why, "the function %s is not allowed", n.Value)
			}
		} else if isFunction(n.Value) && !r.lets[n.Value] {
			r.fail(n, "call it: "+n.Value+"(...)", "%s is a function", n.Value)
		}
	}
	r.whole = slices.Collect(maps.Values(r.open))
	if len(r.faults) == 0 {
		return nil
	}
	first := slices.MinFunc(r.faults, func(a, b located) int { return a.at.From - b.at.From })
	err := &file.Error{Location: first.at, Message: first.message}
	err.Wrap(&first.fault)
	return err.Bind(src)
}

func isFunction(name string) bool {
	_, own := added[name]
	_, other := builtin.Index[name]
	return own || other
}

func (r *resolver) reads() []string { return slices.Sorted(maps.Keys(r.found)) }

// suggest adds to an unknown name the one that is nearest.
func (r *resolver) suggest(err error) error {
	at, ok := errors.AsType[*file.Error](err)
	if !ok {
		return err
	}
	name, ok := strings.CutPrefix(at.Message, "unknown name ")
	if !ok {
		return err
	}
	roots, fix := rootNames, "the names are input, nodes, run, and item and index in a fan-out; text goes in quotes"
	if r.scope.Payload {
		roots, fix = slices.Concat(payloadNames, rootNames), "the names are payload, payloads, input, nodes and run; text goes in quotes"
	}
	names := slices.Concat(roots, slices.Sorted(maps.Keys(r.lets)), builtin.Names, slices.Sorted(maps.Keys(added)))
	if near := Nearest(name, names); near != "" {
		fix = "did you mean " + near + "?"
	}
	at.Wrap(&fault{fmt.Sprintf("unknown name %s", name), fix})
	return at
}
