package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

// changed is a record that changes metadata; each change is op, key and value.
func changed(target string, changes ...string) drover.Entry {
	list := make([]drover.MetaOp, 0, len(changes))
	for _, text := range changes {
		op, rest, _ := strings.Cut(text, " ")
		key, value, _ := strings.Cut(rest, " ")
		list = append(list, drover.MetaOp{Op: drover.MetaChange(op), Key: key, Value: json.RawMessage(value)})
	}
	data, err := rawjson.Encode(list)
	if err != nil {
		panic(err)
	}
	return drover.Entry{Kind: drover.EntryMeta, ID: target, Output: data}
}

func (w *world) wantMeta(want string) {
	w.t.Helper()
	if got := show(View(w.p, w.s, nil, false).Metadata); got != want {
		w.t.Errorf("the metadata is %s, want %s", got, want)
	}
}

// tellMeta sends to a run what another has for its parent.
func (w *world) tellMeta(m *drover.MetaMessage) Step {
	w.t.Helper()
	data, err := rawjson.Encode(m)
	if err != nil {
		w.t.Fatal(err)
	}
	c, _, bad := DecodeCommand(1, w.now, string(w.run), string(drover.VerbMeta), data, "")
	if bad != nil {
		w.last = Step{State: w.s, Refused: bad}
		return w.last
	}
	return w.send(c)
}

func TestProgramsMetadataOfTheRunItself(t *testing.T) {
	for _, tt := range []struct {
		changes, want string
		noted         string
	}{
		{`set a 1; set b {"x":[1]}; set a null`, `{"a":null,"b":{"x":[1]}}`, ""},
		{`increment n; increment n 2; increment n -5`, `{"n":-2}`, ""},
		{`set n 0.5; increment n 1`, `{"n":1.5}`, ""},
		{`set n 9007199254740993; increment n 1`, `{"n":9007199254740994}`, ""},
		{`set n 9223372036854775807; increment n 1`, `{"n":9223372036854776000}`, ""},
		{`set n -9223372036854775808; increment n -1`, `{"n":-9223372036854776000}`, ""},
		{`set n 1e308; increment n 1e308`, `{"n":1e308}`, "too big"},
		{`set n "x"; increment n 1; increment n 1`, `{"n":"x"}`, "no number"},
		{`set n null; increment n 1`, `{"n":null}`, "no number"},
		{`append l 1; append l [2]; append l null`, `{"l":[1,[2],null]}`, ""},
		{`set l {}; append l 1; set m 1`, `{"l":{},"m":1}`, "no array"},
		{`set a 1; remove a; remove b`, `null`, ""},
		{`set a "` + strings.Repeat("x", drover.MaxMeta) + `"; set b 1`, `{"b":1}`, "over the limit"},
	} {
		w := newProgram(t, "")
		d := w.driven()
		for _, change := range strings.Split(tt.changes, "; ") {
			d.say(changed("self", change))
			d.send(d.last) // its answer was lost
		}
		w.wantMeta(tt.want)
		notes := show(w.s.Notes)
		if tt.noted == "" && len(w.s.Notes) > 0 || !strings.Contains(notes, tt.noted) {
			t.Errorf("%.80s: notes %s, want %q", tt.changes, notes, tt.noted)
		}
		d.complete(`1`)
		w.wantMeta(tt.want) // of a run that is over
	}
	w := newProgram(t, "")
	d := w.driven()
	for i := range drover.MaxMetaKeys + 1 {
		d.say(changed("self", fmt.Sprintf("set k%d 1", i)))
	}
	if n := len(w.s.Meta.Values); n != drover.MaxMetaKeys || len(w.s.Notes) != 1 {
		t.Errorf("%d keys, notes %s", n, show(w.s.Notes))
	}
	d.refused(drover.CodeInvalidRequest, changed("child", "set a 1"))
	d.refused(drover.CodeInvalidRequest, changed("self", "swap a 1"))
	d.refused(drover.CodeInvalidRequest, changed("self", "set "+strings.Repeat("k", drover.MaxMetaKey+1)+" 1"))
	d.refused(drover.CodeInvalidRequest, changed("self", "increment a []"))
	d.refused(drover.CodeInvalidRequest, changed("self"))
	d.refused(drover.CodeInvalidRequest, drover.Entry{Kind: drover.EntryMeta, ID: "self", Output: raw(`7`)})
}

// family is a root that is a program, a definition that it started, and a program
// that this has started.
func family(t *testing.T) (root, middle, leaf *world) {
	t.Helper()
	root = newProgram(t, "")
	root.driven().park(asked("sub", `{"run":{"workflow":"middle"}}`, ""))
	parent := root.effect(EffectStart).Start.Parent
	middle = newWorld(t, `{"nodes":{"leaf":{"run":{"workflow":"order"}}},"output":{"from":"node:leaf"}}`)
	middle.run = "r2"
	middle.startAs(drover.StartRequest{Parent: parent})
	parent = middle.effect(EffectStart).Start.Parent
	leaf = newWorld(t, `{"program":"order"}`)
	leaf.run = "r3"
	leaf.startAs(drover.StartRequest{Input: raw(`1`), Parent: parent})
	return root, middle, leaf
}

func TestProgramsMetadataOfParentAndRoot(t *testing.T) {
	root, middle, leaf := family(t)
	d := leaf.driven()
	for i := range 3 {
		d.say(changed("parent", "append log "+fmt.Sprint(i)), changed("self", "increment n"))
		m := leaf.effect(EffectMeta).Meta
		d.send(d.last)
		for range 2 { // the second is a repeat
			middle.tellMeta(m)
		}
		d.say(changed("root", "increment n", "set last "+fmt.Sprint(i)))
		m = leaf.effect(EffectMeta).Meta
		middle.tellMeta(m)
		up := middle.effect(EffectMeta).Meta
		middle.tellMeta(m)
		middle.wantEffects()
		for range 2 {
			root.tellMeta(up)
		}
	}
	leaf.wantMeta(`{"n":3}`)
	middle.wantMeta(`{"log":[0,1,2]}`)
	root.wantMeta(`{"last":2,"n":3}`)
	if n := len(leaf.s.Meta.Sends); n != 1 {
		t.Errorf("%d messages are kept, want the last one", n)
	}

	d.say(changed("parent", "set z 1"))
	m := *leaf.effect(EffectMeta).Meta // and is lost
	m.Number, m.Token = 9, "guessed"
	middle.tellMeta(&m)
	middle.wantRefused(drover.CodeForbidden)
	root.tellMeta(&m)
	root.wantRefused(drover.CodeInvalidRequest) // it is another run's
	m.Number = 0
	middle.tellMeta(&m)
	middle.wantRefused(drover.CodeInvalidRequest)

	middle.stop("enough")
	m.Number, m.Token = 10, leaf.s.Parent.Token
	middle.tellMeta(&m)
	middle.wantEffects()
	middle.wantMeta(`{"log":[0,1,2]}`)
}

func TestProgramsMetadataStaysWhereABodyBeginsAnew(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven().say(changed("self", "set a 1"), changed("root", "increment n"))
	d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: raw(`{"order":8}`)}))
	w.driven().say(changed("parent", "increment n"))
	w.wantMeta(`{"a":1,"n":2}`)
}
