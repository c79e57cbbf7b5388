package flowtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return context.Background() }
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failure gives what a test of a program says.
func failure(t *testing.T, def *flow.Def, script flowtest.Script) string {
	t.Helper()
	return said(t, func(tb testing.TB) { flowtest.Check(tb, def, nil, script) })
}

// said gives what a test says that may fail.
func said(t *testing.T, test func(tb testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan bool)
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return strings.Join(r.said, "\n")
}

func TestProgramsThatAreNotTheSameEachTimeAreFound(t *testing.T) {
	nap := func(run *flow.Run, id string) error { return run.Sleep(id, time.Hour) }
	calls, panics, more := 0, 0, 0
	for _, c := range []struct {
		name string
		body func(run *flow.Run) error
		says string
	}{
		{"a good one", func(run *flow.Run) error { return nap(run, "a") }, ""},
		{"wall clock in an id", func(run *flow.Run) error { return nap(run, fmt.Sprint(time.Now().UnixNano())) }, "the body is not the same in every drive"},
		{"wall clock in an input", func(run *flow.Run) error {
			_, err := flow.Call[any](run, "c", "f", time.Now().UnixNano())
			return err
		}, "operation 1 is node \"c\""},
		{"order of a map", func(run *flow.Run) error {
			for key := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6} {
				if err := nap(run, key); err != nil {
					return err
				}
			}
			return nil
		}, "does not fit the journal"},
		{"what changes", func(run *flow.Run) error {
			if calls++; calls%2 == 0 {
				return nil
			}
			return nap(run, "a")
		}, "does not fit the journal"},
		{"a panic that is not there each time", func(run *flow.Run) error {
			if panics++; panics <= 3 {
				panic("three times")
			}
			return nil
		}, "it panicked in the run, and did not with its whole journal"},
		{"a panic that is not there each time, in time", func(run *flow.Run) error {
			if more++; more <= 3 {
				panic("three times")
			}
			return nap(run, "a")
		}, "it panicked in the run, and did not with its whole journal"},
		{"a panic that is", func(*flow.Run) error { panic("always") }, ""},
		{"a wait without end", func(run *flow.Run) error {
			_, err := flow.Wait[any](run, "w", "never")
			return err
		}, "the run waits for w"},
	} {
		t.Run(c.name, func(t *testing.T) {
			def := flow.Program("p", func(run *flow.Run, _ any) (any, error) { return nil, c.body(run) })
			got := failure(t, def, func(e *flowtest.Env) { e.Function("f", func(json.RawMessage) (any, error) { return nil, nil }) })
			if c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("it says %q, want %q", got, c.says)
			}
		})
	}
}

// A run that is blocked fails its test, unless that is what it shows.
func TestProgramsThatAreBlockedFailTheirTest(t *testing.T) {
	old := true
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		id := "a"
		if !old {
			id = "b"
		}
		old = false
		return nil, run.Sleep(id, time.Hour)
	})
	for _, blocks := range []bool{false, true} {
		got := failure(t, def, func(e *flowtest.Env) {
			old = true
			e.Forget()
			if blocks {
				e.Blocks()
			}
		})
		if refused := strings.Contains(got, "the run is blocked: the body does not fit the journal"); refused == blocks {
			t.Errorf("it may be blocked: %v; it says %q", blocks, got)
		}
	}
}

// A decision is that of the journal that the body is in, and an error names it.
func TestProgramsDecisionsAreNamed(t *testing.T) {
	def := flow.Program("p", func(run *flow.Run, again bool) (any, error) {
		_, err := flow.Approve(run, "ok", "sure?")
		if err == nil && !again {
			err = run.ContinueAsNew(true)
		}
		return nil, err
	})
	got := failure(t, def, func(e *flowtest.Env) {
		e.After(time.Second, func() { e.Decide("ok", true) })
		e.After(time.Minute, func() { e.Decide("ok", true) })
	})
	if got != "" {
		t.Error(got)
	}
	got = failure(t, def, func(e *flowtest.Env) { e.After(time.Second, func() { e.Decide("other", true) }) })
	if !strings.Contains(got, `the decision on "other" was refused, after 1s: the body asks for no such approval, but for "ok"`) {
		t.Error(got)
	}
}

// What a test is told of an approval has the id that the body gave, also once the body
// has begun anew and the id of its node is another.
func TestProgramsAnApprovalThatNobodyDecides(t *testing.T) {
	for limit, says := range map[time.Duration]string{
		0:         "the run waits for ok",
		time.Hour: "nobody answered the question of node ok~2 within 1h0m0s; have the script answer it",
	} {
		def := flow.Program("p", func(run *flow.Run, again bool) (any, error) {
			_, err := flow.Approve(run, "ok", "sure?", flow.Timeout(limit))
			if err == nil && !again {
				err = run.ContinueAsNew(true)
			}
			return nil, err
		})
		got := said(t, func(tb testing.TB) {
			flowtest.Output[any](flowtest.Run(tb, def, false, func(e *flowtest.Env) {
				e.After(time.Second, func() { e.Decide("ok", true) })
			}))
		})
		if !strings.Contains(got, says) || !strings.Contains(got, `e.Decide("ok", true)`) {
			t.Errorf("within %s: %s", limit, got)
		}
	}
	got := failure(t, flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		_, err := flow.Approve(run, "ok", "sure?", flow.Timeout(time.Hour))
		return nil, err
	}), func(e *flowtest.Env) { e.After(time.Second, func() { e.Decide("ok~1", true) }) })
	if !strings.Contains(got, `the decision on "ok~1" was refused, after 1s: the body asks for no such approval, but for "ok": give the id that the body gives, without ~n`) {
		t.Error(got)
	}
}
