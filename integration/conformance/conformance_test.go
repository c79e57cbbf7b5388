package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

// conform runs all checks against a process.
func conform(t *testing.T, serve func() *exec.Cmd) {
	f := newFleet(t, serve)
	f.work()
	f.process(t, shared)
	for name, check := range map[string]func(*testing.T, *fleet){
		"steps are given in order":              checkSteps,
		"waits are early, late, empty and over": checkWaits,
		"parking with news goes on":             checkNews,
		"a step is tried again":                 checkRetries,
		"steps and waits at the same time":      checkAll,
		"the first of several waits":            checkRace,
		"a call, and a child":                   checkNodes,
		"failing undoes, newest first":          checkFailing,
		"a stop while it waits":                 checkStop,
		"a stop while a step runs":              checkStopInStep,
		"an undo that fails":                    checkBadUndo,
		"a panic":                               checkPanic,
		"a panic for ever undoes":               checkPanicUndoes,
		"beginning anew":                        checkAgain,
		"a drive that is taken over":            checkFenced,
		"heartbeats":                            checkHeartbeats,
		"a killed process":                      checkKilled,
		"a body that was changed":               checkChanged,
		"a big journal":                         checkBig,
		"a drive that was handed out before":    checkHandedOut,
		"unknown fields":                        checkUnknown,
		"answers that do not come":              checkRepeats,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, f)
		})
	}
}

// shared is the program of the process that most checks share.
const shared = "conformance"

func step(id string) op       { return op{Op: "step", ID: id} }
func tell(id string) op       { return op{Op: "step", ID: id, Tell: true} }
func undone(id string) op     { return op{Op: "step", ID: id, Compensate: true} }
func wait(id, name string) op { return op{Op: "wait", ID: id, Name: name} }

func checkSteps(t *testing.T, f *fleet) {
	r := f.start(t, shared, step("a"), op{Op: "sleep", ID: "rest", For: 20e6}, step("b"), tell("c"))
	r.step("a", `{"x":[1,"é"]}`)
	r.step("b", `null`)
	if c := r.step("c", `3`); fmt.Sprintf("%s", c.Seen) != `[{"x":[1,"é"]} null null]` {
		t.Errorf("the body has seen %s", c.Seen)
	}
	r.ends(drover.StatusCompleted, `{"results":[{"x":[1,"é"]},null,null,3]}`)
	recorded := map[string]bool{}
	for _, s := range r.of(r.id) {
		for _, e := range s.Records {
			recorded[e.ID] = true
		}
		if s.End != nil && s.End.Status == drover.DriveCompleted && s.At+len(s.Records) != 4 {
			t.Errorf("the end comes at %d, with %d records", s.At, len(s.Records))
		}
	}
	if len(recorded) != 4 {
		t.Errorf("the records are of %v", recorded)
	}
}

func checkWaits(t *testing.T, f *fleet) {
	timeout := op{Op: "wait", ID: "w3", Name: "never", Timeout: 50e6, Catch: true}
	r := f.start(t, shared, step("a"), wait("w1", "early"), wait("w2", "late"), timeout, wait("w4", "empty"), wait("w5", "early"))
	a := r.asks(drover.EntryStep, "a")
	r.deliver("early", `1`)
	r.deliver("early", `5`)
	a.gives(t, `0`)
	r.parks()
	r.deliver("late", `{"two":2}`)
	r.deliver("empty", `null`)
	r.ends(drover.StatusCompleted, `{"results":[0,1,{"two":2},{"error":"timeout"},null,5]}`)
}

// checkNews: the answer to parking says that there is news.
func checkNews(t *testing.T, f *fleet) {
	var waits []op
	var results []string
	for i := range 20 {
		waits = append(waits, wait(fmt.Sprintf("w%d", i), "many"))
		results = append(results, fmt.Sprint(i))
	}
	r := f.start(t, shared, waits...)
	for i := range 20 {
		r.deliver("many", fmt.Sprint(i))
	}
	r.ends(drover.StatusCompleted, `{"results":[`+strings.Join(results, ",")+`]}`)
}

