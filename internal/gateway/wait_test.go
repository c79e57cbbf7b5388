package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/gateway"
	"github.com/droverhq/drover/subjects"
)

// Some answers come before the delivery is known to be accepted, some after.
func TestHooks22EachCallerGetsTheAnswerToHisOwn(t *testing.T) {
	const callers = 500
	f := newFleet(t, gateway.Options{})
	var later sync.WaitGroup
	f.answers(func(req drover.HookRequest) any {
		var n int
		_ = json.Unmarshal(req.Payload, &n)
		answer := func() { f.responds(req, 200+n%300, fmt.Sprint(n)) }
		if n%2 == 0 {
			answer()
		} else {
			later.Go(answer)
		}
		return running(req)
	})
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			w := f.post("/hooks/"+token, fmt.Sprint(n), "Content-Type", "application/json")
			want := fmt.Sprint(n)
			if status := 200 + n%300; status == 204 { // it has no body
				want = ""
			}
			if w.Code != 200+n%300 && w.Code != 304 || w.Body.String() != want && w.Code != 304 {
				t.Errorf("caller %d got %d %s", n, w.Code, w.Body)
			}
		})
	}
	all.Wait()
	later.Wait()
}

func TestWhatIsNoAnswerIsNone(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	f.answers(func(req drover.HookRequest) any {
		_ = f.nc.Publish(req.Respond, []byte("1"))
		f.responds(req, 99, "1")
		f.responds(req, 200, "{")
		f.responds(req, 201, "2")
		return running(req)
	})
	if w := f.post("/hooks/x", ""); w.Code != 201 || w.Body.String() != "2" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.answers(func(req drover.HookRequest) any { // whose value is gone
		m := nats.NewMsg(req.Respond)
		m.Header.Set(subjects.HeaderAnswered, "500")
		m.Header.Set(subjects.HeaderCode, "not_found")
		m.Data = []byte(`{"code":"not_found"}`)
		_ = f.nc.PublishMsg(m)
		return running(req)
	})
	if w := f.post("/hooks/x", ""); w.Code != 500 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.answers(func(drover.HookRequest) any {
		return drover.HookReply{RunID: "run1", Answer: &drover.Answer{Run: true, Timeout: 1}}
	})
	if w := f.post("/hooks/x", ""); w.Code != 202 || w.Body.Len() > 0 {
		t.Errorf("too late: %d %s", w.Code, w.Body)
	}
}

func TestARepeatGetsTheAnswerAsWell(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	f.answers(running)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if w := f.post("/hooks/x", "", "Idempotency-Key", "k"); w.Code != 200 || w.Body.String() != `"done"` {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	first, second := await(t, f.heard, "a delivery"), await(t, f.heard, "its repeat")
	if first.ID != second.ID || first.Respond != second.Respond {
		t.Errorf("%+v and %+v", first, second)
	}
	f.responds(first, 200, `"done"`)
	both.Wait()
	f.answers(func(drover.HookRequest) any { return drover.HookReply{RunID: "run1"} })
	inboxes := map[string]bool{first.Respond: true}
	for _, call := range [][]string{{"/hooks/x"}, {"/hooks/x"}, {"/hooks/x", "Idempotency-Key", "l"}, {"/hooks/y", "Idempotency-Key", "k"}} {
		f.post(call[0], "", call[1:]...)
		inboxes[await(t, f.heard, "another delivery").Respond] = true
	}
	if len(inboxes) != 5 {
		t.Errorf("others share an inbox: %v", inboxes)
	}
}

func TestWaitsAreBounded(t *testing.T) {
	const most, more = 2000, 1000
	f := newFleet(t, gateway.Options{Requests: most})
	f.answers(running)
	var all sync.WaitGroup
	post := func(want int) {
		if w := f.post("/hooks/x", "1"); w.Code != want || (w.Header().Get("Retry-After") != "") != (want == 503) {
			t.Errorf("answered %d, want %d", w.Code, want)
		}
	}
	for range most {
		all.Go(func() { post(201) })
	}
	var waiting []drover.HookRequest
	for range most {
		waiting = append(waiting, await(t, f.heard, "a delivery"))
	}
	for range more {
		post(503)
	}
	if asked := f.requests(); len(asked) != most {
		t.Errorf("%d deliveries", len(asked))
	}
	for _, req := range waiting {
		f.responds(req, 201, "1")
	}
	all.Wait()
	f.answers(func(drover.HookRequest) any { return drover.HookReply{} })
	post(202)
}

func TestBodiesAreBounded(t *testing.T) {
	f := newFleet(t, gateway.Options{Memory: 64 << 10})
	address, _ := f.serves()
	// Those that have sent little hold little, whatever they say will come.
	var slow []net.Conn
	for range 8 {
		c := dial(t, address)
		fmt.Fprintf(c, "POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", drover.MaxValue)
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "100") { // it is being read
			t.Fatal(line, err)
		}
		slow = append(slow, c)
	}
	big := func() int {
		resp, err := request(t, address, strings.NewReader(strings.Repeat("x", 200<<10)))
		if err != nil {
			return 503 // it was closed while we sent
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode
	}
	if w := f.post("/hooks/x", "small"); w.Code != 202 {
		t.Errorf("a small one: %d", w.Code)
	}
	if status := big(); status != 503 {
		t.Errorf("a big one: %d", status)
	}
	for _, c := range slow {
		_ = c.Close()
	}
	// Room comes back, from those that are gone as well.
	for rounds := 0; rounds < 20; {
		switch w := f.post("/hooks/x", strings.Repeat("x", 39<<10)); w.Code {
		case 202:
			rounds++
		case 503:
			if t.Context().Err() != nil {
				return
			}
		default:
			t.Fatalf("when there is room: %d", w.Code)
		}
	}
}

func TestACallerThatGoesAwayIsNotWaitedFor(t *testing.T) {
	f := newFleet(t, gateway.Options{Requests: 1})
	f.answers(running)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/hooks/x", nil))
	}()
	await(t, f.heard, "a delivery")
	leave()
	await(t, ended, "the end of the wait")
	f.answers(func(drover.HookRequest) any { return drover.HookReply{} })
	if w := f.post("/hooks/x", ""); w.Code != 202 {
		t.Errorf("the place is not free: %d", w.Code)
	}
}

