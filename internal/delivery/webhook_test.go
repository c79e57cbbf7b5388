package delivery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

const (
	secretOne = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretTwo = "whsec_c2Vjb25kIHNlY3JldCBvZiB0aGUgdGVzdHMuLi4u"
	sentBody  = `{"delivery_id":"r_1:terminal:0","run_id":"r_1","status":"completed","result":{"a":1.50},"error":null}`
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// poster posts as a worker does that knows secrets.
type poster struct {
	client  *http.Client
	secrets *Secrets
}

// newPoster has a client that does what that of the dispatcher does, besides
// refusing loopback addresses.
func newPoster(t *testing.T, secrets string) *poster {
	t.Helper()
	s, err := OpenSecrets(secretsFile(t, secrets), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &poster{secrets: s, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (p *poster) post(ctx context.Context, notify drover.Notify) (string, bool, *drover.Error) {
	job := &Job{Run: "r_1", ID: "r_1:terminal:0", Attempt: 1, Notify: notify, Body: []byte(sentBody)}
	return post(ctx, p.client, p.secrets.Of, func() time.Time { return noon }, job)
}

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

func TestDelivery01AWebhookIsVerifiedByTheClient(t *testing.T) {
	var header http.Header
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Clone()
		header.Set("x-method", r.Method)
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	p := newPoster(t, "default: "+secretOne+"\nbilling: ["+secretTwo+", "+secretOne+"]\n")
	for name, known := range map[string][]string{"": {secretOne}, "billing": {secretOne, secretTwo}} {
		receipt, unmade, err := p.post(t.Context(), drover.Notify{URL: url, Secret: name})
		if receipt != "204 No Content" || unmade || err != nil {
			t.Fatalf("%q, %v, %v", receipt, unmade, err)
		}
		if string(body) != sentBody {
			t.Errorf("the body is %s", body)
		}
		got := maps.Collect(func(yield func(string, string) bool) {
			for _, name := range []string{"webhook-id", "webhook-timestamp", "content-type", "user-agent", "x-method", "idempotency-key"} {
				yield(name, header.Get(name))
			}
		})
		if want := map[string]string{
			"webhook-id": "r_1:terminal:0", "webhook-timestamp": "1777896000", "content-type": "application/json",
			"user-agent": "drover", "x-method": "POST", "idempotency-key": "",
		}; !maps.Equal(got, want) {
			t.Errorf("got the headers %v", got)
		}
		for _, secret := range known {
			v, err := client.NewWebhookVerifier(secret)
			if err != nil {
				t.Fatal(err)
			}
			v.Now = func() time.Time { return noon }
			if outcome, err := v.Verify(header, body); err != nil || outcome.RunID != "r_1" {
				t.Errorf("%q: %v, %v", name, outcome, err)
			}
		}
	}
}

func TestDelivery01WhatAnswersMean(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for _, tt := range []struct {
		what    string
		status  int
		header  map[string]string
		body    string
		receipt string
		err     drover.Error // its message: a part
	}{
		{what: "2xx", status: 200, receipt: "200 OK"},
		{what: "a status without a name", status: 299, receipt: "299"},
		{what: "2xx with text", status: 202, body: " got\n it\t", receipt: "got it"},
		{what: "2xx with much", status: 200, body: long, receipt: long[:256]},
		{what: "2xx with what is no text", status: 200, body: "\xff\xfe\x00", receipt: "200 OK"},
		{what: "failed", status: 500, body: "broken", err: drover.Error{Code: drover.CodeFailed, Message: "500 Internal Server Error: broken"}},
		{what: "refused", status: 401, err: drover.Error{Code: drover.CodeFailed, Message: "401 Unauthorized"}},
		{what: "gone", status: 410, err: drover.Error{Code: drover.CodeFailed, Message: "410 Gone", Permanent: true}},
		{
			what: "too many", status: 429, header: map[string]string{"Retry-After": "90"},
			err: drover.Error{Code: drover.CodeFailed, Message: "429", RetryAfter: drover.Duration(90 * time.Second)},
		},
		{
			what: "unavailable until", status: 503, header: map[string]string{"Retry-After": "Mon, 04 May 2026 12:02:00 GMT"},
			err: drover.Error{Code: drover.CodeFailed, Message: "503", RetryAfter: drover.Duration(2 * time.Minute)},
		},
		{
			what: "the header with another status", status: 500, header: map[string]string{"Retry-After": "90"},
			err: drover.Error{Code: drover.CodeFailed, Message: "500"},
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range tt.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			receipt, unmade, err := newPoster(t, "default: "+secretOne).post(t.Context(), drover.Notify{URL: url})
			if receipt != tt.receipt || unmade {
				t.Errorf("receipt %q, unmade %v", receipt, unmade)
			}
			if tt.err.Code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Message, tt.err.Message) || err.Code != tt.err.Code || err.Permanent != tt.err.Permanent || err.RetryAfter != tt.err.RetryAfter {
				t.Errorf("got %+v", err)
			}
		})
	}
}

func TestPostponed(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "x": 0, "-1": 0, "0": 0, "1.5": 0, "90": 90 * time.Second, "3600": time.Hour, "3601": time.Hour, "99999999999999": 0,
		"Mon, 04 May 2026 12:01:00 GMT": time.Minute, "Mon, 04 May 2026 11:00:00 GMT": 0, "Wed, 04 May 2099 12:00:00 GMT": time.Hour,
	} {
		if got := postponed(text, noon); time.Duration(got) != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestDelivery14RedirectsAreNotFollowed(t *testing.T) {
	followed := false
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			followed = true
			return
		}
		http.Redirect(w, r, "/elsewhere?key=hidden", http.StatusTemporaryRedirect)
	})
	receipt, unmade, err := newPoster(t, "default: "+secretOne).post(t.Context(), drover.Notify{URL: url})
	if receipt != "" || unmade || followed || err == nil || err.Permanent || !strings.Contains(err.Message, "redirects are not followed") || strings.Contains(err.Message, "hidden") {
		t.Errorf("%q, %v, followed %v: %v", receipt, unmade, followed, err)
	}
}

