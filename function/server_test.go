package function_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/function/functiontest"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// Whoever asks whether anybody serves a function gets an answer, also of an instance
// that asks for no more calls. Nobody has it answer into a fleet.
func TestInstancesSayThatTheyAreThere(t *testing.T) {
	f := newFleet(t)
	fn, began, letGo := held("a.b")
	f.Serve(function.Options{Concurrency: 1}, fn)
	f.Queue("run1/n@1", "a.b", "1")
	ctx := functiontest.Await(t, began, "a call")
	const nobody drover.RunID = "_look"
	if err := f.Conn.PublishRequest(f.Names.Cancel(nobody, "a.b"), f.Names.In("run2", drover.VerbStop), []byte(nobody)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Conn.Request(f.Names.Cancel(nobody, "a.b"), []byte(nobody), functiontest.Patience); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("that cancelled a call")
	}
	close(letGo)
	f.Drained()
	info, err := f.JS.Stream(t.Context(), f.Names.Commands())
	if err != nil || info.CachedInfo().State.Msgs != 1 {
		t.Errorf("%+v, error %v; want the result and no stop", info.CachedInfo().State, err)
	}
}

func TestCancel(t *testing.T) {
	f := newFleet(t)
	fn, began, _ := held("a.b")
	f.Serve(function.Options{}, fn)
	for _, id := range []string{"run1/n@1", "run1/n@2", "run1/m#0@1", "run2/n@1"} {
		f.Queue(id, "a.b", "1")
	}
	ctxs := map[string]context.Context{}
	for range 4 {
		ctx := functiontest.Await(t, began, "a call")
		ctxs[function.Info(ctx).ID.String()] = ctx
	}
	cancel := func(run drover.RunID, body string, want ...string) {
		t.Helper()
		if err := f.Conn.Publish(f.Names.Cancel(run, "a.b"), []byte(body)); err != nil {
			t.Fatal(err)
		}
		for _, id := range want {
			functiontest.Await(t, ctxs[id].Done(), "the end of the context of "+id)
			if cause := context.Cause(ctxs[id]); !errors.Is(cause, function.ErrCancelled) {
				t.Errorf("cause %v", cause)
			}
			delete(ctxs, id)
		}
		for id, ctx := range ctxs {
			if ctx.Err() != nil {
				t.Errorf("cancel of %s %q ended %s", run, body, id)
			}
		}
	}
	cancel("run2", "run1/n@1") // another run's call
	cancel("run1", "no call")
	cancel("run1", "run1/n@2", "run1/n@2")
	cancel("run1", "", "run1/n@1", "run1/m#0@1")
	cancel("run2", "run2/n@1", "run2/n@1")
	f.Drained()
	f.Queue("run3/n@1", "a.b", "1")
	functiontest.Await(t, began, "the next call")
	cancel("run3", "")
	f.Drained()
	info, err := f.JS.Stream(t.Context(), f.Names.Commands())
	if err != nil || info.CachedInfo().State.Msgs != 0 {
		t.Errorf("cancelled calls gave results: %v", err)
	}
}

// bubble runs a test under a fake clock. The client library keeps channels of
// flushes in a pool, which no other bubble may use; two collections empty it.
// inBubble makes the fleet of a test under a fake clock.
func TestNoMoreIsTakenThanCanRun(t *testing.T) {
	f := newFleet(t)
	fn, began, letGo := held("f")
	fn.Concurrency = 3
	for i := range 10 {
		f.Queue(fmt.Sprintf("run1/n#%d@1", i), "f", "1")
	}
	f.Serve(function.Options{}, fn)
	for range 3 {
		functiontest.Await(t, began, "a call")
	}
	taken := func() int {
		c, err := f.JS.Consumer(t.Context(), f.Names.Calls(), f.Names.Consumer("f"))
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().NumAckPending
	}
	if n := taken(); n != 3 {
		t.Errorf("%d calls taken, want 3", n)
	}
	f.Serve(function.Options{}, echo("f")) // the others are free for it
	for range 7 {
		f.Next()
	}
	close(letGo)
	for range 3 {
		f.Next()
	}
	f.Drained()
}

