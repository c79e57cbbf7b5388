package machine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/schema"
	"github.com/droverhq/drover/subjects"
)

// launch makes the next attempt of a node or an item.
func (f *fold) launch(a Active) {
	n, ns := f.p.nodes[a.Node], &f.s.Nodes[a.Node]
	f.changed = true
	f.begins(a.Node)
	if a.Item != drover.NoItem && a.Attempt == 1 {
		ns.Items.Starts[a.Item] = int64(f.now - ns.Started)
	}
	a.Kind, a.Since, a.Due, a.Lost = ActiveCall, f.now, 0, 0
	if !n.calls() {
		a.Kind = ActiveChild
	}
	if n.timeout > 0 {
		a.Due = after(f.ceil, n.timeout)
	}
	e, err := f.attempt(n, &a)
	if err != nil {
		f.spoil(a.Node, a.Item, "the input", err)
		return
	}
	mark := MarkRunning
	if a.Kind == ActiveChild {
		mark = MarkWaiting
	}
	if a.Item != drover.NoItem {
		ns.Items.Marks[a.Item], ns.Items.Attempts[a.Item] = mark, int32(a.Attempt)
	} else {
		ns.Status, ns.Attempts, ns.Last = mark, a.Attempt, f.now
	}
	f.effect(e)
	if n.kind == drover.KindRun && n.step.Run.Detach {
		f.over(a.Node, a.Item, MarkDone, started(e.To), subjects.OutputKey(f.callID(n, a.Item, false, a.Attempt)), nil)
		return
	}
	f.add(a)
}

// attempt makes the effect of an attempt: a call, or the start of a child.
func (f *fold) attempt(n *node, a *Active) (Effect, error) {
	id := f.callID(n, a.Item, a.Undo, a.Attempt)
	if n.kind == drover.KindRun && !a.Undo {
		return f.child(n, id)
	}
	e := Effect{Owed: owed(EffectCall, n, a.Item, a.Attempt), Run: f.s.Run}
	e.Undo = a.Undo
	call := &Call{ID: id, Function: n.function, Token: f.token(id.String()), Deadline: a.Due.Time(), Heartbeat: n.heartbeat}
	var err error
	if a.Undo {
		call.Function, call.Heartbeat = n.undo.function, 0
		e.Value, err = f.undoInput(n, a.Item)
	} else {
		e.Value, err = f.input(n, a.Item, a.Attempt)
	}
	if err != nil {
		return Effect{}, err
	}
	if bad := fit(e.Value.JSON, "input", n); bad != nil {
		return Effect{}, bad
	}
	e.Call = call
	return e, nil
}

// result takes what a function says of a call.
func (f *fold) result(m *drover.ResultMessage) {
	if f.s.Terminal() {
		if m.Call.Node == outcomeNode && len(f.s.Notify) > 0 {
			f.answered(m)
		}
		return
	}
	if !f.fits(m.Call.String(), m.Token) {
		f.refused = drover.Errorf(drover.CodeForbidden, "the result of call %s does not have the token that came with the call", m.Call)
		return
	}
	f.due(&m.Call)
	at := f.outstanding(&m.Call, ActiveCall)
	switch {
	case at < 0 && m.Progress != nil:
	case at < 0:
		f.late(&m.Call)
	case m.Progress != nil:
		if a := &f.s.Active[at]; !a.Undo && f.p.nodes[a.Node].heartbeat > 0 {
			a.Lost = after(f.ceil, f.p.nodes[a.Node].heartbeat)
			f.changed = true
		}
	default:
		f.ended(f.s.Active[at], m)
	}
	f.advance()
}

// outstanding gives the index in Active of the attempt with this id, or -1.
func (f *fold) outstanding(id *drover.CallID, kind ActiveKind) int {
	i, ok := f.p.index[id.Node]
	if !ok {
		return -1
	}
	at := f.find(i, id.Item)
	if at < 0 {
		return -1
	}
	a := &f.s.Active[at]
	if a.Kind != kind || a.Attempt != id.Attempt || a.Undo != id.Undo {
		return -1
	}
	return at
}

func (f *fold) late(id *drover.CallID) {
	if !f.s.Terminal() {
		f.note(fmt.Sprintf("what call %s gave was ignored: it is not outstanding, because its attempt was over", id))
	}
}

// ended takes the end of a call that is outstanding.
func (f *fold) ended(a Active, m *drover.ResultMessage) {
	n := f.p.nodes[a.Node]
	by := f.instance(m.Instance)
	if m.Error != nil {
		f.fail(a, plainError(m.Error, n), byError, by)
		return
	}
	if a.Undo {
		f.undone(a)
		return
	}
	out := m.Output
	bad := fit(out, "output", n)
	if bad == nil {
		out, bad = f.conform(n, out)
	}
	if bad != nil {
		f.fail(a, bad, byError, by)
		return
	}
	f.by(a, by)
	f.remove(f.find(a.Node, a.Item))
	f.over(a.Node, a.Item, MarkDone, out, subjects.OutputKey(f.callID(n, a.Item, false, a.Attempt)), nil)
}

