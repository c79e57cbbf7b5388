package machine

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/droverhq/drover"
)

// Decode reads what Encode wrote, with any schema version up to Version. Its
// error is a *drover.Error with CodeInternal.
func Decode(data []byte) (*State, error) {
	if len(data) > 0 && data[0] == packed {
		size, err := s2.DecodedLen(data[1:])
		if err != nil || size > maxRecord {
			return nil, broken("its block has no size that can be")
		}
		if data, err = s2.Decode(nil, data[1:]); err != nil {
			return nil, broken(err.Error())
		}
	}
	s := &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, broken(err.Error())
	}
	if s.V < 1 || s.V > Version {
		return nil, drover.Errorf(drover.CodeInternal, "a record has schema version %d, and this binary knows 1 to %d: update it", s.V, Version)
	}
	s.upgrade()
	if why := s.sound(); why != "" {
		return nil, broken(why)
	}
	return s, nil
}

// upgrade makes a state of an earlier version one of this.
func (s *State) upgrade() {
	if s.V < 2 && s.Terminal() {
		for i := range s.Notify {
			sub := &s.Notify[i]
			sub.Status, sub.Since = drover.DeliveryPending, s.Ended
			if sub.Done {
				sub.Status, sub.At, sub.Tried, sub.Next, sub.Error = drover.DeliveryDelivered, s.Ended, max(sub.Tried, 1), 0, nil
			} else if sub.Next == 0 { // one was queued, and may be lost
				sub.Next = s.Ended + 1
			}
			sub.Done = false
		}
	}
	if g := s.Program; s.V < 3 && g != nil { // what those did not note is taken to be so
		g.Stored, g.Acted = true, g.Records > 0
	}
	s.V = Version
}

func broken(why string) *drover.Error {
	return drover.Errorf(drover.CodeInternal, "a record cannot be read: %s", why)
}

// sound says what keeps the state from being worked with, or "".
func (s *State) sound() string {
	if s.Run == "" || len(s.Nodes) == 0 && s.Program == nil || len(s.Nodes) > drover.MaxNodes || s.Program != nil && len(s.Nodes) != len(s.Program.Slots) {
		return "it has no run or no nodes"
	}
	if s.Shift > s.Applied {
		return "its sequences do not fit together"
	}
	for i := range s.Nodes {
		ns := &s.Nodes[i]
		if !ns.Status.known() || ns.Status == MarkStored {
			return "a node has a status that is unknown"
		}
		for j := range ns.Failed {
			if ns.Failed[j].Error == nil {
				return "an attempt failed without an error"
			}
		}
		if ns.Items != nil && !ns.Items.sound() {
			return "the items of a fan-out do not fit together"
		}
	}
	for _, list := range [][]Active{s.Active, s.Ready} {
		for i := range list {
			a := &list[i]
			if a.Node < 0 || a.Node >= len(s.Nodes) || a.Item < drover.NoItem {
				return "something is outstanding for a node that is none"
			}
			if it := s.Nodes[a.Node].Items; a.Item != drover.NoItem && (it == nil || a.Item >= it.Total) {
				return "something is outstanding for an item that is none"
			}
		}
	}
	if !slices.IsSortedFunc(s.Active, func(x, y Active) int { return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.Item, y.Item)) }) {
		return "what is outstanding is not in order"
	}
	for _, seen := range s.Seen {
		if len(seen) < idDigits {
			return "a digest of a delivery is too short"
		}
	}
	if u := s.Undo; u != nil && s.Error == nil {
		return "it compensates without an error"
	}
	for i := range s.Notify {
		switch s.Notify[i].Status {
		case drover.DeliveryNone, drover.DeliveryHeld, drover.DeliveryConsumed, drover.DeliveryPending, drover.DeliveryDelivered, drover.DeliveryDead:
		default:
			return "a delivery has a status that is unknown"
		}
	}
	return s.soundHooks()
}

// soundHooks says what keeps the hooks from being worked with, or "".
func (s *State) soundHooks() string {
	tokens, nodes := map[string]bool{}, map[int]bool{}
	for i := range s.Hooks {
		h := &s.Hooks[i]
		switch {
		case h.Token == "" || tokens[h.Token]:
			return "a hook has no token, or that of another"
		case h.Mark != HookClaiming && h.Mark != HookOwned && h.Mark != HookHanded:
			return "a hook has a mark that is unknown"
		case h.Node < 0 || h.Node > len(s.Nodes) || h.Node > 0 && nodes[h.Node]:
			return "a hook is of a node that is none, or that has another"
		case h.Node == 0 && (!h.Brought || h.Mark != HookOwned):
			return "a hook is of no node, and no start brought it"
		}
		tokens[h.Token], nodes[h.Node] = true, true
	}
	return ""
}

func (it *Items) sound() bool {
	for _, m := range it.Marks {
		if !m.known() {
			return false
		}
	}
	return it.Over >= 0 && it.Over <= it.Total
}
