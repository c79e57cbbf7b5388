package machine

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

// newProgram is a run of the program order that has begun, with more keys in its
// definition.
func newProgram(t testing.TB, more string) *world {
	t.Helper()
	w := newWorld(t, `{"program":"order"`+more+`}`)
	w.start(`{"order":7}`)
	return w
}

// driver is a process that drives a program by hand.
type driver struct {
	w                       *world
	drive, fence            int
	at, have                int
	instance, version, keep string
	last                    drover.RecordRequest
	reply                   drover.RecordReply
}

// driven is a process that was given the latest drive, as it is now.
func (w *world) driven() *driver {
	g := w.s.Program
	return &driver{w: w, drive: g.Drive, fence: g.Fence + 1, at: g.Records, have: g.Entries, instance: "proc-1"}
}

func (d *driver) request(end *drover.DriveEnd, records ...drover.Entry) drover.RecordRequest {
	id := d.w.s.driveID(d.drive)
	return drover.RecordRequest{
		Drive: d.drive, Fence: d.fence, Token: Token("s3cret", id.String()), Instance: d.instance, Version: d.version, Keep: d.keep,
		At: d.at, Have: d.have, Records: records, End: end,
	}
}

// send sends a record as the log would bring it, and takes the answer.
func (d *driver) send(m drover.RecordRequest) Step {
	d.w.t.Helper()
	d.last = m
	step := d.w.record1(m)
	if step.Refused == nil {
		d.take(step.Answer.(drover.RecordReply))
	}
	return step
}

func (d *driver) take(r drover.RecordReply) {
	d.reply, d.at, d.have = r, r.Records, r.Entries
}

func (w *world) record1(m drover.RecordRequest) Step {
	w.t.Helper()
	data, err := rawjson.Encode(m)
	if err != nil {
		w.t.Fatal(err)
	}
	c, _, bad := DecodeCommand(1, w.now, string(w.run), string(drover.VerbRecord), data, "")
	if bad != nil {
		w.last = Step{State: w.s, Refused: bad}
		return w.last
	}
	return w.send(c)
}

func (d *driver) say(records ...drover.Entry) *driver {
	d.w.t.Helper()
	if step := d.send(d.request(nil, records...)); step.Refused != nil {
		d.w.t.Fatalf("refused: %v", step.Refused)
	}
	return d
}

// refused holds that records are refused with a code.
func (d *driver) refused(code drover.Code, records ...drover.Entry) {
	d.w.t.Helper()
	before := string(d.w.record)
	d.send(d.request(nil, records...))
	d.w.wantRefused(code)
	if string(d.w.record) != before {
		d.w.t.Fatal("a record that was refused has changed the run")
	}
}

func (d *driver) end(status drover.DriveStatus, records ...drover.Entry) Step {
	d.w.t.Helper()
	e := &drover.DriveEnd{Status: status}
	if status != drover.DriveWaiting && status != drover.DriveCompleted && status != drover.DriveAgain {
		e.Error = drover.Errorf("x", "why it ended %s", status)
	}
	step := d.send(d.request(e, records...))
	if step.Refused != nil {
		d.w.t.Fatalf("refused: %v", step.Refused)
	}
	return step
}

func (d *driver) park(records ...drover.Entry) *driver {
	d.w.t.Helper()
	d.end(drover.DriveWaiting, records...)
	d.w.wantDrive(DriveParked)
	return d
}

func (d *driver) complete(result string) {
	d.w.t.Helper()
	d.send(d.request(&drover.DriveEnd{Status: drover.DriveCompleted, Result: json.RawMessage(result)}))
	d.w.wantResult(result)
}

func stepped(id, output string) drover.Entry {
	return drover.Entry{Kind: drover.EntryStep, ID: id, Attempt: 1, Output: json.RawMessage(output)}
}

func asked(id, step, input string) drover.Entry {
	e := drover.Entry{Kind: drover.EntryNode, ID: id, Step: json.RawMessage(step)}
	if input != "" {
		e.Input = json.RawMessage(input)
	}
	return e
}

func dropped(id string) drover.Entry { return drover.Entry{Kind: drover.EntryCancel, ID: id} }

// lines is the whole journal, from its segments and the record.
func (w *world) lines() []Line {
	w.t.Helper()
	var all []Line
	for _, key := range w.journalKeys(1) {
		lines, err := DecodeSegment(w.stored[key])
		if err != nil || len(lines) == 0 || key != w.s.segmentKey(len(all)+1) {
			w.t.Fatalf("segment %s has %d lines behind %d others (%v)", key, len(lines), len(all), err)
		}
		all = append(all, lines...)
	}
	if all = append(all, w.s.Program.Tail...); len(all) != w.s.Program.Entries {
		w.t.Fatalf("%d lines, and %d entries", len(all), w.s.Program.Entries)
	}
	return all
}

// journalParts are what the journal is made of from an entry on.
func (w *world) journalParts(from int) []JournalPart {
	w.t.Helper()
	parts, err := w.s.JournalParts(from, func(key string) (json.RawMessage, bool) { raw, ok := w.stored[key]; return raw, ok })
	if err != nil {
		w.t.Fatal(err)
	}
	return parts
}

// journalKeys are the keys of the segments from an entry on.
func (w *world) journalKeys(from int) (keys []string) {
	w.t.Helper()
	for _, part := range w.journalParts(from) {
		if part.Key != "" {
			keys = append(keys, part.Key)
		}
	}
	return keys
}

// entries are those of the journal from a number on, as processes see them.
func (w *world) entries(from int) (list []drover.Entry) {
	w.t.Helper()
	for _, part := range w.journalParts(from) {
		lines, err := w.s.JournalLines(part, w.stored[part.Key])
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range lines {
			list = append(list, lines[i].Entry(part.First+i, lines[i].Output.JSON))
		}
	}
	return list
}

// value is the JSON of a value.
func (w *world) value(v Value) string {
	if v.Key != "" {
		return string(w.stored[v.Key])
	}
	return string(orNull(v.JSON))
}

// entry spells a line of the journal in a word or two.
func (w *world) entry(l *Line) string {
	text := fmt.Sprintf("%s %s", l.Kind, l.ID)
	if l.Attempt > 0 && l.Kind != drover.EntryStep {
		text += fmt.Sprintf("@%d", l.Attempt)
	}
	if l.Error != nil {
		return text + " !" + string(l.Error.Code)
	}
	if !l.Output.zero() {
		text += " " + w.value(l.Output)
	}
	return text
}

// wantJournal holds that the journal ends with these entries.
func (w *world) wantJournal(want ...string) {
	w.t.Helper()
	all := w.lines()
	if len(all) < len(want) {
		w.t.Fatalf("%d entries, want %d", len(all), len(want))
	}
	for i, l := range all[len(all)-len(want):] {
		if got := w.entry(&l); got != want[i] {
			w.t.Fatalf("entry %d is %q, want %q", len(all)-len(want)+i+1, got, want[i])
		}
	}
}

func (w *world) wantDrive(state DriveState) {
	w.t.Helper()
	if got := w.s.Program.State; got != state {
		w.t.Fatalf("the program is %q, want %q: %s", got, state, w.record)
	}
}

// wake waits for whatever time brings next.
func (w *world) wake() *world {
	w.t.Helper()
	if d := w.s.Deadline(); d > 0 {
		w.now = d.Time()
		w.tick()
		return w
	}
	w.t.Fatal("time brings nothing")
	return w
}
