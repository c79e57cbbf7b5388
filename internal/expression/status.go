package expression

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// statuses are those of a node that is over, as every node is that is read.
var statuses = []string{"done", "failed", "cancelled", "skipped"}

// meant are the words of other systems for them.
var meant = map[string]string{
	"completed": "done", "complete": "done", "succeeded": "done", "success": "done", "successful": "done", "ok": "done", "finished": "done",
	"failure": "failed", "error": "failed", "errored": "failed", "timeout": "failed", "timed_out": "failed",
	"canceled": "cancelled", "stopped": "cancelled", "aborted": "cancelled",
}

// comparison refuses to compare the status of a node with what is none.
func (r *resolver) comparison(n *ast.BinaryNode) {
	var others []ast.Node
	switch {
	case n.Operator == "==" || n.Operator == "!=":
		if isStatus(n.Left) {
			others = append(others, n.Right)
		} else if isStatus(n.Right) {
			others = append(others, n.Left)
		}
	case n.Operator == "in" && isStatus(n.Left):
		if list, ok := n.Right.(*ast.ArrayNode); ok {
			others = list.Nodes
		}
	}
	for _, other := range others {
		text, ok := other.(*ast.StringNode)
		if !ok || slices.Contains(statuses, text.Value) {
			continue
		}
		fix := "the statuses are " + strings.Join(statuses, ", ")
		word := meant[strings.ToLower(text.Value)]
		if word == "" {
			word = Nearest(strings.ToLower(text.Value), statuses)
		}
		if word != "" {
			fix = fmt.Sprintf("did you mean %q? The statuses are %s", word, strings.Join(statuses, ", "))
		}
		r.fail(other, fix, "no node that is over has the status %q", text.Value)
	}
}

// isStatus reports whether n is nodes.<id>.status.
func isStatus(n ast.Node) bool {
	field, ok := member(n)
	if !ok || field.Value != "status" {
		return false
	}
	node, _ := bare(n).(*ast.MemberNode)
	if _, ok = member(node.Node); !ok {
		return false
	}
	id, _ := bare(node.Node).(*ast.MemberNode)
	root, ok := bare(id.Node).(*ast.IdentifierNode)
	return ok && root.Value == "nodes"
}

// member gives the field that a node of the tree reads of something.
func member(n ast.Node) (*ast.StringNode, bool) {
	m, ok := bare(n).(*ast.MemberNode)
	if !ok {
		return nil, false
	}
	field, ok := m.Property.(*ast.StringNode)
	return field, ok
}

// bare takes off what ?. puts around a chain.
func bare(n ast.Node) ast.Node {
	if chain, ok := n.(*ast.ChainNode); ok {
		return chain.Node
	}
	return n
}
