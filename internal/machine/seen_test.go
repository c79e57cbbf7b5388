package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func (w *world) wantWhy(want ...string) {
	w.t.Helper()
	got := showWhy(Why(w.p, w.s))
	if text := strings.Join(want, "\n"); strings.TrimSpace(got) != text {
		w.t.Errorf("why says\n%s\nwant\n%s", got, text)
	}
}

func TestItemsThatWaitForTheSameAreOneReason(t *testing.T) {
	w := newWorld(t, `{"max_parallel":7,"nodes":{"a":{"call":"f","timeout":"1m","heartbeat":"10s","retry":{"max_attempts":3,"initial":"5s"},"fanout":{"over":"run_input"}}},"output":{"from":"node:a"}}`)
	w.start(`[0,1,2,3,4,5,6,7,8]`)
	w.wantWhy("call: 7 items of node a (0, 1, 2, 3, 4, ...) wait for function f; they have given no sign of life yet; the first times out at 2030-01-01T00:01:00Z",
		"slot: 2 of 9 items of node a wait until a call in flight ends")
	r := Why(w.p, w.s)[0]
	if r.Count != 7 || fmt.Sprint(r.Items) != "[0 1 2 3 4]" || r.Item != nil || r.On != "f" || r.Until == "" {
		t.Errorf("the reason is %+v", r)
	}
	w.pass(time.Second).beat("a#3@1")
	w.fail("a#1@1", drover.Error{Message: "one is bad"})
	w.wantWhy("call: 7 items of node a (0, 2, 3, 4, 5, ...) wait for function f; 1 of them gave a sign of life; the first times out at 2030-01-01T00:00:11Z",
		"retry: attempt 1 of item 1 of node a failed: one is bad; attempt 2 is due at 2030-01-01T00:00:05.938Z",
		"slot: 1 of 9 items of node a waits until a call in flight ends")
	w.fail("a#2@1", drover.Error{Message: "so is two"})
	w.wantWhy("call: 7 items of node a (0, 3, 4, 5, 6, ...) wait for function f; 1 of them gave a sign of life; the first times out at 2030-01-01T00:00:11Z",
		"retry: 2 items of node a (1, 2) failed and are tried again, the first at 2030-01-01T00:00:05.938Z; item 1 failed with: one is bad")
}

func TestWhyTellsTheErrorBetweenAttempts(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","retry":{"max_attempts":3,"initial":"1s"}}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.wantWhy("call: node a waits for attempt 1 by function f; it times out at 2030-01-01T00:30:00Z")
	w.fail("a@1", drover.Error{Message: "two is bad"})
	why := Why(w.p, w.s)
	w.wantWhy("retry: attempt 1 of node a failed: two is bad; attempt 2 is due at " + why[0].Until)
	w.pass(2 * time.Second).tick()
	w.wantWhy("call: node a waits for attempt 2 by function f; attempt 1 failed: two is bad; it times out at 2030-01-01T00:30:02Z")
}

// undone spells the compensations of a view.
func (w *world) undone() string {
	var b strings.Builder
	say := func(name string, c *drover.Compensation) {
		if c == nil {
			return
		}
		fmt.Fprintf(&b, "%s %s", name, c.Status)
		if c.Attempts > 0 {
			fmt.Fprintf(&b, " @%d", c.Attempts)
		}
		if len(c.Counts) > 0 {
			fmt.Fprintf(&b, " %v", c.Counts)
		}
		if c.Error != nil {
			fmt.Fprintf(&b, " (%s)", c.Error.Message)
		}
		b.WriteString("; ")
	}
	for _, n := range w.view().Nodes {
		say(string(n.ID), n.Compensation)
		if n.Items != nil {
			for _, item := range n.Items.List {
				say(fmt.Sprintf("%s#%d", n.ID, item.Index), item.Compensation)
			}
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestCompensationsAreSeen(t *testing.T) {
	w := newWorld(t, `{"nodes":{
		"book":{"call":"book","compensate":{"call":"unbook","input":{"with":"${{ input[5] + 1 }}"}}},
		"each":{"call":"pay","depends_on":["book"],"fanout":{"over":"run_input"},"compensate":{"call":"refund","retry":{"max_attempts":2,"initial":"5s"}}},
		"ship":{"call":"ship","input":{"from":"node:each"}},
		"last":{"set":{"with":1},"depends_on":["ship"]}
	},"output":{"from":"node:last"}}`)
	want := func(text string) {
		t.Helper()
		if got := w.undone(); got != text {
			t.Errorf("the compensations are\n%s\nwant\n%s", got, text)
		}
	}
	w.start(`["x","y","z"]`)
	w.ok("book@1", `{"id":7}`)
	for i := range 3 {
		w.pass(time.Second)
		w.ok(fmt.Sprintf("each#%d@1", i), `1`)
	}
	want("")
	w.fail("ship@1", drover.Error{Message: "no van", Permanent: true})
	want("book pending; each running map[pending:2 running:1]; each#0 pending; each#1 pending; each#2 running @1")
	w.ok("each#2/undo@1", `null`)
	w.fail("each#1/undo@1", drover.Error{Message: "bank is closed"})
	want("book pending; each running map[done:1 pending:1 running:1] (bank is closed); each#0 pending; each#1 running @1 (bank is closed); each#2 done @1")
	w.wantWhy("retry: attempt 1 of the compensation of item 1 of node each failed: bank is closed; attempt 2 is due at " + Why(w.p, w.s)[0].Until)
	w.pass(6 * time.Second).tick()
	w.fail("each#1/undo@2", drover.Error{Message: "bank is gone"})
	want("book pending; each running map[done:1 failed:1 running:1] (bank is gone); each#0 running @1; each#1 failed @2 (bank is gone); each#2 done @1")
	w.fail("each#0/undo@1", drover.Error{Message: "bank is closed"})
	w.pass(6 * time.Second).tick()
	w.ok("each#0/undo@2", `null`)
	w.wantStatus(drover.StatusCompensationFailed)
	got := w.undone()
	if !strings.HasPrefix(got, "book failed (") || !strings.HasSuffix(got, "each failed map[done:2 failed:1] (bank is gone); each#0 done @2; each#1 failed @2 (bank is gone); each#2 done @1") {
		t.Errorf("the compensations are\n%s", got)
	}
}

func TestManyFailedCompensationsAreSeen(t *testing.T) {
	const items = 60
	w := newWorld(t, `{"nodes":{
		"each":{"call":"pay","fanout":{"over":"run_input"},"compensate":{"call":"refund"}},
		"ship":{"call":"ship","input":{"from":"node:each"}}
	},"output":{"from":"node:ship"}}`)
	list := "0"
	for i := 1; i < items; i++ {
		list += fmt.Sprintf(",%d", i)
	}
	w.start("[" + list + "]")
	for i := range items {
		w.ok(fmt.Sprintf("each#%d@1", i), `1`)
	}
	w.fail("ship@1", drover.Error{Message: "no van"})
	for len(w.s.Active) > 0 {
		item := w.s.Active[0].Item
		if item%20 == 0 {
			w.ok(fmt.Sprintf("each#%d/undo@1", item), `null`)
		} else {
			w.fail(fmt.Sprintf("each#%d/undo@1", item), drover.Error{Message: "bank is gone"})
		}
	}
	w.wantStatus(drover.StatusCompensationFailed)
	if c := w.view().Nodes[0].Compensation; c.Counts[drover.CompensationFailed] != 57 || c.Counts[drover.CompensationDone] != 3 || w.s.Undo.Lost == 0 {
		t.Errorf("the compensations are %+v", c)
	}
}
