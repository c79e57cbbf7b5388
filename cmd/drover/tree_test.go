package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run with -update and look at the difference\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) *time.Time {
	at := began.Add(d)
	return &at
}

// everyStatus is a run with a node in every status, a fan-out, a child, and
// all that may be said below.
func everyStatus() *drover.Run {
	failed := drover.Errorf(drover.CodeFailed, "the model\nis   overloaded")
	return &drover.Run{
		ID: "r_1", Workflow: "naming", Status: drover.StatusFailed, CreatedAt: began, EndedAt: after(75 * time.Second),
		Error:  &drover.Error{Code: drover.CodeNodesFailed, Message: "node guess failed: the model is overloaded", Problems: []drover.Problem{{Place: "nodes.guess", Message: "gave up"}}},
		Unread: 2,
		Nodes: []drover.Node{
			{ID: "prep", Kind: drover.KindSet, Status: drover.NodeDone, StartedAt: after(0), EndedAt: after(0)},
			{ID: "plan", Kind: drover.KindCall, Status: drover.NodeDone, StartedAt: after(0), EndedAt: after(1200 * time.Millisecond), Attempts: []drover.Attempt{{Attempt: 1}}},
			{ID: "draft", Kind: drover.KindAgent, Status: drover.NodeRunning, StartedAt: after(2 * time.Second), Items: &drover.Items{Total: 30, Counts: map[drover.NodeStatus]int{
				drover.NodeDone: 12, drover.NodeRunning: 4, drover.NodeFailed: 1, drover.NodePending: 13,
			}}},
			{ID: "guess", Kind: drover.KindHTTP, Status: drover.NodeFailed, StartedAt: after(2 * time.Second), EndedAt: after(62 * time.Second), Error: failed, Attempts: []drover.Attempt{{Attempt: 1, Error: failed}, {Attempt: 2, Error: failed}}},
			{ID: "again", Kind: drover.KindRequest, Status: drover.NodeRunning, StartedAt: after(2 * time.Second), Attempts: []drover.Attempt{{Attempt: 1, Error: failed}}},
			{ID: "sub", Kind: drover.KindRun, Status: drover.NodeWaiting, StartedAt: after(3 * time.Second), Child: "c_abc"},
			{ID: "rest", Kind: drover.KindSleep, Status: drover.NodeCancelled, StartedAt: after(3 * time.Second), EndedAt: after(75 * time.Second)},
			{ID: "odd-one-out", Kind: drover.KindCall, Status: drover.NodeSkipped},
			{ID: "größe", Kind: drover.KindWait, Status: drover.NodePending},
		},
		Deliveries: []drover.Delivery{
			{Notify: drover.Notify{Subject: "orders.done"}, Status: drover.DeliveryDelivered, Attempts: 1},
			{Notify: drover.Notify{Subject: "billing.done"}, Status: drover.DeliveryPending, Attempts: 3, LastError: drover.Errorf(drover.CodeUnavailable, "nobody serves subject billing.done"), NextAt: after(92 * time.Second)},
			{Notify: drover.Notify{StreamSubject: "log.done"}, Status: drover.DeliveryPending, NextAt: after(90 * time.Second)},
			{Notify: drover.Notify{URL: "https://shop.example/hook?key=secret"}, ID: "r_1:terminal:3", Status: drover.DeliveryDead, Attempts: 1, LastError: drover.Errorf(drover.CodeForbidden, "the status is 410 Gone"), EndedAt: after(79 * time.Second)},
			{Notify: drover.Notify{Function: "report"}, Status: drover.DeliveryDelivered, Attempts: 4},
			{Notify: drover.Notify{Subject: "me", Inline: true}, Status: drover.DeliveryHeld, NextAt: after(105 * time.Second)},
			{Notify: drover.Notify{Subject: "me", Inline: true}, Status: drover.DeliveryConsumed},
		},
	}
}

func TestTree(t *testing.T) {
	now := began.Add(80 * time.Second)
	golden(t, "tree.txt", painter{}.tree(everyStatus(), now))
	golden(t, "tree-color-48.txt", painter{color: true, width: 48}.tree(everyStatus(), now))
}

