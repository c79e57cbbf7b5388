package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
)

func order() drover.Run {
	reason := "too late"
	return drover.Run{
		ID: "r_1", Status: drover.StatusRunning, CreatedAt: began,
		Program:  &drover.ProgramView{Name: "order", Version: "v2", Generation: 1, Drive: 4, State: "parked", Since: after(time.Minute), Records: 3, Entries: 5, Instance: "host-1", Stop: &reason},
		Metadata: map[string]json.RawMessage{"done": []byte(`{"of":3}`), "at": []byte(`"noon"`)},
		Nodes:    []drover.Node{{ID: "paid", Kind: drover.KindWait, Status: drover.NodeWaiting, StartedAt: after(time.Second)}},
		Notes:    []drover.Note{{At: *after(2 * time.Second), Text: "drive 3 failed: it\x1b panicked"}},
	}
}

func TestProgramsAreShown(t *testing.T) {
	run := order()
	got := painter{}.tree(&run, *after(90 * time.Second))
	want := `program order r_1  running  1m30s
  body parked for 30.0s, drive 4, journal of 5, begun anew 1×, version v2, at host-1
  asked to stop: too late
  at: "noon"
  done: {"of":3}
`
	if !strings.HasPrefix(got, want) || !strings.Contains(got, "paid") {
		t.Errorf("the tree is\n%s", got)
	}
	h := &history{
		Run: run,
		Journal: []drover.Entry{
			{Number: 3, Kind: drover.EntryStep, ID: "charge", Attempt: 2, Output: []byte(`{"paid":true}`), At: after(time.Second)},
			{Number: 4, Kind: drover.EntryAttempt, ID: "ship", Attempt: 1, Error: drover.Errorf(drover.CodeFailed, "no\nship"), Pause: drover.Duration(2 * time.Second), At: after(2 * time.Second)},
			{Number: 5, Kind: drover.EntryNode, ID: "paid", Step: []byte(`{"wait":{"name":"paid"}}`), At: after(3 * time.Second)},
			{Number: 6, Kind: drover.EntryEnded, ID: "paid", Output: []byte(`"` + strings.Repeat("x", 200) + `"`), At: after(4 * time.Second)},
			{Number: 7, Kind: drover.EntryStop, ID: "too late", At: after(5 * time.Second)},
		},
		Reasons: []drover.Reason{{Waiting: "drive", Text: "drive 4 waits for a process that serves program order"}},
	}
	_, got, _ = strings.Cut(painter{}.history(h, *after(90 * time.Second)), "too late\n")
	want = `  3  2026-03-01 12:00:01.000  step     charge, attempt 2  {"paid":true}
  4  2026-03-01 12:00:02.000  attempt  ship, attempt 1    failed: no?ship; next attempt in 2s
  5  2026-03-01 12:00:03.000  node     paid               {"wait":{"name":"paid"}}
  6  2026-03-01 12:00:04.000  ended    paid               "` + strings.Repeat("x", 96) + `...
  7  2026-03-01 12:00:05.000  stop                        too late
  noted 2026-03-01 12:00:02: drive 3 failed: it? panicked
  waits: drive 4 waits for a process that serves program order
`
	if got != want {
		t.Errorf("the history is\n%s\nwant\n%s", got, want)
	}
}

func TestHistoryAsksForAllThereIs(t *testing.T) {
	f := newFleet(t)
	f.answers("status", drover.StatusReply{Run: order()})
	f.answers("journal", drover.JournalReply{RunID: "r_1", Entries: 5, Journal: []drover.Entry{{Number: 5, Kind: drover.EntryStep, ID: "last"}}})
	f.answers("why", drover.WhyReply{RunID: "r_1", Status: drover.StatusRunning, Reasons: []drover.Reason{{Waiting: "drive", Text: "it waits"}}})
	status, out, err := f.cli("", "history", "r_1", "--from", "5", "--json")
	if status != 0 || !strings.HasPrefix(out, `{"run":{"run_id":"r_1"`) || !strings.Contains(out, `"journal":[{"n":5,"kind":"step","id":"last"}],"reasons":[{`) {
		t.Errorf("exit status %d\n%s\n%s", status, out, err)
	}
	if got := f.got("journal"); got != `{"run_id":"r_1","from":5}` {
		t.Errorf("asked %s", got)
	}
	if status, _, err := f.cli("", "history", "r_1", "--from", "0"); status != exitUsage || !strings.Contains(err, "--from 0") {
		t.Errorf("exit status %d, %s", status, err)
	}
}