func checkRetries(t *testing.T, f *fleet) {
	twice, once := step("a"), step("b")
	twice.Retry = &retry{Attempts: 3, Initial: 10}
	once.Retry, once.Catch = twice.Retry, true
	r := f.start(t, shared, twice, once)
	r.asks(drover.EntryStep, "a").fails(t, drover.Errorf("busy", "the till is busy"))
	r.asks(drover.EntryStep, "a").fails(t, drover.Errorf("busy", "the till is busy"))
	r.step("a", `"third"`)
	bad := drover.Errorf("broken", "the till is broken")
	bad.Permanent = true
	r.asks(drover.EntryStep, "b").fails(t, bad)
	r.ends(drover.StatusCompleted, `{"results":["third",{"error":"broken"}]}`)
	got := r.entries()
	if got["attempt a"] != 2 || got["ended a"] != 2 || got["step a"] != 1 || got["attempt b"] != 0 || got["step b"] != 1 {
		t.Errorf("the journal has %v", got)
	}
}

func checkAll(t *testing.T, f *fleet) {
	r := f.start(t, shared, op{Op: "all", Of: []op{step("p"), wait("w", "w"), step("q")}}, wait("x", "x"), step("z"))
	first, second := await(t, r.questions(r.id), "a step"), await(t, r.questions(r.id), "a step beside it")
	if first.ID == "q" {
		first, second = second, first
	}
	second.gives(t, `"q"`)
	r.until(t, "q is recorded", func() bool { return r.entries()["step q"] == 1 })
	first.gives(t, `"p"`)
	r.deliver("w", `"w"`)
	r.until(t, "the wait x is asked for", func() bool { return r.entries()["node x"] == 1 })
	r.deliver("x", `"x"`)
	r.step("z", `"z"`)
	r.ends(drover.StatusCompleted, `{"results":[["p","w","q"],"x","z"]}`)
}

func checkRace(t *testing.T, f *fleet) {
	r := f.start(t, shared, op{Op: "race", Of: []op{wait("m", "m"), wait("n", "n")}}, wait("later", "m"))
	r.parks()
	r.deliver("n", `"n"`)
	r.until(t, "m is cancelled", func() bool { return r.entries()["cancel m"] == 1 })
	r.deliver("m", `"m"`)
	r.ends(drover.StatusCompleted, `{"results":[{"first":1,"result":"n"},"m"]}`)
}

func checkNodes(t *testing.T, f *fleet) {
	stop := f.functions(t, function.Raw("double", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(string(in[:len(in)-1]) + string(in[1:])), nil // of a text
	}))
	defer stop()
	r := f.next(t)
	child := op{Op: "run", ID: "child", Definition: &drover.Definition{Program: shared}, Input: r.script(step("inner"))}
	r.begins(shared, op{Op: "call", ID: "call", Function: "double", Input: "ab"}, child)
	r.step("inner", `"in"`)
	r.ends(drover.StatusCompleted, `{"results":["abab",{"results":["in"]}]}`)
}

func checkFailing(t *testing.T, f *fleet) {
	r := f.start(t, shared, undone("a"), step("b"), undone("c"), op{Op: "fail", Error: drover.Errorf("too_few", "it is too few")})
	r.step("a", `1`)
	r.step("b", `2`)
	r.step("c", `3`)
	r.asks(drover.EntryUndo, "c").gives(t, `null`)
	r.asks(drover.EntryUndo, "a").gives(t, `null`)
	if err := r.ends(drover.StatusCompensated, ""); err == nil || err.Code != "too_few" {
		t.Errorf("the error is %v", err)
	}
	r = f.start(t, shared, op{Op: "fail", Error: drover.Errorf("too_few", "it is too few")})
	if err := r.ends(drover.StatusFailed, ""); err == nil || err.Code != "too_few" {
		t.Errorf("the error is %v", err)
	}
}

func (r *run) stop() {
	r.t.Helper()
	if _, err := r.Stop(r.t.Context(), r.id, "enough"); err != nil {
		r.t.Fatal(err)
	}
}

