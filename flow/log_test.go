package flow_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/droverhq/drover/flow"
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
