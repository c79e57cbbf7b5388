package flow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// log is what was done, in order. A step of a process that died may do something late,
// beside another process.
type log struct {
	mu   sync.Mutex
	list []string
}

func (l *log) did(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, what)
}

func (l *log) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = nil
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// do makes a step that can be undone.
func (l *log) do(run *flow.Run, id string, opts ...flow.StepOption) error {
	opts = append(opts, flow.Compensate(func(_ context.Context, done string) error {
		l.did("-" + done)
		if strings.HasPrefix(done, "stuck") {
			return errors.New("it is stuck")
		}
		return nil
	}))
	_, err := flow.Step(run, id, func(context.Context) (string, error) {
		l.did("+" + id)
		return id, nil
	}, opts...)
	return err
}

func (l *log) want(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(l.all(), " "); got != want {
		t.Errorf("it did %s, want %s", got, want)
	}
}

func TestPrograms08CompensationsNewestFirst(t *testing.T) {
	var did log
	def := flow.Program("undo", func(run *flow.Run, ids []string) (any, error) {
		for _, id := range ids {
			if err := did.do(run, id); err != nil {
				return nil, err
			}
		}
		return nil, errors.New("too bad")
	})
	for _, c := range []struct {
		ids    []string
		status drover.Status
		did    string
		says   string
	}{
		{nil, drover.StatusFailed, "", "too bad"},
		{[]string{"a", "b", "c"}, drover.StatusCompensated, "+a +b +c -c -b -a", "too bad"},
		{[]string{"a", "stuck", "c"}, drover.StatusCompensationFailed, "+a +stuck +c -c -stuck -a", "stuck: it is stuck"},
	} {
		r := flowtest.Check(t, def, c.ids, func(*flowtest.Env) { did.clear() })
		if r.Status != c.status || !strings.Contains(r.Error.Message, c.says) {
			t.Errorf("%s: %v", r.Status, r.Error)
		}
		did.want(t, c.did)
	}
}

func TestPrograms08AnUndoIsTriedAgain(t *testing.T) {
	tries := 0
	def := flow.Program("again", func(run *flow.Run, _ any) (any, error) {
		err := run.Compensate("u", func(context.Context) error {
			if tries++; tries < 3 {
				return errors.New("not yet")
			}
			return nil
		}, flow.Retry{})
		return nil, errors.Join(err, errors.New("bad"))
	})
	r := flowtest.Check(t, def, nil, func(*flowtest.Env) { tries = 0 })
	if r.Status != drover.StatusCompensated || tries != 3 || r.Elapsed != 3*time.Second {
		t.Fatalf("%s after %d tries and %s: %v", r.Status, tries, r.Elapsed, r.Error)
	}
}

func TestProgramsGroupRollsBackOnItsOwn(t *testing.T) {
	var did log
	def := flow.Program("group", func(run *flow.Run, fail bool) (any, error) {
		if err := did.do(run, "before"); err != nil {
			return nil, err
		}
		err := run.Group("g", func(run *flow.Run) error {
			return errors.Join(did.do(run, "in1"), did.do(run, "in2"), errors.New("bad group"))
		})
		if err == nil || did.do(run, "after") != nil {
			return nil, errors.New("the group did not fail")
		}
		err = run.Group("h", func(run *flow.Run) error { return did.do(run, "kept") })
		if fail {
			err = errors.New("at last")
		}
		return nil, err
	})
	r := flowtest.Check(t, def, false, func(*flowtest.Env) { did.clear() })
	if r.Status != drover.StatusCompleted {
		t.Fatal(r.Status, r.Error)
	}
	did.want(t, "+before +in1 +in2 -in2 -in1 +after +kept")
	r = flowtest.Check(t, def, true, func(*flowtest.Env) { did.clear() })
	if r.Status != drover.StatusCompensated {
		t.Fatal(r.Status, r.Error)
	}
	did.want(t, "+before +in1 +in2 -in2 -in1 +after +kept -kept -after -before")
}

func TestProgramsABranchOutlivesItsGroup(t *testing.T) {
	var did log
	def := flow.Program("outlives", func(run *flow.Run, _ any) (any, error) {
		var late *flow.Future[any]
		err := run.Group("g", func(run *flow.Run) error {
			if err := did.do(run, "in"); err != nil {
				return err
			}
			late = flow.Go(run, func(run *flow.Run) (any, error) {
				if err := run.Sleep("s", time.Hour); err != nil {
					return nil, err
				}
				return nil, did.do(run, "late")
			})
			return errors.Join(run.Sleep("moment", time.Minute), errors.New("bad group"))
		})
		if _, bad := late.Get(run); bad != nil {
			return nil, bad
		}
		return nil, err
	})
	r := flowtest.Check(t, def, nil, func(*flowtest.Env) { did.clear() })
	if r.Status != drover.StatusCompensated {
		t.Fatal(r.Status, r.Error)
	}
	did.want(t, "+in -in +late -late")
}

func TestPrograms07StopOfAParkedRun(t *testing.T) {
	var did log
	def := flow.Program("stopped", func(run *flow.Run, steps int) (any, error) {
		for i := range steps {
			if err := did.do(run, fmt.Sprint("s", i)); err != nil {
				return nil, err
			}
		}
		_, err := flow.Wait[any](run, "w", "never")
		if run.Context().Err() == nil {
			return nil, errors.New("the context goes on")
		}
		if e := run.Sleep("more", time.Second); !errors.Is(e, drover.CodeStopped) {
			return nil, fmt.Errorf("a sleep after the stop gave %w", e)
		}
		return nil, err
	})
	for steps, want := range map[int]drover.Status{0: drover.StatusCancelled, 2: drover.StatusCompensated} {
		r := flowtest.Check(t, def, steps, func(e *flowtest.Env) {
			did.clear()
			e.After(time.Hour, func() { e.Stop("enough") })
		})
		if r.Status != want || r.Error.Code != drover.CodeStopped || !strings.Contains(r.Error.Message, "enough") {
			t.Errorf("%s: %v", r.Status, r.Error)
		}
	}
	if slices.Contains(did.all(), "-s1") && !slices.Contains(did.all(), "-s0") {
		t.Error(did.all())
	}
}

func TestPrograms07StopDuringAPause(t *testing.T) {
	def := flow.Program("pausing", func(run *flow.Run, _ any) (any, error) {
		return flow.Step(run, "s", func(context.Context) (any, error) { return nil, errors.New("bad") }, flow.Retry{Initial: time.Hour, Max: time.Hour})
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) { e.After(time.Minute, func() { e.Stop("enough") }) })
	if r.Status != drover.StatusCancelled || r.Elapsed != time.Minute {
		t.Fatal(r.Status, r.Elapsed, r.Error)
	}
}
