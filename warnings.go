package drover

import (
	"maps"
	"slices"
)

// Warnings tells of what is valid, and may not be meant: nodes that the output
// needs in no way, hooks whose callers are to be answered, but by no node, and waits
// that share a name and have different schemas. Each are in the order of their ids, and have no lines. It is nil where
// there is nothing to say, and for a definition that Validate refuses it may
// miss some.
func (d *Definition) Warnings() []Problem {
	l := linker{problems: &problems{}, source: &tree{}, idle: &problems{}}
	l.formulas(d, "")
	return l.idle.list
}

// unneeded warns of the nodes of d that its output does not need. Needs are
// those of each node, wanted those of the output.
func (l *linker) unneeded(d *Definition, needs graph, wanted map[NodeID]bool, place string) {
	needed, next := map[NodeID]bool{}, slices.Collect(maps.Keys(wanted))
	for len(next) > 0 {
		id := next[len(next)-1]
		next = next[:len(next)-1]
		if !needed[id] {
			needed[id] = true
			next = slices.AppendSeq(next, maps.Keys(needs[id]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.Nodes)) {
		if !needed[id] {
			l.idle.add(Problem{
				Place:   below(place, "nodes."+string(id)),
				Message: "the output needs this node in no way: it can neither fail nor delay the run, and is stopped when the run ends",
				Fix:     "read it in the output, or name it in the depends_on of a node that the output needs",
			})
		}
	}
}