func TestProgramsAreStartedAndStopped(t *testing.T) {
	blocked := drover.WhyReply{RunID: "r_1", Status: drover.StatusBlocked, Reasons: []drover.Reason{{Waiting: "drive", Text: "the body does not fit the journal"}}}
	for _, c := range []asking{
		{
			name: "start", args: []string{"start", "program:order", "--run", "r_1", "--input", "7"}, verb: "start", reply: drover.StartReply{RunID: "r_1", Created: true},
			asked: `{"run_id":"r_1","definition":{"program":"order"},"input":7}`, out: []string{"r_1\n"},
		},
		{
			name: "force", args: []string{"stop", "r_1", "--force", "--reason", "x"}, verb: "stop", reply: drover.StopReply{RunID: "r_1", Status: drover.StatusCancelled},
			asked: `{"run_id":"r_1","reason":"x","force":true}`, out: []string{"r_1 cancelled\n"},
		},
		{
			name: "why it is blocked", args: []string{"why", "r_1"}, verb: "why", reply: blocked, asked: `{"run_id":"r_1"}`,
			out: []string{"run r_1 is blocked\n  the body does not fit the journal\n    drover history r_1\n    drover tick r_1\n"},
		},
	} {
		t.Run(c.name, c.run)
	}
	for _, arg := range []string{"program:", "program:a.b", "program:" + strings.Repeat("a", 65)} {
		if status, _, err := cli(t, "", "start", arg); status != exitUsage || !strings.Contains(err, "program") {
			t.Errorf("%s: exit status %d, %s", arg, status, err)
		}
	}
}

func TestPrograms13StreamsArePrinted(t *testing.T) {
	f := newFleet(t)
	f.answers("status", drover.StatusReply{Run: drover.Run{ID: "r_1", Status: drover.StatusCompleted, Program: &drover.ProgramView{Name: "p"}}})
	js, err := jetstream.New(f.nc)
	if err == nil {
		_, err = topology.Ensure(t.Context(), js, subjects.Default(), topology.Settings{Partitions: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, data := range []string{"Hello, ", "world\n", `{"a":1}`, "\x00\xff", ""} {
		m := nats.NewMsg(subjects.Default().Stream("r_1", "answer"))
		m.Header.Set(subjects.HeaderChunk, strconv.Itoa(i+1))
		if i == 4 {
			m.Header.Set(subjects.HeaderEnd, "1")
		} else {
			m.Header.Set(subjects.HeaderType, []string{"text", "text", "json", "bytes"}[i])
		}
		m.Data = []byte(data)
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	status, out, stderr := f.cli("", "stream", "r_1", "answer")
	if status != 0 || out != "Hello, world\n{\"a\":1}\n\x00\xff" {
		t.Errorf("exit status %d, %q, %s", status, out, stderr)
	}
	status, out, stderr = f.cli("", "stream", "r_1", "answer", "--json")
	lines := strings.Split(out, "\n")
	if status != 0 || len(lines) != 5 {
		t.Fatalf("exit status %d, %q, %s", status, out, stderr)
	}
	for i, data := range []string{`"type":"text","data":"Hello, "`, `"type":"text","data":"world\n"`, `"type":"json","data":{"a":1}`, `"type":"bytes","data":"AP8="`} {
		if want := fmt.Sprintf(`{"chunk":%d,%s,"at":"`, i+1, data); !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %s, want %s", lines[i], want)
		}
	}
	if status, out, stderr := f.cli("", "stream", "r_1", "nosuch"); status != exitFailed || out != "" || !strings.Contains(stderr, "nothing was written to stream nosuch of run r_1") {
		t.Errorf("exit status %d, %q, %s", status, out, stderr)
	}
	if status, _, stderr := f.cli("", "stream", "r_1", "a.b"); status == 0 || !strings.Contains(stderr, "of a stream must be") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}

// The stack of what panicked is too long for a line, and found.
func TestHistoryOfAPanicSaysWhereItsStackIs(t *testing.T) {
	const says = "  what panicked: --json has the stack\n"
	for _, stack := range []string{"", "goroutine 1"} {
		h := &history{Journal: []drover.Entry{{Number: 1, Kind: drover.EntryStep, ID: "boom", Error: &drover.Error{Code: drover.CodePanic, Message: "oh no", Stack: stack}}}}
		if got := (painter{}).history(h, time.Time{}); strings.Contains(got, says) != (stack != "") {
			t.Errorf("with the stack %q the history is\n%s", stack, got)
		}
	}
}
