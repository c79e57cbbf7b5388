package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestPrograms01AStepIsDurableBeforeTheBodyGoesOn(t *testing.T) {
	w := newProgram(t, "")
	w.wantEffects("drive 1 by program.order")
	w.wantStatus(drover.StatusRunning)
	first := w.last.Effects[0].Drive
	d := w.driven().say(stepped("a", `1`)).say(stepped("b", `{"x":"<2>"}`), stepped("c", ``))
	w.wantJournal("step a 1", `step b {"x":"<2>"}`, "step c")
	if n := len(d.reply.New); n != 2 || d.reply.New[0].Number != 2 || d.reply.New[0].At == nil || !d.reply.Driving {
		t.Fatalf("%+v", d.reply)
	}
	// It dies; the next one gets the whole journal.
	w.pass(31 * time.Second).tick()
	w.wantEffects("drive 2 by program.order")
	second := w.last.Effects[0].Drive
	if len(second.Journal) != 3 || second.Partial || second.Records != 3 || string(second.Journal[1].Output) != `{"x":"<2>"}` {
		t.Fatalf("%s", show(second))
	}
	if first.Seed == "" || first.Seed != second.Seed || first.Token == second.Token {
		t.Fatal("the seed is that of the run, the token that of the drive")
	}
	w.driven().complete(`{"ok":true}`)
	w.wantEffects("done")
}

func TestPrograms02OneDriveAtATime(t *testing.T) {
	w := newProgram(t, "")
	old := w.driven().say(stepped("a", `1`))
	t.Run("a later fence takes over", func(t *testing.T) {
		second := w.driven()
		second.instance = "proc-2"
		behind := *second
		behind.at, behind.have = 0, 0
		behind.refused(drover.CodeStale) // its journal is that of the message
		second.say()
		old.refused(drover.CodeFenced, stepped("b", `1`))
		second.say(stepped("b", `2`))
		behind = *second
		behind.instance = "proc-3" // asked directly, and by the queue as well
		behind.refused(drover.CodeFenced, stepped("c", `3`))
		old = second
	})
	t.Run("a later drive takes over", func(t *testing.T) {
		w.pass(31 * time.Second).tick()
		old.refused(drover.CodeFenced, stepped("c", `"old"`))
		old = w.driven().say(stepped("c", `"new"`))
		w.wantJournal("step a 1", "step b 2", `step c "new"`)
	})
}

// Every refusal, and that it changes nothing.
func TestProgramRecordsThatAreRefused(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven().say(stepped("a", `1`))
	for name, test := range map[string]struct {
		code   drover.Code
		change func(*drover.RecordRequest)
	}{
		"no token":         {drover.CodeForbidden, func(m *drover.RecordRequest) { m.Token = "" }},
		"token of another": {drover.CodeForbidden, func(m *drover.RecordRequest) { m.Drive = 2 }},
		"no fence":         {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Fence = 0 }},
		"no drive":         {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Drive = 0 }},
		"at below 0":       {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.At = -1 }},
		"at ahead":         {drover.CodeStale, func(m *drover.RecordRequest) { m.At = 2 }},
		"have ahead":       {drover.CodeStale, func(m *drover.RecordRequest) { m.Have = 2 }},
		"fence ahead":      {drover.CodeStale, func(m *drover.RecordRequest) { m.Fence, m.At = 2, 0 }},
		"no instance":      {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Instance = "" }},
		"instance":         {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Instance = "a.>" }},
		"keep":             {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Keep = "$JS.API.x" }},
		"version":          {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Version = "1 2" }},
		"end":              {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.End = &drover.DriveEnd{Status: "done"} }},
		"kind":             {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Records[0].Kind = drover.EntryEnded }},
		"no id":            {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Records[0].ID = "" }},
		"id of a dialect":  {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Records[0].ID = "a~2" }},
		"attempt":          {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Records[0].Kind = drover.EntryAttempt }},
		"no step":          {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Records[0].Kind = drover.EntryNode }},
		"step with when":   {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Records[0] = asked("n", `{"call":"f","when":"true"}`, "") }},
		"step with set":    {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Records[0] = asked("n", `{"set":{"with":1}}`, "") }},
		"step with input": {drover.CodeInvalidRequest, func(m *drover.RecordRequest) {
			m.Records[0] = asked("n", `{"call":"f","input":{"with":1}}`, "")
		}},
		"unknown key":  {drover.CodeInvalidDefinition, func(m *drover.RecordRequest) { m.Records[0] = asked("n", `{"call":"f","x":1}`, "") }},
		"no such hook": {drover.CodeNotFound, func(m *drover.RecordRequest) { m.Records[0] = asked("n", `{"wait":{"from":"h"}}`, "") }},
		"too big":      {drover.CodeTooLarge, func(m *drover.RecordRequest) { m.Records[0].Output = quoted(drover.MaxValue) }},
		"big result": {drover.CodeTooLarge, func(m *drover.RecordRequest) {
			m.End = &drover.DriveEnd{Status: "completed", Result: quoted(drover.MaxValue)}
		}},
		"too many": {drover.CodeInvalidRequest, func(m *drover.RecordRequest) { m.Records = make([]drover.Entry, 1001) }},
		"one node twice": {drover.CodeInvalidRequest, func(m *drover.RecordRequest) {
			m.Records = []drover.Entry{asked("n", `{"sleep":"1s"}`, ""), asked("n", `{"sleep":"1s"}`, "")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			before := string(w.record)
			m := d.request(nil, stepped("b", `2`))
			test.change(&m)
			if w.record1(m); w.last.Refused == nil || w.last.Refused.Code != test.code {
				t.Fatalf("refused: %v, want %s", w.last.Refused, test.code)
			}
			if string(w.record) != before {
				t.Fatal("the run has changed")
			}
		})
	}
	w.t = t
	other := newWorld(t, oneCall)
	other.start(`1`)
	other.record1(d.request(nil))
	other.wantRefused(drover.CodeInvalidRequest, "no program")
}

