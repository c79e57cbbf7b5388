package flow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// A process that is draining ends the runs of its version, and begins none.
func TestPrograms12ADrainingVersionEndsWhatItHas(t *testing.T) {
	f := newFleet(t)
	program := func(version string) *flow.Def {
		return flow.Program("versioned", func(run *flow.Run, _ any) (string, error) {
			_, err := flow.Wait[any](run, "w", "go")
			return version, err
		})
	}
	open := func(workflow drover.WorkflowName) int {
		list, err := f.List(t.Context(), drover.ListRequest{Workflow: workflow, Open: true})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Runs)
	}
	stop := f.serve(flow.Options{Version: "v1", Instance: "one"}, program("v1"))
	f.begin("versioned", "old", nil)
	f.parked("old")
	stop()
	f.serve(flow.Options{Version: "v1", Instance: "two", Draining: true}, program("v1"))
	const runs = 5
	for i := range runs {
		f.begin("versioned", drover.RunID(fmt.Sprint("new", i)), nil)
	}
	if n, all := open("program:versioned@v1"), open("program:versioned"); n != 1 || all != runs+1 {
		t.Errorf("%d of %d open runs are of v1", n, all)
	}
	f.deliver("old", "go", `null`)
	f.want("old", drover.StatusCompleted, `"v1"`)
	if n := open("program:versioned@v1"); n != 0 {
		t.Errorf("%d open runs are of v1", n)
	}
	f.serve(flow.Options{Version: "v2", Instance: "three"}, program("v2"))
	for i := range runs {
		run := drover.RunID(fmt.Sprint("new", i))
		f.deliver(run, "go", `null`)
		f.want(run, drover.StatusCompleted, `"v2"`)
	}
	if _, err := flow.NewServer(f.nc, flow.Options{Draining: true}, program("v1")); !errors.Is(err, drover.CodeInvalidRequest) {
		t.Errorf("what is of no version is drained: %v", err)
	}
}

// A mark has an id of its own kind, and says the same as often as it is asked.
func TestPrograms12MarksAndStepsMayHaveOneID(t *testing.T) {
	changed := false
	def := flow.Program("marked", func(run *flow.Run, _ any) (string, error) {
		n := 0
		did := ""
		if changed && run.Patched("late") {
			did = "late "
		}
		if _, err := flow.Step(run, "x", count(&n)); err != nil {
			return "", err
		}
		for round := range 3 {
			if run.Patched("x") {
				did += "new "
			}
			if err := run.Sleep(fmt.Sprint("s", round), time.Hour); err != nil {
				return "", err
			}
			changed = true
		}
		if run.Patched("y") {
			did += "y"
		}
		_, err := flow.Step(run, "y", count(&n))
		return did, err
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) {
		changed = false
		e.Forget()
	})
	if got := flowtest.Output[string](r); got != "new new new y" {
		t.Errorf("it did %s", got)
	}
	bad := flow.Program("bad", func(run *flow.Run, _ any) (bool, error) { return run.Patched("a b"), nil })
	if r := flowtest.Run(t, bad, nil, nil); r.Status != drover.StatusFailed || !strings.Contains(r.Error.Message, `id "a b" in program bad must be 1 to 100 bytes`) {
		t.Errorf("%s: %v", r.Status, r.Error)
	}
}
