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

func TestProgramsParallel(t *testing.T) {
	def := flow.Program("parallel", func(run *flow.Run, in struct {
		Limit int
		Fail  string
		All   bool
	},
	) (string, error) {
		out := make([]string, 5)
		var branches []func(*flow.Run) error
		for i := range out {
			branches = append(branches, func(run *flow.Run) error {
				err := run.Sleep(fmt.Sprint("sleep", i), time.Duration(5-i)*time.Hour)
				if err != nil {
					out[i] = string(drover.CodeOf(err, "?"))
					return err
				}
				out[i], err = flow.Step(run, fmt.Sprint("s", i), func(context.Context) (string, error) {
					if strings.Contains(in.Fail, fmt.Sprint(i)) {
						return "", fmt.Errorf("branch %d is bad", i)
					}
					return fmt.Sprint(i), nil
				})
				return err
			})
		}
		err := flow.Parallel(run, flow.ParallelOptions{Limit: in.Limit, Settle: in.All}, branches...)
		return fmt.Sprint(strings.Join(out, ","), " ", err), nil
	})
	type in = map[string]any
	for _, c := range []struct {
		in      in
		want    string
		elapsed time.Duration
	}{
		{in{}, "0,1,2,3,4 <nil>", 5 * time.Hour},
		{in{"Limit": 1}, "0,1,2,3,4 <nil>", 15 * time.Hour},
		{in{"Limit": 2}, "0,1,2,3,4 <nil>", 8 * time.Hour},
		{in{"Fail": "3"}, "stopped,stopped,stopped,,4 branch 3 is bad", 2 * time.Hour},
		{in{"Fail": "31", "All": true}, "0,,2,,4 branch 1 is bad\nbranch 3 is bad", 5 * time.Hour},
		{in{"Fail": "0", "Limit": 1}, ",,,, branch 0 is bad", 5 * time.Hour},
	} {
		r := flowtest.Check(t, def, c.in, nil)
		if got := flowtest.Output[string](r); got != c.want || r.Elapsed != c.elapsed {
			t.Errorf("%v: %s after %s, want %s after %s", c.in, got, r.Elapsed, c.want, c.elapsed)
		}
	}
}

func TestProgramsSelectLosersKeep(t *testing.T) {
	def := flow.Program("select", func(run *flow.Run, _ any) ([]string, error) {
		var got []string
		for i := range 3 {
			a := flow.StartWait[string](run, fmt.Sprint("a", i), "a")
			b := flow.StartWait[string](run, fmt.Sprint("b", i), "b")
			s := flow.StartSleep(run, fmt.Sprint("t", i), time.Hour)
			first, err := flow.Select(run, a, b, s)
			if err != nil {
				return nil, err
			}
			switch first {
			case 0:
				x, _ := a.Get(run)
				got = append(got, "a:"+x)
			case 1:
				x, _ := b.Get(run)
				got = append(got, "b:"+x)
			case 2:
				got = append(got, "late")
			}
		}
		return got, nil
	})
	for _, eager := range []bool{false, true} {
		r := flowtest.Check(t, def, nil, func(e *flowtest.Env) {
			if eager {
				e.Eager()
			}
			e.After(time.Minute, func() { e.Deliver("b", "1"); e.Deliver("a", "1"); e.Deliver("b", "2") })
		})
		if got := fmt.Sprint(flowtest.Output[[]string](r)); got != "[b:1 a:1 b:2]" {
			t.Error(got)
		}
	}
	r := flowtest.Check(t, def, nil, nil)
	if got := fmt.Sprint(flowtest.Output[[]string](r), r.Elapsed); got != "[late late late] 3h0m0s" {
		t.Error(got)
	}
}

func TestProgramsGoIsCancelledWithTheBody(t *testing.T) {
	heard := 0
	def := flow.Program("go", func(run *flow.Run, _ any) (int, error) {
		f := flow.Go(run, func(run *flow.Run) (int, error) { return 7, run.Sleep("short", time.Second) })
		flow.Go(run, func(run *flow.Run) (any, error) {
			_, err := flow.Wait[any](run, "never", "never")
			if errors.Is(err, drover.CodeStopped) {
				heard++
			}
			return nil, err
		})
		return f.Get(run)
	})
	r := flowtest.Run(t, def, nil, func(*flowtest.Env) { heard = 0 })
	if flowtest.Output[int](r) != 7 || heard != 21 || r.Elapsed != time.Second {
		t.Fatal(heard, r.Elapsed)
	}
}

func TestProgramsHooks(t *testing.T) {
	def := flow.Program("hooks", func(run *flow.Run, _ any) ([]string, error) {
		hook := run.Hook("h", "order/7", flow.HookOptions{Tags: map[string]string{"a": "b"}, Metadata: 1})
		var got []string
		_, err := flow.Next[string](run, hook, "n0", flow.Timeout(time.Minute))
		if !errors.Is(err, drover.CodeTimeout) {
			return nil, fmt.Errorf("no timeout: %w", err)
		}
		for i := range 3 {
			x, err := flow.Next[string](run, hook, fmt.Sprint("next", i), flow.Timeout(time.Hour))
			if err != nil {
				return got, err
			}
			got = append(got, x)
		}
		if _, err := flow.Next[string](run, hook, "late", flow.Timeout(time.Minute)); !errors.Is(err, drover.CodeTimeout) {
			return nil, fmt.Errorf("no timeout: %w", err)
		}
		if err := run.Sleep("s", 2*time.Hour); err != nil {
			return nil, err
		}
		left, err := hook.Release(run, drover.UnreadTake)
		for _, raw := range left {
			got = append(got, "left "+string(raw))
		}
		return got, err
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) {
		for i, d := range []time.Duration{2 * time.Minute, 2 * time.Minute, 3 * time.Minute, time.Hour} {
			e.After(d, func() { e.DeliverHook("order/7", fmt.Sprint(i)) })
		}
	})
	if got := fmt.Sprint(flowtest.Output[[]string](r)); got != `[0 1 2 left "3"]` {
		t.Fatal(got)
	}
}

func TestProgramsApprove(t *testing.T) {
	def := flow.Program("approve", func(run *flow.Run, _ any) (bool, error) {
		d, err := flow.Approve(run, "ok", map[string]string{"question": "really?"}, flow.Timeout(24*time.Hour))
		return d.Approved, err
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) { e.After(time.Hour, func() { e.Decide("ok", true) }) })
	if !flowtest.Output[bool](r) {
		t.Fatal("it was approved")
	}
	if r = flowtest.Check(t, def, nil, nil); r.Error == nil || r.Error.Code != drover.CodeTimeout {
		t.Fatal(r.Status, r.Error)
	}
}