func TestDelivery14NothingIsSentUnsigned(t *testing.T) {
	hits := 0
	url := serve(t, func(http.ResponseWriter, *http.Request) { hits++ })
	p := newPoster(t, "other: "+secretOne)
	for name, want := range map[string]string{
		"": `"default"`, "billing": `"billing"`, secretTwo: "make another",
	} {
		receipt, unmade, err := p.post(t.Context(), drover.Notify{URL: url, Secret: name})
		if receipt != "" || !unmade || err == nil || err.Permanent || !strings.Contains(err.Message, want) || strings.Contains(err.Message, secretTwo) {
			t.Errorf("%q: %q, %v, %v", name, receipt, unmade, err)
		}
	}
	p.secrets = nil
	if _, unmade, err := p.post(t.Context(), drover.Notify{URL: url}); !unmade || err == nil || !strings.Contains(err.Message, "--webhook-secrets") {
		t.Errorf("without a file: %v, %v", unmade, err)
	}
	if hits > 0 {
		t.Errorf("%d requests were sent", hits)
	}
}

// listener is an address where nobody answers.
func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestDelivery10WhatFoundNobodyIsNoAttempt(t *testing.T) {
	closed := listener(t)
	_ = closed.Close()
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	cut := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	for _, tt := range []struct {
		what, url string
		unmade    bool
	}{
		{"connection refused", "http://" + closed.Addr().String(), true},
		{"no such host", "http://nobody.invalid/", true},
		{"a server that speaks no TLS", strings.Replace(plain, "http:", "https:", 1), false},
		{"a connection that is cut", cut, false},
	} {
		t.Run(tt.what, func(t *testing.T) {
			receipt, unmade, err := newPoster(t, "default: "+secretOne).post(t.Context(), drover.Notify{URL: tt.url + "?token=hidden-value"})
			if receipt != "" || unmade != tt.unmade || err == nil || err.Code != drover.CodeUnavailable || err.Permanent {
				t.Errorf("%q, %v, %+v", receipt, unmade, err)
			}
			if err != nil && (strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "Post")) {
				t.Errorf("the error has the URL: %v", err)
			}
		})
	}
}

