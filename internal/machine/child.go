package machine

import (
	"encoding/json"
	"fmt"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// child is the effect that starts a child run.
func (f *fold) child(n *node, id drover.CallID) (Effect, error) {
	src := n.childInput
	if src == nil {
		src = n.input
	}
	v, err := f.value(src, n, id.Item)
	if err != nil {
		return Effect{}, err
	}
	if bad := fit(v.JSON, "input", n); bad != nil {
		return Effect{}, bad
	}
	if f.s.Depth >= drover.MaxDepth {
		return Effect{}, &drover.Error{
			Code: drover.CodeTooLarge, Permanent: true,
			Message: fmt.Sprintf("a child run would be nested %d deep, more than %d: let a run not start itself", f.s.Depth+1, drover.MaxDepth),
		}
	}
	return Effect{
		Owed: owed(EffectStart, n, id.Item, id.Attempt), Run: f.s.Run, To: drover.ChildRunID(id), Value: v,
		Start: &drover.StartRequest{
			Definition: n.child, Workflow: n.step.Run.Workflow,
			Parent: &drover.Parent{
				Call: id, Token: f.token(id.String()), Depth: f.s.Depth + 1, Detached: n.step.Run.Detach,
			},
		},
	}, nil
}

// stopChild is the effect that stops a child run.
func (f *fold) stopChild(n *node, id drover.CallID) Effect {
	return Effect{
		Owed: owed(EffectStop, n, id.Item, id.Attempt), Run: f.s.Run, To: drover.ChildRunID(id),
		Stop: &drover.StopRequest{Reason: "its parent " + string(f.s.Run) + " does not wait for it any more"},
	}
}

// abandons reports whether the child of a node goes on where nobody waits for it
// any more.
func (n *node) abandons() bool { return n.kind == drover.KindRun && n.step.Run.Abandon }

// outlives reports whether the child of a node is to be started whatever becomes of
// the node.
func (n *node) outlives() bool { return n.abandons() || n.kind == drover.KindRun && n.step.Run.Detach }

// startLeft starts, as a run completes, the children that go on without it and only
// waited for a free slot: whether one was free must not decide whether they run. A run
// that fails, or is stopped, begins nothing more. (A program cannot have more open
// than it has slots.)
func (f *fold) startLeft() {
	for _, a := range f.s.Ready {
		n, ns := f.p.nodes[a.Node], &f.s.Nodes[a.Node]
		if a.Attempt != 1 || !n.outlives() || f.gone(a.Node, a.Item) {
			continue
		}
		a.Kind = ActiveChild
		e, err := f.attempt(n, &a)
		if err != nil { // or its input is to be loaded, and all of this is done again
			f.note("the child of node " + string(n.id) + " was not started: " + err.Error())
			continue
		}
		f.begins(a.Node)
		ns.Attempts, ns.Last = a.Attempt, f.now
		f.effect(e)
		if n.step.Run.Detach {
			ns.Status, ns.Ended = MarkDone, f.now
			ns.Output = f.keep(started(e.To), subjects.OutputKey(f.callID(n, a.Item, false, a.Attempt)))
		}
	}
}

// started is what a node gives whose child is detached.
func started(child drover.RunID) json.RawMessage {
	return json.RawMessage(`{"run_id":"` + string(child) + `"}`)
}

// childEnded takes what a child says of its end.
func (f *fold) childEnded(m *drover.ChildMessage) {
	if f.s.Terminal() {
		return
	}
	if !f.fits(m.Call.String(), m.Token) || m.Child != drover.ChildRunID(m.Call) {
		f.refused = drover.Errorf(drover.CodeForbidden, "run %s did not ask for child %s by call %s with this token", f.s.Run, cut(string(m.Child), 128), m.Call)
		return
	}
	if !m.Status.Terminal() {
		f.refused = drover.Errorf(drover.CodeInvalidRequest, "child %s is %q, and tells only how it ended", m.Child, cut(string(m.Status), 60))
		return
	}
	f.due(nil)
	if at := f.outstanding(&m.Call, ActiveChild); at < 0 {
		f.late(&m.Call)
	} else {
		f.childOver(f.s.Active[at], m)
	}
	f.advance()
}

func (f *fold) childOver(a Active, m *drover.ChildMessage) {
	n := f.p.nodes[a.Node]
	if m.Status == drover.StatusCompleted {
		bad := fit(m.Result, "output", n)
		out := m.Result
		if bad == nil {
			out, bad = f.conform(n, out)
		}
		if bad != nil {
			f.fail(a, bad, byError, 0)
			return
		}
		f.remove(f.find(a.Node, a.Item))
		f.over(a.Node, a.Item, MarkDone, out, subjects.OutputKey(f.callID(n, a.Item, false, a.Attempt)), nil)
		return
	}
	err := drover.Errorf(drover.CodeChild, "child run %s ended %s", m.Child, m.Status)
	if m.Error != nil {
		err.Message += ": " + cut(m.Error.Message, 2<<10)
	}
	how := byError
	if m.Status == drover.StatusCancelled || m.Error != nil && m.Error.Code == drover.CodeStopped {
		how = byCancel
	}
	f.fail(a, err, how, 0)
}
