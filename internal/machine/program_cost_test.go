package machine

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/droverhq/drover"
)

// spent is what a step costs, on the average of some.
type spent struct{ written, allocated, puts float64 }

// within reports whether the cost is no more than a part above another.
func (c spent) within(part float64, of spent) bool {
	most := 1 + part
	return c.written <= of.written*most && c.allocated <= of.allocated*most && c.puts <= of.puts*most
}

// cost is what each of some more steps costs an owner who has just taken the run
// over. A whole number of segments makes it the same at any place of a journal.
func (d *driver) cost() (c spent) {
	d.w.t.Helper()
	const steps = 2 * maxTailLines
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range steps {
		d.w.s = d.w.decode(d.w.record)
		d.say(stepped(fmt.Sprint("step", d.have), `{"some":"output"}`))
		c.written += float64(len(d.w.record)) / steps
		for _, put := range d.w.last.Puts {
			c.written += float64(len(put.JSON)) / steps
			c.puts += 1. / steps
		}
	}
	runtime.ReadMemStats(&after)
	c.allocated = float64(after.TotalAlloc-before.TotalAlloc) / steps
	return c
}

// many records so many steps, as many at a time as may be, and gives the size of
// the biggest record.
func (d *driver) many(steps int) (biggest int) {
	d.w.t.Helper()
	for steps > 0 {
		list := make([]drover.Entry, min(steps, 1000))
		for i := range list {
			list[i] = stepped(fmt.Sprint("step", d.have+i), `{"some":"output"}`)
		}
		d.say(list...)
		biggest = max(biggest, len(d.w.record))
		steps -= len(list)
	}
	return biggest
}

// A step costs the same however many came before it: as many bytes are written, as
// many values, and as many bytes of memory are used for the fold. So does one at
// the end of the longest journal there may be, whose record is as small.
func TestPrograms16AStepCostsTheSame(t *testing.T) {
	w := newProgram(t, "")
	w.sparing = true
	d := w.driven()
	d.many(10)
	first := d.cost()
	d.many(1000 - d.have)
	thousandth := d.cost()
	biggest := d.many(maxEntries - 1000 - d.have)
	last := d.cost()
	t.Logf("steps 10, 1,000 and %d cost %+v, %+v, %+v; the biggest record has %d bytes", maxEntries-1000, first, thousandth, last, biggest)
	if !thousandth.within(.05, first) || !last.within(.25, first) {
		t.Errorf("the last steps cost more than the first ones")
	}
	if biggest > 64<<10 {
		t.Errorf("the biggest record has %d bytes", biggest)
	}
	d.many(maxEntries - d.have)
	if d.refused(drover.CodeTooLarge, stepped("more", `1`)); w.s.Program.Entries != maxEntries {
		t.Errorf("the journal has %d entries", w.s.Program.Entries)
	}
	if err := w.s.Check(w.p); err != nil {
		t.Error(err)
	}
}

// Also where each step is so big that it is a segment of its own the record stays
// small, and each segment is found.
func TestPrograms16AHundredThousandSegments(t *testing.T) {
	w := newProgram(t, "")
	w.sparing = true
	w.driven().say()
	f := newFold(w.plan(), w.s, nil)
	for range maxEntries {
		f.s.Program.Entries++
		f.s.Program.Tail = []Line{{Kind: drover.EntryStep, ID: fmt.Sprint("s", f.s.Program.Entries)}}
		f.flush()
	}
	if g := w.s.Program; len(g.Segments) >= maxSegments || len(g.Pages) != maxEntries/maxSegments {
		t.Fatalf("%d pages and %d segments", len(g.Pages), len(g.Segments))
	}
	if err := w.s.Check(w.p); err != nil {
		t.Error(err)
	}
	if size := len(w.encode(w.s)); size > 8<<10 {
		t.Errorf("the record has %d bytes", size)
	}
	for _, put := range f.puts {
		w.stored[put.Key] = put.JSON
	}
	if n := len(w.lines()); n != maxEntries {
		t.Errorf("%d lines", n)
	}
	for _, from := range []int{1, 2, maxSegments, maxSegments + 1, maxSegments + 2, maxEntries - 300, maxEntries, maxEntries + 1} {
		keys := w.journalKeys(from)
		if len(keys) != maxEntries-from+1 || len(keys) > 0 && keys[0] != w.s.segmentKey(from) {
			t.Errorf("%d segments from %d on", len(keys), from)
		}
		if 1 < from && from < maxEntries/2 {
			continue // it takes time
		}
		if list := w.entries(from); len(list) != len(keys) || len(list) > 0 && list[0].ID != fmt.Sprint("s", from) {
			t.Errorf("%d entries from %d on", len(list), from)
		}
	}
	// Only the pages are read that have what is asked for.
	_, err := w.s.JournalParts(maxEntries-300, func(string) (json.RawMessage, bool) { return nil, false })
	if need, ok := err.(*NeedError); !ok || !slices.Equal(need.Keys, []string{w.s.pageKey(maxEntries - maxEntries%maxSegments - maxSegments + 1)}) { //nolint:errorlint // it is no other
		t.Errorf("the keys from %d on need %v", maxEntries-300, err)
	}
	if _, err := w.s.JournalParts(1, func(string) (json.RawMessage, bool) { return raw(`null`), true }); drover.CodeOf(err, "") != drover.CodeInternal {
		t.Errorf("a page that is gone: %v", err)
	}
}