func checkStop(t *testing.T, f *fleet) {
	r := f.start(t, shared, undone("a"), undone("b"), wait("w", "w"), step("never"))
	r.step("a", `1`)
	r.step("b", `2`)
	r.parks()
	r.stop()
	r.asks(drover.EntryUndo, "b").gives(t, `null`)
	r.asks(drover.EntryUndo, "a").gives(t, `null`)
	r.ends(drover.StatusCompensated, "")
	r = f.start(t, shared, wait("w", "w"))
	r.parks()
	r.stop()
	r.ends(drover.StatusCancelled, "")
}

func checkStopInStep(t *testing.T, f *fleet) {
	r := f.start(t, shared, undone("a"), undone("b"), step("never"))
	r.step("a", `1`)
	b := r.asks(drover.EntryStep, "b")
	r.stop()
	b.gives(t, `2`) // whether it counts or not is the process's own: it may have heard of the stop
	undos := map[string]int{}
	for len(undos) == 0 || undos["a"] == 0 {
		q := await(t, r.questions(r.id), "an undo")
		q.gives(t, `null`)
		if undos[q.ID]++; q.Kind != drover.EntryUndo || q.ID == "never" {
			t.Fatalf("it asked for %s %s", q.Kind, q.ID)
		}
	}
	r.ends(drover.StatusCompensated, "")
}

func checkBadUndo(t *testing.T, f *fleet) {
	r := f.start(t, shared, undone("a"), undone("b"), wait("w", "w"))
	r.step("a", `1`)
	r.step("b", `2`)
	r.parks()
	r.stop()
	r.asks(drover.EntryUndo, "b").fails(t, drover.Errorf("broken", "the till is broken"))
	r.asks(drover.EntryUndo, "a").gives(t, `null`)
	if err := r.ends(drover.StatusCompensationFailed, ""); err == nil || !strings.Contains(err.Message, "the till is broken") {
		t.Errorf("the error is %v", err)
	}
}

func checkPanic(t *testing.T, f *fleet) {
	r := f.start(t, `{"program":"`+shared+`","retry":{"max_attempts":2,"initial":"10ms"}}`, step("a"), op{Op: "panic", Message: "out of cheese"})
	r.step("a", `1`)
	err := r.ends(drover.StatusFailed, "")
	if err == nil || err.Code != drover.CodePanic || err.Stack == "" || !strings.Contains(err.Message, "out of cheese") {
		t.Errorf("the error is %v", err)
	}
	drives := map[int]bool{}
	for _, s := range r.of(r.id) {
		if s.End != nil && s.End.Status == drover.DrivePanicked {
			drives[s.Drive] = true
		}
	}
	if len(drives) != 1 || r.entries()["panic "] != 1 {
		t.Errorf("the drives %v panicked, and then it has %v", drives, r.entries())
	}
}

// checkPanicUndoes: a body that breaks in the last drive which it has undoes what it
// did, and a process that takes that over does.
func checkPanicUndoes(t *testing.T, f *fleet) {
	p := f.process(t, "broken")
	r := f.start(t, `{"program":"broken","retry":{"max_attempts":2,"initial":"10ms"}}`, undone("a"), step("b"), undone("c"), op{Op: "panic", Message: "out of cheese"})
	r.step("a", `1`)
	r.step("b", `2`)
	r.step("c", `3`)
	r.asks(drover.EntryUndo, "c")
	p.end(syscall.SIGKILL)
	f.process(t, "broken")
	r.asks(drover.EntryUndo, "c").gives(t, `null`)
	r.asks(drover.EntryUndo, "a").gives(t, `null`)
	err := r.ends(drover.StatusCompensated, "")
	if err == nil || err.Code != drover.CodePanic || err.Stack == "" || !strings.Contains(err.Message, "out of cheese") {
		t.Errorf("the error is %v", err)
	}
	if got := r.entries(); got["panic "] != 1 || got["step a"] != 1 || got["undo a"] != 1 {
		t.Errorf("the journal has %v", got)
	}
}

