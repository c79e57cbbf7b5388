package drover

import (
	"slices"
	"strings"
)

// RefKind says where a reference reads.
type RefKind string

// The kinds of reference.
const (
	RefInput RefKind = "input" // the run's input
	RefItem  RefKind = "item"  // the item of the fan-out that the node is in
	RefNode  RefKind = "node"  // the output of a node
)

// Ref is a reference that was parsed: where it reads, and the keys that lead
// from there to the value. A key that is a number may be the index of an array.
type Ref struct {
	Kind RefKind
	Node NodeID   // of RefNode only
	Path []string // nil: the whole value
}

// String spells the reference as ParseRef reads it.
func (r Ref) String() string {
	head := "run_input"
	switch r.Kind {
	case RefItem:
		head = "fanout_item"
	case RefNode:
		head = "node:" + string(r.Node)
	case RefInput:
	}
	return strings.Join(append([]string{head}, r.Path...), ".")
}

// ParseRef reads a reference: run_input (also spelled workflow.input),
// fanout_item or node:<id>, each with or without a path of keys after it, as
// in node:plan.names. Its error has CodeInvalidDefinition.
func ParseRef(s string) (Ref, error) {
	head, path, hasPath := strings.Cut(s, ".")
	var r Ref
	switch {
	case head == "run_input":
		r.Kind = RefInput
	case head == "workflow" && (path == "input" || strings.HasPrefix(path, "input.")):
		r.Kind = RefInput
		_, path, hasPath = strings.Cut(path, ".")
	case head == "fanout_item":
		r.Kind = RefItem
	case strings.HasPrefix(head, "node:"):
		id, err := ParseNodeID(head[len("node:"):])
		if err != nil {
			return Ref{}, Errorf(CodeInvalidDefinition, "reference %s: %s", quote(s), err)
		}
		r.Kind, r.Node = RefNode, id
	default:
		return Ref{}, Errorf(CodeInvalidDefinition,
			"%s is no reference: write run_input, fanout_item or node:<id>, with a path after it if needed", quote(s))
	}
	if hasPath {
		r.Path = strings.Split(path, ".")
		if slices.Contains(r.Path, "") {
			return Ref{}, Errorf(CodeInvalidDefinition, "reference %s has an empty key in its path: write node:<id>.<key>.<key>", quote(s))
		}
	}
	return r, nil
}
