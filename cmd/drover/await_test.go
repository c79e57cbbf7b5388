package main

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// heard is standard error, whose words can be waited for.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newHeard() *heard { return &heard{more: make(chan struct{}, 1)} }

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(p)
	select {
	case h.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

func (h *heard) until(t *testing.T, words string) {
	t.Helper()
	for timeout := time.After(time.Minute); !strings.Contains(h.String(), words); {
		select {
		case <-h.more:
		case <-timeout:
			t.Fatalf("nobody said %q, but\n%s", words, h)
		}
	}
}

// begin runs the program until end, which gives its exit status.
func begin(t *testing.T, args ...string) (told *heard, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	told = newHeard()
	done := make(chan int, 1)
	go func() { done <- execute(ctx, args, streams{in: strings.NewReader(""), out: io.Discard, err: told}) }()
	end = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	t.Cleanup(func() { end() })
	return told, end
}

func TestAServerThatIsAwayIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		args  func(url string) []string
		ready string
	}{
		"serve":    {func(url string) []string { return []string{"serve", "--nats", url, "--partitions", "4"} }, "owns 4 of 4 partitions"},
		"function": {func(url string) []string { return []string{"function", "f", "--nats", url, "--", "cat"} }, "no queue yet, waiting for a worker"},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.New(t, natstest.Listen())
			url := s.URL()
			s.Stop()
			told, end := begin(t, c.args(url)...)
			told.until(t, "no NATS server answers at "+url+", trying again")
			for _, early := range []string{"connected", "joined", "joining", "serving", "no queue yet"} {
				if strings.Contains(told.String(), early) {
					t.Errorf("without a server it says\n%s", told)
				}
			}
			if status := end(); status != 0 || !strings.Contains(told.String(), "ended before a NATS server answered") {
				t.Errorf("exit status %d\n%s", status, told)
			}
			told, end = begin(t, c.args(url)...)
			told.until(t, "trying again")
			s.Start()
			told.until(t, c.ready)
			s.Stop()
			told.until(t, "the connection to the NATS server is lost")
			s.Start()
			told.until(t, "connected to a NATS server again")
			if status := end(); status != 0 {
				t.Errorf("exit status %d\n%s", status, told)
			}
		})
	}
}

func TestAFunctionSaysThatItServes(t *testing.T) {
	s := natstest.New(t, natstest.Listen())
	names := subjects.Default()
	if _, err := s.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: names.Calls(), Subjects: []string{names.CallsTo("f")}, Retention: jetstream.WorkQueuePolicy,
	}); err != nil {
		t.Fatal(err)
	}
	told, end := begin(t, "function", "f", "--nats", s.URL(), "--", "cat")
	told.until(t, "serving")
	if status := end(); status != 0 {
		t.Errorf("exit status %d\n%s", status, told)
	}
}

func TestCallsThatFailAreLogged(t *testing.T) {
	file := write(t, t.TempDir(), "w.yaml", "nodes: {a: {call: f}}\noutput: {from: node:a}\n")
	status, _, stderr := run(t, file, "--run", "r_1", "--function", "f=echo first >&2; echo no such page >&2; exit 65", "--log-level", "info", "--quiet")
	if status != exitFailed || strings.Count(stderr, "a call failed") != 1 || !strings.Contains(stderr, "r_1/a@1") || !strings.Contains(stderr, "no such page") {
		t.Errorf("exit status %d, standard error\n%s", status, stderr)
	}
}

// Nothing is told again and again: a line comes at once, and then each ten
// seconds.
func TestAServerThatIsAwayIsToldOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*dialAgain)
	defer cancel()
	told := newHeard()
	c := connection{url: "nats://127.0.0.1:1"}
	nc, err := c.await(ctx, zerolog.New(told))
	if nc != nil || err != nil || strings.Count(told.String(), "trying again") != 1 {
		t.Errorf("gave %v, %v and said\n%s", nc, err, told)
	}
}