func quoted(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("y", n) + `"`) }

// What is repeated, as its answer was lost, is answered and changes nothing: also
// what ended the drive, and the run.
func TestProgramRepeats(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven()
	m := d.request(nil, stepped("a", `1`), asked("s", `{"sleep":"1h"}`, ""))
	d.send(m)
	w.record1(m)
	if got := w.last.Answer.(drover.RecordReply); got.Records != 2 || len(got.New) != 2 {
		t.Fatalf("%+v", got)
	}
	w.wantJournal("step a 1", "node s")
	m = d.request(&drover.DriveEnd{Status: drover.DriveWaiting}, stepped("b", `2`))
	d.send(m)
	w.wantDrive(DriveParked)
	before := string(w.record)
	w.record1(m)
	if got := w.last.Answer.(drover.RecordReply); got.Driving || got.Records != 3 || len(got.New) != 1 || string(w.record) != before {
		t.Fatalf("%+v", got)
	}
	more := m
	more.Records = append(more.Records[:1:1], stepped("c", `3`))
	w.record1(more)
	w.wantRefused(drover.CodeFenced, "has ended")

	w.wake()
	d = w.driven()
	m = d.request(&drover.DriveEnd{Status: drover.DriveCompleted, Result: raw(`5`)}, stepped("c", `3`))
	d.send(m)
	w.wantResult(`5`)
	before = string(w.record)
	w.record1(m)
	if got := w.last.Answer.(drover.RecordReply); got.Status != drover.StatusCompleted || got.Driving || string(w.record) != before {
		t.Fatalf("%+v", got)
	}
	m.Fence++
	w.record1(m)
	w.wantRefused(drover.CodeFenced)
}

// A drive may not park while there is something that it does not know.
func TestProgramsDoNotParkOverNews(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven().say(asked("x", `{"wait":{"name":"x"}}`, ""), asked("y", `{"wait":{"name":"y"}}`, ""))
	w.deliver("x", `1`, "")
	w.wantEffects("nudge proc-1")
	step := d.end(drover.DriveWaiting, stepped("a", `1`))
	if d.reply.Driving != true || len(d.reply.New) != 2 || d.reply.New[0].Kind != drover.EntryEnded {
		t.Fatalf("%+v %+v", d.reply, step)
	}
	w.wantDrive(DriveRunning)
	d.park()
	// Nothing is open any more: there is nothing to wait for.
	w.deliver("y", `2`, "")
	w.wantEffects("drive 2 by program.order")
	d = w.driven()
	d.end(drover.DriveWaiting)
	w.wantStatus(drover.StatusFailed)
	wantWords(t, w.s.Error.Message, "nothing that it waits for")
}

