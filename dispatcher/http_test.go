package dispatcher

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/subjects"
)

// site is what the http nodes of these tests reach.
func site(t *testing.T) (url string, hits *atomic.Int64) {
	t.Helper()
	hits = &atomic.Int64{}
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/vnd.x+json; charset=utf-8")
		w.Header()["X-Two"] = []string{"a", "b"}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode([]string{
			r.Method, string(body), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key"), r.Header.Get("X-Key"), r.URL.RawQuery,
		})
	})
	answer := func(path string, status int, contentType, body string, headers ...string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	answer("/text", 200, "text/plain", "a <b>")
	answer("/broken", 200, "application/json", "{")
	answer("/bytes", 200, "image/png", "\x89\xff")
	answer("/none", 204, "text/plain", "")
	answer("/huge", 200, "text/plain", strings.Repeat("x", drover.MaxValue+1))
	answer("/most", 200, "text/plain", strings.Repeat("x", drover.MaxValue-1000))
	answer("/404", 404, "text/plain", strings.Repeat("no ", 1000))
	answer("/429", 429, "text/plain", "slow down", "Retry-After", "7")
	answer("/503", 503, "text/plain", "")
	answer("/500", 500, "text/plain", "oops", "Retry-After", "nonsense")
	answer("/moved", 302, "text/plain", "", "Location", "https://elsewhere.example/x?key=SECRET")
	answer("/lost", 301, "text/plain", "")
	mux.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, hits
}

func TestHTTP(t *testing.T) {
	url, _ := site(t)
	host := strings.TrimPrefix(url, "http://")
	f := newFleet(t)
	d, _ := f.dispatcher()
	call := f.builtin(d, subjects.FunctionHTTP)
	for i, tc := range []struct{ input, want string }{
		{`{"url":"URL/echo?q=1"}`, `"body":["GET","","","r1/n@CALL","","q=1"]}`},
		{`{"url":"URL/echo","body":{"a":1}}`, `"body":["POST","{\"a\":1}","application/json","r1/n@CALL","",""]}`},
		{`{"url":"URL/echo","method":"PUT","body":"a=b","headers":{"content-type":"text/plain","x-key":"k","Idempotency-Key":"mine"}}`, `"body":["PUT","a=b","text/plain","mine","k",""]}`},
		{`{"url":"URL/echo","body":"a"}`, `"body":["POST","\"a\"","application/json","r1/n@CALL","",""]}`},
		{`{"url":"URL/echo"}`, `{"status":201,"headers":{`},
		{`{"url":"URL/echo"}`, `"x-two":"a, b"`},
		{`{"url":"URL/text"}`, `"body":"a <b>"}`},
		{`{"url":"URL/broken"}`, `"body":"{"}`},
		{`{"url":"URL/bytes"}`, `"body":"if8=","encoding":"base64"}`},
		{`{"url":"URL/none"}`, `"body":""}`},
		{`{"url":"URL/most"}`, `xxxx"}`},
		{`{"url":"URL/huge"}`, `too_large final: GET to HOST answered with more than 1048576 bytes`},
		{`{"url":"URL/404"}`, `failed final: GET to HOST answered 404 Not Found: no no`},
		{`{"url":"URL/429"}`, `failed again: GET to HOST answered 429 Too Many Requests: slow down`},
		{`{"url":"URL/503"}`, `failed again: GET to HOST answered 503 Service Unavailable`},
		{`{"url":"URL/500"}`, `failed again: GET to HOST answered 500 Internal Server Error: oops`},
		{`{"url":"URL/moved"}`, `failed final: GET to HOST answered 302 Found to elsewhere.example: redirects are not followed`},
		{`{"url":"URL/lost"}`, `failed final: GET to HOST answered 301 Moved Permanently to nowhere: redirects`},
		{`{"url":"URL/cut","method":"POST"}`, `unavailable again: POST to HOST failed: EOF`},
		{`{"url":"http://127.0.0.1:1/x?key=SECRET"}`, `unavailable again: GET to 127.0.0.1:1 failed: dial tcp`},
		{`{"url":"ftp://host/SECRET"}`, `invalid_input final: the url of an http node must be`},
		{`{"url":"http://[SECRET"}`, `invalid_input final: `},
		{`{"url":"/SECRET"}`, `invalid_input final: `},
		{`{"url":"URL/text","method":"G T"}`, `invalid_input final: `},
		{`{"url":"URL/text","headers":{"X":"SECRET\n"}}`, `invalid_input final: header "X" of the http node for host "HOST"`},
		{`{"url":"URL/text","headers":{"X Y":"SECRET"}}`, `invalid_input final: header "X Y"`},
		{`{"url":7}`, `invalid_input final: `},
	} {
		got := spell(call(strings.ReplaceAll(tc.input, "URL", url)))
		if want := strings.NewReplacer("HOST", host, "CALL", strconv.Itoa(i+1)).Replace(tc.want); !strings.Contains(got, want) {
			t.Errorf("%s:\n%.1000s\nwant\n%s", tc.input, got, want)
		}
		if strings.Contains(got, "SECRET") || len(got) > 2000 && !strings.Contains(tc.input, "most") {
			t.Errorf("%s: the error tells too much: %.3000s", tc.input, got)
		}
	}
	if result := call(strings.ReplaceAll(`{"url":"URL/429"}`, "URL", url)); result.Error.RetryAfter != drover.Duration(7*time.Second) {
		t.Errorf("retry after %v, want 7 s", result.Error.RetryAfter)
	}
	if strings.Contains(f.logs.String(), "SECRET") {
		t.Errorf("a secret is in the log: %s", f.logs.String())
	}
}

