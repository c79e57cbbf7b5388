package flow_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
)

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A process logs each drive whose body panicked, or did not fit the journal.
func TestPrograms15AProcessLogsWhatBreaks(t *testing.T) {
	f := newFleet(t)
	var logged lockedBuffer
	var drives atomic.Int32
	stop := f.serve(flow.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, flow.Program("breaks", func(run *flow.Run, _ any) (string, error) {
		id := "a"
		switch drives.Add(1) {
		case 1:
			panic("oh no")
		case 3:
			id = "b"
		}
		_, err := flow.Wait[any](run, id, "go")
		if err == nil {
			panic("and again")
		}
		return "", err
	}))
	f.begin("breaks", "r1", nil)
	f.parked("r1")
	f.deliver("r1", "go", `null`) // its body is in memory
	f.until("r1", "blocked")
	stop()
	got := logged.String()
	for _, want := range []string{
		`level=WARN msg="the body of a program panicked" run=r1 program=breaks drive=1 error="program breaks panicked: oh no" stack=`,
		`level=WARN msg="the body of a program panicked" run=r1 program=breaks drive=3 error="program breaks panicked: and again" stack=`,
		`level=WARN msg="the body of a program does not fit the journal of its run, which is blocked" run=r1 program=breaks drive=4 error=`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the log has no %s", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// A process logs each attempt of a step, or of what undoes one, that panicked: the
// run may end by it, and its author looks here first.
func TestPrograms15AProcessLogsStepsThatPanic(t *testing.T) {
	f := newFleet(t)
	var logged lockedBuffer
	stop := f.serve(flow.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, flow.Program("breaks", func(run *flow.Run, _ any) (string, error) {
		if err := run.Compensate("undo", func(context.Context) error { panic("not that either") }); err != nil {
			return "", err
		}
		return flow.Step(run, "boom", func(context.Context) (string, error) { panic("oh no") }, flow.Retry{Attempts: 2, Initial: time.Millisecond})
	}))
	f.begin("breaks", "r1", nil)
	f.until("r1", "over")
	stop()
	got := logged.String()
	for _, want := range []string{
		`level=WARN msg="a step of a program panicked" run=r1 program=breaks step=boom attempt=1 error="step \"boom\" panicked: oh no" stack=`,
		`level=WARN msg="a step of a program panicked" run=r1 program=breaks step=boom attempt=2 error="step \"boom\" panicked: oh no" stack=`,
		`level=WARN msg="a compensation of a program panicked" run=r1 program=breaks step=undo attempt=1 error="undo \"undo\" panicked: not that either" stack=`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the log has no %s", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// Also one that panicked when its time was up, and of which nothing is in the journal.
func TestPrograms15AStepThatPanicsLateIsHeard(t *testing.T) {
	natstest.Clock(t, func(t *testing.T) {
		def := flow.Program("p", func(run *flow.Run, _ any) (string, error) {
			return flow.Step(run, "late", func(context.Context) (string, error) {
				time.Sleep(time.Minute)
				panic("too late")
			}, flow.Timeout(time.Second))
		})
		o := &owner{}
		o.answer = o.keep
		heard := make(chan drover.Entry, 1)
		end, err := def.NewBody(o, flow.BodyOptions{Panicked: func(e drover.Entry) { heard <- e }}).Drive(t.Context(), request(1), 1)
		if err != nil || end.Error.Code != drover.CodeTimeout {
			t.Fatalf("%+v %v", end, err)
		}
		if e := <-heard; e.Kind != drover.EntryStep || e.ID != "late" || e.Attempt != 1 || e.Error.Stack == "" {
			t.Errorf("%+v", e)
		}
	})
}
