package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
)

// stage is a fleet that serves programs and functions.
type stage struct {
	*client.Client
	t *testing.T
	s *natstest.Server
}

// newStage starts a server and a worker.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := natstest.New(t)
	begin(t, s, "a")
	c, err := client.New(s.Connect(), client.Options{Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{Client: c, t: t, s: s}
}

// serve serves programs, until the test ends or stop is called.
func (p *stage) serve(opts flow.Options, programs ...*flow.Def) (stop func()) {
	p.t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s, err := flow.NewServer(p.s.Connect(), opts, programs...)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			p.t.Errorf("end of the programs: %v", err)
		}
	})
	p.t.Cleanup(stop)
	select {
	case <-s.Ready():
	case <-time.After(patience):
		p.t.Fatal("the programs are not served")
	}
	return stop
}

// launch starts a run of a definition: YAML, or JSON.
func (p *stage) launch(run drover.RunID, definition, input string) {
	p.t.Helper()
	req := drover.StartRequest{RunID: run, Definition: text(p.t, definition), Input: json.RawMessage(input)}
	if _, err := p.Start(p.t.Context(), req); err != nil {
		p.t.Fatal(err)
	}
}

func (p *stage) deliver(run drover.RunID, name, payload string) {
	p.t.Helper()
	if _, err := p.Deliver(p.t.Context(), drover.DeliverRequest{RunID: run, Name: name, Payload: json.RawMessage(payload)}); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits until a run is over.
func (p *stage) ends(run drover.RunID) drover.Outcome {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	o, err := p.Wait(ctx, run)
	if err != nil {
		why, _ := p.Why(p.t.Context(), run)
		p.t.Fatalf("run %s does not end: %v; %+v", run, err, why)
	}
	return o
}

func (p *stage) completes(run drover.RunID, result string) {
	p.t.Helper()
	o := p.ends(run)
	if o.Status != drover.StatusCompleted || string(o.Result) != result {
		p.t.Errorf("run %s is %s with %s, error %v; want %s", run, o.Status, o.Result, o.Error, result)
	}
}

// parks waits until the body of a run waits.
func (p *stage) parks(run drover.RunID) drover.Run {
	p.t.Helper()
	return p.until(run, func(r drover.Run) bool { return r.Program != nil && r.Program.State == "parked" })
}

// holds waits until a run holds a token: its claim is stored after the body waits.
func (p *stage) holds(token string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		_, err := p.ShowHook(ctx, token)
		if err == nil {
			return
		}
		if !errors.Is(err, drover.CodeNotFound) {
			p.t.Fatal(err)
		}
	}
}

func (p *stage) history(run drover.RunID) []drover.Entry {
	p.t.Helper()
	j, err := p.Journal(p.t.Context(), run, 1)
	if err != nil {
		p.t.Fatal(err)
	}
	return j.Journal
}

// both has a test done with bodies that stay in memory, and with such that are
// dropped where they wait.
func both(t *testing.T, do func(t *testing.T, opts flow.Options)) {
	t.Helper()
	t.Run("kept", func(t *testing.T) { do(t, flow.Options{}) })
	t.Run("dropped", func(t *testing.T) { do(t, flow.Options{KeepBodies: -1}) })
}

func TestPrograms01StepsAreDoneOnce(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		var done atomic.Int64
		p.serve(opts, flow.Program("count", func(run *flow.Run, n int) (int, error) {
			for i := range 10 {
				var err error
				n, err = flow.Step(run, fmt.Sprint("add", i), func(context.Context) (int, error) { done.Add(1); return n + 1, nil })
				if err != nil {
					return 0, err
				}
				if i%4 == 3 {
					if err := run.Sleep(fmt.Sprint("rest", i), 5*time.Millisecond); err != nil {
						return 0, err
					}
				}
			}
			return n, nil
		}))
		p.launch("r1", "program: count", "5")
		p.completes("r1", "15")
		if n := done.Load(); n != 10 {
			t.Errorf("ten steps were done %d times", n)
		}
		kinds := map[drover.EntryKind]int{}
		for i, e := range p.history("r1") {
			if kinds[e.Kind]++; e.Number != i+1 {
				t.Errorf("entry %d has the number %d", i+1, e.Number)
			}
		}
		if kinds[drover.EntryStep] != 10 || kinds[drover.EntryNode] != 2 || kinds[drover.EntryEnded] != 2 {
			t.Errorf("the journal has %v", kinds)
		}
	})
}

func TestPrograms04AWaitGetsADeliveryOrItsTimeout(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		p.serve(opts, flow.Program("ask", func(run *flow.Run, _ any) ([]string, error) {
			first, err := flow.Wait[string](run, "first", "word")
			if err != nil {
				return nil, err
			}
			second, err := flow.Wait[*string](run, "second", "word")
			if err != nil || second != nil {
				return nil, fmt.Errorf("an empty delivery gave %v: %w", second, err)
			}
			if _, err = flow.Wait[string](run, "third", "word", flow.Timeout(20*time.Millisecond)); !errors.Is(err, drover.CodeTimeout) {
				return nil, fmt.Errorf("nothing came, and the error is: %w", err)
			}
			return []string{first, "nothing", "timeout"}, nil
		}))
		p.launch("early", "program: ask", "null")
		p.deliver("early", "word", `"hello"`)
		p.deliver("early", "word", `null`)
		p.completes("early", `["hello","nothing","timeout"]`)
		p.launch("late", "program: ask", "null")
		if r := p.parks("late"); r.Status != drover.StatusWaiting {
			t.Errorf("a parked run is %s", r.Status)
		}
		p.deliver("late", "word", `"hello"`)
		p.parks("late")
		p.deliver("late", "word", `null`)
		p.completes("late", `["hello","nothing","timeout"]`)
	})
}

