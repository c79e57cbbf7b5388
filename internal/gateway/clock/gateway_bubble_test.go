// Package clock_test has the tests of the gateway in which time passes. They run
// under a fake clock, which shares a process with no other test.
package clock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/gateway"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// world is a gateway in a bubble, reached through pipes. Every delivery is
// answered the same.
type world struct {
	t    *testing.T
	l    *pipes
	stop func()
}

func bubble(t *testing.T, answer *drover.HookReply, test func(w *world)) {
	// The client library keeps channels and timers in pools, which no other
	// bubble may use; two collections empty them.
	runtime.GC()
	runtime.GC()
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		if _, err := s.Connect().Subscribe(subjects.Default().API("hook.deliver"), func(m *nats.Msg) {
			if answer != nil {
				data, _ := json.Marshal(answer)
				_ = m.Respond(data)
			}
		}); err != nil {
			t.Fatal(err)
		}
		g, err := gateway.New(s.Connect(), gateway.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, l: &pipes{ch: make(chan net.Conn), closed: make(chan struct{})}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx, w.l) }()
		w.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		defer w.stop()
		time.Sleep(time.Millisecond) // the subscription is there
		test(w)
	})
}

// send sends a request on a connection of its own.
func (w *world) send(text string) net.Conn {
	ours, theirs := net.Pipe()
	w.l.ch <- theirs
	go func() { _, _ = io.WriteString(ours, text) }() // closing the connection ends it
	w.t.Cleanup(func() { _ = ours.Close() })
	return ours
}

// expect reads an answer, which must come after so long.
func (w *world) expect(c net.Conn, began time.Time, after time.Duration, status int) {
	w.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.t.Errorf("no answer after %v: %v", time.Since(began), err)
		return
	}
	_ = resp.Body.Close()
	if took := time.Since(began).Round(time.Second); took != after || resp.StatusCode != status {
		w.t.Errorf("answered %s after %v, want %d after %v", resp.Status, took, status, after)
	}
}

const whole = "POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"

func TestHooks22WaitsHaveALimit(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 10 * time.Second: 10 * time.Second, time.Hour: 5 * time.Minute, -1: 30 * time.Second} {
		t.Run(limit.String(), func(t *testing.T) {
			bubble(t, &drover.HookReply{RunID: "run1", Answer: &drover.Answer{Run: true, Timeout: drover.Duration(limit)}}, func(w *world) {
				began := time.Now()
				w.expect(w.send(whole), began, want, http.StatusAccepted)
			})
		})
	}
}

func TestSlowRequestsAreEnded(t *testing.T) {
	t.Run("the body", func(t *testing.T) {
		bubble(t, &drover.HookReply{}, func(w *world) {
			began := time.Now()
			w.expect(w.send(strings.TrimSuffix(whole, "1")), began, 30*time.Second, http.StatusRequestTimeout)
		})
	})
	t.Run("the body, in drops", func(t *testing.T) {
		bubble(t, &drover.HookReply{}, func(w *world) {
			began := time.Now()
			c := w.send("POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
			go func() {
				for err := error(nil); err == nil; _, err = fmt.Fprint(c, "x") {
					time.Sleep(time.Second)
				}
			}()
			w.expect(c, began, 30*time.Second, http.StatusRequestTimeout)
			_ = c.Close()
			time.Sleep(time.Second) // the drops end
		})
	})
	t.Run("the headers", func(t *testing.T) {
		bubble(t, &drover.HookReply{}, func(w *world) {
			began := time.Now()
			c := w.send("POST /hooks/x HTTP/1.1\r\nHost: ")
			if _, err := io.ReadAll(c); err != nil {
				t.Error(err)
			}
			if took := time.Since(began).Round(time.Second); took != 10*time.Second {
				t.Errorf("closed after %v", took)
			}
		})
	})
	t.Run("the next request", func(t *testing.T) {
		bubble(t, &drover.HookReply{}, func(w *world) {
			began := time.Now()
			c := w.send(whole)
			w.expect(c, began, 0, http.StatusAccepted)
			time.Sleep(time.Minute) // which is longer than the next body could take
			go func() { _, _ = io.WriteString(c, whole) }()
			w.expect(c, began, time.Minute, http.StatusAccepted)
			if _, err := io.ReadAll(c); err != nil {
				t.Error(err)
			}
			if took := time.Since(began).Round(time.Second); took != 3*time.Minute {
				t.Errorf("closed after %v", took)
			}
		})
	})
}

func TestADeliveryThatNobodyAnswersIsUnknown(t *testing.T) {
	bubble(t, nil, func(w *world) {
		began := time.Now()
		w.expect(w.send(whole), began, 10*time.Second, http.StatusServiceUnavailable)
	})
}

func TestHooks22TheEndOfAGatewayEndsWaitsAtOnce(t *testing.T) {
	bubble(t, &drover.HookReply{RunID: "run1", Answer: &drover.Answer{Run: true}}, func(w *world) {
		waiting := w.send(whole)
		time.Sleep(time.Second)
		began := time.Now()
		var all sync.WaitGroup
		all.Go(w.stop)
		w.expect(waiting, began, 0, http.StatusAccepted)
		all.Wait()
		if took := time.Since(began); took >= time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

func TestTheEndOfAGatewayIsInTime(t *testing.T) {
	bubble(t, nil, func(w *world) {
		began := time.Now()
		delivering, reading := w.send(whole), w.send(strings.TrimSuffix(whole, "1"))
		time.Sleep(time.Second)
		var all sync.WaitGroup
		all.Go(w.stop)
		w.expect(delivering, began, 6*time.Second, http.StatusServiceUnavailable)
		if data, err := io.ReadAll(reading); err != nil || len(data) > 0 {
			t.Logf("the caller that is slow was told %q, %v", data, err)
		}
		all.Wait()
		if took := time.Since(began).Round(time.Second); took != 7*time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

// pipes is a listener whose connections are made by the test.
type pipes struct {
	ch     chan net.Conn
	once   sync.Once
	closed chan struct{}
}

var errClosed = errors.New("closed")

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.ch:
		return c, nil
	case <-p.closed:
		return nil, errClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }
