package machine

import (
	"fmt"
	"testing"

	"github.com/droverhq/drover"
)

// A step costs the same however many stand before it: the record stays small,
// and what it does not have any more is in segments, all of it.
func TestPrograms16ThousandSteps(t *testing.T) {
	w := newProgram(t, "")
	w.sparing = true
	d := w.driven()
	written := func(from int) (bytes, biggest int) { // records and puts of a hundred steps
		for i := range 100 {
			n := from + i
			d.say(stepped(fmt.Sprintf("step-%04d", n), fmt.Sprintf(`{"number":%d,"text":%q}`, n, "some hundred bytes or so of what a step gives, so that it is neither big nor small")))
			for _, put := range w.last.Puts {
				bytes += len(put.JSON)
			}
			bytes += len(w.record)
			biggest = max(biggest, len(w.record))
		}
		return bytes, biggest
	}
	first, biggest := written(0)
	for i := 100; i < 900; i += 100 {
		_, most := written(i)
		biggest = max(biggest, most)
	}
	last, most := written(900)
	t.Logf("%d bytes for the first hundred, %d for the last; the biggest record has %d", first, last, max(biggest, most))
	if max(biggest, most) > 64<<10 || last > first*5/4 {
		t.Fatalf("%d bytes for the first hundred, %d for the last; the biggest record has %d", first, last, max(biggest, most))
	}
	if err := w.s.Check(w.p); err != nil {
		t.Fatal(err)
	}
	lines := w.lines()
	for i, l := range lines {
		if l.ID != fmt.Sprintf("step-%04d", i) || l.Output.JSON == nil {
			t.Fatalf("line %d is %+v", i, l)
		}
	}
	if len(lines) != 1000 || len(w.s.Program.Segments) < 7 {
		t.Fatalf("%d lines, segments %v", len(lines), w.s.Program.Segments)
	}
	for _, from := range []int{1, 2, 129, 130, 1000, 1001} {
		if list := w.entries(from); len(list) != 1001-from || len(list) > 0 && (list[0].Number != from || list[0].ID != lines[from-1].ID) {
			t.Fatalf("%d entries from %d on", len(list), from)
		}
	}
	// A process that knows less than the record has is told to read the journal.
	d.have = 10
	if d.say(); !d.reply.Partial || d.reply.New != nil {
		t.Fatalf("%+v", d.reply)
	}
	d.complete(`1`)
}

// What a program has open leaves nothing behind in its record when it is over.
func TestProgramRecordsStaySmall(t *testing.T) {
	w := newProgram(t, "")
	w.sparing = true
	size := 0
	for round := range 40 {
		var open []drover.Entry
		for i := range 20 {
			open = append(open, asked(fmt.Sprintf("f%d-%d", round, i), `{"call":"f","retry":{"max_attempts":2,"initial":"1s"}}`, string(quoted(1500))))
		}
		w.driven().park(open...)
		for i := range 20 {
			w.fail(fmt.Sprintf("f%d-%d@1", round, i), *bad("no"))
		}
		w.pass(2e9).tick()
		for i := range 20 {
			w.ok(fmt.Sprintf("f%d-%d@2", round, i), string(quoted(1500)))
		}
		if err := w.s.Check(w.p); err != nil {
			t.Fatal(err)
		}
		if round == 3 {
			size = len(w.record)
		}
		w.driven().say()
	}
	if len(w.record) > size*3/2+2000 || w.s.Kept != 0 || len(w.s.Program.Slots) != 0 {
		t.Fatalf("%d bytes after some rounds, %d after many; %d of errors", size, len(w.record), w.s.Kept)
	}
	if got := len(w.lines()); got != 40*40 {
		t.Fatal(got)
	}
}
