package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// child hears that a child is started: each node of a body has one.
func (l *programLedger) child(e *machine.Effect) {
	key := string(e.Run) + " " + string(e.Node)
	was, again := l.children[key]
	switch {
	case again && was != e.To && e.Attempt == 1:
		l.w.violated("node %s of %s has a second child: %s, after %s", e.Node, e.Run, e.To, was)
	case again:
		l.w.saw("Programs06 a child was started again, and was there")
	}
	l.children[key] = e.To
}

// stops hears that a child is to be stopped: not one that was to outlive that.
func (l *programLedger) stops(e *machine.Effect) {
	l.w.saw("Programs07 a child was stopped, as nobody waited for it any more")
	if m := l.asked(e.Run, e.Node); m != nil && m.how != "" {
		l.w.violated("child %s of %s, which is %s, was stopped", e.Node, e.Run, m.how)
	}
}

// asked is the move by which a body asked for a node, or nil.
func (l *programLedger) asked(run drover.RunID, node drover.NodeID) *move {
	state, err := machine.Decode(l.w.records[run].data)
	if err != nil || state.Program == nil {
		return nil
	}
	s := l.w.scriptOf(state)
	if s == nil {
		return nil
	}
	id, after, _ := strings.Cut(string(node), "~")
	generation, _ := strconv.Atoi(after)
	generation = min(max(generation-1, 0), len(s.gens)-1)
	var find func(moves []move) *move
	find = func(moves []move) *move {
		for i := range moves {
			m := &moves[i]
			if m.id == id {
				return m
			}
			for _, inner := range append(slices.Clone(m.branches), m.inner) {
				if found := find(inner); found != nil {
					return found
				}
			}
		}
		return nil
	}
	return find(s.gens[generation])
}

// family holds what children came to: all that were started are there, and who was
// detached never reported.
func (l *programLedger) family() {
	w := l.w
	for _, key := range slices.Sorted(maps.Keys(l.children)) {
		id := l.children[key]
		parent, node, _ := strings.Cut(key, " ")
		child, err := machine.Decode(w.records[id].data)
		if err != nil {
			w.violated("child %s of %s was asked for, and there is no such run: %v", id, key, err)
			return
		}
		of, err := machine.Decode(w.records[drover.RunID(parent)].data)
		m := l.asked(drover.RunID(parent), drover.NodeID(node))
		if err != nil || m == nil {
			continue
		}
		if m.how != "" && child.Ended > of.Ended {
			w.saw("Programs06 a child outlived its parent: " + m.how)
		}
	}
	for _, msg := range w.log {
		var told drover.ChildMessage
		if msg.Verb != string(drover.VerbChild) || json.Unmarshal(msg.Data, &told) != nil {
			continue
		}
		if m := l.asked(drover.RunID(msg.Run), told.Call.Node); m != nil && m.how == "detach" {
			w.violated("child %s of %s is detached, and has reported its end", told.Child, msg.Run)
		}
	}
}
