package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/expression"
	"github.com/droverhq/drover/subjects"
)

// Reading is what a wait has read. It is kept only where the payload alone does
// not say it.
type Reading struct {
	Got     []Value `json:"g,omitempty"` // payloads of a wait that collects them, oldest first, until it is over
	Size    int     `json:"s,omitempty"` // bytes of those
	Respond string  `json:"r,omitempty"` // inbox that came with the latest, where a node answers it
}

// wait parks a node until what it waits for was delivered, which may be there
// already.
func (f *fold) wait(i int) {
	n := f.p.nodes[i]
	f.begins(i)
	switch {
	case n.hook != nil:
		if !f.claim(i) {
			return
		}
	case n.step.Wait.From != "" && f.s.hookOf(n.target) < 0:
		f.finish(i, MarkFailed, Value{}, drover.Errorf(drover.CodeReleased,
			"node %s waits for deliveries to the hook of node %s, which the run does not hold any more", n.id, n.step.Wait.From))
		return
	}
	f.s.Nodes[i].Status = MarkWaiting
	a := Active{Kind: ActiveWait, Node: i, Item: drover.NoItem, Attempt: 1, Since: f.now}
	if n.timeout > 0 {
		a.Due = after(f.ceil, n.timeout)
	}
	f.add(a)
	f.serve(i)
}

// serve gives a wait what is unread and meant for it, until it is over.
func (f *fold) serve(i int) {
	for f.find(i, drover.NoItem) >= 0 && len(f.need) == 0 {
		at := slices.IndexFunc(f.s.Unread, func(u Unread) bool { return f.s.fits(f.p, i, u.Name, u.Hook) })
		if at < 0 {
			return
		}
		u := f.s.Unread[at]
		f.s.Unread = slices.Delete(f.s.Unread, at, at+1)
		if f.fresh(i, u) {
			f.read(i, u.Payload, u.Respond)
		}
	}
}

// fits reports whether a wait that is not over may read a delivery now. Nothing
// is read before it is certain that the run holds the token.
func (s *State) fits(p *Plan, i int, name, token string) bool {
	n := p.nodes[i]
	if !n.hooked() {
		return token == "" && n.step.Wait.Name == name
	}
	at := s.hookOf(n.target)
	return at >= 0 && token != "" && s.Hooks[at].Token == token && s.Hooks[at].Mark == HookOwned
}

// fresh holds what was accepted before the node had asked for its token to the
// schema of the node, which was not known for it then. It fails the node where
// the payload does not fit.
// So may what came for a program whose body had not asked for it.
func (f *fold) fresh(i int, u Unread) bool {
	n := f.p.nodes[i]
	contract := n.payload
	if u.Hook != "" {
		contract = f.p.nodes[n.target].payload
	}
	early := f.s.Program != nil || u.Hook != "" && f.s.Hooks[f.s.hookOf(n.target)].Brought
	if contract == nil || !early {
		return true
	}
	raw, err := f.load(u.Payload)
	if err != nil {
		return false
	}
	if err := validate(contract, raw); err != nil {
		f.spoilWait(i, drover.Errorf(drover.CodeInvalidInput, "a delivery that came before node %s does not fit its schema: %s", n.id, err))
		return false
	}
	return true
}

// read gives a wait one delivery.
func (f *fold) read(i int, payload Value, respond string) {
	n, ns := f.p.nodes[i], &f.s.Nodes[i]
	f.changed = true
	if n.hooked() {
		f.s.Hooks[f.s.hookOf(n.target)].Read++
	}
	if n.answered && (respond != "" || ns.Reading != nil) {
		ns.reading().Respond = respond
	}
	if !n.step.Wait.Collects() {
		f.remove(f.find(i, drover.NoItem))
		f.finish(i, MarkDone, payload, nil)
		return
	}
	f.collect(i, payload)
}

func (ns *NodeState) reading() *Reading {
	if ns.Reading == nil {
		ns.Reading = &Reading{}
	}
	return ns.Reading
}

// collect adds a payload to what a wait has read, and ends the wait where that
// is enough.
func (f *fold) collect(i int, payload Value) {
	n := f.p.nodes[i]
	r := f.s.Nodes[i].reading()
	r.Got = append(r.Got, payload)
	r.Size += payload.bytes()
	switch {
	case r.Size+len(r.Got)+1 > drover.MaxValue: // with commas and brackets
		f.spoilWait(i, drover.Errorf(drover.CodeTooLarge,
			"the %d payloads that node %s has read are more than %d bytes: deliver references to what is big, or wait for fewer", len(r.Got), n.id, drover.MaxValue))
		return
	case len(r.Got) > drover.MaxUnread:
		f.spoilWait(i, drover.Errorf(drover.CodeTooLarge,
			"node %s has read %d payloads, and its until was true of none: add a count", n.id, len(r.Got)))
		return
	}
	enough := n.step.Wait.Count > 0 && len(r.Got) >= n.step.Wait.Count
	if !enough && n.until != nil {
		var err error
		if enough, err = f.until(n, r.Got); err != nil {
			f.spoilWait(i, err)
			return
		}
	}
	if !enough {
		return
	}
	list, err := f.list(r.Got)
	if err != nil {
		return // it is loaded first
	}
	f.remove(f.find(i, drover.NoItem))
	f.finish(i, MarkDone, f.keep(list, subjects.OutputKey(f.callID(n, drover.NoItem, false, 1))), nil)
}

