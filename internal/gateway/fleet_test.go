package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/gateway"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// fleet plays the workers behind a gateway: answer says what each delivery is
// answered, a *drover.Error or a drover.HookReply; nil: nothing.
type fleet struct {
	*gateway.Gateway
	t   *testing.T
	srv *natstest.Server
	nc  *nats.Conn
	log *buffer

	mu     sync.Mutex
	answer func(req drover.HookRequest) any
	asked  []drover.HookRequest
	heard  chan drover.HookRequest
}

func newFleet(t *testing.T, opts gateway.Options) *fleet {
	t.Helper()
	f := &fleet{t: t, srv: natstest.New(t), log: &buffer{}, heard: make(chan drover.HookRequest, 10_000)}
	f.nc = f.srv.Connect()
	opts.Logger = zerolog.New(f.log).Level(zerolog.DebugLevel)
	var err error
	if f.Gateway, err = gateway.New(f.srv.Connect(), opts); err != nil {
		t.Fatal(err)
	}
	f.answers(func(drover.HookRequest) any { return drover.HookReply{RunID: "run1"} })
	names := subjects.Default()
	if _, err = f.nc.Subscribe(names.API("hook.deliver"), func(m *nats.Msg) {
		var req drover.HookRequest
		_ = json.Unmarshal(m.Data, &req)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked = append(f.asked, req)
		reply := nats.NewMsg(m.Reply)
		answer := f.answer(req)
		if e, ok := answer.(*drover.Error); ok {
			reply.Header.Set(subjects.HeaderCode, string(e.Code))
		}
		if answer != nil {
			reply.Data, _ = json.Marshal(answer)
			_ = f.nc.PublishMsg(reply)
		}
		f.heard <- req
	}); err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) answers(answer func(drover.HookRequest) any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fleet) requests() []drover.HookRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// responds answers a delivery as the node of a run does.
func (f *fleet) responds(req drover.HookRequest, status int, body string) {
	m := nats.NewMsg(req.Respond)
	m.Header.Set(subjects.HeaderAnswered, strconv.Itoa(status))
	m.Data = []byte(body)
	if err := f.nc.PublishMsg(m); err != nil {
		f.t.Error(err)
	}
}

// post calls the handler.
func (f *fleet) post(path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

// serves runs the gateway on a socket until stop, or the end of the test.
func (f *fleet) serves() (address string, stop func()) {
	f.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := await(f.t, done, "the end of the gateway"); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(stop)
	return l.Addr().String(), stop
}

func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("gave up waiting for %s", what)
		panic("unreachable")
	}
}

// buffer is what a logger may write to while a test reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// running is a hook whose run answers.
func running(drover.HookRequest) any {
	return drover.HookReply{RunID: "run1", Answer: &drover.Answer{Run: true}}
}

func bodyOf(t *testing.T, from io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(from)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}
