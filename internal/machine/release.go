package machine

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// releases ends the hook of another node, as its unread deliveries allow.
func (f *fold) releases(i int) {
	n := f.p.nodes[i]
	f.begins(i)
	at := f.s.hookOf(n.target)
	if at < 0 {
		f.finish(i, MarkFailed, Value{}, drover.Errorf(drover.CodeNotFound,
			"node %s releases the hook of node %s, which the run does not hold any more", n.id, n.step.Release.Hook))
		return
	}
	token := f.s.Hooks[at].Token
	var unread []Value
	for _, i := range f.waitsOn(at) { // which the release ends
		if r := f.s.Nodes[i].Reading; n.step.Release.Unread != drover.UnreadTake && n.step.Release.Unread != drover.UnreadDiscard && r != nil {
			unread = append(unread, r.Got...)
			continue
		}
		f.handBack(i)
	}
	for k := range f.s.Unread {
		if f.s.Unread[k].Hook == token {
			unread = append(unread, f.s.Unread[k].Payload)
		}
	}
	output, err := f.unread(n, unread)
	if err != nil {
		f.finish(i, MarkFailed, Value{}, err)
		return
	}
	if len(f.need) > 0 {
		return
	}
	if n.step.Release.Unread == drover.UnreadTake || n.step.Release.Unread == drover.UnreadDiscard {
		f.s.Unread = slices.DeleteFunc(f.s.Unread, func(u Unread) bool { return u.Hook == token })
	}
	f.release(at, drover.Errorf(drover.CodeReleased, "hook %q was released by node %s", cut(token, shownToken), n.id))
	f.finish(i, MarkDone, output, nil)
}

// unread does what a release says of deliveries that nothing has read, and
// gives the output of the node, or why it fails.
func (f *fold) unread(n *node, unread []Value) (Value, *drover.Error) {
	key := subjects.OutputKey(f.callID(n, drover.NoItem, false, 1))
	switch n.step.Release.Unread {
	case drover.UnreadTake:
		size := 2
		for _, v := range unread {
			size += v.bytes() + 1
		}
		if size > drover.MaxValue {
			return Value{}, drover.Errorf(drover.CodeTooLarge,
				"the %d deliveries that node %s takes are more than %d bytes: read them one by one first", len(unread), n.id, drover.MaxValue)
		}
		list, err := f.list(unread)
		if err != nil {
			return Value{}, nil // they are loaded first
		}
		return f.keep(list, key), nil
	case drover.UnreadDiscard:
		if len(unread) > 0 {
			f.note(fmt.Sprintf("node %s discarded %d deliveries to the hook of node %s", n.id, len(unread), n.step.Release.Hook))
		}
		return f.keep([]byte(`{"discarded":`+strconv.Itoa(len(unread))+`}`), key), nil
	case drover.UnreadDrain:
	}
	if len(unread) > 0 {
		return Value{}, drover.Errorf(drover.CodeUnread,
			"the hook of node %s has %d deliveries that nothing has read: read them, or release it with unread: take or discard", n.step.Release.Hook, len(unread))
	}
	return Value{}, nil
}

// release ends a hook. The waits on it that are not over fail.
func (f *fold) release(at int, why *drover.Error) {
	f.free(&f.s.Hooks[at])
	f.drop(at, why)
}

// free sees to it that the token of a hook is free again, once what it has to
// be retained for is past.
func (f *fold) free(h *Hook) {
	var node drover.NodeID
	var until Millis
	if h.Node > 0 {
		n := f.p.nodes[h.Node-1]
		node = n.id
		if n.step.Wait.Retain > 0 {
			until = after(f.ceil, time.Duration(n.step.Wait.Retain))
		}
	}
	unsaid := false // this fold has claimed it, and nobody knows yet
	f.effects = slices.DeleteFunc(f.effects, func(e Effect) bool {
		drop := e.Kind == EffectClaim && e.Token == h.Token
		unsaid = unsaid || drop
		return drop
	})
	if unsaid && !h.Brought {
		return
	}
	f.effect(f.releaseEffect(Owed{Kind: EffectRelease, Node: node, Token: h.Token, Until: until}))
}

// releaseEffect is the effect that frees a token.
func (f *fold) releaseEffect(o Owed) Effect {
	return Effect{Owed: o, ClaimID: ClaimID(f.s.Run, o.Node)}
}

// hookOver ends the hook of a node that is over, unless the run holds it on.
func (f *fold) hookOver(i int, mark Mark) {
	n := f.p.nodes[i]
	if n.hook == nil || mark == MarkDone && n.hook.holds {
		return
	}
	if at := f.s.hookOf(i); at >= 0 {
		f.release(at, drover.Errorf(drover.CodeReleased, "the hook of node %s was released, as the node is over", n.id))
	}
}