func TestPrograms05AHookReadsWhatComes(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		p.serve(opts, flow.Program("inbox", func(run *flow.Run, token string) (sum int, err error) {
			hook := run.Hook("inbox", token, flow.HookOptions{Tags: map[string]string{"of": "test"}})
			for i := range 3 {
				n, err := flow.Next[int](run, hook, fmt.Sprint("next", i))
				if err != nil {
					return 0, err
				}
				sum += n
			}
			left, err := hook.Release(run, drover.UnreadTake)
			return sum + 100*len(left), err
		}))
		p.launch("r1", "program: inbox", `"box"`)
		p.holds("box")
		for i := range 3 {
			req := drover.HookRequest{Token: "box", Payload: json.RawMessage(fmt.Sprint(i + 1)), ID: fmt.Sprint("d", i)}
			if _, err := p.DeliverHook(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				if h, err := p.ShowHook(t.Context(), "box"); err != nil || h.RunID != "r1" {
					t.Errorf("the hook is %+v, error %v", h, err)
				}
			}
		}
		p.completes("r1", "6")
		for i := range 3 { // the first delivery starts a run
			reply, err := p.DeliverHook(t.Context(), drover.HookRequest{
				Token: "next box", Payload: json.RawMessage(fmt.Sprint(i + 1)), ID: fmt.Sprint("d", i),
				Start: &drover.StartRequest{Definition: text(t, "program: inbox"), Input: json.RawMessage(`"next box"`)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				p.completes(reply.RunID, "6")
			}
		}
	})
}

func TestPrograms06ChildrenInBothDirections(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		var c counter
		child := function.New("child", func(ctx context.Context, n int) (int, error) {
			// Who asks is known by the call, which is one of a program.
			_, err := p.Start(ctx, drover.StartRequest{Definition: text(t, "program: double"), Input: json.RawMessage("1"), ReplyTo: &drover.ReplyTo{}})
			return n + 1, err
		})
		serve(t, p.s, c.function(), child)
		def, err := drover.ParseDefinition([]byte("nodes: {a: {call: step}, b: {sleep: 1ms, depends_on: [a]}}\noutput: {from: node:a}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.PutDefinition(t.Context(), drover.DefinitionRequest{
			Name: "registered", Definition: text(t, "nodes: {a: {call: step}}\noutput: {from: node:a}"),
		}); err != nil {
			t.Fatal(err)
		}
		p.serve(opts,
			flow.Program("double", func(run *flow.Run, n int) (int, error) {
				if run.Info().Parent == nil {
					return 0, errors.New("it has no parent")
				}
				return flow.Step(run, "double", func(context.Context) (int, error) { return 2 * n, nil })
			}),
			flow.Program("parent", func(run *flow.Run, n int) (int, error) {
				a := flow.StartInvoke[int](run, "definition", flow.Definition(def), n)
				b := flow.StartInvoke[int](run, "workflow", flow.Workflow("registered"), n)
				c := flow.StartInvoke[int](run, "program", flow.ProgramNamed("double"), n)
				d := flow.StartCall[int](run, "call", "child", n)
				sum := 0
				for _, f := range []*flow.Future[int]{a, b, c, d} {
					n, err := f.Get(run)
					if err != nil {
						return 0, err
					}
					sum += n
				}
				return sum, nil
			}))
		p.launch("r1", "program: parent", "10")
		p.completes("r1", "53") // 11 + 11 + 20 + 11
		p.launch("r2", `
nodes:
  child: {run: {definition: {program: double}}, input: {from: run_input}}
output: {from: node:child}`, "21")
		p.completes("r2", "42")
	})
}

func TestPrograms07StopUndoesWhatWasDone(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		undone := make(chan string, 10)
		step := func(run *flow.Run, id string) error {
			_, err := flow.Step(run, id, func(context.Context) (string, error) { return "of " + id, nil },
				flow.Compensate(func(_ context.Context, done string) error { undone <- done; return nil }))
			return err
		}
		p.serve(opts, flow.Program("saga", func(run *flow.Run, wait bool) (any, error) {
			if err := step(run, "one"); err != nil {
				return nil, err
			}
			if err := step(run, "two"); err != nil {
				return nil, err
			}
			if !wait {
				return nil, errors.New("out of stock")
			}
			_, err := flow.Wait[any](run, "approval", "approved")
			return nil, err
		}))
		p.launch("stopped", "program: saga", "true")
		p.parks("stopped")
		if _, err := p.Stop(t.Context(), "stopped", "not wanted"); err != nil {
			t.Fatal(err)
		}
		p.launch("failed", "program: saga", "false")
		for _, run := range []drover.RunID{"stopped", "failed"} {
			if o := p.ends(run); o.Status != drover.StatusCompensated {
				t.Errorf("run %s is %s, error %v", run, o.Status, o.Error)
			}
			var undos []string
			for _, e := range p.history(run) {
				if e.Kind == drover.EntryUndo {
					undos = append(undos, e.ID)
				}
			}
			if strings.Join(undos, " ") != "two one" {
				t.Errorf("run %s has undone %v", run, undos)
			}
		}
		close(undone)
		n := 0
		for range undone {
			n++
		}
		if n != 4 {
			t.Errorf("%d undos of 4 steps", n)
		}
	})
}

