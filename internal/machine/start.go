package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// begin makes a run.
func begin(p *Plan, c *Command, v Values) (Step, error) {
	if outlived(c.Verb) {
		return Step{}, nil
	}
	if c.Verb != drover.VerbStart || c.Start == nil {
		return refuse(nil, drover.Errorf(drover.CodeNotFound, "there is no run %s: start it first, or check its id", c.Run)), nil
	}
	if p == nil {
		return refuseStart(nil, c, drover.Errorf(drover.CodeNotFound, "run %s cannot start: its definition was not found", c.Run)), nil
	}
	if bad := admit(p, c); bad != nil {
		return refuseStart(nil, c, bad), nil
	}
	s := newState(p, c)
	p = s.grown(p)
	s.derive(p)
	s.derived.plan = p
	f := newFold(p, s, v)
	f.at(c.At)
	f.changed = true
	s.Created = f.now
	if p.Definition.Timeout > 0 {
		s.Due = after(f.ceil, time.Duration(p.Definition.Timeout))
	}
	s.bring(c.Start.Hooks, f.now)
	s.Input = f.keep(compact(c.Start.Input), subjects.InputKey(s.Run))
	for i := range p.nodes {
		if f.d.unmet[i] == 0 {
			f.queue = append(f.queue, i)
		}
	}
	if s.Program != nil {
		s.Program.Since = f.now
		f.drive()
	}
	f.advance()
	f.sayBrought()
	f.answer = drover.StartReply{RunID: s.Run, Created: true, Status: f.shown(), Inline: s.inline()}
	if len(f.need) > 0 {
		return Step{}, &NeedError{Keys: f.need}
	}
	return f.step(c), nil
}

// outlived reports whether a command is what a child says to its parent, or to the run
// at the top. A child that was abandoned may live for longer than the record of its
// parent is kept, and where there is no run nobody waits to hear of it.
func outlived(verb drover.Verb) bool { return verb == drover.VerbChild || verb == drover.VerbMeta }

// admit says why a start may not make a run, or nil.
func admit(p *Plan, c *Command) *drover.Error {
	if p.Hash != c.Start.Hash {
		return drover.Errorf(drover.CodeInternal, "run %s starts definition %s, and was given the plan of %s", c.Run, c.Start.Hash, p.Hash)
	}
	if parent := c.Start.Parent; parent != nil && parent.Depth > drover.MaxDepth {
		return drover.Errorf(drover.CodeTooLarge, "run %s would be nested %d deep in other runs, more than %d: let a run not start itself", c.Run, parent.Depth, drover.MaxDepth)
	}
	if n := len(p.Definition.Notify) + len(c.Start.Notify); n > drover.MaxSubscribers {
		return drover.Errorf(drover.CodeTooLarge, "run %s has %d subscribers, %d of them by its definition, more than %d", c.Run, n, len(p.Definition.Notify), drover.MaxSubscribers)
	}
	return p.CheckInput(c.Run, c.Start.Input)
}

func newState(p *Plan, c *Command) *State {
	s := &State{
		V: Version, Run: c.Run, Workflow: c.Start.Workflow, Hash: p.Hash, Status: drover.StatusRunning,
		Secret: c.Start.Secret, Print: fingerprint(c.Start.Input), Tags: c.Start.Tags,
		Nodes: make([]NodeState, len(p.nodes)),
	}
	if s.Workflow == "" {
		s.Workflow = p.Name
	}
	if p.Definition.Program != "" {
		s.Program = &Program{State: DriveParked}
	}
	for _, n := range slices.Concat(p.Definition.Notify, c.Start.Notify) {
		s.Notify = append(s.Notify, Subscriber{Notify: n})
	}
	if h := c.Start.Hold; h != nil {
		s.Waiters = []Waiter{{Name: h.Waiter, Until: after(Millis(c.At.UnixMilli()), holdTime(h))}}
	}
	if parent := c.Start.Parent; parent != nil {
		s.Depth = parent.Depth
		if !parent.Detached {
			s.Parent = &drover.Parent{Call: parent.Call, Token: parent.Token, Depth: parent.Depth}
		}
	}
	return s
}

// restart answers a start of a run that is there already. A name may have been
// registered anew since; a start by it is still the same start.
func restart(s *State, c *Command) Step {
	if c.Start == nil {
		return refuse(s, drover.Errorf(drover.CodeInvalidRequest, "the start of run %s says nothing", s.Run))
	}
	input := fingerprint(c.Start.Input)
	same := c.Start.Hash == s.Hash || c.Start.Workflow != "" && c.Start.Workflow == s.Workflow
	switch {
	case !same:
		return refuseStart(s, c, drover.Errorf(drover.CodeConflict,
			"run %s runs definition %s, and cannot start %s: use another run id or key", s.Run, s.Hash, c.Start.Hash))
	case input != s.Print:
		return refuseStart(s, c, drover.Errorf(drover.CodeConflict,
			"run %s was started with another input (fingerprint %s, not %s): use another run id or key", s.Run, s.Print, input))
	case !s.child(c.Start.Parent):
		return refuseStart(s, c, drover.Errorf(drover.CodeConflict,
			"run %s was not started by this run %s, but by one that had its id before: use another run id, or wait until the old runs are removed", s.Run, c.Start.Parent.Call.Run))
	}
	return Step{State: s, Answer: drover.StartReply{RunID: s.Run, Status: s.Status, Inline: s.inline()}}
}

// child reports whether a run tells this parent of its end, if it is to tell any. A
// parent that was removed, and started anew with its id, has another token, and
// would wait for ever for a child of the old one.
func (s *State) child(parent *drover.Parent) bool {
	return parent == nil || parent.Detached || s.Parent != nil && *s.Parent == drover.Parent{Call: parent.Call, Token: parent.Token, Depth: parent.Depth}
}

// refuseStart refuses a start, and tells the parent, which waits for its child.
func refuseStart(s *State, c *Command, err *drover.Error) Step {
	step := refuse(s, err)
	if c.Start.Parent != nil && !c.Start.Parent.Detached {
		step.Effects = []Effect{TellRefused(c.Run, c.Start.Parent, err)}
	}
	return step
}

// TellRefused is the effect that tells a parent that its child could not be
// started: for refusals that come before Apply. The effect has no state behind
// it, so it has to be performed before the command is done with.
func TellRefused(run drover.RunID, parent *drover.Parent, refused *drover.Error) Effect {
	return Effect{
		Owed: Owed{Kind: EffectTell}, Run: run, To: parent.Call.Run,
		Child: &drover.ChildMessage{Call: parent.Call, Token: parent.Token, Child: run, Status: drover.StatusFailed, Error: refused},
	}
}

// fingerprint is short, and differs where the input does.
func fingerprint(input json.RawMessage) string {
	sum := sha256.Sum256(orNull(compact(input)))
	return hex.EncodeToString(sum[:8])
}

// compact takes the space out of JSON that is valid.
func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil || isNull(b.Bytes()) {
		return nil
	}
	return b.Bytes()
}
