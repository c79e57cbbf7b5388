package flow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
	"github.com/droverhq/drover/internal/natstest"
)

func TestPrograms12AChangedBodyBlocks(t *testing.T) {
	v := 1
	def := flow.Program("changed", func(run *flow.Run, change string) (string, error) {
		old := v == 1 || change == ""
		v++
		n := 0
		if old || change != "missing" {
			id := "a"
			if !old && change == "renamed" {
				id = "b"
			}
			if _, err := flow.Step(run, id, count(&n)); err != nil {
				return "", err
			}
		}
		if !old && change == "early" {
			return "too early", nil
		}
		if !old && change == "kind" {
			_, err := flow.Wait[any](run, "s", "s")
			return "", err
		}
		if !old && change == "patched" {
			if run.Patched("p") {
				return "", errors.New("it came by here before")
			}
		}
		if err := run.Sleep("s", time.Hour); err != nil {
			return "", err
		}
		if !old && change == "patched" && run.Patched("q") {
			return "new", nil
		}
		return "old", nil
	})
	for change, says := range map[string][]string{
		"missing": {`entry 1 is step "a"`, `asks for node "s" (sleep)`},
		"renamed": {`entry 1 is step "a"`, `asks for step "b"`},
		"early":   {`entry 2 is node "s" (sleep)`, `has ended completed`},
		"kind":    {`entry 2 is node "s" (sleep)`, `node "s" (wait for s)`},
		"":        nil,
		"patched": nil,
	} {
		v = 1
		r := flowtest.Run(t, def, change, func(e *flowtest.Env) {
			e.Forget()
			e.Blocks()
		})
		if says == nil {
			if want := map[string]string{"": "old", "patched": "new"}[change]; flowtest.Output[string](r) != want {
				t.Errorf("%q: %s", change, r.Output)
			}
			continue
		}
		if r.Status != drover.StatusBlocked {
			t.Errorf("%s: %s %v", change, r.Status, r.Error)
			continue
		}
		for _, word := range says {
			if !strings.Contains(r.Note, word) {
				t.Errorf("%s: %q does not say %q", change, r.Note, word)
			}
		}
	}
}

func TestPrograms15Panics(t *testing.T) {
	tries := 0
	def := flow.Program("panics", func(run *flow.Run, how string) (string, error) {
		if tries++; tries < 3 {
			switch how {
			case "panic":
				panic("oh no")
			case "goexit":
				runtime.Goexit()
			case "branch":
				_, err := flow.Go(run, func(*flow.Run) (int, error) { panic("oh no") }).Get(run)
				return "", err
			}
		}
		return flow.Step(run, "s", func(context.Context) (string, error) { panic("in a step") })
	})
	for _, how := range []string{"panic", "goexit", "branch"} {
		r := flowtest.Run(t, def, how, func(*flowtest.Env) { tries = 0 })
		if r.Drives != 3 || r.Status != drover.StatusFailed || !strings.Contains(r.Error.Message, "in a step") || !strings.Contains(r.Error.Stack, "replay_test.go") {
			t.Errorf("%s: %s in %d drives: %v", how, r.Status, r.Drives, r.Error)
		}
	}
	always := flow.Program("always", func(*flow.Run, any) (any, error) { panic("always") })
	r := flowtest.Run(t, always, nil, nil)
	if r.Status != drover.StatusFailed || r.Error.Code != drover.CodePanic || !strings.Contains(r.Error.Stack, "replay_test.go") {
		t.Errorf("%s: %v", r.Status, r.Error)
	}
}

func TestProgramsContinueAsNew(t *testing.T) {
	seen := map[string]bool{}
	def := flow.Program("again", func(run *flow.Run, n int) (int, error) {
		id := run.UUID()
		if err := run.Sleep("s", time.Hour); err != nil {
			return 0, err
		}
		seen[id] = true
		if n > 0 {
			return 0, run.ContinueAsNew(n - 1)
		}
		return n, nil
	})
	r := flowtest.Check(t, def, 3, func(*flowtest.Env) { clear(seen) })
	if flowtest.Output[int](r) != 0 || r.Elapsed != 4*time.Hour {
		t.Fatal(r.Elapsed)
	}
	if len(seen) != 4 {
		t.Errorf("%d different random ids in 4 journals", len(seen))
	}
}

func TestProgramsChanceIsTheSame(t *testing.T) {
	all := map[string]int{}
	def := flow.Program("chance", func(run *flow.Run, _ any) (string, error) {
		a := fmt.Sprint(run.UUID(), run.Rand().IntN(1000), run.Now().UnixNano())
		err := run.Sleep("s", time.Hour)
		a += fmt.Sprint(run.UUID(), run.Rand().IntN(1000), run.Now().UnixNano())
		all[a]++
		return a, err
	})
	flowtest.Output[string](flowtest.Check(t, def, nil, nil))
	if len(all) != 1 {
		t.Error(all)
	}
}

func TestPrograms09AStepTimeoutIsAnAttempt(t *testing.T) {
	natstest.Clock(t, func(t *testing.T) {
		tries := 0
		def := flow.Program("slow", func(run *flow.Run, _ any) (string, error) {
			return flow.Step(run, "s", func(ctx context.Context) (string, error) {
				if tries++; tries < 3 {
					<-ctx.Done()
					return "", ctx.Err()
				}
				return "ok", nil
			}, flow.Timeout(time.Minute), flow.Retry{})
		})
		r := flowtest.Run(t, def, nil, nil)
		if flowtest.Output[string](r) != "ok" || tries != 3 || r.Journal[0].Error.Code != drover.CodeTimeout {
			t.Fatal(tries, r.Journal)
		}
	})
}

func TestPrograms16AThousandSteps(t *testing.T) {
	n := 0
	def := flow.Program("many", func(run *flow.Run, steps int) (int, error) {
		for i := range steps {
			if _, err := flow.Step(run, fmt.Sprint("s", i), count(&n)); err != nil {
				return 0, err
			}
		}
		err := run.Sleep("s", time.Hour)
		return n, err
	})
	r := flowtest.Run(t, def, 1000, func(e *flowtest.Env) { e.Forget() })
	if flowtest.Output[int](r) != 1000 || len(r.Journal) != 1002 || r.Drives != 2 {
		t.Fatal(string(r.Output), len(r.Journal), r.Drives)
	}
}

func TestProgramsAStepMayNotUseItsRun(t *testing.T) {
	def := flow.Program("wrong", func(run *flow.Run, _ any) (any, error) {
		return flow.Step(run, "s", func(context.Context) (any, error) { return nil, run.Sleep("x", time.Hour) })
	})
	r := flowtest.Run(t, def, nil, nil)
	if r.Status != drover.StatusFailed || !strings.Contains(r.Error.Message, "outside of its branch") {
		t.Fatal(r.Status, r.Error)
	}
}
