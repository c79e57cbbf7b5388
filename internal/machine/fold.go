package machine

import (
	"encoding/json"
	"errors"

	"github.com/droverhq/drover"
)

// fold is the work of one command on one run.
type fold struct {
	p *Plan
	s *State
	d *derived
	v Values

	seq  uint64 // of the command
	now  Millis // latest time of the run
	ceil Millis // the same, rounded up: deadlines count from here, so that none comes early

	puts      []Put
	effects   []Effect
	queue     []int    // nodes of which all that they need is over
	failed    bool     // a node failed that must not
	handed    bool     // a wait has handed back what it had collected
	need      []string // keys of values that are missing
	needed    map[string]bool
	frozen    bool          // the state may not change
	changed   bool          // the state has to be committed
	recording bool          // the process that drives the program is being answered
	nudged    bool          // it has to be told that the journal has grown
	drives    int           // of the program, before this fold
	queued    bool          // its drive goes to the queue, once more
	hush      int           // the body knows of the end of this node: its index, and 1; -1: of all
	scope     scope         // what expressions see, kept from one evaluation to the next
	answer    any           //
	refused   *drover.Error // the command is refused; nothing was changed
}

// errMissing ends whatever needs a value that is not loaded. fold.need has the
// keys.
var errMissing = errors.New("a value is missing")

// load gives a value; its error is errMissing.
func (f *fold) load(v Value) (json.RawMessage, error) {
	if v.Key == "" {
		return orNull(v.JSON), nil
	}
	for _, put := range f.puts {
		if put.Key == v.Key {
			return put.JSON, nil
		}
	}
	if f.v != nil {
		if raw, ok := f.v(v.Key); ok {
			return raw, nil
		}
	}
	if !f.needed[v.Key] {
		if f.needed == nil {
			f.needed = map[string]bool{}
		}
		f.need, f.needed[v.Key] = append(f.need, v.Key), true
	}
	return nil, errMissing
}

// keep makes a value of the run: in the record where it is small, else a put.
func (f *fold) keep(raw json.RawMessage, key string) Value {
	if isNull(raw) {
		return Value{}
	}
	if f.inline(raw) {
		return Value{JSON: raw}
	}
	f.puts = append(f.puts, Put{Key: key, JSON: raw})
	return Value{Key: key, Size: len(raw)}
}

// inline reports whether a value is kept in the record, and counts it.
func (f *fold) inline(raw json.RawMessage) bool {
	if len(raw) > drover.MaxInlineValue || f.s.Inline+len(raw) > drover.MaxInlineRun {
		return false
	}
	f.s.Inline += len(raw)
	return true
}

func (v Value) zero() bool { return v.JSON == nil && v.Key == "" }

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// callID is the id of an attempt.
func (f *fold) callID(n *node, item int, undo bool, attempt int) drover.CallID {
	return drover.CallID{Run: f.s.Run, Node: n.id, Item: item, Undo: undo, Attempt: attempt}
}

// effect adds an effect of this run.
func (f *fold) effect(e Effect) {
	e.Run = f.s.Run
	f.effects = append(f.effects, e)
}

// owed names an effect of a node or of an item of it.
func owed(kind EffectKind, n *node, item, attempt int) Owed {
	return Owed{Kind: kind, Node: n.id, Item: item + 1, Attempt: attempt}
}
