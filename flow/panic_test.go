package flow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// What a body did that panics each time is undone, wherever it panics.
func TestPrograms15APanicForEverIsUndone(t *testing.T) {
	twice := func(run *flow.Run, did *log) error { return errors.Join(did.do(run, "a"), did.do(run, "b")) }
	for _, c := range []struct {
		name   string
		body   func(run *flow.Run, did *log) error
		status drover.Status
		did    string
	}{
		{"at once", func(*flow.Run, *log) error { panic("oh no") }, drover.StatusFailed, ""},
		{"at last", func(run *flow.Run, did *log) error {
			_ = twice(run, did)
			panic("oh no")
		}, drover.StatusCompensated, "+a +b -b -a"},
		{"what cannot be undone", func(run *flow.Run, did *log) error {
			_ = errors.Join(did.do(run, "a"), did.do(run, "stuck"))
			panic("oh no")
		}, drover.StatusCompensationFailed, "+a +stuck -stuck -a"},
		{"in a group", func(run *flow.Run, did *log) error {
			_ = did.do(run, "a")
			return run.Group("g", func(run *flow.Run) error {
				_ = did.do(run, "b")
				return run.Group("h", func(run *flow.Run) error {
					_ = did.do(run, "c")
					panic("oh no")
				})
			})
		}, drover.StatusCompensated, "+a +b +c -c -b -a"},
		{"in a branch", func(run *flow.Run, did *log) error {
			_ = did.do(run, "a")
			err := flow.Parallel(run, flow.ParallelOptions{}, func(run *flow.Run) error {
				_ = did.do(run, "b")
				panic("oh no")
			}, func(run *flow.Run) error { return run.Sleep("s", time.Hour) })
			if run.Context().Err() == nil {
				return nil // it goes on, as if nothing were
			}
			_ = did.do(run, "not any more")
			return err
		}, drover.StatusCompensated, "+a +b -b -a"},
		{"in a branch that nobody waits for", func(run *flow.Run, did *log) error {
			flow.Go(run, func(run *flow.Run) (any, error) {
				_ = run.Sleep("nap", time.Second)
				panic("oh no")
			})
			_ = did.do(run, "a")
			_, err := flow.Wait[any](run, "w", "never")
			return err
		}, drover.StatusCompensated, "+a -a"},
		{"and once more as it ends", func(run *flow.Run, did *log) error {
			_ = did.do(run, "a")
			f := flow.Go(run, func(*flow.Run) (any, error) { panic("oh no") })
			if _, err := f.Get(run); err != nil {
				panic("and again")
			}
			return nil
		}, drover.StatusCompensated, "+a -a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			did := &log{} // steps of processes that died may end later
			def := flow.Program("p", func(run *flow.Run, _ any) (any, error) { return nil, c.body(run, did) })
			r := flowtest.Run(t, def, nil, nil)
			if r.Status != c.status || r.Error.Code != drover.CodePanic || !strings.Contains(r.Error.Message, "program p panicked: oh no") || r.Error.Stack == "" {
				t.Errorf("%s: %v", r.Status, r.Error)
			}
			if r.Drives != 3 && c.name != "in a branch that nobody waits for" {
				t.Errorf("it was driven %d times", r.Drives)
			}
			did.want(t, c.did)
			flowtest.Check(t, def, nil, nil)
		})
	}
}

