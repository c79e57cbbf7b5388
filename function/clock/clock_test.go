// Package clock_test has the tests of functions in which time passes. They run
// under a fake clock, which shares a process with no other test.
package clock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/function/functiontest"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

func TestDefinitions11CallsEndAtTheirDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server) {
		f := inBubble(t, s)
		fn, began, letGo := held("f")
		stop := f.Serve(function.Options{}, fn)
		f.Queue("run1/n@1", "f", "1", subjects.HeaderDeadline, time.Now().Add(time.Minute).Format(time.RFC3339Nano))
		start := time.Now()
		ctx := functiontest.Await(t, began, "a call")
		<-ctx.Done()
		if d := time.Since(start).Round(time.Second); d != time.Minute || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %v with %v", d, ctx.Err())
		}
		f.Queue("run1/n@2", "f", "1", subjects.HeaderDeadline, time.Now().Add(-time.Second).Format(time.RFC3339Nano))
		f.Queue("run1/n@3", "f", "1")
		if id := function.Info(functiontest.Await(t, began, "a call")).ID; id.Attempt != 3 {
			t.Errorf("call %v began", id)
		}
		close(letGo)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// bubble runs a test under a fake clock. The client library keeps channels and
// timers in pools, which no other bubble may use; two collections empty them.
func bubble(t *testing.T, test func(t *testing.T, s *natstest.Server)) {
	runtime.GC()
	runtime.GC()
	natstest.Bubble(t, test)
}

// inBubble makes the fleet of a test under a fake clock.
func inBubble(t *testing.T, s *natstest.Server) *functiontest.Fleet {
	t.Helper()
	return functiontest.On(t, s).SetUp()
}

func TestLongCallsStayTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server) {
		f := inBubble(t, s)
		var calls atomic.Int32
		fn := function.Raw("f", func(context.Context, json.RawMessage) (json.RawMessage, error) {
			calls.Add(1)
			<-time.After(5 * time.Minute)
			return nil, nil
		})
		f.Serve(function.Options{}, fn)
		f.Serve(function.Options{}, fn)
		f.Queue("run1/n@1", "f", "1")
		<-time.After(6 * time.Minute)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
		if r := f.Next(); r.Error != nil {
			t.Errorf("result %+v", r)
		}
	})
}

func TestLostInstanceLosesNoCall(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server) {
		f := inBubble(t, s)
		fn, began, _ := held("f")
		nc := s.Connect()
		lost, err := function.NewServer(nc, function.Options{Logger: slog.New(slog.DiscardHandler)}, fn)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- lost.Run(context.Background()) }()
		<-lost.Ready()
		f.Queue("run1/n@1", "f", `"it"`)
		ctx := functiontest.Await(t, began, "a call")
		nc.Close()
		if err := functiontest.Await(t, ended, "the end"); !errors.Is(err, drover.CodeUnavailable) {
			t.Errorf("end: %v", err)
		}
		if !errors.Is(context.Cause(ctx), function.ErrShutdown) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		f.Serve(function.Options{Instance: "second"}, function.Raw("f", echo))
		<-time.After(30 * time.Second)
		if r := f.Next(); r.Instance != "second" || string(r.Output) != `"it"` {
			t.Errorf("result %+v", r)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server) {
		f := inBubble(t, s)
		fn := function.New("f", func(ctx context.Context, _ any) (any, error) {
			<-time.After(16 * time.Second)
			if err := function.Heartbeat(ctx, map[string]int{"percent": 50}); err != nil {
				return nil, err
			}
			<-time.After(9 * time.Second)
			return "done", function.Heartbeat(ctx, strings.Repeat("x", drover.MaxInlineValue))
		})
		f.Serve(function.Options{}, fn)
		f.Queue("run1/n@1", "f", "1", subjects.HeaderHeartbeat, "30s")
		var got []string
		for {
			r := f.Next()
			if r.Progress == nil {
				if !strings.Contains(r.Error.Message, "over the limit of 2048") {
					t.Errorf("result %+v", r)
				}
				break
			}
			got = append(got, string(r.Progress))
		}
		want := `[{} {} {"percent":50} {"percent":50}]` // at 0 s, 10 s, 16 s by hand, 20 s
		if s := fmt.Sprint(got); s != want {
			t.Errorf("heartbeats %s, want %s", s, want)
		}
	})
	if err := function.Heartbeat(t.Context(), 1); !errors.Is(err, drover.CodeInvalidRequest) {
		t.Errorf("outside of a call: %v", err)
	}
}

