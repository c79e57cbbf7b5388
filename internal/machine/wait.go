package machine

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// wait gives a node the oldest delivery of its name, or parks it until one comes.
func (f *fold) wait(i int) {
	n := f.p.nodes[i]
	f.begins(i)
	for at := range f.s.Unread {
		if u := f.s.Unread[at]; u.Name == n.step.Wait.Name {
			f.s.Unread = slices.Delete(f.s.Unread, at, at+1)
			f.finish(i, MarkDone, u.Payload, nil)
			return
		}
	}
	f.s.Nodes[i].Status = MarkWaiting
	a := Active{Kind: ActiveWait, Node: i, Item: drover.NoItem, Attempt: 1, Since: f.now}
	if n.timeout > 0 {
		a.Due = after(f.ceil, n.timeout)
	}
	f.add(a)
}

// deliver takes a delivery to the run.
func (f *fold) deliver(m *drover.DeliverRequest, seq uint64) {
	if f.refused = f.deliverable(m); f.refused != nil {
		return
	}
	digest := ""
	if m.ID != "" {
		digest = deliveryDigest(m)
		for _, seen := range f.s.Seen {
			if seen[:idDigits] != digest[:idDigits] {
				continue
			}
			if seen != digest {
				f.refused = drover.Errorf(drover.CodeConflict, "run %s had a delivery with the id %q and another name or payload: use another id", f.s.Run, m.ID)
				return
			}
			f.answer = drover.DeliverReply{RunID: f.s.Run, Repeat: true, Unread: len(f.s.Unread)}
			return
		}
	}
	if len(f.s.Unread) >= drover.MaxUnread {
		f.refused = drover.Errorf(drover.CodeFull, "run %s has %d deliveries that no wait has read, and takes no more: try again later", f.s.Run, len(f.s.Unread))
		return
	}
	f.changed = true
	if digest != "" {
		const most = 2000
		if len(f.s.Seen) >= most {
			f.s.Seen = slices.Delete(f.s.Seen, 0, len(f.s.Seen)-most+1)
		}
		f.s.Seen = append(f.s.Seen, digest)
	}
	f.due(nil)
	f.advance()
	f.receive(m, seq)
	f.advance()
	f.answer = drover.DeliverReply{RunID: f.s.Run, Unread: len(f.s.Unread)}
}

// receive hands a delivery to the wait that was there first, or keeps it.
func (f *fold) receive(m *drover.DeliverRequest, seq uint64) {
	payload := f.keep(m.Payload, subjects.DeliveredKey(f.s.Run, seq))
	first := -1
	for at := range f.s.Active {
		a := &f.s.Active[at]
		if a.Kind != ActiveWait || f.p.nodes[a.Node].step.Wait.Name != m.Name {
			continue
		}
		if b := first; b < 0 || a.Since < f.s.Active[b].Since || a.Since == f.s.Active[b].Since && a.Node < f.s.Active[b].Node {
			first = at
		}
	}
	if first < 0 {
		f.s.Unread = append(f.s.Unread, Unread{Name: m.Name, Payload: payload, At: f.now})
		return
	}
	node := f.s.Active[first].Node
	f.remove(first)
	f.finish(node, MarkDone, payload, nil)
}

// deliverable says why a delivery cannot be taken, or nil.
func (f *fold) deliverable(m *drover.DeliverRequest) *drover.Error {
	if f.s.Terminal() || f.s.Undo != nil {
		return drover.Errorf(drover.CodeTerminal, "run %s is over (%s), and takes no more deliveries", f.s.Run, f.s.Status)
	}
	waits := f.p.waits[m.Name]
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

// idDigits are the digits of a digest that are of the delivery's id.
const idDigits = 16

// deliveryDigest is short: idDigits for the id, and as many for the rest.
func deliveryDigest(m *drover.DeliverRequest) string {
	id := sha256.Sum256([]byte(m.ID))
	rest := sha256.Sum256([]byte(strings.Join([]string{m.Name, string(orNull(compact(m.Payload)))}, "\x00")))
	return base64.RawURLEncoding.EncodeToString(id[:idDigits*6/8]) + base64.RawURLEncoding.EncodeToString(rest[:idDigits*6/8])
}

// waitOver fails a wait whose time is up.
func (f *fold) waitOver(i int) {
	n := f.p.nodes[i]
	f.finish(i, MarkFailed, Value{}, drover.Errorf(drover.CodeTimeout,
		"nothing named %q was delivered to node %s within %s", n.step.Wait.Name, n.id, n.timeout))
}
