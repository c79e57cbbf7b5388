package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/subjects"
)

// waiter is a program that waits until somebody delivers, and gives that.
func waiter(name string) *flow.Def {
	return flow.Program(name, func(run *flow.Run, _ any) (any, error) { return flow.Wait[any](run, "go", "go") })
}

// status is what a run is like now.
func (p *stage) status(run drover.RunID) drover.Run {
	p.t.Helper()
	r, err := p.Status(p.t.Context(), drover.RunRequest{RunID: run})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.Run
}

// undone are the ids of what the body of a run has undone.
func (p *stage) undone(run drover.RunID) string {
	p.t.Helper()
	var ids []string
	for _, e := range p.history(run) {
		if e.Kind == drover.EntryUndo {
			ids = append(ids, e.ID)
		}
	}
	return strings.Join(ids, " ")
}

// Several children run at once; one that is detached never reports, however it ends.
func TestPrograms06DetachedChildrenNeverReport(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		told, err := p.s.Connect().SubscribeSync(subjects.Default().In("parent", drover.VerbChild))
		if err != nil {
			t.Fatal(err)
		}
		p.serve(opts, waiter("child"), flow.Program("parent", func(run *flow.Run, _ any) (string, error) {
			var started struct {
				Run drover.RunID `json:"run_id"`
			}
			raw, err := flow.Invoke[json.RawMessage](run, "aside", flow.ProgramNamed("child"), nil, flow.Detach())
			if err == nil {
				err = json.Unmarshal(raw, &started)
			}
			if err != nil {
				return "", err
			}
			a := flow.StartInvoke[string](run, "a", flow.ProgramNamed("child"), nil)
			b := flow.StartInvoke[string](run, "b", flow.ProgramNamed("child"), nil)
			x, err := b.Get(run)
			if err != nil {
				return "", err
			}
			y, err := a.Get(run)
			return x + y + " beside " + string(started.Run), err
		}))
		p.launch("parent", "program: parent", "null")
		child := func(id drover.NodeID) drover.RunID {
			return drover.ChildRunID(drover.CallID{Run: "parent", Node: id, Item: drover.NoItem, Attempt: 1})
		}
		aside := child("aside")
		for _, id := range []drover.NodeID{"aside", "a", "b"} { // all of them wait at the same time
			p.parksOnce(child(id))
		}
		p.deliver(aside, "go", `"nobody hears this"`)
		p.completes(aside, `"nobody hears this"`)
		p.deliver(child("a"), "go", `"1"`)
		p.deliver(child("b"), "go", `"2"`)
		p.completes("parent", fmt.Sprintf("%q", "21 beside "+string(aside)))
		for range 2 {
			m, err := told.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			var c drover.ChildMessage
			if err := json.Unmarshal(m.Data, &c); err != nil || c.Child == aside {
				t.Errorf("the parent was told of %s, error %v", c.Child, err)
			}
		}
		if n, _, err := told.Pending(); n != 0 || err != nil {
			t.Errorf("the parent was told %d times more, error %v", n, err)
		}
	})
}

// parksOnce waits until a run is there, and its body waits.
func (p *stage) parksOnce(run drover.RunID) {
	p.t.Helper()
	for {
		_, err := p.Status(p.t.Context(), drover.RunRequest{RunID: run})
		if err == nil {
			p.parks(run)
			return
		}
		if !errors.Is(err, drover.CodeNotFound) {
			p.t.Fatal(err)
		}
	}
}

