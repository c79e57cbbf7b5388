package machine

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func (w *world) wantReasons(want ...string) {
	w.t.Helper()
	var text string
	for _, line := range want {
		text += line + "\n"
	}
	if got := showWhy(Why(w.p, w.s)); got != text {
		w.t.Fatalf("why:\n%swant\n%s", got, text)
	}
}

// What is shown of a program, and what it says that it waits for, in each of its
// states.
func TestViewOfAProgram(t *testing.T) {
	w := newProgram(t, `,"retry":{"max_attempts":1000,"initial":"8s","max":"8s"}`)
	w.wantReasons("drive: drive 1 waits for a process that serves program order")
	d := w.driven()
	d.version, d.keep = "v2", "_INBOX.kept"
	d.say(stepped("a", `1`))
	w.wantReasons("drive: drive 1 is under way at proc-1, which is looked for if it says nothing by 2030-01-01T00:00:12Z")
	d.park(asked("s", `{"sleep":"1m"}`, ""), asked("f", `{"call":"f","timeout":"5m"}`, ""))
	w.wantReasons("timer: node s sleeps until 2030-01-01T00:01:00Z", "call: node f waits for attempt 1 by function f; it times out at 2030-01-01T00:05:00Z")
	v := w.view()
	p := v.Program
	if p.Name != "order" || p.Version != "v2" || p.Drive != 1 || p.State != "parked" || p.Records != 3 || p.Entries != 3 || p.Instance != "proc-1" || p.Stop != nil || p.Since == nil {
		t.Fatalf("%+v", p)
	}
	if v.Status != drover.StatusRunning || len(v.Nodes) != 2 || v.Nodes[0].ID != "s" || v.Nodes[0].Kind != drover.KindSleep || v.Nodes[1].Attempts[0].Attempt != 1 {
		t.Fatalf("%+v", v)
	}
	w.wake()
	w.wantReasons("drive: drive 2 waits for the process that has the body in memory, and is looked for at 2030-01-01T00:01:12Z",
		"call: node f waits for attempt 1 by function f; it times out at 2030-01-01T00:05:00Z")
	if n, ok := ViewNode(w.p, w.s, nil, "f", true); !ok || n.Status != drover.NodeRunning {
		t.Fatalf("%+v", n)
	}
	if _, ok := ViewNode(w.p, w.s, nil, "s", true); ok || len(w.view().Nodes) != 1 {
		t.Fatal("a node that is over is in the journal alone")
	}
	w.driven().end(drover.DriveBlocked)
	w.wantReasons("drive: the body does not fit the journal: mend it, then send a tick; why it ended blocked",
		"call: node f waits for attempt 1 by function f; it times out at 2030-01-01T00:05:00Z")
	if v := w.view(); v.Status != drover.StatusBlocked || v.Program.State != "blocked" {
		t.Fatalf("%+v", v)
	}
	w.tick()
	w.driven().end(drover.DrivePanicked)
	at := w.s.Program.Due.Time().Format(time.RFC3339Nano)
	w.wantReasons("drive: drive 3 failed: why it ended panicked; the next one comes at "+at,
		"call: node f waits for attempt 1 by function f; it times out at 2030-01-01T00:05:00Z")
	w.stop("enough")
	w.wantReasons("drive: drive 4 waits for a process that serves program order in version v2, or in any once nobody has served that for 1m0s; it was asked to stop: enough")
	if p := w.view().Program; p.State != "queued" || *p.Stop != "enough" {
		t.Fatalf("%+v", p)
	}
	w.driven().end(drover.DriveCancelled)
	if v := w.view(); v.Program.State != "over" || len(v.Nodes) != 0 || len(Why(w.p, w.s)) != 0 {
		t.Fatalf("%+v", v)
	}
}
