package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// fleet is a NATS server with a real worker.
type fleet struct {
	*client.Client
	t  testing.TB
	s  *natstest.Server
	nc *nats.Conn
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	f := &fleet{t: t, s: natstest.New(t)}
	w, err := worker.New(f.s.Connect(), worker.Options{Alone: true, Settings: topology.Settings{Partitions: 4}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("end of the worker: %v", err)
		}
	})
	wait(t, w.Ready(), "the worker")
	f.nc = f.s.Connect()
	if f.Client, err = client.New(f.nc, client.Options{Patience: patience}); err != nil {
		t.Fatal(err)
	}
	return f
}

func wait[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("gave up waiting for %s", what)
		panic("unreachable")
	}
}

// serve serves programs until stop is called.
func (f *fleet) serve(opts flow.Options, programs ...*flow.Def) (stop func()) {
	f.t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s, err := flow.NewServer(f.s.Connect(), opts, programs...)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	wait(f.t, s.Ready(), "the server")
	done := false
	stop = func() {
		if cancel(); !done {
			done = true
			if err := wait(f.t, ended, "the end of the server"); err != nil {
				f.t.Errorf("end of the server: %v", err)
			}
		}
	}
	f.t.Cleanup(stop)
	return stop
}

func (f *fleet) begin(program string, run drover.RunID, input any) {
	f.t.Helper()
	in, err := json.Marshal(input)
	if err != nil {
		f.t.Fatal(err)
	}
	def := json.RawMessage(fmt.Sprintf(`{"program":%q}`, program))
	if _, err := f.Start(f.t.Context(), drover.StartRequest{RunID: run, Definition: def, Input: in}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) deliver(run drover.RunID, name string, payload string) {
	f.t.Helper()
	if _, err := f.Deliver(f.t.Context(), drover.DeliverRequest{RunID: run, Name: name, Payload: json.RawMessage(payload)}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) want(run drover.RunID, status drover.Status, result string) {
	f.t.Helper()
	r, err := f.Client.Result(f.t.Context(), drover.RunRequest{RunID: run, Wait: drover.Duration(patience)})
	if err != nil {
		f.t.Fatal(err)
	}
	if r.Status != status || string(r.Output) != result {
		f.t.Fatalf("run %s is %s with %s (%v), want %s with %s", run, r.Status, r.Output, r.Error, status, result)
	}
}

// parked waits until a run waits.
func (f *fleet) parked(run drover.RunID) {
	f.t.Helper()
	f.until(run, "parked")
}

// until waits until the program of a run is in a state.
func (f *fleet) until(run drover.RunID, state string) {
	f.t.Helper()
	for range 1000 {
		r, err := f.Status(f.t.Context(), drover.RunRequest{RunID: run, Brief: true})
		if err != nil {
			f.t.Fatal(err)
		}
		if r.Run.Program != nil && r.Run.Program.State == state {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	f.t.Fatalf("run %s does not come to be %s", run, state)
}

func TestProgramsInstancesThatNoOwnerTakes(t *testing.T) {
	for _, instance := range []string{"a b", "a\n", "a\u0085", "a>", ".a", "a..b", strings.Repeat("x", 129), "\xff"} {
		if _, err := flow.NewServer(nil, flow.Options{Instance: instance}); !errors.Is(err, drover.CodeInvalidID) {
			t.Errorf("%q: %v", instance, err)
		}
	}
}

func TestProgramsOnAFleet(t *testing.T) {
	f := newFleet(t)
	var steps, bodies atomic.Int32
	def := flow.Program("order", func(run *flow.Run, n int) (string, error) {
		bodies.Add(1)
		sum := 0
		for i := range n {
			got, err := flow.Step(run, fmt.Sprint("s", i), func(context.Context) (int, error) {
				steps.Add(1)
				return i, nil
			})
			if err != nil {
				return "", err
			}
			sum += got
		}
		name, err := flow.Wait[string](run, "w", "name")
		if err == nil {
			err = run.Sleep("nap", 10*time.Millisecond)
		}
		return fmt.Sprint(name, " ", sum), err
	})
	f.serve(flow.Options{}, def)
	f.begin("order", "r1", 10)
	f.parked("r1")
	f.deliver("r1", "name", `"joe"`)
	f.want("r1", drover.StatusCompleted, `"joe 45"`)
	if steps.Load() != 10 || bodies.Load() != 1 {
		t.Errorf("%d steps in %d executions of the body", steps.Load(), bodies.Load())
	}
}

func TestPrograms03AnotherProcessGoesOn(t *testing.T) {
	f := newFleet(t)
	var steps atomic.Int32
	def := flow.Program("moves", func(run *flow.Run, _ any) (string, error) {
		for i := range 3 {
			if _, err := flow.Step(run, fmt.Sprint("s", i), func(context.Context) (string, error) {
				steps.Add(1)
				return strings.Repeat("x", 100_000), nil
			}); err != nil {
				return "", err
			}
		}
		return flow.Wait[string](run, "w", "go")
	})
	stop := f.serve(flow.Options{Instance: "one"}, def)
	f.begin("moves", "r1", nil)
	f.parked("r1")
	stop()
	f.serve(flow.Options{Instance: "two", KeepBodies: -1}, def)
	f.deliver("r1", "go", `"done"`)
	f.want("r1", drover.StatusCompleted, `"done"`)
	if steps.Load() != 3 {
		t.Errorf("%d steps were done", steps.Load())
	}
}

func TestProgramsDrainGivesDrivesBack(t *testing.T) {
	f := newFleet(t)
	begun := make(chan bool, 10)
	var first atomic.Bool
	first.Store(true)
	def := flow.Program("drains", func(run *flow.Run, _ any) (string, error) {
		return flow.Step(run, "s", func(ctx context.Context) (string, error) {
			begun <- true
			if first.Swap(false) {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "ok", nil
		})
	})
	stop := f.serve(flow.Options{DrainTimeout: 10 * time.Millisecond}, def)
	f.begin("drains", "r1", nil)
	wait(t, begun, "the step")
	stop()
	f.serve(flow.Options{}, def)
	f.want("r1", drover.StatusCompleted, `"ok"`)
}

// A process says whether it drives, also while it comes to its end, and does not begin
// because it was asked that.
func TestPrograms03AProcessSaysWhetherItDrives(t *testing.T) {
	f := newFleet(t)
	keeps := make(chan string, 100)
	if _, err := f.nc.Subscribe(subjects.Default().In("r1", drover.VerbRecord), func(m *nats.Msg) {
		var r drover.RecordRequest
		if json.Unmarshal(m.Data, &r) == nil {
			keeps <- r.Keep
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	begun, leave := make(chan bool, 1), make(chan bool)
	stop := f.serve(flow.Options{DrainTimeout: patience}, flow.Program("kept", func(run *flow.Run, _ any) (string, error) {
		if _, err := flow.Wait[any](run, "w", "go"); err != nil {
			return "", err
		}
		return flow.Step(run, "s", func(context.Context) (string, error) {
			begun <- true
			<-leave
			return "ok", nil
		})
	}))
	f.begin("kept", "r1", nil)
	f.parked("r1")
	inbox := wait(t, keeps, "a record")
	drives := func(drive int, want string) {
		t.Helper()
		m, err := f.nc.Request(inbox, fmt.Appendf(nil, `{"run_id":"r1","program":"kept","drive":%d,"look":true}`, drive), patience)
		if err != nil || string(m.Data) != want {
			t.Fatalf("does it drive %d: %v; want %s", drive, err, want)
		}
	}
	drives(2, `{"taken":false}`)
	f.deliver("r1", "go", `null`)
	wait(t, begun, "the step")
	drives(2, `{"taken":true}`)
	drives(3, `{"taken":false}`)
	ended := make(chan bool)
	go func() {
		stop()
		close(ended)
	}()
	for { // until it serves calls no more
		_, err := f.nc.Request(subjects.Default().Cancel("_look", "program.kept"), []byte("_look"), time.Second)
		if errors.Is(err, nats.ErrNoResponders) {
			break
		}
		if err != nil && !errors.Is(err, nats.ErrTimeout) {
			t.Fatal(err)
		}
	}
	for range 100 {
		drives(2, `{"taken":true}`)
	}
	close(leave)
	wait(t, ended, "the end")
	f.want("r1", drover.StatusCompleted, `"ok"`)
}

func TestPrograms12ARunStaysOnItsVersion(t *testing.T) {
	f := newFleet(t)
	program := func(version string) *flow.Def {
		return flow.Program("versioned", func(run *flow.Run, _ any) (string, error) {
			_, err := flow.Wait[any](run, "w", "go")
			return version, err
		})
	}
	stop := f.serve(flow.Options{Version: "v1", Instance: "one"}, program("v1"))
	f.begin("versioned", "r1", nil)
	f.parked("r1")
	stop()
	f.serve(flow.Options{Version: "v2", Instance: "two"}, program("v2"))
	f.serve(flow.Options{Version: "v1", Instance: "three"}, program("v1"))
	f.deliver("r1", "go", `null`)
	f.want("r1", drover.StatusCompleted, `"v1"`)
}

func TestPrograms17TooManyBodiesAreDropped(t *testing.T) {
	f := newFleet(t)
	var bodies, dropped atomic.Int32
	def := flow.Program("many", func(run *flow.Run, _ any) (string, error) {
		bodies.Add(1)
		done := false
		defer func() {
			if !done {
				dropped.Add(1)
			}
		}()
		got, err := flow.Wait[string](run, "w", "go")
		done = true
		return got, err
	})
	f.serve(flow.Options{KeepBodies: 2}, def)
	const runs = 5
	for i := range runs {
		f.begin("many", drover.RunID(fmt.Sprint("r", i)), nil)
		f.parked(drover.RunID(fmt.Sprint("r", i)))
	}
	for i := range runs {
		id := drover.RunID(fmt.Sprint("r", i))
		f.deliver(id, "go", `"x"`)
		f.want(id, drover.StatusCompleted, `"x"`)
	}
	if b, d := bodies.Load(), dropped.Load(); d < runs-2 || b != runs+d {
		t.Errorf("%d executions of bodies, %d were dropped", b, d)
	}
}

func TestProgramsNewsReachADriveUnderWay(t *testing.T) {
	f := newFleet(t)
	begun, more := make(chan bool, 1), make(chan bool, 1)
	def := flow.Program("news", func(run *flow.Run, _ any) (string, error) {
		w := flow.Go(run, func(run *flow.Run) (string, error) {
			got, err := flow.Wait[string](run, "w", "go")
			more <- true
			return got, err
		})
		_, err := flow.Step(run, "slow", func(ctx context.Context) (any, error) {
			begun <- true
			select {
			case <-more: // the wait is over while this step is not
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		if err != nil {
			return "", err
		}
		return w.Get(run)
	})
	f.serve(flow.Options{}, def)
	f.begin("news", "r1", nil)
	wait(t, begun, "the step")
	f.deliver("r1", "go", `"x"`)
	f.want("r1", drover.StatusCompleted, `"x"`)
}