// The same over a socket: that the connection ends is noticed.
func TestAConnectionThatEndsIsNotWaitedFor(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	f.answers(running)
	address, stop := f.serves()
	for range 50 {
		c := dial(t, address)
		fmt.Fprintf(c, "POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1")
		req := await(t, f.heard, "a delivery")
		_ = c.Close()
		for f.hears(req.Respond) {
		}
	}
	stop()
}

// hears reports whether somebody still listens on an inbox.
func (f *fleet) hears(inbox string) bool {
	_, err := f.nc.Request(inbox, nil, 50*time.Millisecond)
	return err == nil || err != nats.ErrNoResponders //nolint:errorlint // it is never wrapped
}

func TestHooks22TheEndOfAGatewayEndsWaits(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	f.answers(running)
	address, stop := f.serves()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			resp, err := request(t, address, strings.NewReader("1"))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != 202 || bodyOf(t, resp.Body) != "" {
				t.Errorf("answered %s", resp.Status)
			}
		})
	}
	for range 20 {
		await(t, f.heard, "a delivery")
	}
	stop()
	all.Wait()
}

func TestGarbage(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	address, _ := f.serves()
	for _, sent := range []string{
		"\x00\x01\xff", "GET", "POST /hooks/x", "POST /hooks/x HTTP/9.9\r\n\r\n", "POST /hooks/x HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"POST /hooks/%zz HTTP/1.1\r\nHost: x\r\n\r\n", "POST hooks HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
		"POST /hooks/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "POST /hooks/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"POST /hooks/x HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n", "POST /" + strings.Repeat("x", 100_000) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n1", "POST http://other/hooks/x HTTP/1.1\r\nHost: y\r\n\r\n",
		"POST /hooks/x HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\x00b\r\n\r\n", "POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nx",
	} {
		c := dial(t, address)
		_, _ = io.WriteString(c, sent)
		_ = c.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(c) // it may be reset
		if len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.1 ")) {
			t.Errorf("%.40q was answered %.80q", sent, answer)
		}
	}
	resp, err := request(t, address, strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 202 {
		t.Errorf("after it: %s", resp.Status)
	}
	if log := f.log.String(); strings.Contains(log, "panic") {
		t.Errorf("logged %s", log)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add("POST", "/hooks/x", "application/json", "k", []byte(`{"a":1}`))
	f.Add("GET", "/healthz", "", "", []byte("\xff"))
	f.Add("POST", "/hooks/%e4%ff", "text/plain; x", "\xff", []byte("\x00"))
	f.Add("POST", "//hooks/../x", "a/b+json", "", []byte("[[1"))
	f.Fuzz(func(t *testing.T, method, path, kind, key string, body []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, bytes.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Idempotency-Key", key)
		fl := newFleet(t, gateway.Options{})
		w := httptest.NewRecorder()
		fl.ServeHTTP(w, r)
		switch w.Code {
		case 202:
			req := await(t, fl.heard, "the delivery")
			if !req.Public || req.Token == "" || !json.Valid(req.Payload) || method != http.MethodPost {
				t.Errorf("delivered %+v", req)
			}
		case 200, 400, 404, 405, 413, 415:
			if len(fl.requests()) > 0 {
				t.Errorf("answered %d after a delivery", w.Code)
			}
		default:
			t.Errorf("answered %d", w.Code)
		}
	})
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address) //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// request posts on a connection of its own.
func request(t *testing.T, address string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/hooks/x", body)
	if err != nil {
		return nil, err
	}
	r.Close = true
	return http.DefaultClient.Do(r)
}
