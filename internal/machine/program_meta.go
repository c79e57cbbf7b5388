package machine

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

// Meta is the metadata of a run, and what the run has its parent change.
type Meta struct {
	Values map[string]json.RawMessage `json:"v,omitempty"`
	Sent   int                        `json:"n,omitempty"` // messages to the parent, so far
	Sends  []MetaSend                 `json:"s,omitempty"` // those that are not known to have been sent, oldest first
	Heard  []MetaHeard                `json:"h,omitempty"` // of children, since Turn, the one that said something last at the end
	Before []MetaHeard                `json:"b,omitempty"` // of others, from the time before
	Turn   Millis                     `json:"t,omitempty"` // 0: nothing was heard
}

// MetaSend is a message to the parent.
type MetaSend struct {
	Number int             `json:"n"`
	Root   bool            `json:"r,omitempty"`
	Ops    []drover.MetaOp `json:"o"`
}

// maxMetaOps is how many changes come at a time.
const maxMetaOps = 100

// metaOps reads the changes of a record. Their order in the journal is that in
// which they are made, once each.
func metaOps(raw json.RawMessage) ([]drover.MetaOp, string) {
	var ops []drover.MetaOp
	if err := json.Unmarshal(raw, &ops); err != nil {
		return nil, "its output must be a list of {op, key, value}"
	}
	return ops, badOps(ops)
}

// badOps says why changes cannot be, whatever is there, or "".
func badOps(ops []drover.MetaOp) string {
	if len(ops) == 0 || len(ops) > maxMetaOps {
		return fmt.Sprintf("it has %d changes of metadata, and must have 1 to %d", len(ops), maxMetaOps)
	}
	for i := range ops {
		op := &ops[i]
		var n float64
		switch {
		case op.Key == "" || len(op.Key) > drover.MaxMetaKey:
			return fmt.Sprintf("key %q of metadata must have 1 to %d bytes", cut(op.Key, 60), drover.MaxMetaKey)
		case !slices.Contains([]drover.MetaChange{drover.MetaSet, drover.MetaIncrement, drover.MetaAppend, drover.MetaRemove}, op.Op):
			return fmt.Sprintf("change %q of metadata must be set, increment, append or remove", cut(string(op.Op), 60))
		case op.Op == drover.MetaIncrement && !isNull(op.Value) && json.Unmarshal(op.Value, &n) != nil:
			return fmt.Sprintf("key %q of metadata is incremented by %s, which is no number", cut(op.Key, 60), cut(string(op.Value), 60))
		}
	}
	return ""
}

// badMeta says why a record of a body cannot be, or "".
func badMeta(e *drover.Entry) string {
	if !slices.Contains([]drover.MetaTarget{drover.MetaSelf, drover.MetaParent, drover.MetaRoot}, drover.MetaTarget(e.ID)) {
		return "its id must be self, parent or root"
	}
	_, why := metaOps(e.Output)
	return why
}

// metaRecord makes the changes that a body asks for.
func (f *fold) metaRecord(e *drover.Entry) {
	ops, _ := metaOps(e.Output) // it was checked
	if e.ID == string(drover.MetaSelf) || f.s.Parent == nil {
		f.changeMeta(ops)
		return
	}
	f.sendMeta(ops, e.ID == string(drover.MetaRoot))
}

// meta takes changes from a child, once.
func (f *fold) meta(m *drover.MetaMessage) {
	if !f.fits(m.Call.String(), m.Token) {
		f.refused = drover.Errorf(drover.CodeForbidden, "run %s did not start a child by call %s with this token", f.s.Run, m.Call)
		return
	}
	if f.s.Terminal() {
		return
	}
	if !f.s.meta().hear(m.Call, m.Number) {
		return
	}
	f.changed = true
	if m.Root && f.s.Parent != nil {
		f.sendMeta(m.Ops, true)
	} else {
		f.changeMeta(m.Ops)
	}
}

// sendMeta has the parent make changes.
func (f *fold) sendMeta(ops []drover.MetaOp, root bool) {
	m := f.s.meta()
	m.Sends = slices.DeleteFunc(slices.Clone(m.Sends), func(s MetaSend) bool {
		return !slices.ContainsFunc(f.s.Owed, func(o Owed) bool { return o.Kind == EffectMeta && o.Attempt == s.Number })
	})
	m.Sent++
	m.Sends = append(m.Sends, MetaSend{Number: m.Sent, Root: root, Ops: ops})
	e := f.metaEffect(&m.Sends[len(m.Sends)-1])
	f.s.Owed = append(slices.Clone(f.s.Owed), e.Owed) // the next fold may come before the commit
	f.changed = true
	f.effect(e)
}