func TestCancelEndsAnHTTPRequestWithoutAResult(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	}))
	t.Cleanup(s.Close)
	f := newFleet(t)
	d, _ := f.dispatcher()
	call := callEffect(subjects.FunctionHTTP, fmt.Sprintf(`{"url":%q}`, s.URL))
	f.perform(d, call)
	await(t, begun, "the request")
	call.Kind = machine.EffectCancel
	f.perform(d, call)
	await(t, ended, "the end of the request")
	f.settled()
	if n := f.count(f.names.Commands(), ">"); n != 0 {
		t.Errorf("%d results of a call that nobody wants", n)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "x": 0, "-1": 0, "0": 0, "90": 90 * time.Second, "2000000000": maxRetryAfter, "99999999999999": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0, "Fri, 02 Jan 2099 03:00:00 GMT": maxRetryAfter,
	} {
		if got := retryAfter(text, now); time.Duration(got) != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestPrivateAddressesAreRefusedWhenDialled(t *testing.T) {
	url, hits := site(t)
	port := url[strings.LastIndex(url, ":"):]
	f := newFleet(t)
	d, _ := f.dispatcher(func(o *Options) { o.AllowPrivate = false })
	call := f.builtin(d, subjects.FunctionHTTP)
	// localhost is a name: what counts is what it leads to.
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "2130706433", "0x7f.1"} {
		got := call(fmt.Sprintf(`{"url":"http://%s%s/text"}`, host, port))
		if got.Error == nil {
			t.Errorf("%s was reached", host)
		}
		if isAddr := !strings.Contains(host, "x") && host != "2130706433"; isAddr && (got.Error.Code != drover.CodeForbidden || !got.Error.Permanent || !strings.Contains(got.Error.Message, "--allow-private")) {
			t.Errorf("%s: %s", host, spell(got))
		}
	}
	if hits.Load() != 0 {
		t.Errorf("the site was reached %d times", hits.Load())
	}
}

func TestPublicAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "172.15.0.1": true, "172.32.0.1": true, "100.63.0.1": true, "2606:4700::1111": true,
		"10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "127.9.9.9": false, "169.254.1.1": false, "0.0.0.0": false,
		"0.1.2.3": false, "100.64.0.1": false, "198.18.0.1": false, "224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "fe80::1%eth0": false, "fc00::1": false, "ff02::1": false, "::ffff:10.0.0.1": false,
		"::ffff:8.8.8.8": true, "64:ff9b::a00:1": false, "2002:a00:1::": false, "2001::1": false, "::10.0.0.1": false,
	} {
		if got := isPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: public %v, want %v", text, got, want)
		}
	}
}

func FuzzBodiesBecomeJSON(f *testing.F) {
	for _, seed := range []string{"", "{}", "[1", "\xff", "a\x00b", "\u2028", " 1 "} {
		f.Add("application/json", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		got, encoding := responseBody(contentType, body)
		if !json.Valid(got) || encoding != "" && encoding != "base64" {
			t.Errorf("%q of %s became %s in %q", body, contentType, got, encoding)
		}
		if got := asJSON(body); !json.Valid(got) {
			t.Errorf("%q became %s", body, got)
		}
	})
}
