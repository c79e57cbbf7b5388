package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/subjects"
)

// A run waits for its version as long as that is served, by a process that has no
// room for it as well, and is taken up by another when nobody serves it any more.
func TestPrograms12ARunWaitsForAVersionThatIsBusy(t *testing.T) {
	p := newStage(t)
	inStep, leave := make(chan bool, 2), make(chan bool)
	program := func(version string) *flow.Def {
		return flow.Program("versioned", func(run *flow.Run, _ any) (string, error) {
			busy, err := flow.Wait[bool](run, "go", "go")
			if err != nil || !busy {
				return version, err
			}
			return flow.Step(run, "busy", func(ctx context.Context) (string, error) {
				inStep <- true
				select {
				case <-leave:
					return version, nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			})
		})
	}
	stop := p.serve(flow.Options{Version: "v1", Instance: "one", Concurrency: 1, KeepBodies: -1, DrainTimeout: time.Millisecond}, program("v1"))
	for _, run := range []drover.RunID{"r1", "busy"} {
		p.launch(run, "program: versioned\nversion_wait: 6s", "null")
		p.parks(run)
	}
	p.deliver("busy", "go", "true")
	next(t, inStep)
	looks, commits := p.looks("r1"), p.commits("r1")
	p.serve(flow.Options{Version: "v2", Instance: "two"}, program("v2"))
	p.deliver("r1", "go", "false")
	for range 1 + 3 { // the delivery, and looks: where nobody is there it does not wait for more
		next(t, commits)
	}
	if len(looks) > 0 {
		t.Error("the busy process was not found")
	}
	if r := p.status("r1"); r.Program.Version != "v1" || r.Program.State != "queued" {
		t.Fatalf("%+v", r.Program)
	}
	stop()
	close(leave)
	p.completes("r1", `"v2"`)
	if notes := p.status("r1").Notes; !slices.ContainsFunc(notes, func(n drover.Note) bool { return strings.Contains(n.Text, "nobody has served version v1") }) {
		t.Errorf("the notes are %+v", notes)
	}
}

// A run whose version nobody serves any more goes to another.
func TestPrograms12ARunLeavesAVersionThatNobodyServes(t *testing.T) {
	p := newStage(t)
	program := func(version string) *flow.Def {
		return flow.Program("versioned", func(run *flow.Run, _ any) (string, error) {
			_, err := flow.Wait[any](run, "go", "go")
			return version, err
		})
	}
	stop := p.serve(flow.Options{Version: "v1", KeepBodies: -1}, program("v1"))
	p.launch("r1", "program: versioned\nversion_wait: 6s", "null")
	p.parks("r1")
	stop()
	looks := p.looks("r1")
	p.serve(flow.Options{Version: "v2"}, program("v2"))
	p.deliver("r1", "go", "null")
	p.completes("r1", `"v2"`)
	for n := range 3 {
		if m := next(t, looks); m.Look != n+1 {
			t.Errorf("look %d found nobody, want %d", m.Look, n+1)
		}
	}
}

// A run whose version nobody serves, and that another does not fit, is none of that
// other: the one that fits goes on with it, once it is back.
func TestPrograms12AVersionThatDoesNotFitGivesTheRunBack(t *testing.T) {
	p := newStage(t)
	program := func(version, id string) *flow.Def {
		return flow.Program("versioned", func(run *flow.Run, _ any) (string, error) {
			_, err := flow.Wait[any](run, id, "go")
			return version, err
		})
	}
	stop := p.serve(flow.Options{Version: "v1", KeepBodies: -1}, program("v1", "old"))
	p.launch("r1", "program: versioned\nversion_wait: 6s", "null")
	p.parks("r1")
	stop()
	stop = p.serve(flow.Options{Version: "v2"}, program("v2", "new"))
	p.deliver("r1", "go", "null")
	if r := p.until("r1", func(r drover.Run) bool { return r.Status == drover.StatusBlocked }); r.Program.Version != "" {
		t.Errorf("the run that is blocked is one of version %s", r.Program.Version)
	}
	stop()
	p.serve(flow.Options{Version: "v1"}, program("v1", "old"))
	if err := p.Tick(t.Context(), "r1"); err != nil {
		t.Fatal(err)
	}
	p.completes("r1", `"v1"`)
}

// looks gives the looks that find nobody who drives a run.
func (p *stage) looks(run drover.RunID) <-chan drover.LookedMessage {
	p.t.Helper()
	return hears[drover.LookedMessage](p, subjects.Default().In(run, drover.VerbLooked))
}

// commits gives a hint at each commit of a run.
func (p *stage) commits(run drover.RunID) <-chan drover.Event {
	p.t.Helper()
	return hears[drover.Event](p, subjects.Default().Event(run))
}

func hears[T any](p *stage, subject string) <-chan T {
	p.t.Helper()
	got := make(chan T, 1000)
	nc := p.s.Connect()
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		var v T
		if json.Unmarshal(m.Data, &v) == nil {
			got <- v
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

func next[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}
