package machine

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/klauspost/compress/s2"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

const (
	// packed is the first byte of a record that is an s2 block. No JSON begins
	// with it.
	packed = 0x02
	// packFrom is the size from which on a record is packed.
	packFrom = 16 << 10
	// maxRecord is the size of the JSON of a record that Decode takes.
	maxRecord = 64 << 20
)

// Encode gives the record of a state: JSON, and past 16 KiB that JSON as an s2
// block behind a byte that cannot begin JSON. It is written by hand because it
// is done for every commit; what is rare is left to encoding/json, whose error
// it gives.
func Encode(s *State) ([]byte, error) {
	e := encoder{b: make([]byte, 0, max(s.size+s.size/8, 1024)+512)}
	e.state(s)
	if e.err != nil {
		return nil, e.err
	}
	if s.size = len(e.b); len(e.b) < packFrom {
		return e.b, nil
	}
	out := make([]byte, 1+s2.MaxEncodedLen(len(e.b)))
	out[0] = packed
	return out[:1+len(s2.Encode(out[1:], e.b))], nil
}

// encoder appends the JSON of a state.
type encoder struct {
	b   []byte
	err error
}

func (e *encoder) raw(s string) { e.b = append(e.b, s...) }
func (e *encoder) comma(first *bool) {
	if !*first {
		e.b = append(e.b, ',')
	}
	*first = false
}

func (e *encoder) name(name string) {
	if last := e.b[len(e.b)-1]; last != '{' {
		e.b = append(e.b, ',')
	}
	e.b = append(e.b, '"')
	e.b = append(e.b, name...)
	e.b = append(e.b, '"', ':')
}

func (e *encoder) int(name string, v int64) {
	if v != 0 {
		e.name(name)
		e.b = strconv.AppendInt(e.b, v, 10)
	}
}

// text writes a string, which most often needs no escape.
func (e *encoder) text(name, v string) {
	if v != "" {
		e.name(name)
		e.b = appendText(e.b, v)
	}
}

func (e *encoder) value(name string, v Value) {
	if !v.zero() {
		e.name(name)
		e.b = appendValue(e.b, v)
	}
}

// any writes what encoding/json can do.
func (e *encoder) any(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	e.name(name)
	e.b = append(e.b, data...)
}

// plain is any for what holds JSON of users, which stays as it is.
func (e *encoder) plain(name string, v any) {
	data, err := rawjson.Encode(v)
	if err != nil {
		e.err = err
		return
	}
	e.name(name)
	e.b = append(e.b, data...)
}

func (e *encoder) state(s *State) {
	e.raw(`{`)
	e.int("V", int64(s.schema()))
	e.text("run", string(s.Run))
	e.text("wf", string(s.Workflow))
	e.text("def", string(s.Hash))
	e.text("st", string(s.Status))
	e.text("key", s.Secret)
	e.text("fp", s.Print)
	if s.Applied != 0 {
		e.name("seq")
		e.b = strconv.AppendUint(e.b, s.Applied, 10)
	}
	e.int("shi", int64(s.Shift))
	e.int("now", int64(s.Now))
	e.int("cre", int64(s.Created))
	e.int("end", int64(s.Ended))
	e.int("due", int64(s.Due))
	e.int("tim", int64(s.Timer))
	e.int("tms", int64(s.Timed))
	e.owed(s.Owed)
	e.value("in", s.Input)
	e.value("res", s.Result)
	e.nodes(s.Nodes)
	e.active("act", s.Active)
	e.active("rdy", s.Ready)
	e.int("dep", int64(s.Depth))
	e.int("cal", int64(s.Calls))
	e.int("inl", int64(s.Inline))
	e.int("kep", int64(s.Kept))
	e.int("drp", int64(s.Dropped))
	e.rest(s)
	e.raw(`}`)
}

// rest writes what most runs do not have.
func (e *encoder) rest(s *State) {
	if s.Error != nil {
		e.any("err", s.Error)
	}
	if len(s.Tags) > 0 {
		e.any("tag", s.Tags)
	}
	if s.Parent != nil {
		e.any("par", s.Parent)
	}
	e.texts("ins", s.Instances)
	e.texts("see", s.Seen)
	if len(s.Hooks) > 0 {
		e.any("hok", s.Hooks)
	}
	e.unread(s.Unread)
	if len(s.Notify) > 0 {
		e.any("sub", s.Notify)
	}
	if len(s.Waiters) > 0 {
		e.any("wai", s.Waiters)
	}
	e.text("tkr", s.Taker)
	if len(s.Notes) > 0 {
		e.any("nte", s.Notes)
	}
	if s.Undo != nil {
		e.any("und", s.Undo)
	}
	if s.Meta != nil {
		e.any("met", s.Meta)
	}
	if s.Program != nil {
		e.plain("prg", s.Program)
	}
	if len(s.Recall) > 0 {
		e.any("rec", s.Recall)
	}
}

func (e *encoder) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	e.name(name)
	e.raw(`[`)
	first := true
	for _, s := range list {
		e.comma(&first)
		e.b = appendText(e.b, s)
	}
	e.raw(`]`)
}

