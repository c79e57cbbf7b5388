package integration_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
)

// faulty is a program that does two steps and panics, in each drive. Its process dies
// as it undoes the first one (undo).
func faulty(name, dies string) *flow.Def {
	return flow.Program(name, func(run *flow.Run, _ any) (string, error) {
		id := string(run.Info().ID)
		for _, step := range []string{"one", "two"} {
			_, err := flow.Step(run, step, func(context.Context) (any, error) { return nil, noted(id, step) },
				flow.Compensate(func(context.Context, any) error {
					if dies == "undo" && step == "one" {
						die(true)
					}
					return noted(id, "undo-"+step)
				}))
			if err != nil {
				return "", err
			}
		}
		panic("out of cheese")
	})
}

// A body that panics in each drive is undone, once, also where its process dies over
// that: by whoever comes next.
func TestPrograms15APanicForEverIsUndone(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	done := filepath.Join(t.TempDir(), "done")
	f.publish("r1", drover.VerbStart, drover.StartRequest{Definition: text(`{"program":"faulty","retry":{"max_attempts":3,"initial":"10ms"}}`)})
	if status, _, _ := host(t, f.url, done, "first", "faulty", "undo", "faulty").wait(); status == 0 {
		t.Error("a process that should die ended well")
	}
	host(t, f.url, done, "second", "faulty", "", "faulty")
	o := f.outcome("r1")
	if o.Status != drover.StatusCompensated || o.Error.Code != drover.CodePanic || !strings.Contains(o.Error.Stack, "program_panic_test.go") ||
		o.Error.Message != "program faulty panicked: out of cheese" {
		t.Errorf("the run is %s, error %v\n%s", o.Status, o.Error, o.Error.Stack)
	}
	n := times(t, done)
	for _, step := range []string{"one", "two", "undo-one", "undo-two"} {
		if n["r1 "+step] != 1 {
			t.Errorf("%s was done %d times", step, n["r1 "+step])
		}
	}
	r, err := f.Status(t.Context(), drover.RunRequest{RunID: "r1"})
	if err != nil || r.Run.Program.Drive != 3 {
		t.Errorf("the program is %+v, error %v", r.Run.Program, err)
	}
	letters, err := f.ListDead(t.Context(), drover.DeadListRequest{})
	if err != nil || len(letters.Letters) > 0 {
		t.Errorf("the letters are %+v, error %v", letters, err)
	}
}
