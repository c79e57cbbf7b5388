package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// forget performs what a step asks for of the values, as a worker does.
func (w *world) forget(effects []Effect) (swept bool) {
	for _, e := range effects {
		if e.Kind == EffectForget {
			swept = true
			maps.DeleteFunc(w.stored, func(key string, _ json.RawMessage) bool { return e.Forget.Dead(key) })
		}
	}
	return swept
}

// again has a body begin anew, with an input of so many bytes.
func (d *driver) again(size int, records ...drover.Entry) Step {
	d.w.t.Helper()
	step := d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: quoted(size)}, records...))
	if step.Refused != nil {
		d.w.t.Fatal(step.Refused)
	}
	return step
}

// remade makes effects again of a record: those that it owes, or others.
func (w *world) remade(record []byte, owed ...Owed) []Effect {
	w.t.Helper()
	s := w.decode(record)
	if owed == nil {
		owed = s.Owed
	}
	effects, err := Effects(w.p, s, owed, func(key string) (json.RawMessage, bool) { raw, ok := w.stored[key]; return raw, ok })
	if err != nil {
		w.t.Fatal(err)
	}
	return effects
}

// A program that lives for ever, and begins anew each time, leaves nothing of its
// earlier journals behind, and has all that it needs.
func TestPrograms16ALifeOfManyJournals(t *testing.T) {
	w := newProgram(t, "")
	w.sparing = true
	most, record := 0, 0
	for generation := range 1000 {
		w.deliver("seldom", string(quoted(3000)), "")
		d := w.driven()
		if generation > 0 && w.value(w.s.Input) != string(quoted(2500)) {
			t.Fatalf("generation %d has the input %.40s", generation, w.value(w.s.Input))
		}
		d.say(stepped("big", string(quoted(4000))), asked("f", `{"call":"f"}`, string(quoted(5000))), asked("n", `{"wait":{"name":"seldom"}}`, ""))
		w.ok(fmt.Sprintf("%s@1", w.s.nodeID("f")), string(quoted(6000)))
		var more []drover.Entry
		for i := range 130 { // a segment, and more
			more = append(more, stepped(fmt.Sprint("s", i), `1`))
		}
		d.say(more...)
		if got := w.lines()[4]; got.ID != "n" && got.ID != "f" || len(w.value(got.Output)) < 3000 {
			t.Fatalf("line 4 of generation %d is %+v", generation, got)
		}
		if !w.forget(d.again(2500).Effects) {
			t.Fatalf("generation %d leaves its values behind", generation)
		}
		most, record = max(most, len(w.stored)), max(record, len(w.record))
	}
	if most > 2 || record > 8<<10 {
		t.Errorf("%d values are left, and the record has %d bytes: %v", most, record, slices.Sorted(maps.Keys(w.stored)))
	}
	if err := w.s.Check(w.p); err != nil {
		t.Error(err)
	}
}

// A crash before the values of a journal were removed leaves nothing: the next
// owner does it by the record, or whoever does it for a later journal. What is
// done late takes nothing of what the body has by then.
func TestPrograms16AnEarlierJournalIsForgottenLate(t *testing.T) {
	w := newProgram(t, "")
	w.deliver("old", string(quoted(3000)), "one")
	d := w.driven().say(stepped("big", string(quoted(3000))), asked("f", `{"call":"f"}`, string(quoted(3000))))
	w.ok("f@1", string(quoted(3000)))
	late := d.again(3000).Effects // and the owner dies
	record := w.record
	seen := maps.Clone(w.stored)

	// The body goes on meanwhile: what it reads of before stays its own.
	d = w.driven().say(stepped("big", string(quoted(3001))), asked("n", `{"wait":{"name":"old"}}`, ""))
	for i := range 300 {
		d.say(stepped(fmt.Sprint("s", i), `1`))
	}
	journal := func() string {
		var b strings.Builder
		for _, l := range w.lines() {
			fmt.Fprintln(&b, w.entry(&l))
		}
		return b.String()
	}
	want := journal()
	if !strings.Contains(want, "ended n "+string(quoted(3000))) {
		t.Fatal(want)
	}
	for _, owed := range [][]Effect{late, w.remade(record), w.remade(w.record, Owed{Kind: EffectForget, Attempt: 1})} {
		before := len(w.stored)
		if !w.forget(owed) {
			t.Fatalf("effects %s", showEffects(owed))
		}
		if got := journal(); got != want || w.value(w.s.Input) != string(quoted(3000)) {
			t.Fatalf("the journal is\n%s\nwant\n%s", got, want)
		}
		if len(w.stored) == before {
			t.Errorf("%s removed nothing", showEffects(owed))
		}
		for key := range w.stored {
			if g, ok := subjects.GenerationOfKey("r1", key); ok && g == 0 {
				t.Errorf("%s is left", key)
			}
		}
		maps.Copy(w.stored, seen) // as if it had not been done
	}
	if !w.forget(d.again(10).Effects) || len(w.stored) > 0 {
		t.Errorf("values %v are left", slices.Sorted(maps.Keys(w.stored)))
	}
}

// What a child that may not have been started gets as its input is kept until it is.
func TestPrograms16TheInputOfAChildIsNotForgotten(t *testing.T) {
	w := newProgram(t, "")
	step := w.driven().again(5, asked("c", `{"run":{"workflow":"sub","detach":true}}`, string(quoted(3000))))
	input := ""
	for _, e := range step.Effects {
		if e.Kind == EffectStart {
			input = e.Value.Key
		}
	}
	w.forget(step.Effects)
	if w.stored[input] == nil {
		t.Fatalf("the input %q of the child is gone", input)
	}
	d := w.driven().say(asked("c", `{"run":{"workflow":"sub"}}`, "")).say() // its id is free, and it is another child
	if slots := w.s.Program.Slots; slots[0].taken() || !slots[1].taken() {
		t.Errorf("the slots are %+v", slots)
	}
	d.say(dropped("c"))
	if !w.forget(w.driven().again(5, stepped("big", string(quoted(3000)))).Effects) || len(w.stored) > 0 {
		t.Errorf("values %v are left", slices.Sorted(maps.Keys(w.stored)))
	}
}

// A body that begins anew without ever storing anything costs no request more.
func TestPrograms16NothingToForget(t *testing.T) {
	w := newProgram(t, "")
	for range 3 {
		step := w.driven().say(stepped("a", `1`)).again(5)
		if w.forget(step.Effects) {
			t.Fatalf("effects %s", showEffects(step.Effects))
		}
	}
}
