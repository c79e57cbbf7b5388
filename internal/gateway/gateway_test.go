package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/gateway"
	"github.com/droverhq/drover/internal/natstest"
)

const token = "h_s3cret"

func TestHooks22AnswersOfADelivery(t *testing.T) {
	patient, hasty := newFleet(t, gateway.Options{}), newFleet(t, gateway.Options{Patience: time.Millisecond})
	reply := func(a *drover.Answer) any { return drover.HookReply{Token: token, RunID: "run1", Answer: a} }
	refusal := func(code drover.Code) any {
		return &drover.Error{Code: code, Message: "about " + token, Run: "run1"}
	}
	told := func(code drover.Code) string { return fmt.Sprintf(`{"code":%q,"message":"about %s"}`, code, token) }
	for name, tc := range map[string]struct {
		answer any
		status int
		body   string
	}{
		"accepted":             {reply(nil), 202, ""},
		"a fixed answer":       {reply(&drover.Answer{With: json.RawMessage(`{"ok":true}`)}), 200, `{"ok":true}`},
		"with a status":        {reply(&drover.Answer{With: json.RawMessage(`null`), Status: 418}), 418, `null`},
		"a status without any": {reply(&drover.Answer{With: json.RawMessage(`"x"`), Status: 204}), 204, ""},
		"not found":            {refusal(drover.CodeNotFound), 404, ""},
		"its run is over":      {refusal(drover.CodeTerminal), 404, ""},
		"full":                 {refusal(drover.CodeFull), 429, ""},
		"conflict":             {refusal(drover.CodeConflict), 409, ""},
		"the schema says no":   {refusal(drover.CodeInvalidInput), 422, told(drover.CodeInvalidInput)},
		"too large":            {refusal(drover.CodeTooLarge), 413, told(drover.CodeTooLarge)},
		"no request":           {refusal(drover.CodeInvalidRequest), 400, told(drover.CodeInvalidRequest)},
		"unavailable":          {refusal(drover.CodeUnavailable), 503, ""},
		"no answer":            {nil, 503, ""},
		"at fault":             {refusal(drover.CodeInternal), 500, ""},
		"a code of tomorrow":   {refusal("tomorrow"), 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := patient
			if tc.status == 503 { // which is asked again and again
				f = hasty
			}
			f.answers(func(drover.HookRequest) any { return tc.answer })
			w := f.post("/hooks/"+token, "1")
			if w.Code != tc.status || w.Body.String() != tc.body {
				t.Errorf("answered %d %q, want %d %q", w.Code, w.Body, tc.status, tc.body)
			}
			if again := w.Header().Get("Retry-After") != ""; again != (tc.status == 429 || tc.status == 503) {
				t.Errorf("headers %v", w.Header())
			}
			if kind := w.Header().Get("Content-Type"); (kind == "application/json") != (tc.body != "") {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
	for _, req := range append(patient.requests(), hasty.requests()...) {
		if !req.Public || req.Token != token || req.ID == "" || req.Start != nil {
			t.Errorf("asked for %+v", req)
		}
	}
	if log := patient.log.String() + hasty.log.String(); strings.Contains(log, token) || !strings.Contains(log, "internal") {
		t.Errorf("logged %s", log)
	}
}

func TestHooks22WhatIsNotThereLooksLikeAnyOtherPath(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	f.answers(func(drover.HookRequest) any { return drover.Errorf(drover.CodeNotFound, "nobody holds it") })
	want := f.post("/hooks/"+token, "1")
	for _, path := range []string{
		"/", "/hooks", "/hooks/", "/hook/x", "//hooks/x", "/hooks/a/../b", "/hooks/" + strings.Repeat("x", 513), "/hooks/%ff",
		"/hooks/x%00", "/healthz", "/healthz/", "/HOOKS/x", "/hooks%2Fx", "/../hooks/x", "/hooks/x?a=b", "/debug/pprof/", "/hooks/a/b",
	} {
		if w := f.post(path, "1"); w.Code != 404 || w.Body.Len() > 0 || !maps.EqualFunc(w.Header(), want.Header(), equal) {
			t.Errorf("%s: %d %q %v", path, w.Code, w.Body, w.Header())
		}
	}
}

func equal(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func TestTokensAreAnyText(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	for _, want := range []string{"h_1", "a b", "a/b", "..", ".", "%2F", "ü\n*>", "\x00", strings.Repeat("x", 512)} {
		if w := f.post("/hooks/"+url.PathEscape(want), ""); w.Code != 202 {
			t.Errorf("%q: %d", want, w.Code)
			continue
		}
		if req := await(t, f.heard, "a delivery"); req.Token != want {
			t.Errorf("%q came as %q", want, req.Token)
		}
	}
}

func TestOtherMethods(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "post"} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/hooks/x", strings.NewReader("1"))
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		if w.Code != 405 || w.Header().Get("Allow") != "POST" || w.Body.Len() > 0 {
			t.Errorf("%s: %d %v", method, w.Code, w.Header())
		}
	}
	if asked := f.requests(); len(asked) > 0 {
		t.Errorf("asked for %v", asked)
	}
}

func TestPayloads(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	big := strings.Repeat("x", drover.MaxValue-2)
	pages := strings.Repeat("<>&", (drover.MaxValue-2)/3)
	const text = "text/plain"
	for _, tc := range []struct {
		kind, body string
		status     int
		payload    string
	}{
		{"application/json", `{"a": [1]}`, 202, `{"a":[1]}`},
		{"application/json; charset=utf-8", `"a"`, 202, `"a"`},
		{"APPLICATION/JSON", `1e400`, 202, `1e400`},
		{"application/cloudevents+json", `1`, 202, `1`},
		{"text/json", `1`, 202, `1`},
		{"application/json; ===", `1`, 202, `1`},
		{"application/json", ``, 202, `null`},
		{text, ``, 202, `null`},
		{"", `{"a":1}`, 202, `"{\"a\":1}"`},
		{text, "a\nb", 202, `"a\nb"`},
		{"application/x-www-form-urlencoded", "a=b&c=d", 202, `"a=b&c=d"`},
		{"application/jsonp", `1`, 202, `"1"`},
		{"garbage;;;", `1`, 202, `"1"`},
		{"application/json", `{"a":`, 400, ""},
		{"application/json", ` `, 400, ""},
		{"application/json", `1 2`, 400, ""},
		{"application/json", "\"\xff\"", 400, ""},
		{"application/json", strings.Repeat("[", 100_000), 400, ""},
		{text, "\xff\xfe", 415, ""},
		{"application/json", `"` + big + `"`, 202, `"` + big + `"`},
		{"application/json", `"` + big + `" `, 413, ""},
		{text, big + "xyz", 413, ""},
		{text, pages, 202, `"` + pages + `"`},
	} {
		w := f.post("/hooks/x", tc.body, "Content-Type", tc.kind)
		if w.Code != tc.status {
			t.Errorf("%s %.40q: %d %s", tc.kind, tc.body, w.Code, w.Body)
			continue
		}
		if tc.status != 202 {
			var e drover.Error
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Code == "" || e.Message == "" {
				t.Errorf("%s %.40q: told %s", tc.kind, tc.body, w.Body)
			}
			continue
		}
		if req := await(t, f.heard, "a delivery"); string(req.Payload) != tc.payload {
			t.Errorf("%s %.40q came as %.60s", tc.kind, tc.body, req.Payload)
		}
	}
	if w := f.post("/hooks/x", "\x1f\x8b", "Content-Encoding", "gzip"); w.Code != 415 {
		t.Errorf("compressed: %d", w.Code)
	}
	if w := f.post("/hooks/x", "1", "Content-Encoding", "identity"); w.Code != 202 {
		t.Errorf("not compressed: %d", w.Code)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	for _, tc := range []struct {
		keys   []string
		status int
		id     string // "": one that is made
	}{
		{nil, 202, ""},
		{[]string{""}, 202, ""},
		{[]string{"mail-1"}, 202, "http:mail-1"},
		{[]string{strings.Repeat("k", 250)}, 202, "http:" + strings.Repeat("k", 250)},
		{[]string{strings.Repeat("k", 251)}, 400, ""},
		{[]string{"a", "b"}, 400, ""},
		{[]string{"\xff"}, 400, ""},
	} {
		var headers []string
		for _, key := range tc.keys {
			headers = append(headers, "Idempotency-Key", key)
		}
		w := f.post("/hooks/x", "1", headers...)
		if w.Code != tc.status {
			t.Errorf("%.20q: %d", tc.keys, w.Code)
		} else if tc.status == 202 {
			if req := await(t, f.heard, "a delivery"); tc.id != "" && req.ID != tc.id || !strings.HasPrefix(req.ID, "http:") && tc.id != "" || req.ID == "" {
				t.Errorf("%.20q came as %q", tc.keys, req.ID)
			}
		}
	}
}

func TestHealthIsThatOfTheConnection(t *testing.T) {
	f := newFleet(t, gateway.Options{})
	lost, back := make(chan struct{}, 1), make(chan struct{}, 1)
	nc := f.srv.Connect(
		nats.DisconnectErrHandler(func(*nats.Conn, error) { lost <- struct{}{} }),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }),
		nats.CustomReconnectDelay(func(int) time.Duration { return time.Millisecond }),
	)
	g, err := gateway.New(nc, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string) int {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w.Code
	}
	if status := ask(http.MethodGet, "/healthz"); status != 200 {
		t.Errorf("connected: %d", status)
	}
	f.srv.Stop()
	await(t, lost, "the loss of the server")
	if status := ask(http.MethodGet, "/healthz"); status != 503 {
		t.Errorf("without a server: %d", status)
	}
	if status := ask(http.MethodPost, "/hooks/x"); status != 503 {
		t.Errorf("a delivery without a server: %d", status)
	}
	f.srv.Start()
	await(t, back, "the server")
	if status := ask(http.MethodHead, "/healthz"); status != 200 {
		t.Errorf("connected again: %d", status)
	}
}

func TestInboxesMustBeOnesThatWorkersAnswerTo(t *testing.T) {
	srv := natstest.New(t)
	if _, err := gateway.New(srv.Connect(nats.CustomInboxPrefix("drover.inbox")), gateway.Options{}); err == nil {
		t.Error("answers would never come, and nothing said so")
	}
	if _, err := gateway.New(srv.Connect(nats.CustomInboxPrefix("_INBOX.drover.worker")), gateway.Options{}); err != nil {
		t.Error(err)
	}
}
