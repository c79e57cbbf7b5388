package machine

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// deliver takes a delivery to the run. Its id comes before all else: what was
// accepted once is accepted for ever, also where the hook or the run is gone.
func (f *fold) deliver(m *drover.DeliverRequest, seq uint64) {
	digest := ""
	if m.ID != "" {
		digest = deliveryDigest(m)
		if f.seen(m, digest) {
			return
		}
	}
	if f.refused = f.deliverable(m); f.refused == nil {
		f.refused = f.overtaken(m)
	}
	if f.refused != nil {
		return
	}
	if len(f.s.Unread) >= drover.MaxUnread && !f.awaited(m) {
		f.refused = drover.Errorf(drover.CodeFull, "run %s has %d deliveries that no wait has read, and takes no more: try again later", f.s.Run, len(f.s.Unread))
		return
	}
	f.changed = true
	if digest != "" {
		f.remember(digest)
	}
	f.before(m)
	kept := m.Name != "" && f.reader(m) < 0
	f.receive(m, seq)
	f.advance()
	f.answer = drover.DeliverReply{RunID: f.s.Run, Kept: kept, Unread: len(f.s.Unread)}
}

// remember keeps a digest of what must not be taken twice, for a while.
func (f *fold) remember(digest string) {
	const most = 2000
	if len(f.s.Seen) >= most {
		f.s.Seen = slices.Delete(f.s.Seen, 0, len(f.s.Seen)-most+1)
	}
	f.s.Seen = append(f.s.Seen, digest)
}

// seen answers a delivery whose id has come before.
func (f *fold) seen(m *drover.DeliverRequest, digest string) bool {
	for _, seen := range f.s.Seen {
		if seen[:idDigits] != digest[:idDigits] {
			continue
		}
		if seen == digest {
			f.answer = drover.DeliverReply{RunID: f.s.Run, Repeat: true, Unread: len(f.s.Unread)}
			return true
		}
		what := "name"
		if m.Hook != "" {
			what = "token"
		}
		f.refused = drover.Errorf(drover.CodeConflict, "run %s had a delivery with the id %q and another %s or payload: use another id", f.s.Run, m.ID, what)
		return true
	}
	return false
}

// before does what comes before a delivery: what time asks for, and what was
// unread where the delivery itself shows that a claim was won.
func (f *fold) before(m *drover.DeliverRequest) {
	f.due(nil)
	if at := f.s.hook(m.Hook); m.Hook != "" && at >= 0 && f.s.Hooks[at].Mark == HookClaiming {
		f.own(at, m.Claim) // whoever has read the claim knows
	}
	f.advance()
}

// overtaken says why a delivery cannot be taken because of what comes before
// it: a wait that ends, and its hook with it, or the run. It is found out on a
// copy, as a refusal changes nothing; a tick or a claimed command does it then.
func (f *fold) overtaken(m *drover.DeliverRequest) *drover.Error {
	first := f.s.Deadline()
	if at := f.s.hook(m.Hook); (first == 0 || first > f.now) && (at < 0 || f.s.Hooks[at].Mark != HookClaiming || f.s.unreadOf(m.Hook) == 0) {
		return nil
	}
	record, err := Encode(f.s)
	if err != nil {
		return drover.AsError(err, drover.CodeInternal)
	}
	s, err := Decode(record)
	if err != nil {
		return drover.AsError(err, drover.CodeInternal)
	}
	s.derive(f.p)
	then := newFold(f.p, s, f.v)
	then.ceil = f.ceil
	then.before(m)
	if len(then.need) > 0 {
		f.need = append(f.need, then.need...)
		return nil
	}
	return then.deliverable(m)
}

// receive hands a delivery to the wait that was there first, or keeps it.
func (f *fold) receive(m *drover.DeliverRequest, seq uint64) {
	raw := m.Payload
	if at := f.s.hook(m.Hook); m.Hook != "" && at >= 0 && f.s.Hooks[at].Node > 0 && f.p.nodes[f.s.Hooks[at].Node-1].approval != nil {
		raw = approved(raw)
	}
	payload := f.keep(raw, subjects.DeliveredKey(f.s.Run, seq))
	first := f.reader(m)
	if first < 0 {
		f.s.Unread = append(f.s.Unread, Unread{Name: m.Name, Hook: m.Hook, Payload: payload, At: f.now, Respond: m.Respond})
		return
	}
	f.read(f.s.Active[first].Node, payload, m.Respond)
}

