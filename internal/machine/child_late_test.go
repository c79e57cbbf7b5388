package machine

import (
	"slices"
	"testing"

	"github.com/droverhq/drover"
)

// A child that goes on without its parent is started also where it only waits for a
// slot as the parent completes. One that fails, or is stopped, begins nothing more.
func TestPrograms07AChildWithoutASlotIsStarted(t *testing.T) {
	const def = `{"max_parallel":1,"nodes":{"a":{"call":"f"},"aside":{"run":{"workflow":"sub","detach":true}},
		"other":{"run":{"workflow":"sub","abandon":true}},"mine":{"run":{"workflow":"sub"}},"later":{"run":{"workflow":"sub","detach":true},"depends_on":["mine"]}},
		"output":{"from":"node:a"}}`
	w := newWorld(t, def)
	w.start(`1`)
	w.wantEffects("call a@1")
	w.ok("a@1", `2`)
	w.wantStatus(drover.StatusCompleted)
	w.wantEffects("start aside@1", "start other@1", "done")
	child := drover.ChildRunID(drover.CallID{Run: w.run, Node: "aside", Item: drover.NoItem, Attempt: 1})
	if n := w.s.Nodes[w.p.index["aside"]]; n.Status != MarkDone || string(n.Output.JSON) != `{"run_id":"`+string(child)+`"}` {
		t.Errorf("the node is %+v", n)
	}
	for id, want := range map[drover.NodeID]Mark{"other": MarkCancelled, "mine": MarkSkipped, "later": MarkSkipped} {
		if n := w.s.Nodes[w.p.index[id]]; n.Status != want {
			t.Errorf("node %s is %q, want %q", id, n.Status, want)
		}
	}
	again, err := Effects(w.p, w.decode(w.record), Compact(w.last.Effects), nil)
	if err != nil || !slices.Equal(effectNames(again), effectNames(w.last.Effects)) {
		t.Errorf("made again: %s (%v)", showEffects(again), err)
	}

	w = newWorld(t, def)
	w.start(`1`)
	w.stop("enough")
	w.wantStatus(drover.StatusCancelled)
	w.wantEffects("withdraw [f]", "done")
}

// What a child says to a parent that was removed is nothing to look into: a child that
// was abandoned may live for longer.
func TestPrograms07AChildOutlivesTheRecordOfItsParent(t *testing.T) {
	call := drover.CallID{Run: "gone", Node: "c", Item: drover.NoItem, Attempt: 1}
	for _, c := range []*Command{
		{Verb: drover.VerbChild, Child: &drover.ChildMessage{Call: call, Child: drover.ChildRunID(call), Status: drover.StatusCompleted}},
		{Verb: drover.VerbMeta, Meta: &drover.MetaMessage{Call: call, Number: 1}},
	} {
		c.Run, c.Seq, c.At = "gone", 7, epoch
		step, err := Apply(nil, nil, c, nil)
		if err != nil || step.Refused != nil || step.Changed || step.State != nil {
			t.Errorf("%s: %+v, %v", c.Verb, step, err)
		}
	}
	step, _ := Apply(nil, nil, &Command{Verb: drover.VerbDeliver, Run: "gone", Seq: 7, At: epoch, Deliver: &drover.DeliverRequest{Name: "x"}}, nil)
	if step.Refused == nil {
		t.Error("a delivery to no run is taken")
	}
}