func TestDrainWaitsAndGivesBack(t *testing.T) {
	f := newFleet(t)
	fn, began, letGo := held("f")
	stop := f.Serve(function.Options{Instance: "first"}, fn)
	f.Queue("run1/n@1", "f", "1")
	ctx := functiontest.Await(t, began, "a call")
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	functiontest.Until(t, "a server that asks for nothing", func() bool {
		c, err := f.JS.Consumer(t.Context(), f.Names.Calls(), f.Names.Consumer("f"))
		return err == nil && c.CachedInfo().NumWaiting == 0
	})
	f.Serve(function.Options{Instance: "second"}, echo("f"))
	f.Queue("run1/m@1", "f", "1")
	if r := f.Next(); r.Instance != "second" {
		t.Errorf("performed by %s", r.Instance)
	}
	if ctx.Err() != nil {
		t.Errorf("the running call was ended: %v", ctx.Err())
	}
	close(letGo)
	if r := f.Next(); r.Instance != "first" || r.Error != nil {
		t.Errorf("result %+v", r)
	}
	if err := functiontest.Await(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	f.Drained()
}

func TestMessagesThatAreNoCalls(t *testing.T) {
	var logged lockedBuffer
	f := newFleet(t)
	f.Serve(function.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, echo("f"))
	if _, err := f.JS.Publish(t.Context(), f.Names.Call("run1", "f"), []byte("junk")); err != nil {
		t.Fatal(err)
	}
	f.Queue("run1/n@1", "f", "1", subjects.HeaderCall, "run1/n")
	f.Queue("run1/n@1", "f", "1", subjects.HeaderToken, "")
	f.Queue("run1/n@1", "f", "1", subjects.HeaderDeadline, "soon")
	f.Queue("run1/n@1", "f", "1", subjects.HeaderHeartbeat, "-1s")
	f.Queue("run1/n@1", "f", "1", subjects.HeaderCall, "run2/n@1")
	f.Queue("run1/n@2", "f", "1", "Status", "503")
	f.Queue("run1/n@3", "f", "", "Status", "503")
	for range 2 {
		if r := f.Next(); r.Error != nil || r.Call.Attempt < 2 {
			t.Errorf("result %+v", r)
		}
	}
	f.Drained()
	if n := strings.Count(logged.String(), "thrown away"); n != 6 {
		t.Errorf("%d messages thrown away, want 6:\n%s", n, logged.String())
	}
}

func TestServerRestart(t *testing.T) {
	f := newFleet(t)
	f.Results.Stop()
	fn, began, letGo := held("f")
	f.Serve(function.Options{}, fn)
	f.Queue("run1/n@1", "f", "1")
	functiontest.Await(t, began, "a call")
	f.Server.Stop()
	close(letGo) // its result cannot be stored now
	f.Server.Start()
	functiontest.Until(t, "the connection", f.Conn.IsConnected)
	f.Queue("run1/n@2", "f", "1")
	functiontest.Until(t, "both results", func() bool {
		s, err := f.JS.Stream(t.Context(), f.Names.Commands())
		return err == nil && s.CachedInfo().State.Msgs >= 2
	})
	f.Drained()
}

func TestMessageFunctions(t *testing.T) {
	f := newFleet(t)
	var tries atomic.Int32
	got := make(chan string, 10)
	f.Serve(function.Options{Reserved: true}, function.Message("_f", func(_ context.Context, m *nats.Msg) error {
		got <- string(m.Data)
		switch tries.Add(1) {
		case 1:
			return errBoom
		case 2:
			panic("no")
		}
		return nil
	}))
	if _, err := f.JS.Publish(t.Context(), f.Names.Call("run1", "_f"), []byte("as it is")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if s := functiontest.Await(t, got, "a message"); s != "as it is" {
			t.Errorf("message %q", s)
		}
	}
	f.Drained()
}

func BenchmarkCalls(b *testing.B) {
	for _, slots := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			f := newFleet(b)
			f.Results.Stop()
			for i := range b.N {
				m := nats.NewMsg(f.Names.Call("run1", "f"))
				m.Data = []byte(`{"a":1}`)
				m.Header.Set(subjects.HeaderCall, fmt.Sprintf("run1/n#%d@1", i))
				m.Header.Set(subjects.HeaderToken, "token")
				if _, err := f.JS.PublishMsgAsync(m); err != nil {
					b.Fatal(err)
				}
			}
			<-f.JS.PublishAsyncComplete()
			fn := echo("f")
			fn.Concurrency = slots
			b.ResetTimer()
			f.Serve(function.Options{}, fn)
			functiontest.Until(b, "an empty queue", func() bool {
				<-time.After(time.Millisecond)
				return f.Queued() == 0
			})
		})
	}
}

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
