package machine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/droverhq/drover"
)

// What children say takes nothing of what is remembered of deliveries, counts once
// in whatever order it comes, and leaves the record small.
func TestProgramsMetadataOfBusyChildren(t *testing.T) {
	const children, messages = 50, 60
	w := newProgram(t, "")
	var asks []drover.Entry
	for i := range children {
		asks = append(asks, asked(fmt.Sprint("c", i), `{"run":{"workflow":"sub"}}`, ""))
	}
	w.driven().park(asks...)
	var parents []*drover.Parent
	for _, e := range w.last.Effects {
		if e.Kind == EffectStart {
			parents = append(parents, e.Start.Parent)
		}
	}
	w.deliver("seldom", `1`, "first")
	w.sparing = true
	before := len(w.record)
	chance := rand.New(rand.NewPCG(1, 2))
	tell := func(child, number int) {
		w.tellMeta(&drover.MetaMessage{
			Call: parents[child].Call, Token: parents[child].Token, Number: number,
			Ops: []drover.MetaOp{{Op: drover.MetaIncrement, Key: "n"}},
		})
	}
	for n := 1; n <= messages; n += 10 {
		for child := range children {
			for _, i := range append(chance.Perm(10), chance.Perm(10)...) { // twice each
				tell(child, n+i)
			}
		}
	}
	w.wantMeta(fmt.Sprintf(`{"n":%d}`, children*messages))
	if grown := len(w.record) - before; grown > children*20 {
		t.Errorf("%d children with %d messages each take %d bytes of the record", children, messages, grown)
	}
	w.deliver("seldom", `1`, "first")
	if reply, ok := w.last.Answer.(drover.DeliverReply); !ok || !reply.Repeat {
		t.Errorf("the delivery that came before is answered %+v, %v", w.last.Answer, w.last.Refused)
	}
	if err := w.s.Check(w.p); err != nil {
		t.Error(err)
	}
}

// However many children there are, and however much of what they say is missing,
// what is kept of them stays small.
func TestProgramsMetadataIsHeardOnce(t *testing.T) {
	m := &Meta{}
	hear := m.hears(t)
	hear(0, 2, true)
	hear(0, 2, false)
	hear(0, 1, true)
	hear(0, 1, false)
	hear(0, 2, false)
	if h := m.Heard[0]; h.Until != 2 || h.Above != 0 {
		t.Errorf("%+v", h)
	}
	for n := range 10 * heardAhead { // one is missing each time
		hear(0, 4+2*n, true)
		hear(0, 4+2*n, false)
	}
	hear(0, 3, false) // it was given up
	hear(0, 1+20*heardAhead, true)
	for child := 1; child < maxHeard; child++ {
		hear(child, 1, true)
		hear(child, 99, true)
	}
	hear(0, 2, false)
	hear(1, 100, true) // it is heard of last
	for child := range 10 {
		hear(maxHeard+child, 1, true)
	}
	hear(1, 100, false)
	if len(m.Heard) != maxHeard {
		t.Errorf("%d children are kept", len(m.Heard))
	}
	w := newProgram(t, "")
	w.s.Meta = m
	if size := len(w.encode(w.s)); size > 32<<10 {
		t.Errorf("the record has %d bytes", size)
	}
}

// hears holds which messages of children are new, by the number of the child.
func (m *Meta) hears(t *testing.T) func(child, number int, want bool) {
	return func(child, number int, want bool) {
		t.Helper()
		call := drover.CallID{Run: "r1", Node: "c", Item: child, Attempt: 1}
		if got := m.hear(call, number); got != want {
			t.Fatalf("message %d of child %d is new: %t", number, child, got)
		}
	}
}

// A number is new once, in any order in which none is too far ahead: as a set of all
// of them says.
func TestProgramsMetadataNumbersInAnyOrder(t *testing.T) {
	chance := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		h, all := MetaHeard{Child: "0123456789"}, map[int]bool{}
		lowest := 1 // that is missing
		for range 500 {
			n := lowest + chance.IntN(1+chance.IntN(heardAhead+8)) - chance.IntN(8)
			if n < 1 || n >= lowest+heardAhead {
				continue
			}
			if got := h.take(n); got == all[n] {
				t.Fatalf("number %d is new: %t (%+v)", n, got, h)
			}
			for all[n] = true; all[lowest]; lowest++ {
			}
			var back MetaHeard
			text, _ := h.MarshalText()
			if err := back.UnmarshalText(text); err != nil || back != h {
				t.Fatalf("%s was read as %+v (%v), and was %+v", text, back, err, h)
			}
		}
		if lowest < 20 {
			t.Fatalf("the numbers come to %d only", lowest)
		}
	}
	for _, text := range []string{"", "0123456789", "0123456789-1", "01234567891.", "01234567891.?", "0123456789?"} {
		if err := new(MetaHeard).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// What children have said is let go of with time: not before a message can have come
// again, and not by time in which nobody was there.
func TestProgramsMetadataOfChildrenIsNotKeptForEver(t *testing.T) {
	w := newProgram(t, "")
	w.driven().park(asked("a", `{"run":{"workflow":"sub"}}`, ""), asked("b", `{"run":{"workflow":"sub"}}`, ""), asked("w", `{"wait":{"name":"go"}}`, ""))
	var parents []*drover.Parent
	for _, e := range w.last.Effects {
		if e.Kind == EffectStart {
			parents = append(parents, e.Start.Parent)
		}
	}
	total := 0
	tell := func(child, number int, isNew bool) {
		t.Helper()
		w.tellMeta(&drover.MetaMessage{
			Call: parents[child].Call, Token: parents[child].Token, Number: number,
			Ops: []drover.MetaOp{{Op: drover.MetaIncrement, Key: "n"}},
		})
		if isNew {
			total++
		}
		w.wantMeta(fmt.Sprintf(`{"n":%d}`, total))
	}
	kept := func(want int) {
		t.Helper()
		if m := w.s.Meta; len(m.Heard)+len(m.Before) != want {
			t.Fatalf("%d children are kept, want %d: %+v", len(m.Heard)+len(m.Before), want, m)
		}
	}
	tell(0, 1, true)
	tell(1, 1, true)
	w.child("a@1", drover.StatusCompleted, `1`, nil)
	tell(0, 1, false) // its owner crashed when it had ended
	kept(2)
	w.pass(48 * heardFor) // nobody is there
	tell(1, 2, true)
	tell(0, 1, false)
	tell(1, 1, false)
	kept(2)
	w.pass(heardFor)
	tell(1, 3, true)
	kept(1)
	for range 3 {
		w.pass(heardFor)
		w.deliver("other", `1`, "")
	}
	if kept(0); w.s.Meta.Turn != 0 {
		t.Errorf("%+v", w.s.Meta)
	}
	tell(1, 70, true) // it had been quiet
	tell(1, 70, false)
	tell(1, 71, true)
	kept(1)
	w.deliver("go", `1`, "")
	w.driven().complete(`1`)
	if kept(0); w.s.Meta.Turn != 0 {
		t.Errorf("the record of a run that is over has %+v", w.s.Meta)
	}
}