func checkAgain(t *testing.T, f *fleet) {
	r := f.next(t)
	r.begins(shared, step("a"), op{Op: "again", Input: r.script(step("a"), wait("w", "kept"))})
	r.step("a", `1`)
	r.deliver("kept", `"kept"`)
	r.step("a", `2`)
	r.ends(drover.StatusCompleted, `{"results":[2,"kept"]}`)
}

// checkKilled: what was recorded is not done again; what was not, is. The body
// goes the same way.
func checkKilled(t *testing.T, f *fleet) {
	p := f.process(t, "killed")
	chance := []op{{Op: "now"}, {Op: "random"}}
	r := f.start(t, "killed", append(append(append([]op{step("a")}, chance...), tell("b")), append(chance, step("c"))...)...)
	parked := f.start(t, "killed", step("a"), wait("w", "w"), step("b"))
	r.step("a", `1`)
	before := r.asks(drover.EntryStep, "b")
	parked.step("a", `1`)
	parked.parks()
	r.untilInfo(f.consumer(t, "killed"), "one drive is under way", func(i *jetstream.ConsumerInfo) bool { return i.NumAckPending == 1 })
	p.end(syscall.SIGKILL)
	f.process(t, "killed")
	parked.deliver("w", `2`)
	parked.step("b", `3`)
	parked.ends(drover.StatusCompleted, `{"results":[1,2,3]}`)
	after := r.step("b", `2`)
	if len(after.Seen) != 3 || fmt.Sprintf("%s", before.Seen) != fmt.Sprintf("%s", after.Seen) {
		t.Errorf("the body saw %s, and after the kill %s", before.Seen, after.Seen)
	}
	r.step("c", `3`)
	r.ends(drover.StatusCompleted, "")
}

// checkChanged: a body that does not fit its journal is blocked, and does nothing.
func checkChanged(t *testing.T, f *fleet) {
	p := f.process(t, "changed")
	r := f.start(t, "changed", op{Op: "changed", Before: []op{step("old")}, After: []op{step("new")}}, wait("w", "w"), step("z"))
	r.step("old", `1`)
	r.parks()
	r.acknowledged("changed")
	p.end(syscall.SIGTERM)
	p = f.process(t, "changed", "CONFORMANCE_CHANGED=1")
	r.deliver("w", `2`)
	r.until(t, "the run is blocked", func() bool {
		list := r.of(r.id)
		last := list[len(list)-1]
		return last.End != nil && last.End.Status == drover.DriveBlocked && last.over
	})
	list := r.of(r.id)
	end := list[len(list)-1].End
	if end.Error == nil || !strings.Contains(end.Error.Message, "old") || !strings.Contains(end.Error.Message, "new") {
		t.Errorf("the error does not name both sides: %v", end.Error)
	}
	r.acknowledged("changed")
	p.end(syscall.SIGTERM)
	f.process(t, "changed")
	if err := r.Tick(t.Context(), r.id); err != nil {
		t.Fatal(err)
	}
	r.step("z", `3`)
	r.ends(drover.StatusCompleted, `{"results":[[1],2,3]}`)
}

// checkBig: input and journal do not fit into the message of a drive.
func checkBig(t *testing.T, f *fleet) {
	const steps = 40
	p := f.process(t, "big")
	var script []op
	for i := range steps {
		script = append(script, step(fmt.Sprintf("a-step-with-a-long-name-so-that-the-input-is-big-%d", i)))
	}
	r := f.start(t, "big", append(script, wait("w", "w"), tell("z"))...)
	big := `"` + strings.Repeat("x", 20<<10) + `"`
	for _, o := range script {
		r.step(o.ID, big)
	}
	r.parks()
	r.acknowledged("big")
	p.end(syscall.SIGTERM)
	f.process(t, "big")
	r.deliver("w", `2`)
	z := r.step("z", `3`)
	if len(z.Seen) != steps+1 || string(z.Seen[steps-1]) != big {
		t.Errorf("the body saw %d results", len(z.Seen))
	}
	r.ends(drover.StatusCompleted, "")
}