func TestTreeOfARunThatCompensates(t *testing.T) {
	parent := drover.CallID{Run: "p_1", Node: "sub", Item: drover.NoItem, Attempt: 1}
	done := func(id drover.NodeID, c *drover.Compensation) drover.Node {
		return drover.Node{ID: id, Kind: drover.KindCall, Status: drover.NodeDone, StartedAt: after(0), EndedAt: after(0), Compensation: c}
	}
	bank := drover.Errorf(drover.CodeFailed, "bank is closed")
	each := done("each", &drover.Compensation{Status: drover.CompensationRunning, Error: bank, Counts: map[drover.CompensationStatus]int{
		drover.CompensationDone: 2, drover.CompensationFailed: 1, drover.CompensationPending: 1,
	}})
	each.Items = &drover.Items{Total: 4, Counts: map[drover.NodeStatus]int{drover.NodeDone: 4}}
	golden(t, "tree-compensation.txt", painter{}.tree(&drover.Run{
		ID: "c_1", Status: drover.StatusRunning, CreatedAt: began, Parent: &parent,
		Nodes: []drover.Node{
			done("book", &drover.Compensation{Status: drover.CompensationPending}),
			each,
			done("pay", &drover.Compensation{Status: drover.CompensationRunning, Attempts: 2, Error: bank}),
			done("ship", &drover.Compensation{Status: drover.CompensationDone, Attempts: 1}),
			done("bill", &drover.Compensation{Status: drover.CompensationFailed, Attempts: 3, Error: bank}),
			{ID: "send", Kind: drover.KindCall, Status: drover.NodeFailed, StartedAt: after(0), EndedAt: after(0), Error: drover.Errorf(drover.CodeFailed, "no van")},
		},
		Deliveries: []drover.Delivery{{Notify: drover.Notify{Subject: "orders.done"}, Status: drover.DeliveryPending}},
	}, began.Add(time.Second)))
}

func TestLinesAreCutToTheWidth(t *testing.T) {
	for width := 1; width < 120; width++ {
		for line := range strings.Lines(painter{width: width}.tree(everyStatus(), began)) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Fatalf("a line of %d columns at width %d: %q", n, width, line)
			}
		}
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 0: "0ms", 999 * time.Millisecond: "999ms", time.Second: "1.0s", 59 * time.Second: "59.0s",
		time.Minute: "1m00s", 3599 * time.Second: "59m59s", time.Hour: "1h00m", 47 * time.Hour: "47h00m",
		49*time.Hour + time.Minute: "2d01h",
	} {
		if got := elapsed(d); got != want {
			t.Errorf("%v is spelled %q, want %q", d, got, want)
		}
	}
}

// story is a small run in the states that it goes through.
func story() []*drover.Run {
	node := func(status drover.NodeStatus) drover.Node {
		return drover.Node{ID: "plan", Kind: drover.KindCall, Status: status, StartedAt: after(0)}
	}
	fan := func(status drover.NodeStatus, done int) drover.Node {
		return drover.Node{ID: "draft", Kind: drover.KindCall, Status: status, StartedAt: after(time.Second), Items: &drover.Items{
			Total: 20, Counts: map[drover.NodeStatus]int{drover.NodeDone: done, drover.NodeRunning: min(4, 20-done)},
		}}
	}
	waiting := drover.Node{ID: "draft", Kind: drover.KindCall, Status: drover.NodePending}
	retried := node(drover.NodeRunning)
	retried.Attempts = []drover.Attempt{{Attempt: 1}, {Attempt: 2}}
	done := node(drover.NodeDone)
	done.EndedAt, done.Attempts = after(time.Second), retried.Attempts
	last := fan(drover.NodeFailed, 19)
	last.EndedAt, last.Error = after(3*time.Second), drover.Errorf(drover.CodeFailed, "item 7: no")
	var runs []*drover.Run
	for _, nodes := range [][]drover.Node{
		{node(drover.NodeRunning), waiting},
		{node(drover.NodeRunning), waiting}, // nothing new
		{retried, waiting},
		{done, fan(drover.NodeRunning, 0)},
		{done, fan(drover.NodeRunning, 1)}, // less than a tenth
		{done, fan(drover.NodeRunning, 2)},
		{done, fan(drover.NodeRunning, 19)},
		{done, last},
	} {
		runs = append(runs, &drover.Run{ID: "r_1", Status: drover.StatusRunning, CreatedAt: began, Nodes: nodes})
	}
	end := *runs[len(runs)-1]
	end.Status, end.EndedAt = drover.StatusFailed, after(3*time.Second)
	return append(runs, &end)
}