func TestPrograms15PanicsAreTriedAgain(t *testing.T) {
	p := newStage(t)
	var drives atomic.Int64
	p.serve(flow.Options{}, flow.Program("shaky", func(run *flow.Run, most int64) (int, error) {
		n, err := flow.Step(run, "one", func(context.Context) (int, error) { return 1, nil })
		if drives.Add(1) < most {
			panic("it fell over")
		}
		return n, err
	}))
	p.launch("r1", "program: shaky\nretry: {max_attempts: 5, initial: 1ms}", "3")
	p.completes("r1", "1")
	drives.Store(0)
	p.launch("r2", "program: shaky\nretry: {max_attempts: 2, initial: 1ms}", "100")
	o := p.ends("r2")
	if o.Status != drover.StatusFailed || o.Error == nil || !strings.Contains(o.Error.Message, "it fell over") ||
		!strings.Contains(o.Error.Stack, "program_test.go") {
		t.Errorf("a body that panics is %s with %+v", o.Status, o.Error)
	}
	if n := drives.Load(); n != 2 {
		t.Errorf("it was driven %d times, want 2", n)
	}
}

func TestPrograms14ABodyBeginsAnew(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		p.serve(opts, flow.Program("loop", func(run *flow.Run, n int) (int, error) {
			next, err := flow.Step(run, "next", func(context.Context) (int, error) { return n + 1, nil })
			if err != nil {
				return 0, err
			}
			if err := run.Sleep("rest", time.Millisecond); err != nil || next >= 5 {
				return next, err
			}
			return 0, run.ContinueAsNew(next)
		}))
		p.launch("r1", "program: loop", "0")
		p.completes("r1", "5")
		r, err := p.Status(t.Context(), drover.RunRequest{RunID: "r1"})
		if err != nil || r.Run.Program.Generation != 4 || r.Run.Program.Entries != 3 {
			t.Errorf("the program is %+v, error %v", r.Run.Program, err)
		}
	})
}

func TestPrograms13StreamsAreReadLiveAndLate(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newStage(t)
		p.serve(opts, flow.Program("writer", func(run *flow.Run, _ any) (any, error) {
			w := flow.Stream(run, "out")
			for i := range 6 {
				if err := w.Text(fmt.Sprint(i)); err != nil {
					return nil, err
				}
				if i%2 == 1 {
					if _, err := flow.Wait[any](run, fmt.Sprint("wait", i), "go"); err != nil {
						return nil, err
					}
				}
			}
			return nil, w.Close()
		}))
		p.launch("r1", "program: writer", "null")
		read := func() string {
			var b strings.Builder
			for c, err := range p.Stream(t.Context(), "r1", "out") {
				if err != nil {
					t.Error(err)
					break
				}
				b.Write(c.Data)
			}
			return b.String()
		}
		live := make(chan string, 1)
		go func() { live <- read() }()
		for range 3 {
			p.deliver("r1", "go", "null")
		}
		p.completes("r1", "null")
		if got := <-live; got != "012345" {
			t.Errorf("a live reader got %q", got)
		}
		if got := read(); got != "012345" {
			t.Errorf("a late reader got %q", got)
		}
	})
}

// A body asks functions that fail at first, and one that is slow.
func TestPrograms09CallsAreTriedAgain(t *testing.T) {
	p := newStage(t)
	var calls atomic.Int64
	serve(t, p.s, function.New("shaky", func(_ context.Context, n int) (int, error) {
		if calls.Add(1) < 3 {
			return 0, errors.New("not yet")
		}
		return n, nil
	}))
	var tries atomic.Int64
	p.serve(flow.Options{KeepBodies: -1}, flow.Program("caller", func(run *flow.Run, n int) (int, error) {
		retry := flow.Retry{Attempts: 4, Initial: time.Millisecond}
		got, err := flow.Call[int](run, "call", "shaky", n, retry)
		if err != nil {
			return 0, err
		}
		return flow.Step(run, "step", func(context.Context) (int, error) {
			if tries.Add(1) < 3 {
				return 0, errors.New("not yet")
			}
			return got + 1, nil
		}, retry)
	}))
	p.launch("r1", "program: caller", "7")
	p.completes("r1", "8")
	if calls.Load() != 3 || tries.Load() != 3 {
		t.Errorf("%d calls and %d tries, want 3 and 3", calls.Load(), tries.Load())
	}
}
