package machine

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestLossesLeaveTheBudgetToTimeouts(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","heartbeat":"5s","timeout":"1m"}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	for _, call := range []string{"a@1", "a@2"} {
		w.beat(call)
		w.pass(5 * time.Second).tick()
	}
	w.pass(time.Minute).tick()
	w.wantEffects("cancel a@3", "call a@4") // the first timeout, in spite of two losses
	w.pass(time.Minute).tick()
	w.wantStatus(drover.StatusFailed)
}

// A tick that comes late does what was due in the order in which it was due.
func TestLateTicksKeepTheOrderOfTimes(t *testing.T) {
	for sleep, want := range map[string]drover.Status{"30s": drover.StatusCompleted, "2m": drover.StatusFailed} {
		w := newWorld(t, `{"timeout":"1m","nodes":{"a":{"sleep":"`+sleep+`"}},"output":{"from":"node:a"}}`)
		w.start(`1`)
		w.pass(3 * time.Minute).tick()
		w.wantStatus(want)
	}
}

func TestChildrenThatWereNotStartedAreNotStopped(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"run":{"workflow":"sub"}},"b":{"call":"f","input":{"with":"${{ input.x.y }}"}},
		"aside":{"run":{"workflow":"audit","detach":true}}},"output":{"with":["${{ nodes.a.output }}","${{ nodes.b.output }}"]}}`)
	w.start(`{"x":1}`)
	w.wantStatus(drover.StatusFailed)
	w.wantEffects("start aside@1", "done") // what is detached goes on
	w = newWorld(t, `{"nodes":{"a":{"run":{"workflow":"sub"}},"b":{"call":"f"}},"output":{"with":["${{ nodes.a.output }}","${{ nodes.b.output }}"]}}`)
	w.start(`1`)
	w.stop("")
	w.wantEffects("withdraw [f]", "stop a@1", "done")
}

func TestDeadlinesAreRoundedUp(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","timeout":"30s"}},"output":{"from":"node:a"}}`)
	w.now = epoch.Add(700 * time.Microsecond)
	w.start(`1`)
	w.now = epoch.Add(30*time.Second + 600*time.Microsecond)
	if w.tick(); w.last.Changed {
		t.Fatal("timed out 100 us early")
	}
	w.pass(400 * time.Microsecond).tick()
	w.wantEffects("cancel a@1", "call a@2")
}

func TestTheWaitThatWasThereFirstReads(t *testing.T) {
	w := newWorld(t, `{"nodes":{"z":{"wait":{"name":"x"}},"f":{"call":"f"},"a":{"wait":{"name":"x"},"depends_on":["f"]}},
		"output":{"with":["${{ nodes.z.output }}","${{ nodes.a.output }}"]}}`)
	w.start(`1`)
	w.pass(time.Second).ok("f@1", `1`)
	w.deliver("x", `"first"`, "")
	w.deliver("x", `"second"`, "")
	w.wantResult(`["first","second"]`)
}

// A withdrawal takes all calls of a function, so a function that compensates is
// told of each call that is not wanted instead.
func TestCompensationsAreNotWithdrawn(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","compensate":{"call":"g"}},"b":{"call":"g","depends_on":["a"]},"c":{"call":"h","depends_on":["a"]}},
		"output":{"with":["${{ nodes.b.output }}","${{ nodes.c.output }}"]}}`)
	w.start(`1`)
	w.ok("a@1", `2`)
	w.stop("")
	w.wantEffects("withdraw [h]", "cancel b@1", "call a/undo@1")
	w.ok("a/undo@1", `null`)
	w.wantStatus(drover.StatusCompensated)
	w.wantEffects("done")
}

func TestRetriedCompensationThatCannotGoOn(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","compensate":{"call":"u","retry":{"max_attempts":2,"initial":"1s"}}},"b":{"call":"g","depends_on":["a"]}},"output":{"from":"node:b"}}`)
	w.start(`1`)
	w.ok("a@1", `2`)
	w.fail("b@1", drover.Error{Message: "down"})
	w.pass(time.Hour).tick() // the compensation timed out
	w.wantEffects("cancel a/undo@1")
	w.pass(2 * time.Second).tick()
	w.wantEffects("call a/undo@2")
	w.fail("a/undo@2", drover.Error{Message: "really"})
	w.wantStatus(drover.StatusCompensationFailed)
	wantWords(t, w.s.Error.Message, "node b failed: down", "compensation of node a failed: really")
}