// A stop reaches the children that are not abandoned, and only these.
func TestPrograms07StopReachesChildren(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		p.serve(opts, waiter("child"), flow.Program("parent", func(run *flow.Run, _ any) (any, error) {
			mine := flow.StartInvoke[any](run, "mine", flow.ProgramNamed("child"), nil)
			flow.StartInvoke[any](run, "other", flow.ProgramNamed("child"), nil, flow.Abandon())
			return mine.Get(run)
		}))
		p.launch("parent", "program: parent", "null")
		child := func(run drover.RunID, id drover.NodeID) drover.RunID {
			return drover.ChildRunID(drover.CallID{Run: run, Node: id, Item: drover.NoItem, Attempt: 1})
		}
		p.launch("drawn", `
nodes:
  mine: {run: {definition: {program: child}}}
  other: {run: {definition: {program: child}, abandon: true}}
output: {with: ["${{ nodes.mine.output }}", "${{ nodes.other.output }}"]}`, "null")
		for _, parent := range []drover.RunID{"parent", "drawn"} {
			mine, other := child(parent, "mine"), child(parent, "other")
			p.parksOnce(mine)
			p.parksOnce(other)
			if _, err := p.Stop(t.Context(), parent, "not wanted"); err != nil {
				t.Fatal(err)
			}
			for _, run := range []drover.RunID{parent, mine} {
				if o := p.ends(run); o.Status != drover.StatusCancelled {
					t.Errorf("run %s is %s, error %v", run, o.Status, o.Error)
				}
			}
			if r := p.status(other); r.Status != drover.StatusWaiting {
				t.Errorf("the abandoned child of %s is %s, error %v", parent, r.Status, r.Error)
			}
			p.deliver(other, "go", `"done"`)
			p.completes(other, `"done"`)
		}
	})
}

// A run that waits says how its stop went.
func TestPrograms07StopOfARunThatWaits(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		p.serve(opts, flow.Program("saga", func(run *flow.Run, kind string) (any, error) {
			for _, id := range []string{"one", "two", "three"} {
				undo := flow.Compensate(func(context.Context, int) error {
					if kind == "bad" && id == "two" {
						return errors.New("it is too late for that")
					}
					return nil
				})
				options := []flow.StepOption{undo}
				if kind == "none" {
					options = nil
				}
				if _, err := flow.Step(run, id, func(context.Context) (int, error) { return 1, nil }, options...); err != nil {
					return nil, err
				}
			}
			return flow.Wait[any](run, "go", "go")
		}))
		for kind, want := range map[string]struct {
			status drover.Status
			undone string
			says   string
		}{
			"none": {drover.StatusCancelled, "", "not wanted"},
			"good": {drover.StatusCompensated, "three two one", "not wanted"},
			"bad":  {drover.StatusCompensationFailed, "three two one", "two: it is too late for that"},
		} {
			run := drover.RunID(kind)
			p.launch(run, "program: saga", fmt.Sprintf("%q", kind))
			p.parks(run)
			if _, err := p.Stop(t.Context(), run, "not wanted"); err != nil {
				t.Fatal(err)
			}
			o := p.ends(run)
			if o.Status != want.status || o.Error == nil || !strings.Contains(o.Error.Message, want.says) || p.undone(run) != want.undone {
				t.Errorf("run %s is %s, error %v, and has undone %q", run, o.Status, o.Error, p.undone(run))
			}
		}
	})
}

// A stop ends a run whose body has changed so that it does not fit the journal.
func TestPrograms07StopOfARunThatIsBlocked(t *testing.T) {
	p := newStage(t)
	var changed atomic.Bool
	p.serve(flow.Options{KeepBodies: -1}, flow.Program("changes", func(run *flow.Run, _ any) (any, error) {
		id := "before"
		if changed.Load() {
			id = "after"
		}
		_, err := flow.Step(run, id, func(context.Context) (any, error) { return nil, nil })
		if err != nil {
			return nil, err
		}
		return flow.Wait[any](run, "go", "go")
	}))
	p.launch("r1", "program: changes", "null")
	p.parks("r1")
	changed.Store(true)
	p.deliver("r1", "go", "null")
	p.until("r1", func(r drover.Run) bool { return r.Status == drover.StatusBlocked })
	if _, err := p.Stop(t.Context(), "r1", "not wanted"); err != nil {
		t.Fatal(err)
	}
	o := p.ends("r1")
	if o.Status != drover.StatusCompensationFailed || !strings.Contains(o.Error.Message, `step "before"`) || !strings.Contains(o.Error.Message, "could not be undone") {
		t.Errorf("the run is %s, error %v", o.Status, o.Error)
	}
}