// reader gives the index of the wait that a delivery is for, or -1.
func (f *fold) reader(m *drover.DeliverRequest) int {
	first := -1
	for at := range f.s.Active {
		a := &f.s.Active[at]
		if a.Kind != ActiveWait || !f.s.fits(f.p, a.Node, m.Name, m.Hook) {
			continue
		}
		if b := first; b < 0 || a.Since < f.s.Active[b].Since || a.Since == f.s.Active[b].Since && a.Node < f.s.Active[b].Node {
			first = at
		}
	}
	return first
}

// awaited reports whether a wait will read a delivery at once, so that it needs
// no room: a run whose inbox is full must not be kept from going on.
func (f *fold) awaited(m *drover.DeliverRequest) bool {
	at := f.reader(m)
	return at >= 0 && (f.s.Active[at].Due == 0 || f.s.Active[at].Due > f.now)
}

// approved is what a person says, as an object.
func approved(raw json.RawMessage) json.RawMessage {
	if kind(raw) == "a boolean" {
		return json.RawMessage(`{"approved":` + string(raw) + `}`)
	}
	return raw
}

// deliverable says why a delivery cannot be taken, or nil.
func (f *fold) deliverable(m *drover.DeliverRequest) *drover.Error {
	if m.Hook != "" {
		return f.hookDeliverable(m)
	}
	if f.s.Terminal() || f.s.Undo != nil {
		return drover.Errorf(drover.CodeTerminal, "run %s is over (%s), and takes no more deliveries", f.s.Run, f.s.Status)
	}
	waits := f.p.waits[m.Name]
	if len(waits) == 0 && f.s.Program != nil {
		return nil // its body may wait for it later
	}
	if len(waits) == 0 {
		known := "it has no waits"
		if len(f.p.waits) > 0 {
			known = "it waits for " + names(slices.Sorted(maps.Keys(f.p.waits)))
		}
		return drover.Errorf(drover.CodeNotFound, "run %s has no wait named %q: %s", f.s.Run, m.Name, known)
	}
	for _, n := range waits {
		if err := validate(n.payload, m.Payload); err != nil {
			return drover.Errorf(drover.CodeInvalidInput, "the payload does not fit the schema of wait %s: %s", n.id, err)
		}
	}
	return nil
}

// hookDeliverable is deliverable for a token. A run whose claim is not decided
// takes what comes from a sender who has read the claim.
func (f *fold) hookDeliverable(m *drover.DeliverRequest) *drover.Error {
	at := f.s.hook(m.Hook)
	if at < 0 || f.s.Hooks[at].Mark == HookHanded || f.s.Hooks[at].Mark == HookClaiming && m.Claim == 0 {
		e := drover.Errorf(drover.CodeNotFound, "run %s does not hold hook %q", f.s.Run, cut(m.Hook, shownToken))
		if at >= 0 && f.s.Hooks[at].Mark == HookHanded {
			e.Run = drover.SuccessorID(f.s.Run)
			e.Message += ": run " + string(e.Run) + " does now"
		}
		return e
	}
	if node := f.s.Hooks[at].Node; node > 0 {
		return f.p.nodes[node-1].takes(m.Payload)
	}
	var bad *drover.Error
	for _, n := range f.p.claimers {
		if f.s.Nodes[n.at].Status.over() || !n.mayClaim(m.Hook) {
			continue
		}
		if bad = n.takes(m.Payload); bad == nil {
			return nil // it may be the one that will ask for the token
		}
	}
	return bad
}

// takes says why a payload is none for the hook of a node, or nil.
func (n *node) takes(payload json.RawMessage) *drover.Error {
	err := validate(n.payload, payload)
	if err == nil {
		err = validate(n.approval, payload)
	}
	if err != nil {
		return drover.Errorf(drover.CodeInvalidInput, "the payload does not fit the schema of the hook of node %s: %s", n.id, err)
	}
	return nil
}

// idDigits are the digits of a digest that are of the delivery's id.
const idDigits = 16

// deliveryDigest is short: idDigits for the id, and as many for the rest.
func deliveryDigest(m *drover.DeliverRequest) string {
	id := sha256.Sum256([]byte(m.ID))
	what := []string{m.Name}
	if m.Hook != "" {
		what = []string{"", m.Hook} // no name is empty
	}
	rest := sha256.Sum256([]byte(strings.Join(append(what, string(orNull(compact(m.Payload)))), "\x00")))
	return base64.RawURLEncoding.EncodeToString(id[:idDigits*6/8]) + base64.RawURLEncoding.EncodeToString(rest[:idDigits*6/8])
}