func TestProgressAsLines(t *testing.T) {
	var b strings.Builder
	l := newLines(&b, func() time.Time { return began.Add(2 * time.Second) })
	for _, run := range story() {
		l.show(run)
		l.tick()
	}
	l.close()
	golden(t, "progress-lines.txt", b.String())
}

// replay is a terminal that knows the sequences that screen writes.
func replay(t *testing.T, out string) string {
	t.Helper()
	var rows []string
	row, col := 0, 0
	for len(out) > 0 {
		var up int
		switch {
		case strings.HasPrefix(out, "\x1b[K"):
			if row < len(rows) {
				rows[row] = string([]rune(rows[row])[:min(col, len([]rune(rows[row])))])
			}
			out = out[3:]
		case strings.HasPrefix(out, "\x1b[J"):
			rows = rows[:min(row, len(rows))]
			out = out[3:]
		case strings.HasPrefix(out, "\x1b["):
			if _, err := fmt.Sscanf(out, "\x1b[%dA", &up); err != nil {
				t.Fatalf("unknown sequence in %q", out[:min(len(out), 20)])
			}
			if row -= up; row < 0 {
				t.Fatalf("the cursor went %d lines above the top", -row)
			}
			out = out[strings.IndexByte(out, 'A')+1:]
		case out[0] == '\r':
			col, out = 0, out[1:]
		case out[0] == '\n':
			row, col, out = row+1, 0, out[1:]
		default:
			r := []rune(out)[0]
			for row >= len(rows) {
				rows = append(rows, "")
			}
			line := []rune(rows[row])
			rows[row] = string(append(append(line[:min(col, len(line)):len(line)], r), line[min(col+1, len(line)):]...))
			col, out = col+1, out[len(string(r)):]
		}
	}
	return strings.Join(rows, "\n") + "\n"
}

func TestProgressOnATerminal(t *testing.T) {
	var b strings.Builder
	now := began
	s := &screen{out: &b, size: func() (int, int) { return 80, 24 }, now: func() time.Time { return now }}
	s.tick() // before there is anything
	for _, run := range story() {
		now = now.Add(300 * time.Millisecond)
		s.show(run)
		now = now.Add(100 * time.Millisecond)
		s.tick()
	}
	runs := story()
	want := painter{width: 80}.tree(runs[len(runs)-1], now)
	if got := replay(t, b.String()); got != want {
		t.Errorf("the terminal shows\n%s\nwant\n%s", got, want)
	}
	drawn := b.Len()
	s.tick()
	if b.Len() != drawn {
		t.Error("a run that is over was drawn again")
	}
	s.close()
}

func TestProgressFitsTheTerminal(t *testing.T) {
	run := &drover.Run{ID: "r_1", Status: drover.StatusRunning, CreatedAt: began}
	for i := range 100 {
		n := drover.Node{ID: drover.NodeID(fmt.Sprintf("n%02d", i)), Kind: drover.KindCall, Status: drover.NodePending}
		switch {
		case i < 40:
			n.Status, n.StartedAt, n.EndedAt = drover.NodeDone, after(0), after(time.Second)
		case i < 60:
			n.Status, n.StartedAt = drover.NodeRunning, after(0)
		}
		run.Nodes = append(run.Nodes, n)
	}
	for height := 4; height < 130; height++ {
		text := fit(painter{width: 80}, run, began, height)
		if got := strings.Count(text, "\n"); got > height {
			t.Fatalf("%d lines on %d", got, height)
		}
	}
	golden(t, "progress-fit.txt", fit(painter{width: 80}, run, began, 10))
}