func TestDelivery14AnAttemptHasATimeout(t *testing.T) {
	silent := listener(t) // the system takes the connection, nobody reads it
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	receipt, unmade, err := newPoster(t, "default: "+secretOne).post(ctx, drover.Notify{URL: "http://" + silent.Addr().String()})
	if receipt != "" || unmade || err == nil || err.Code != drover.CodeTimeout {
		t.Errorf("%q, %v, %+v", receipt, unmade, err)
	}
}

func TestDelivery01AnAnswerThatIsCutOffIsAReceipt(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "got it")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	receipt, _, err := newPoster(t, "default: "+secretOne).post(t.Context(), drover.Notify{URL: url})
	if receipt != "got it" || err != nil {
		t.Errorf("%q, %v", receipt, err)
	}
}

func TestDelivery14WhatTheClientRefusesIsPermanent(t *testing.T) {
	hits := 0
	url := serve(t, func(http.ResponseWriter, *http.Request) { hits++ })
	p := newPoster(t, "default: "+secretOne)
	dialer := &net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		e := drover.Errorf(drover.CodeForbidden, "its address %s is not public", address)
		e.Permanent = true
		return e
	}}
	p.client.Transport = &http.Transport{DialContext: dialer.DialContext}
	receipt, unmade, err := p.post(t.Context(), drover.Notify{URL: url})
	if receipt != "" || unmade || err == nil || err.Code != drover.CodeForbidden || !err.Permanent || !strings.Contains(err.Message, "not public") {
		t.Errorf("%q, %v, %+v", receipt, unmade, err)
	}
	if hits > 0 {
		t.Error("it was reached")
	}
}

func TestDelivery14WhatIsSecretIsNotTold(t *testing.T) {
	const hidden = "s3cr3t+value"
	for _, status := range []int{200, 400, 500} {
		at := serve(t, func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.Repeat("x", 240)+" "+user+" "+password+" "+r.URL.RawQuery+" "+r.URL.Query().Get("key"))
		})
		u := strings.Replace(at, "http://", "http://operator:pass-word@", 1) + "/in?key=" + url.QueryEscape(hidden)
		receipt, _, err := newPoster(t, "default: "+secretOne).post(t.Context(), drover.Notify{URL: u})
		said := receipt
		if err != nil {
			said += err.Error()
		}
		if !strings.Contains(said, "xxx") {
			t.Errorf("%d: nothing is told: %s", status, said)
		}
		for _, part := range []string{hidden, url.QueryEscape(hidden), "s3cr3t", "operator", "pass-word", secretOne[6:]} {
			if strings.Contains(said, part) {
				t.Errorf("%d: %q is in %s", status, part, said)
			}
		}
	}
}

func TestDelivery14AnotherBoundOfTheCallerHolds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	_, unmade, err := newPoster(t, "default: "+secretOne).post(ctx, drover.Notify{URL: url})
	if unmade || !errors.Is(err, drover.CodeUnavailable) {
		t.Errorf("%v, %v", unmade, err)
	}
}

func FuzzShown(f *testing.F) {
	f.Add([]byte("token=hidden-value"), "token=hidden-value")
	f.Add(bytes.Repeat([]byte("é"), 3000), "a=%zz")
	f.Fuzz(func(t *testing.T, body []byte, query string) {
		u := &url.URL{Scheme: "https", Host: "h", RawQuery: query}
		if text := shown(u, body[:min(len(body), maxAnswer)]); len(text) > maxShown || strings.ContainsAny(text, "\r\n\x00") {
			t.Errorf("%q became %q", body, text)
		}
	})
}
