package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// count makes a step that counts how often it is done.
func count(n *int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		*n++
		return *n, nil
	}
}

func TestPrograms01StepsAreDoneOnce(t *testing.T) {
	done := make([]int, 5)
	def := flow.Program("five", func(run *flow.Run, n int) (string, error) {
		text := ""
		for i := range n {
			got, err := flow.Step(run, fmt.Sprintf("s%d", i), count(&done[i]))
			if err != nil {
				return "", err
			}
			text += fmt.Sprint(got)
		}
		return text, nil
	})
	r := flowtest.Run(t, def, 5, nil)
	if got := flowtest.Output[string](r); got != "11111" || r.Drives != 1 {
		t.Fatalf("result %s in %d drives", got, r.Drives)
	}
	clear(done)
	flowtest.Check(t, def, 5, func(*flowtest.Env) { clear(done) })
	for i, n := range done {
		if n != 1 { // a crash after a record repeats nothing
			t.Errorf("step %d was done %d times", i, n)
		}
	}
}

func TestPrograms01AnIDIsUsedOnce(t *testing.T) {
	def := flow.Program("twice", func(run *flow.Run, how string) (string, error) {
		n := 0
		if err := run.Sleep("a", time.Second); err != nil {
			return "", err
		}
		if how == "same" {
			return "", run.Sleep("a", time.Second)
		}
		_, err := flow.Step(run, "a", count(&n))
		return "", err
	})
	for how, says := range map[string]string{
		"same": "each time for a node (sleep): in a loop, make it of the number of the round",
		"":     "for a node (sleep) and then for a step",
	} {
		r := flowtest.Run(t, def, how, nil)
		if r.Status != drover.StatusFailed || r.Error.Code != drover.CodeConflict || !strings.Contains(r.Error.Message, `id "a" is used twice in a run of program twice, `+says) {
			t.Errorf("%s %s: %v", how, r.Status, r.Error)
		}
	}
}

func TestPrograms04DeadlinesAndTimeouts(t *testing.T) {
	def := flow.Program("waits", func(run *flow.Run, _ any) (string, error) {
		start := run.Now()
		_, err := flow.Wait[string](run, "never", "never", flow.Timeout(time.Hour))
		if !errors.Is(err, drover.CodeTimeout) {
			return "", fmt.Errorf("never: %w", err)
		}
		empty, err := flow.Wait[*string](run, "empty", "empty", flow.Timeout(time.Hour))
		if err != nil || empty != nil {
			return "", fmt.Errorf("empty: %v %w", empty, err)
		}
		if err := run.Sleep("nap", 24*time.Hour); err != nil {
			return "", err
		}
		if err := run.SleepUntil("day", start.Add(100*time.Hour)); err != nil {
			return "", err
		}
		return run.Now().Sub(start).String(), nil
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) {
		e.After(90*time.Minute, func() { e.Deliver("empty", nil) })
	})
	if got := flowtest.Output[string](r); got != "100h0m0s" || r.Elapsed != 100*time.Hour {
		t.Fatalf("%s, elapsed %s", got, r.Elapsed)
	}
}

func TestPrograms05DeliveriesBeforeTheirWait(t *testing.T) {
	def := flow.Program("early", func(run *flow.Run, _ any) ([]int, error) {
		if err := run.Sleep("late", time.Hour); err != nil {
			return nil, err
		}
		var got []int
		for i := range 3 {
			n, err := flow.Wait[int](run, fmt.Sprintf("w%d", i), "n")
			if err != nil {
				return nil, err
			}
			got = append(got, n)
		}
		return got, nil
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) {
		e.Deliver("n", 1)
		e.After(time.Minute, func() { e.Deliver("n", 2) })
		e.After(2*time.Hour, func() { e.Deliver("n", 3) })
	})
	if got := flowtest.Output[[]int](r); fmt.Sprint(got) != "[1 2 3]" {
		t.Fatal(got)
	}
}

