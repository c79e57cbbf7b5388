package expression

import (
	"github.com/expr-lang/expr/ast"
)

// rewriter puts a function that takes the meter in place of everything whose
// work is not bounded by the size of the tree: all functions but the loops,
// the operators on text, lists and objects. A loop is charged when it begins,
// for as many rounds as its list is long, each as dear as its body.
type rewriter struct{}

// operators are those that become functions.
var operators = map[string]bool{
	"+": true, "==": true, "!=": true, "<": true, "<=": true, ">": true, ">=": true, "in": true, "..": true,
	"contains": true, "startsWith": true, "endsWith": true, "matches": true,
}

// Visit rewrites one node, whose children are rewritten already.
func (rewriter) Visit(slot *ast.Node) {
	switch n := (*slot).(type) {
	case *ast.BinaryNode:
		if operators[n.Operator] {
			replace(slot, n.Operator, n.Left, n.Right)
		}
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok && added[callee.Value] != nil {
			replace(slot, callee.Value, n.Arguments...)
		}
	case *ast.BuiltinNode:
		builtinNode(slot, n)
	case *ast.MemberNode:
		if _, ok := n.Property.(*ast.StringNode); !ok {
			wrap(&n.Property, "key")
		}
	case *ast.SliceNode:
		wrap(&n.Node, "sliceable")
	}
}

func builtinNode(slot *ast.Node, n *ast.BuiltinNode) {
	if len(n.Arguments) < 2 || !isPredicate(n.Arguments[1]) {
		switch n.Name {
		case "sum", "count": // loops without a body
			n.Arguments[0] = loop(n.Arguments[0], n.Name, 1)
		default:
			replace(slot, n.Name, n.Arguments...)
		}
		return
	}
	body := n.Arguments[1].(*ast.PredicateNode)
	n.Arguments[0] = loop(n.Arguments[0], n.Name, 1+size(body))
	if functions[n.Name] == nil {
		return
	}
	// The library's sort is not stable, its groups have keys of any type, and
	// its loops that run backwards leave a value on the stack: make pairs of
	// element and key, and let a function of ours do the rest.
	pair := &ast.ArrayNode{Nodes: []ast.Node{&ast.PointerNode{}, body.Node}}
	pairs := &ast.BuiltinNode{Name: "map", Arguments: []ast.Node{n.Arguments[0], &ast.PredicateNode{Node: pair}}}
	pairs.SetLocation(n.Location())
	replace(slot, n.Name, append([]ast.Node{pairs}, n.Arguments[2:]...)...)
}

func isPredicate(n ast.Node) bool {
	_, ok := n.(*ast.PredicateNode)
	return ok
}

// loop wraps the list of a loop.
func loop(list ast.Node, name string, cost int) ast.Node {
	return call(list, "loop", list, &ast.StringNode{Value: name}, &ast.IntegerNode{Value: cost})
}

// wrap puts a function around a node.
func wrap(slot *ast.Node, name string) { replace(slot, name, *slot) }

// replace puts a call of a function in the place of a node.
func replace(slot *ast.Node, name string, args ...ast.Node) {
	*slot = call(*slot, name, args...)
}

// call makes a call that stands where at stands.
func call(at ast.Node, name string, args ...ast.Node) ast.Node {
	callee := &ast.IdentifierNode{Value: name + "!"}
	m := &ast.IdentifierNode{Value: meterName}
	n := &ast.CallNode{Callee: callee, Arguments: append([]ast.Node{m}, args...)}
	for _, made := range []ast.Node{callee, m, n} {
		made.SetLocation(at.Location())
	}
	return n
}

// size counts the nodes of a tree.
func size(n ast.Node) int {
	var c counter
	ast.Walk(&n, &c)
	return int(c)
}

type counter int

func (c *counter) Visit(*ast.Node) { *c++ }