func TestPrograms03ASilentProcessIsReplaced(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven().say(stepped("a", `1`))
	for range 5 {
		w.pass(20 * time.Second).tick()
		w.wantDrive(DriveRunning)
		d.say() // a heartbeat
	}
	w.wake()
	w.wantEffects("drive 2 by program.order")
	if got := w.view().Notes; len(got) != 1 || !strings.Contains(got[0].Text, "was silent for 30s: proc-1") {
		t.Fatalf("%+v", got)
	}
	d.refused(drover.CodeFenced)
}

// A process that said that it has the body in memory is asked first, and is not
// waited for.
func TestProgramsThatAreKept(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven()
	d.keep = "_INBOX.kept"
	d.park(asked("s", `{"sleep":"1h"}`, ""))
	w.wake()
	e := w.effect(EffectDrive)
	if e.Inbox != "_INBOX.kept" || e.Drive.From != 2 || len(e.Drive.Journal) != 1 || e.Drive.Journal[0].Kind != drover.EntryEnded {
		t.Fatalf("%s", show(e))
	}
	for range directLooks + 1 { // it may have taken it, and says nothing; it was looked for, and did not answer
		w.wake()
	}
	e = w.effect(EffectDrive)
	if e.Attempt != 2 || e.Inbox != "" || e.Drive.From != 0 || e.Drive.Journal != nil || !e.Drive.Partial {
		t.Fatalf("%s", show(e))
	}
	w.driven().complete(`1`)
}

// Values that are big lie beside the record, and a request that cannot have all
// of the journal says so.
func TestProgramsWithBigValues(t *testing.T) {
	w := newWorld(t, `{"program":"order"}`)
	w.start(string(quoted(3000)))
	if e := w.effect(EffectDrive); e.Value.Key != "r1.input" || e.Drive.Partial {
		t.Fatalf("%s", show(e))
	}
	d := w.driven().say(stepped("a", string(quoted(5000))))
	if w.last.Puts[0].Key != "r1.journal.0.line.1" || string(d.reply.New[0].Output) != string(quoted(5000)) || len(w.record) > 4000 {
		t.Fatalf("%+v %+v", w.last.Puts, d.reply)
	}
	d.have = 0
	d.say(asked("f", `{"call":"f"}`, string(quoted(4000))))
	if len(d.reply.New) != 2 || len(d.reply.New[0].Output) != 5002 {
		t.Fatalf("%+v", d.reply)
	}
	if e := w.effect(EffectCall); e.Value.Key != "r1.journal.0.line.2" {
		t.Fatalf("%s", show(e))
	}
	w.ok("f@1", string(quoted(600<<10)))
	d.say()
	if !d.reply.Partial || d.reply.New != nil || d.reply.Entries != 3 {
		t.Fatalf("%+v", d.reply)
	}
	w.wake() // it was lost
	if e := w.effect(EffectDrive); !e.Drive.Partial || e.Drive.Journal != nil || e.Drive.Entries != 3 {
		t.Fatalf("%s", show(e))
	}
	w.driven().complete(string(quoted(3000)))
}

func TestProgramLimits(t *testing.T) {
	w := newProgram(t, "")
	w.sparing = true
	d := w.driven()
	var many []drover.Entry
	for i := range maxSlots {
		many = append(many, asked(fmt.Sprintf("n%d", i), `{"sleep":"1h"}`, ""))
	}
	d.say(many...)
	d.refused(drover.CodeTooLarge, asked("one", `{"sleep":"1h"}`, ""))
	d.refused(drover.CodeTooLarge, drover.Entry{Kind: drover.EntryAttempt, ID: "s", Attempt: 1, Error: bad("x")})
	d.say(dropped("n7"), dropped("n999"))
	d.say(asked("one", `{"sleep":"1h"}`, ""))
	if err := w.s.Check(w.p); err != nil {
		t.Fatal(err)
	}
	if size := len(w.record); size > 64<<10 {
		t.Fatalf("the record has %d bytes", size)
	}
	for i := range maxSlots - 2 {
		d.say(dropped(fmt.Sprintf("n%d", i)))
	}
	if d.say(dropped("n998")); len(w.s.Program.Slots) > maxSlots {
		t.Fatal(len(w.s.Program.Slots))
	}
	w.s.Program.Entries = maxEntries + len(w.s.Program.Tail) - 1
	d.at, d.have = w.s.Program.Records, w.s.Program.Entries
	d.send(d.request(nil, stepped("last", `1`)))
	w.wantRefused(drover.CodeTooLarge, "begin anew")
	if step := d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: raw(`{}`)})); step.Refused != nil {
		t.Fatal(step.Refused)
	}
	w.wantDrive(DriveQueued)
}
