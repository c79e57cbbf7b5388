package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestWhyOfARunThatIsOver(t *testing.T) {
	lost := drover.Errorf(drover.CodeFailed, "no\nship")
	for want, r := range map[string]drover.WhyReply{
		"run r is completed\n  it waits for nothing: it is over, and nobody was to be told\n":                            {Status: drover.StatusCompleted},
		"run r is completed\n  it waits for nothing: it is over, and everyone was told\n":                                {Status: drover.StatusCompleted, Subscribers: 2},
		"run r is failed\n  failed: no?ship\n  it waits for nothing: it is over, and nobody was to be told\n":            {Status: drover.StatusFailed, Error: lost},
		"run r is failed\n  failed: no?ship\n  subject x was not told yet\n":                                             {Status: drover.StatusFailed, Error: lost, Subscribers: 1, Reasons: []drover.Reason{{Waiting: "subscriber", Text: "subject x was not told yet", Until: "x"}}},
		"run r is waiting\n  1 delivery to 'a b' that no wait has read\n  2 deliveries to piad that no wait has read\n":  {Status: drover.StatusWaiting, Unread: 3, UnreadOf: map[string]int{"piad": 2, "a b": 1}},
		"run r is waiting\n  1 delivery to piad that no wait has read\n  9 deliveries to others that no wait has read\n": {Status: drover.StatusWaiting, Unread: 10, UnreadOf: map[string]int{"piad": 1}},
	} {
		r.RunID = "r"
		if got := why(&r); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
}

// What is proposed for an approval is what its schema takes.
func TestHooks16WhyShowsTheQuestion(t *testing.T) {
	got := why(&drover.WhyReply{RunID: "r", Status: drover.StatusWaiting, Reasons: []drover.Reason{
		{Waiting: "hook", On: "h_1", Text: "node ok waits", Ask: json.RawMessage(`{"refund":"` + strings.Repeat("x", 400) + "\x1b" + `"}`)},
		{Waiting: "hook", On: "order:1", Text: "node in waits"},
	}})
	want := "run r is waiting\n  node ok waits\n    it asks: {\"refund\":\"" + strings.Repeat("x", 286) + "...\n    drover hook deliver h_1 true\n" +
		"  node in waits\n    drover hook deliver order:1 '{\"any\": \"JSON\"}'\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestPrograms05DeliverSaysThatNobodyReads(t *testing.T) {
	c := asking{
		args: []string{"deliver", "r_1", "piad", "--id", "1"}, verb: "deliver", reply: drover.DeliverReply{RunID: "r_1", Kept: true, Unread: 1},
		asked: `{"run_id":"r_1","name":"piad","id":"1"}`, out: []string{"delivered: no wait named piad is open now, and it is kept for the next one\n"},
	}
	c.run(t)
}

func TestTickTicksSeveralRuns(t *testing.T) {
	f := newFleet(t)
	f.answers("status", drover.StatusReply{Run: drover.Run{ID: "r_1", Status: drover.StatusBlocked}})
	f.answers("tick", struct{}{})
	status, out, err := f.cli("", "tick", "r_1", "r_2")
	if status != 0 || out != "r_1 ticked, it was blocked\nr_2 ticked, it was blocked\n" || f.got("tick") != `{"run_id":"r_2"}` {
		t.Errorf("exit status %d, %q, %q, asked %s", status, out, err, f.got("tick"))
	}
	f = newFleet(t)
	f.answers("status", drover.StatusReply{Run: drover.Run{ID: "r_1", Status: drover.StatusFailed}})
	status, out, err = f.cli("", "tick", "r_1")
	if status != 0 || out != "r_1 is over (failed): a tick changes nothing\n" || f.got("tick") != "" {
		t.Errorf("exit status %d, %q, %q, asked %q", status, out, err, f.got("tick"))
	}
	if status, _, err := f.cli("", "tick", "r_1", "a.b"); status != exitUsage || !strings.Contains(err, "a.b") {
		t.Errorf("exit status %d, %q", status, err)
	}
}

func TestProgramsAreListed(t *testing.T) {
	got := table(&drover.ListReply{Runs: []drover.Run{
		{ID: "r_1", Status: drover.StatusRunning, CreatedAt: began, Program: &drover.ProgramView{Name: "trip"}},
		{ID: "r_2", Status: drover.StatusRunning, CreatedAt: began, Workflow: "book", Program: &drover.ProgramView{Name: "trip"}},
		{ID: "r_3", Status: drover.StatusRunning, CreatedAt: began, Program: &drover.ProgramView{Name: "trip", Version: "v1"}},
	}}, *after(time.Minute))
	if !strings.Contains(got, "r_1  program:trip     running") || !strings.Contains(got, "r_2  book             running") || !strings.Contains(got, "r_3  program:trip@v1  running") {
		t.Errorf("the list is\n%s", got)
	}
}

func TestHistoryTellsHowARunEnded(t *testing.T) {
	run := order()
	run.Status, run.EndedAt, run.Error = drover.StatusCompensationFailed, after(9*time.Second), drover.Errorf(drover.CodeFailed, "no\nship")
	got := painter{}.history(&history{Run: run, Journal: []drover.Entry{
		{Number: 1, Kind: drover.EntryUndo, ID: "charge", Attempt: 1, Error: drover.Errorf(drover.CodeFailed, "no bank")},
	}}, began)
	if !strings.Contains(got, "undo  charge  failed: no bank\n") || !strings.HasSuffix(got, "\n  over 2026-03-01 12:00:09.000  compensation_failed  failed: no?ship\n") {
		t.Errorf("the history is\n%s", got)
	}
}

func TestPrograms13OnlyProgramsHaveStreams(t *testing.T) {
	f := newFleet(t)
	f.answers("status", drover.StatusReply{Run: drover.Run{ID: "r_1", Status: drover.StatusRunning}})
	if status, _, err := f.cli("", "stream", "r_1", "x"); status == 0 || !strings.Contains(err, "run r_1 is no program, and has no streams") {
		t.Errorf("exit status %d, %q", status, err)
	}
}

func TestStartHintsAtWhatIsNoFile(t *testing.T) {
	status, _, err := cli(t, "", "start", "trip")
	if status != exitUsage || !strings.Contains(err, "--workflow trip") || !strings.Contains(err, "program:trip") {
		t.Errorf("exit status %d, %q", status, err)
	}
	if _, _, err := cli(t, "", "start", "nowhere/trip.yaml"); strings.Contains(err, "--workflow") {
		t.Errorf("a path is no name: %q", err)
	}
}

// The flags of a command come first, and those of the connection last, each once.
func TestHelpGroupsTheFlagsOfAConnection(t *testing.T) {
	for range 2 { // it leaves nothing behind
		a := &app{streams: streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard}}
		root := a.root()
		for _, cmd := range root.Commands() {
			text := cmd.UsageString()
			own, connection, ok := strings.Cut(text, "\nConnection flags:\n")
			if want := cmd.Flags().Lookup("creds") != nil; ok != want {
				t.Errorf("%s: a group of connection flags: %t, want %t", cmd.Name(), ok, want)
			}
			if ok && (strings.Contains(own, "--creds string") || strings.Count(connection, "--") < len(connectionFlags) || strings.Contains(connection, "--help")) {
				t.Errorf("%s:\n%s", cmd.Name(), text)
			}
			if again := cmd.UsageString(); again != text {
				t.Errorf("%s: the second time\n%s", cmd.Name(), again)
			}
		}
	}
}