// Steps that run as a body panics for the last time are waited for, and undone.
func TestPrograms15AStepBesideAPanic(t *testing.T) {
	var did log
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		err := flow.Parallel(run, flow.ParallelOptions{}, func(run *flow.Run) error {
			if err := run.Sleep("s", time.Second); err != nil {
				return err
			}
			panic("oh no")
		}, func(run *flow.Run) error {
			for i := range 50 {
				if err := did.do(run, fmt.Sprint(i)); err != nil {
					return err
				}
				if err := run.Sleep(fmt.Sprint("pause-", i), 30*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		})
		return nil, err
	})
	r := flowtest.Run(t, def, nil, nil)
	if r.Status != drover.StatusCompensated {
		t.Fatalf("%s: %v", r.Status, r.Error)
	}
	list, done := did.all(), 0
	for _, what := range list {
		if strings.HasPrefix(what, "-") {
			done++
		}
	}
	for i := range done {
		if id := fmt.Sprint(i); !slices.Contains(list, "+"+id) || !slices.Contains(list, "-"+id) {
			t.Errorf("step %s was not done and undone: %s", id, list)
		}
	}
	if slices.Contains(list, "+"+fmt.Sprint(done)) {
		t.Errorf("more was done than undone: %s", list)
	}
}

// A body that panics before it has come to where the journal ends cannot undo what
// comes after that.
func TestPrograms15APanicInTheMiddleIsNotUndone(t *testing.T) {
	var did log
	broken := false
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		_ = did.do(run, "a")
		if broken {
			panic("oh no")
		}
		_ = did.do(run, "b")
		broken = true
		return nil, run.Sleep("s", time.Hour)
	})
	r := flowtest.Run(t, def, nil, func(e *flowtest.Env) {
		did.clear()
		broken = false
		e.Forget()
	})
	if r.Status != drover.StatusFailed || !strings.Contains(r.Error.Message, "stays done") {
		t.Fatalf("%s: %v", r.Status, r.Error)
	}
	did.want(t, "+a +b")
}

// A panic that the journal tells of counts also where it does not come again: the
// body goes on there, or comes to another end.
func TestPrograms15APanicInTheJournalCounts(t *testing.T) {
	for name, end := range map[string]func(run *flow.Run, did *log) error{
		"it goes on":     func(run *flow.Run, did *log) error { return did.do(run, "b") },
		"it completes":   func(*flow.Run, *log) error { return nil },
		"it fails":       func(*flow.Run, *log) error { return errors.New("otherwise") },
		"it begins anew": func(run *flow.Run, _ *log) error { return run.ContinueAsNew(1) },
	} {
		t.Run(name, func(t *testing.T) {
			did := &log{}
			def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
				_ = did.do(run, "a")
				return nil, end(run, did)
			})
			o := &owner{journal: drover.JournalReply{Records: 2, Entries: 2, Journal: []drover.Entry{
				{Number: 1, Kind: drover.EntryStep, ID: "a", Attempt: 1, Output: raw(`"a"`)},
				{Number: 2, Kind: drover.EntryPanic, Error: drover.Errorf(drover.CodePanic, "it broke")},
			}}}
			o.answer = o.keep
			req := request(4)
			req.Records, req.Entries, req.Journal = 2, 2, o.journal.Journal
			end, err := def.NewBody(o, flow.BodyOptions{}).Drive(t.Context(), req, 1)
			if err != nil || end.Status != drover.DriveCompensated || end.Error.Message != "it broke" {
				t.Fatalf("%+v %v", end, err)
			}
			did.want(t, "-a")
		})
	}
}

// What the last answer says counts: a record begins the counting anew.
func TestPrograms15TheLatestWordOnTheLastDriveCounts(t *testing.T) {
	steps := 0
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		_, _ = flow.Step(run, "a", count(&steps))
		panic("oh no")
	})
	for _, last := range []bool{false, true} {
		o := &owner{}
		o.answer = func(m *drover.RecordRequest) (*drover.RecordReply, error) {
			r, err := o.keep(m)
			r.Last = last
			return r, err
		}
		req := request(1)
		req.Last = !last
		end, err := def.NewBody(o, flow.BodyOptions{}).Drive(t.Context(), req, 1)
		want := drover.DrivePanicked
		if last {
			want = drover.DriveFailed
		}
		if err != nil || end.Status != want {
			t.Errorf("last %v: %+v %v", last, end, err)
		}
	}
}
