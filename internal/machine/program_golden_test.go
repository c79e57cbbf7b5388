package machine

import (
	"encoding/json"
	"testing"

	"github.com/droverhq/drover"
)

// goldenProgram is a program with something of everything in its record.
func goldenProgram(t *testing.T) (*world, *driver) {
	w := newProgram(t, `,"compute_timeout":"1h"`)
	d := w.driven()
	d.version, d.keep = "2", "_INBOX.kept"
	d.say(stepped("a", `{"x":"<1>"}`), asked("h", `{"wait":{"hook":"t","hold":true}}`, ""), asked("f", `{"call":"f"}`, string(quoted(3000))), asked("c", `{"run":{"workflow":"sub"}}`, `1`))
	w.owned("h", "t")
	w.deliverHook("t", `1`, "one")
	d.say(drover.Entry{Kind: drover.EntryAttempt, ID: "b", Attempt: 1, Error: bad("no"), Pause: drover.Duration(60e9)}, drover.Entry{Kind: drover.EntryValue, ID: "v", Output: raw(`true`)})
	w.fail("f@1", *bad("gone"))
	return w, d
}

// goesOn holds that such a program is driven on with all that it had.
func (d *driver) goesOn() {
	d.w.t.Helper()
	d.w.wantJournal(`step a {"x":"<1>"}`, "node h", "node f", "node c", "ended h 1", "attempt b@1 !x", "value v true", "ended f !x")
	d.say().end(drover.DriveWaiting, stepped("z", `1`))
	d.w.child("c@1", drover.StatusCompleted, `2`, nil)
	if e := d.w.effect(EffectDrive); e.Inbox != "_INBOX.kept" || e.Drive.Version != "2" || e.Drive.From != 10 {
		d.w.t.Fatalf("%s", show(e))
	}
	if err := d.w.s.Check(d.w.p); err != nil {
		d.w.t.Error(err)
	}
}

// The golden record of a program is read for ever.
func TestGoldenRecordOfAProgram(t *testing.T) {
	w, d := goldenProgram(t)
	writeGolden(t, "testdata/record-v3-program.json", w)
	w.s = readGolden(t, "testdata/record-v3-program.json")
	if got := w.encode(w.s); string(got) != string(w.record) {
		t.Errorf("the record is now\n%s\nand was\n%s", w.record, got)
	}
	d.goesOn()
}

// secondVersion has a program go on with a record as the second version wrote it.
func (w *world) secondVersion(change func(program map[string]json.RawMessage)) {
	w.t.Helper()
	var record, program map[string]json.RawMessage
	if err := json.Unmarshal(w.record, &record); err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(record["prg"], &program); err != nil {
		w.t.Fatal(err)
	}
	for _, field := range []string{"pg", "mf", "ac", "p", "qu", "aa", "q", "st", "sq", "in", "j"} {
		delete(program, field)
	}
	change(program)
	record["V"], record["prg"] = raw(`2`), w.json(program)
	w.s = w.decode(w.json(record))
	w.record = w.encode(w.s)
}

func (w *world) json(v any) json.RawMessage {
	w.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

// A program that an earlier version has driven goes on, and leaves nothing behind
// that the earlier version did not know it had.
func TestProgramsOfTheSecondVersionGoOn(t *testing.T) {
	t.Run("the golden record", func(t *testing.T) {
		w, d := goldenProgram(t)
		w.s = readGolden(t, "testdata/record-v2-program.json")
		w.record = w.encode(w.s)
		d.goesOn()
	})
	t.Run("it begins anew", func(t *testing.T) {
		w, d := goldenProgram(t) // the input of the call is stored, and nothing in the record says so
		w.s = readGolden(t, "testdata/record-v2-program.json")
		w.record = w.encode(w.s)
		if len(w.stored) == 0 {
			t.Fatal("nothing is stored")
		}
		if !w.forget(d.again(5).Effects) || len(w.stored) > 0 {
			t.Errorf("%d values are left", len(w.stored))
		}
		if err := w.s.Check(w.p); err != nil {
			t.Error(err)
		}
	})
	t.Run("what it did is not forgotten", func(t *testing.T) {
		w := newProgram(t, "")
		d := w.driven().say(stepped("a", `1`))
		d.end(drover.DriveBlocked)
		w.secondVersion(func(map[string]json.RawMessage) {})
		w.stop("enough")
		w.driven().end(drover.DriveBlocked)
		w.wantStatus(drover.StatusCompensationFailed)
	})
	t.Run("a journal of more segments than a record has now", func(t *testing.T) {
		w := newProgram(t, "")
		w.sparing = true
		w.driven().say(stepped("a", `1`))
		const segments = 2*maxSegments + 100
		var firsts []int
		for i := range segments {
			firsts = append(firsts, 1+i*maxTailLines)
		}
		w.secondVersion(func(program map[string]json.RawMessage) {
			program["s"], program["e"], program["r"] = w.json(firsts), w.json(segments*maxTailLines+1), w.json(segments*maxTailLines+1)
		})
		d := w.driven()
		for i := range maxTailLines {
			d.say(stepped(string(rune('a'+i%26))+string(rune('a'+i/26)), `1`))
		}
		if keys := w.journalKeys(1); len(keys) != segments+1 {
			t.Errorf("%d segments, want %d", len(keys), segments+1)
		}
		if n := len(w.s.Program.Segments); n > 0 || len(w.s.Program.Pages) != 1 {
			t.Errorf("%d segments and pages %v are in the record", n, w.s.Program.Pages)
		}
	})
}
