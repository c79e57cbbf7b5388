package machine

import (
	"errors"
	"maps"
	"slices"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// complete makes the run's result of its output, and ends it.
func (f *fold) complete() {
	v, err := f.value(f.p.output, nil, drover.NoItem)
	if errors.Is(err, errMissing) {
		return
	}
	f.changed = true
	if err == nil && len(v.JSON) > drover.MaxValue {
		err = drover.Errorf(drover.CodeTooLarge, "it has %d bytes, more than the %d that a value may have: give a reference to it", len(v.JSON), drover.MaxValue)
	}
	if err == nil && nested(v.JSON) > maxNesting {
		err = drover.Errorf(drover.CodeTooLarge, "it is nested deeper than %d levels: make it flatter", maxNesting)
	}
	if err != nil {
		e := *drover.AsError(err, drover.CodeExpression)
		e.Message = "the output of the run cannot be made: " + e.Message
		f.end(drover.StatusFailed, &e)
		return
	}
	if v.Key == "" {
		v = f.keep(v.JSON, subjects.ResultKey(f.s.Run))
	}
	f.s.Result = v
	f.end(drover.StatusCompleted, nil)
}

// end stops all that is left of the run. One that did not complete compensates
// then what was done; else it is over.
func (f *fold) end(final drover.Status, err *drover.Error) {
	f.s.Error = clip(err)
	f.queue = nil
	if final == drover.StatusCompleted {
		f.startLeft()
	}
	children := f.halt()
	f.giveUp()
	if final != drover.StatusCompleted {
		if f.d.undo = f.undoable(nil); len(f.d.undo) > 0 {
			f.s.Undo = &Undo{Final: final}
			f.withdraw()
			f.effects = append(f.effects, children...)
			f.nextUndo()
			return
		}
	}
	f.withdraw()
	f.effects = append(f.effects, children...)
	f.terminal(final)
}

// halt stops all nodes that are not over, and gives the effects that stop their
// children. What this fold had set off is taken back.
func (f *fold) halt() []Effect {
	active := f.s.Active
	f.s.Active, f.s.Ready = nil, nil
	f.d.open, f.d.calls = nil, 0
	clear(f.d.inFlight)
	sent := map[Owed]bool{}
	f.s.Recall = nil
	f.effects = slices.DeleteFunc(f.effects, func(e Effect) bool {
		if e.Kind == EffectCancel && !e.Undo {
			return f.recalls(e.Call.Function)
		}
		if e.Kind != EffectCall && (e.Kind != EffectStart || f.p.nodes[f.p.index[e.Node]].outlives()) {
			return false
		}
		sent[e.Owed] = true
		return true
	})
	var children []Effect
	if g := f.s.Program; g != nil && g.State == DriveQueued && g.Drive == f.drives {
		f.recalls(DriveFunction(f.p.Definition.Program, g.Version))
	}
	for _, a := range active {
		n := f.p.nodes[a.Node]
		id := f.callID(n, a.Item, false, a.Attempt)
		switch a.Kind {
		case ActiveChild:
			if !sent[owed(EffectStart, n, a.Item, a.Attempt)] && !n.abandons() {
				children = append(children, f.stopChild(n, id))
			}
		case ActiveCall:
			if sent[owed(EffectCall, n, a.Item, a.Attempt)] {
				continue
			}
			if !f.recalls(n.function) {
				children = append(children, f.cancel(n, id))
			}
		case ActivePause, ActiveSleep, ActiveWait:
		}
	}
	for i := range f.s.Nodes {
		f.haltNode(i)
	}
	return children
}

// recalls has the end of the run take all of its calls to a function out of the
// queue at once. It is false where a compensation, or a delivery of the outcome, may
// be there too: then each call is taken out by its name.
func (f *fold) recalls(function drover.FunctionName) bool {
	if f.p.undoes[function] || f.s.tells(function) {
		return false
	}
	if at, ok := slices.BinarySearch(f.s.Recall, function); !ok {
		f.s.Recall = slices.Insert(f.s.Recall, at, function)
	}
	return true
}

// haltNode stops a node, unless it is over.
func (f *fold) haltNode(i int) {
	ns := &f.s.Nodes[i]
	if ns.Status.over() {
		return
	}
	f.handBack(i)
	delete(f.d.items, i)
	if ns.Items != nil {
		for k, mark := range ns.Items.Marks {
			if !mark.over() {
				f.stopItem(ns, k)
			}
		}
	}
	if ns.Started == 0 {
		ns.Status = MarkSkipped
		return
	}
	ns.Status, ns.Ended = MarkCancelled, f.now
}

// withdraw takes back the calls that were outstanding when the run ended.
func (f *fold) withdraw() {
	if len(f.s.Recall) > 0 {
		f.effect(Effect{Owed: Owed{Kind: EffectWithdraw}, Functions: f.s.Recall})
	}
}

// terminal ends the run for good, and sees to it that everyone is told.
func (f *fold) terminal(final drover.Status) {
	f.changed = true
	f.s.Status, f.s.Ended, f.s.Due = final, f.now, 0
	if f.s.Parent != nil {
		f.effect(f.tell())
	}
	f.effect(f.done())
	f.tellSubscribers()
}

// tell is the effect that tells the parent.
func (f *fold) tell() Effect {
	return Effect{
		Owed: Owed{Kind: EffectTell}, Run: f.s.Run, To: f.s.Parent.Call.Run, Value: f.s.Result,
		Child: &drover.ChildMessage{
			Call: f.s.Parent.Call, Token: f.s.Parent.Token, Child: f.s.Run, Status: f.s.Status, Error: f.s.Error,
		},
	}
}

// outcome is what is told of the run; its result goes with it as a value.
func (f *fold) outcome(id drover.DeliveryID) *drover.Outcome {
	return &drover.Outcome{
		DeliveryID: id, RunID: f.s.Run, Workflow: f.s.Workflow, Status: f.s.Status, Error: f.s.Error,
		StartedAt: f.s.Created.Time(), EndedAt: f.s.Ended.Time(), Tags: maps.Clone(f.s.Tags),
		Unread: len(f.s.Unread), Successor: f.s.successor(),
	}
}

// done is the effect that publishes the outcome.
func (f *fold) done() Effect {
	return Effect{
		Owed: Owed{Kind: EffectDone}, Run: f.s.Run, Value: f.s.Result,
		Outcome: f.outcome(drover.DeliveryID(string(f.s.Run) + ":terminal")),
	}
}