// by notes which instance ended a node or an item.
func (f *fold) by(a Active, by int) {
	if a.Item != drover.NoItem {
		f.s.Nodes[a.Node].Items.By[a.Item] = int32(by)
		return
	}
	f.s.Nodes[a.Node].Instance = by
}

// plainError is the error of a function, with a code and a message.
func plainError(e *drover.Error, n *node) *drover.Error {
	c := *e
	if c.Code == "" {
		c.Code = drover.CodeFailed
	}
	if c.Message == "" {
		c.Message = fmt.Sprintf("function %s failed, and did not say why", n.function)
	}
	return clip(&c)
}

// conform holds an output to the contract of its node. A JSON contract also
// takes a string that is JSON itself, as models write it.
func (f *fold) conform(n *node, out json.RawMessage) (json.RawMessage, *drover.Error) {
	if n.contract == nil {
		return out, nil
	}
	bad := func(why string) *drover.Error {
		return drover.Errorf(drover.CodeContract, "the output of node %s breaks its contract: %s", n.id, why)
	}
	if n.contract.Type == "text" {
		if kind(out) != "a string" {
			return nil, bad("it must be text, and is " + kind(out))
		}
		return out, nil
	}
	err := validate(n.schema, out)
	if inner := unquoted(out); inner != nil && (err != nil || n.schema == nil) && validate(n.schema, inner) == nil {
		return inner, fit(inner, "output", n)
	}
	if err != nil {
		return nil, bad(err.Error())
	}
	return out, nil
}

// validate holds a value to a schema, if there is one.
func validate(s *schema.Schema, raw json.RawMessage) error {
	if s == nil {
		return nil
	}
	return s.Validate(orNull(raw))
}

// unquoted gives the object or array that a string spells, or nil.
func unquoted(raw json.RawMessage) json.RawMessage {
	var text string
	if kind(raw) != "a string" || json.Unmarshal(raw, &text) != nil {
		return nil
	}
	inner := compact(json.RawMessage(text))
	if k := kind(inner); k != "an object" && k != "an array" {
		return nil
	}
	return inner
}

// ending says how an attempt ended without success.
type ending int

const (
	byError   ending = iota
	byTimeout        // longer than it may take
	byLoss           // silent for longer than its heartbeat
	byCancel         // a child that was stopped
)

// fail ends an attempt without success: another one is made, or what it is of
// ends failed.
func (f *fold) fail(a Active, err *drover.Error, how ending, by int) {
	f.changed = true
	f.remove(f.find(a.Node, a.Item))
	f.failure(Failure{
		Item: a.Item + 1, Undo: a.Undo, Attempt: a.Attempt, Started: a.Since, Ended: f.now, Deadline: a.Due, Instance: by, Error: err,
	}, a.Node)
	retry := f.p.nodes[a.Node].retry
	if a.Undo {
		retry = f.p.nodes[a.Node].undo.retry
	}
	if how != byLoss {
		a.Used++
	}
	if pause, again := retry.pause(f.callID(f.p.nodes[a.Node], a.Item, a.Undo, a.Attempt+1), a.Used, err, how); again {
		a.Attempt++
		f.again(a, pause)
		return
	}
	if a.Undo {
		f.undoFailed(a, err)
		return
	}
	mark := MarkFailed
	if how == byCancel {
		mark = MarkCancelled
	}
	f.by(a, by)
	f.over(a.Node, a.Item, mark, nil, "", err)
}

// again waits for the next attempt of a.
func (f *fold) again(a Active, pause time.Duration) {
	a.Since, a.Due, a.Lost = f.now, 0, 0
	if pause > 0 {
		a.Kind, a.Due = ActivePause, after(f.ceil, pause)
		if a.Item == drover.NoItem && !a.Undo {
			f.s.Nodes[a.Node].Status = MarkRunning
		}
		f.add(a)
		return
	}
	a.Kind = 0
	if a.Undo {
		if !f.launchUndo(a) {
			f.resumeUndo()
		}
		return
	}
	f.s.Ready = append(f.s.Ready, a)
}

// failure keeps the error of an attempt, as far as there is room.
func (f *fold) failure(x Failure, node int) {
	const room, message, most = 48 << 10, 512, 100
	e := *x.Error
	e.Stack, e.Problems, e.Message = "", nil, cut(e.Message, message)
	ns := &f.s.Nodes[node]
	size := len(e.Message) + 100
	if f.s.Kept+size > room || x.Item == 0 && len(ns.Failed) >= most {
		return
	}
	f.s.Kept += size
	x.Error = &e
	ns.Failed = append(ns.Failed, x)
}