func (e *encoder) owed(list []Owed) {
	if len(list) == 0 {
		return
	}
	e.name("owe")
	e.raw(`[`)
	first := true
	for i := range list {
		o := &list[i]
		e.comma(&first)
		e.raw(`{`)
		e.text("e", string(o.Kind))
		e.text("n", string(o.Node))
		e.int("i", int64(o.Item))
		e.int("l", int64(o.Last))
		if o.Undo {
			e.name("u")
			e.raw(`true`)
		}
		e.int("a", int64(o.Attempt))
		e.int("x", int64(o.Index))
		e.text("t", o.Token)
		e.int("r", int64(o.Until))
		e.raw(`}`)
	}
	e.raw(`]`)
}

func (e *encoder) unread(list []Unread) {
	if len(list) == 0 {
		return
	}
	e.name("unr")
	e.raw(`[`)
	first := true
	for i := range list {
		u := &list[i]
		e.comma(&first)
		e.raw(`{`)
		e.text("n", u.Name)
		e.text("k", u.Hook)
		e.value("p", u.Payload)
		e.name("t")
		e.b = strconv.AppendInt(e.b, int64(u.At), 10)
		e.text("r", u.Respond)
		e.raw(`}`)
	}
	e.raw(`]`)
}

func (e *encoder) nodes(list []NodeState) {
	e.name("n")
	e.raw(`[`)
	first := true
	for i := range list {
		ns := &list[i]
		e.comma(&first)
		e.raw(`{`)
		e.int("s", int64(ns.Status))
		e.int("a", int64(ns.Attempts))
		e.int("b", int64(ns.Started))
		e.int("l", int64(ns.Last))
		e.int("e", int64(ns.Ended))
		e.int("i", int64(ns.Instance))
		e.value("o", ns.Output)
		if ns.Error != nil {
			e.any("x", ns.Error)
		}
		if len(ns.Failed) > 0 {
			e.any("f", ns.Failed)
		}
		if ns.Items != nil {
			e.name("g")
			e.b = appendItems(e.b, ns.Items)
		}
		if ns.Reading != nil {
			e.any("w", ns.Reading)
		}
		e.raw(`}`)
	}
	e.raw(`]`)
}

// active writes the columns of Active, as a list of numbers for each thing. One
// list stands for consecutive items that differ in nothing else.
func (e *encoder) active(name string, list []Active) {
	if len(list) == 0 {
		return
	}
	e.name(name)
	e.raw(`[`)
	first := true
	for i := 0; i < len(list); {
		a := list[i]
		n := 1
		for ; i+n < len(list) && a.Item != drover.NoItem; n++ {
			b := list[i+n]
			if b.Item -= n; b != a {
				break
			}
		}
		e.comma(&first)
		e.b = appendActive(e.b, &a, n)
		i += n
	}
	e.raw(`]`)
}

func appendActive(b []byte, a *Active, n int) []byte {
	row := [...]int64{
		int64(n), int64(a.Kind), int64(a.Node), int64(a.Item), int64(a.Attempt), int64(a.Since),
		ahead(a.Since, a.Due), ahead(a.Since, a.Lost), int64(a.Used), 0,
	}
	if a.Undo {
		row[9] = 1
	}
	last := len(row)
	for row[last-1] == 0 {
		last--
	}
	b = append(b, '[')
	for i, v := range row[:last] {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return append(b, ']')
}

// ahead is how far m is after since, and 1; 0: m is none.
func ahead(since, m Millis) int64 {
	if m == 0 {
		return 0
	}
	return int64(m-since) + 1
}

func atAhead(since Millis, d int64) Millis {
	if d == 0 {
		return 0
	}
	return since + Millis(d-1)
}

// actives is a list of what is outstanding, as Encode writes it.
type actives []Active

// UnmarshalJSON reads rows of numbers. Those that are missing are 0.
func (l *actives) UnmarshalJSON(data []byte) error {
	var rows [][]int64
	if err := json.Unmarshal(data, &rows); err != nil {
		return err
	}
	*l = nil
	for _, row := range rows {
		var v [10]int64
		copy(v[:], row)
		a := Active{
			Kind: ActiveKind(v[1]), Node: int(v[2]), Item: int(v[3]), Attempt: int(v[4]), Since: Millis(v[5]),
			Due: atAhead(Millis(v[5]), v[6]), Lost: atAhead(Millis(v[5]), v[7]), Used: int(v[8]), Undo: v[9] != 0,
		}
		if v[0] < 1 || v[0] > drover.MaxCalls || len(*l)+int(v[0]) > drover.MaxCalls+drover.MaxNodes {
			return fmt.Errorf("%d things cannot be outstanding", v[0])
		}
		for range v[0] {
			*l = append(*l, a)
			a.Item++
		}
	}
	return nil
}

func appendIntField(b []byte, name string, v int64) []byte {
	if v == 0 {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	return strconv.AppendInt(append(b, `":`...), v, 10)
}

// appendValue writes a value; what it holds is JSON already.
func appendValue(b []byte, v Value) []byte {
	if v.Key == "" {
		b = append(b, `{"v":`...)
		return append(append(b, v.JSON...), '}')
	}
	b = appendText(append(b, `{"k":`...), v.Key)
	return append(appendIntField(b, "s", int64(v.Size)), '}')
}

// appendText writes a string as JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return rawjson.AppendString(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