func TestDrainEndsCallsAtLast(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server) {
		f := inBubble(t, s)
		fn, began, _ := held("f")
		stop := f.Serve(function.Options{DrainTimeout: 40 * time.Second}, fn)
		f.Queue("run1/n@1", "f", "1")
		ctx := functiontest.Await(t, began, "a call")
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start).Round(time.Second); d != 40*time.Second || !errors.Is(context.Cause(ctx), function.ErrShutdown) {
			t.Errorf("ended after %v with %v", d, context.Cause(ctx))
		}
		start = time.Now()
		f.Serve(function.Options{}, function.Raw("f", echo))
		if r := f.Next(); r.Error != nil || time.Since(start) > time.Second {
			t.Errorf("result %+v after %v", r, time.Since(start))
		}
	})
}

func TestHandlerThatDoesNotReturn(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server) {
		f := inBubble(t, s)
		began, letGo := make(chan bool), make(chan bool)
		stop := f.Serve(function.Options{DrainTimeout: time.Second},
			function.Raw("f", func(context.Context, json.RawMessage) (json.RawMessage, error) {
				began <- true
				<-letGo
				return nil, errBoom
			}))
		f.Queue("run1/n@1", "f", "1")
		<-began
		if err := stop(); !errors.Is(err, drover.CodeTimeout) || !strings.Contains(err.Error(), "run1/n@1") {
			t.Errorf("end: %v", err)
		}
		f.Serve(function.Options{}, function.Raw("f", echo))
		if r := f.Next(); r.Error != nil {
			t.Errorf("result %+v", r)
		}
		close(letGo)
	})
}

// lockedBuffer is a buffer for several goroutines.
// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestWaitsForTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server) {
		var logged lockedBuffer
		f := functiontest.On(t, s)
		f.Serve(function.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, function.Raw("f", echo))
		<-time.After(time.Minute)
		f.SetUp()
		f.Queue("run1/n@1", "f", "1")
		f.Next()
		if n := strings.Count(logged.String(), "no queue yet"); n != 1 {
			t.Errorf("told %d times:\n%s", n, logged.String())
		}
		if err := f.JS.DeleteConsumer(t.Context(), f.Names.Calls(), f.Names.Consumer("f")); err != nil {
			t.Fatal(err)
		}
		f.Queue("run1/n@2", "f", "1")
		f.Next()
	})
}

func TestIdleServerKeepsAsking(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server) {
		f := inBubble(t, s)
		fn, began, letGo := held("f")
		close(letGo)
		f.Serve(function.Options{}, fn)
		for i := range 3 {
			<-time.After(17*time.Minute + 3*time.Second)
			start := time.Now()
			f.Queue(fmt.Sprintf("run1/n@%d", i+1), "f", "1")
			if functiontest.Await(t, began, "a call"); time.Since(start) > time.Second {
				t.Errorf("performed after %v", time.Since(start))
			}
		}
	})
}

func echo(_ context.Context, input json.RawMessage) (json.RawMessage, error) { return input, nil }

// held makes a function whose calls say that they began, and end when they are
// let go or their contexts end.
func held(name string) (fn *function.Function, began chan context.Context, letGo chan struct{}) {
	began, letGo = make(chan context.Context, 100), make(chan struct{})
	return function.Raw(name, func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
		began <- ctx
		select {
		case <-letGo:
			return input, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}), began, letGo
}

var errBoom = errors.New("boom")