func TestPrograms06ChildrenAndCalls(t *testing.T) {
	def := flow.Program("parent", func(run *flow.Run, _ any) (string, error) {
		a := flow.StartInvoke[string](run, "a", flow.Workflow("ship"), "box")
		b := flow.StartInvoke[string](run, "b", flow.ProgramNamed("pack"), "bag")
		c := flow.StartCall[int](run, "c", "math.add", []int{1, 2})
		ref, err := flow.Invoke[map[string]string](run, "d", flow.Workflow("mail"), nil, flow.Detach())
		if err != nil {
			return "", err
		}
		x, err1 := a.Get(run)
		_, err2 := b.Get(run)
		z, err3 := c.Get(run)
		return fmt.Sprint(x, " ", errors.Is(err2, drover.CodeChild), " ", z, " ", ref["run_id"] != ""), errors.Join(err1, err3)
	})
	children := 0
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) {
		children = 0
		e.Child("ship", func(in raw) (any, error) { children++; return "shipped " + string(in), nil })
		e.Child("pack", func(raw) (any, error) { return nil, errors.New("no bag") })
		e.Child("mail", func(raw) (any, error) { return nil, nil })
		e.Function("math.add", func(raw) (any, error) { return 3, nil })
	})
	if got := flowtest.Output[string](r); got != `shipped "box" true 3 true` || children != 1 {
		t.Fatal(got, children)
	}
}

func TestPrograms09Retries(t *testing.T) {
	tries := 0
	script := func(*flowtest.Env) { tries = 0 }
	step := func(fail func(n int) error, opts ...flow.StepOption) *flow.Def {
		return flow.Program("retries", func(run *flow.Run, _ any) (int, error) {
			return flow.Step(run, "s", func(context.Context) (int, error) {
				tries++
				return tries, fail(tries)
			}, opts...)
		})
	}
	third := func(n int) error {
		if n < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	always := func(int) error { return errors.New("never") }
	for _, c := range []struct {
		name    string
		def     *flow.Def
		tries   int
		elapsed time.Duration
		status  drover.Status
	}{
		{"one attempt without a policy", step(third), 1, 0, drover.StatusFailed},
		{"three with one", step(third, flow.Retry{}), 3, 3 * time.Second, drover.StatusCompleted},
		{"all fail", step(always, flow.Retry{Attempts: 5, Initial: 10 * time.Second, Max: time.Minute}), 5, 130 * time.Second, drover.StatusFailed},
		{"fatal", step(func(int) error { return flow.Fatal(errors.New("no")) }, flow.Retry{}), 1, 0, drover.StatusFailed},
		{"retry after", step(func(n int) error { return flow.RetryAfter(third(n), time.Hour) }, flow.Retry{}), 3, 2 * time.Hour, drover.StatusCompleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := flowtest.Check(t, c.def, nil, script)
			if r.Status != c.status || r.Elapsed != c.elapsed || tries != c.tries {
				t.Fatalf("%s after %s and %d tries: %v", r.Status, r.Elapsed, tries, r.Error)
			}
		})
	}
}

func TestPrograms14OnlyAReturnCompletes(t *testing.T) {
	reached := 0
	def := flow.Program("swallow", func(run *flow.Run, _ any) (out string, err error) {
		defer func() {
			_ = recover() // of a body that is dropped as well
			reached++
			out = "swallowed"
		}()
		_, _ = flow.Wait[string](run, "w", "go")
		return "returned", nil
	})
	r := flowtest.Run(t, def, nil, func(e *flowtest.Env) {
		e.Forget()
		e.After(time.Hour, func() { e.Deliver("go", "x") })
	})
	if r.Drives != 2 || r.Elapsed != time.Hour || r.Status != drover.StatusCompleted {
		t.Fatalf("%s in %d drives after %s", r.Status, r.Drives, r.Elapsed)
	}
}