// metaEffect is the effect that tells the parent.
func (f *fold) metaEffect(s *MetaSend) Effect {
	p := f.s.Parent
	return Effect{
		Owed: Owed{Kind: EffectMeta, Attempt: s.Number}, Run: f.s.Run, To: p.Call.Run,
		Meta: &drover.MetaMessage{Call: p.Call, Token: p.Token, Number: s.Number, Root: s.Root, Ops: s.Ops},
	}
}

// remakeMeta makes such an effect again.
func (f *fold) remakeMeta(number int) {
	if f.s.Meta == nil || f.s.Parent == nil {
		return
	}
	for i := range f.s.Meta.Sends {
		if s := &f.s.Meta.Sends[i]; s.Number == number {
			f.effect(f.metaEffect(s))
		}
	}
}

// meta is the metadata of a run, which has some from here on.
func (s *State) meta() *Meta {
	if s.Meta == nil {
		s.Meta = &Meta{}
	}
	return s.Meta
}

// changeMeta changes the metadata of the run. What does not fit is noted.
func (f *fold) changeMeta(ops []drover.MetaOp) {
	m := f.s.meta()
	for i := range ops {
		if why := m.change(&ops[i]); why != "" {
			f.note(fmt.Sprintf("metadata %q was not changed by %s: %s", cut(ops[i].Key, 60), ops[i].Op, why))
		}
	}
	f.changed = true
}

// change makes one change, or says why not.
func (m *Meta) change(op *drover.MetaOp) string {
	has := m.Values[op.Key]
	value := json.RawMessage(orNull(compact(op.Value)))
	switch op.Op {
	case drover.MetaRemove:
		if delete(m.Values, op.Key); len(m.Values) == 0 {
			m.Values = nil
		}
		return ""
	case drover.MetaIncrement:
		if isNull(value) {
			value = json.RawMessage("1")
		}
		if value = sum(has, value); value == nil {
			return "it is no number, or too big"
		}
	case drover.MetaAppend:
		list := []json.RawMessage{}
		if has != nil && json.Unmarshal(has, &list) != nil {
			return "it is no array"
		}
		var err error
		if value, err = rawjson.Encode(append(list, value)); err != nil {
			return err.Error()
		}
	case drover.MetaSet:
	}
	size, keys := len(op.Key)+len(value), 1
	for key, v := range m.Values {
		if key != op.Key {
			size += len(key) + len(v)
			keys++
		}
	}
	if keys > drover.MaxMetaKeys || size > drover.MaxMeta {
		return fmt.Sprintf("all would be %d keys and %d bytes, over the limit of %d and %d", keys, size, drover.MaxMetaKeys, drover.MaxMeta)
	}
	if m.Values == nil {
		m.Values = map[string]json.RawMessage{}
	}
	m.Values[op.Key] = value
	return ""
}

// sum adds two numbers, exactly where both are whole, or gives nil. Nothing
// counts as 0.
func sum(a, b json.RawMessage) json.RawMessage {
	if a == nil {
		a = json.RawMessage("0")
	}
	x, errX := strconv.ParseInt(string(a), 10, 64)
	y, errY := strconv.ParseInt(string(b), 10, 64)
	if z := x + y; errX == nil && errY == nil && (z > x) == (y > 0) {
		return strconv.AppendInt(nil, z, 10)
	}
	var f, g float64
	if json.Unmarshal(a, &f) != nil || json.Unmarshal(b, &g) != nil || isNull(a) || isNull(b) || math.IsInf(f+g, 0) {
		return nil
	}
	data, err := json.Marshal(f + g)
	if err != nil {
		return nil
	}
	return data
}

// checkMeta checks what a child says, as far as that does not depend on the run.
func checkMeta(run drover.RunID, m *drover.MetaMessage) *drover.Error {
	if bad := sameRun(run, m.Call); bad != nil {
		return bad
	}
	why := badOps(m.Ops)
	if m.Number < 1 {
		why = "its number must be from 1"
	}
	if why != "" {
		return drover.Errorf(drover.CodeInvalidRequest, "the metadata that a child sends to run %s cannot be: %s", run, why)
	}
	return nil
}