// until waits until a run is so.
func (p *stage) until(run drover.RunID, so func(drover.Run) bool) drover.Run {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for r, err := range p.Watch(ctx, run) {
		if err != nil {
			p.t.Fatal(err)
		}
		if so(r) {
			return r
		}
	}
	p.t.Fatalf("run %s does not come to be so", run)
	panic("unreachable")
}

// Time that a body waits is not time that it computes.
func TestPrograms10ComputingIsLimitedAndWaitingIsFree(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		stopped := make(chan error, 1)
		p.serve(opts, flow.Program("computes", func(run *flow.Run, long bool) (string, error) {
			for i := range 3 {
				if err := run.Sleep(fmt.Sprint("rest", i), time.Second); err != nil {
					return "", err
				}
			}
			return flow.Step(run, "compute", func(ctx context.Context) (string, error) {
				if long {
					<-ctx.Done()
					stopped <- context.Cause(ctx)
					return "", ctx.Err()
				}
				return "in time", nil
			}, flow.Retry{})
		}))
		p.launch("waits", "program: computes\ncompute_timeout: 2s", "false")
		p.launch("computes", "program: computes\ncompute_timeout: 2s", "true")
		p.completes("waits", `"in time"`)
		o := p.ends("computes")
		const says = "took longer than its compute_timeout of 2s"
		if o.Status != drover.StatusFailed || o.Error.Code != drover.CodeTimeout || !strings.Contains(o.Error.Message, says) {
			t.Errorf("a body that computes for too long is %s, error %v", o.Status, o.Error)
		}
		if err := <-stopped; !errors.Is(err, drover.CodeStopped) || !strings.Contains(err.Error(), says) {
			t.Errorf("its step was told %v", err)
		}
	})
}

// Time of the clock on the wall goes by for a body that waits, too, and it can
// undo what it did.
func TestPrograms10TheWallClockGoesOnForABodyThatWaits(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		p.serve(opts, flow.Program("waits", func(run *flow.Run, _ any) (any, error) {
			_, err := flow.Step(run, "one", func(context.Context) (any, error) { return nil, nil },
				flow.Compensate(func(context.Context, any) error { return nil }))
			if err != nil {
				return nil, err
			}
			return flow.Wait[any](run, "go", "go")
		}))
		p.launch("r1", "program: waits\ntimeout: 2s", "null")
		o := p.ends("r1")
		if o.Status != drover.StatusCompensated || !strings.Contains(o.Error.Message, "took longer than its timeout of 2s") || p.undone("r1") != "one" {
			t.Errorf("it is %s, error %v, and has undone %q", o.Status, o.Error, p.undone("r1"))
		}
	})
}

// A body that begins anew and does nothing is caught; one that does something each
// time may do so for ever.
func TestPrograms11LoopsAreCaughtAndLongLivesAreNot(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		var drives atomic.Int64
		p.serve(opts,
			flow.Program("loop", func(run *flow.Run, _ any) (any, error) {
				drives.Add(1)
				return nil, run.ContinueAsNew(nil)
			}),
			flow.Program("life", func(run *flow.Run, n int) (int, error) {
				for i := range 4 {
					if err := run.Sleep(fmt.Sprint("rest", i), time.Millisecond); err != nil {
						return 0, err
					}
				}
				if n == 0 {
					return 0, nil
				}
				return 0, run.ContinueAsNew(n - 1)
			}))
		p.launch("loop", "program: loop\nmax_drives: 5", "null")
		p.launch("life", "program: life\nmax_drives: 2", "6")
		o := p.ends("loop")
		if o.Status != drover.StatusFailed || o.Error.Code != drover.CodeTimeout ||
			!strings.Contains(o.Error.Message, "was driven 5 times without progress") || !strings.Contains(o.Error.Message, "its body begins anew and does nothing") {
			t.Errorf("a loop is %s, error %v", o.Status, o.Error)
		}
		if n := drives.Load(); n != 5 {
			t.Errorf("it was driven %d times", n)
		}
		p.completes("life", "0")
	})
}