// bytes is the size of a value as JSON.
func (v Value) bytes() int {
	if v.Key != "" {
		return v.Size
	}
	return len(orNull(v.JSON))
}

// list makes a list of values. Its error is errMissing.
func (f *fold) list(values []Value) (json.RawMessage, error) {
	var missing error
	out := []byte{'['}
	for k, v := range values {
		raw, err := f.load(v)
		if err != nil {
			missing = err // of the others as well, so that all are loaded at once
			continue
		}
		if k > 0 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	return append(out, ']'), missing
}

// until evaluates what a wait reads up to.
func (f *fold) until(n *node, got []Value) (bool, error) {
	raw, err := f.list(got)
	if err != nil {
		return false, err
	}
	all, err := expression.Decode(raw)
	if err != nil {
		return false, drover.Errorf(drover.CodeExpression, "a payload cannot be read: %s", err)
	}
	env, err := f.env(n.until, n, drover.NoItem)
	if err != nil {
		return false, err
	}
	now := *env
	now.Payloads = all
	if list, ok := all.([]any); ok {
		now.Payload = list[len(list)-1]
	}
	v, err := n.until.expr.Eval(now)
	if err != nil {
		return false, drover.Errorf(drover.CodeExpression, "%s", err)
	}
	return v == true, nil
}

// handBack makes what a wait has collected, and will not give any more, unread
// again: it was accepted, and must not be lost with the wait.
func (f *fold) handBack(i int) {
	r := f.s.Nodes[i].Reading
	if r == nil || len(r.Got) == 0 {
		return
	}
	n := f.p.nodes[i]
	u := Unread{Name: n.step.Wait.Name, At: f.now}
	if n.hooked() {
		h := &f.s.Hooks[f.s.hookOf(n.target)]
		u.Hook = h.Token
		h.Read -= len(r.Got)
	}
	back := make([]Unread, len(r.Got))
	for k, payload := range r.Got {
		back[k] = u
		back[k].Payload = payload
	}
	f.s.Unread = slices.Insert(f.s.Unread, 0, back...)
	r.Got, r.Size = nil, 0
	f.handed = true
}

// serveOthers has waits read what others have handed back.
func (f *fold) serveOthers() {
	for f.handed && len(f.need) == 0 {
		f.handed = false
		var waits []int
		for k := range f.s.Active {
			if f.s.Active[k].Kind == ActiveWait {
				waits = append(waits, f.s.Active[k].Node)
			}
		}
		for _, i := range waits {
			f.serve(i)
		}
	}
}

// spoilWait fails a wait because of what it has read.
func (f *fold) spoilWait(i int, err error) {
	if errors.Is(err, errMissing) {
		return
	}
	f.remove(f.find(i, drover.NoItem))
	e := drover.AsError(err, drover.CodeExpression)
	if e.Code == drover.CodeExpression {
		f.spoil(i, drover.NoItem, "wait.until", e)
		return
	}
	f.finish(i, MarkFailed, Value{}, e)
}

// waitOver fails a wait whose time is up.
func (f *fold) waitOver(i int) {
	f.finish(i, MarkFailed, Value{}, drover.Errorf(drover.CodeTimeout, "%s within %s", f.missed(i), f.p.nodes[i].timeout))
}

// missed says what a wait has not got.
func (f *fold) missed(i int) string {
	n := f.p.nodes[i]
	if r := f.s.Nodes[i].Reading; r != nil && len(r.Got) > 0 {
		return fmt.Sprintf("node %s has read %d deliveries, and not enough,", n.id, len(r.Got))
	}
	if !n.hooked() {
		return fmt.Sprintf("nothing named %q was delivered to node %s", n.step.Wait.Name, n.id)
	}
	at := f.s.hookOf(n.target)
	if at < 0 {
		return fmt.Sprintf("nothing was delivered to node %s", n.id)
	}
	h := &f.s.Hooks[at]
	if h.Mark == HookClaiming {
		return fmt.Sprintf("nobody has said whether node %s has token %q", n.id, cut(h.Token, shownToken))
	}
	if n.step.Wait != nil && len(n.step.Wait.Approve) > 0 {
		return fmt.Sprintf("nobody answered the question of node %s", n.id)
	}
	return fmt.Sprintf("nothing was delivered to hook %q of node %s", cut(h.Token, shownToken), n.id)
}
