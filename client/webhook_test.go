package client_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_c2Vjb25kIHNlY3JldCBvZiB0aGUgdGVzdHMuLi4u"
	body      = `{"delivery_id":"r_1:terminal:0","run_id":"r_1","workflow":"letter","status":"completed","result":{"a":1.50},"error":null}`
)

var signedAt = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func signed(t *testing.T, body string, secrets ...string) http.Header {
	t.Helper()
	header, err := client.SignWebhook("r_1:terminal:0", signedAt, []byte(body), secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return header
}

func verifier(t *testing.T, secrets ...string) *client.WebhookVerifier {
	t.Helper()
	v, err := client.NewWebhookVerifier(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	v.Now = func() time.Time { return signedAt }
	return v
}

func TestDelivery01OnlyWhatWasSignedIsVerified(t *testing.T) {
	set := func(name, value string) func(http.Header, *string) {
		return func(h http.Header, _ *string) { h.Set(name, value) }
	}
	for _, tt := range []struct {
		what   string
		change func(h http.Header, body *string)
		want   drover.Code // "": it is verified
	}{
		{"nothing", func(http.Header, *string) {}, ""},
		{"the body", func(_ http.Header, b *string) { *b = strings.Replace(*b, "1.50", "1.5", 1) }, drover.CodeForbidden},
		{"the end of the body", func(_ http.Header, b *string) { *b += " " }, drover.CodeForbidden},
		{"no body", func(_ http.Header, b *string) { *b = "" }, drover.CodeForbidden},
		{"the id", set("webhook-id", "r_2:terminal:0"), drover.CodeForbidden},
		{"an id with a dot", set("webhook-id", "r_1:terminal:0.1"), drover.CodeInvalidRequest},
		{"the time", set("webhook-timestamp", strconv.FormatInt(signedAt.Unix()+1, 10)), drover.CodeForbidden},
		{"how the time is written", set("webhook-timestamp", "+"+strconv.FormatInt(signedAt.Unix(), 10)), drover.CodeForbidden},
		{"the time to none", set("webhook-timestamp", "noon"), drover.CodeInvalidRequest},
		{"the time to one long ago", set("webhook-timestamp", strconv.Itoa(math.MinInt64)), drover.CodeForbidden},
		{"the time to one far away", set("webhook-timestamp", strconv.Itoa(math.MaxInt64)), drover.CodeForbidden},
		{"the signature", set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="), drover.CodeForbidden},
		{"no id", func(h http.Header, _ *string) { h.Del("webhook-id") }, drover.CodeInvalidRequest},
		{"no time", func(h http.Header, _ *string) { h.Del("webhook-timestamp") }, drover.CodeInvalidRequest},
		{"no signature", func(h http.Header, _ *string) { h.Del("webhook-signature") }, drover.CodeInvalidRequest},
		{"one signature more", func(h http.Header, _ *string) {
			h.Set("webhook-signature", "v1a,xyz v1,AAAA "+h.Get("webhook-signature"))
		}, ""},
	} {
		header, text := signed(t, body, oldSecret), body
		tt.change(header, &text)
		outcome, err := verifier(t, oldSecret).Verify(header, []byte(text))
		switch {
		case tt.want != "" && (!errors.Is(err, tt.want) || outcome.RunID != ""):
			t.Errorf("%s: %v, %v", tt.what, outcome.RunID, err)
		case tt.want == "" && (err != nil || outcome.RunID != "r_1" || string(outcome.Result) != `{"a":1.50}`):
			t.Errorf("%s: %+v, %v", tt.what, outcome, err)
		}
	}
	if _, err := (&client.WebhookVerifier{Now: verifier(t, oldSecret).Now}).Verify(signed(t, body, oldSecret), []byte(body)); !errors.Is(err, drover.CodeForbidden) {
		t.Errorf("without a secret: %v", err)
	}
	for _, odd := range []string{`{"hello": 1}`, `[]`, `{"run_id": 1}`, ``} {
		if _, err := verifier(t, oldSecret).Verify(signed(t, odd, oldSecret), []byte(odd)); !errors.Is(err, drover.CodeInvalidRequest) {
			t.Errorf("%s: %v", odd, err)
		}
	}
}

func TestDelivery01TheTimeOfAWebhookIsNearNow(t *testing.T) {
	header := signed(t, body, oldSecret)
	for _, tt := range []struct {
		tolerance, age time.Duration
		ok             bool
	}{
		{0, 5 * time.Minute, true},
		{0, 5*time.Minute + 1, false},
		{0, -5 * time.Minute, true},
		{0, -5*time.Minute - 1, false},
		{0, 24 * 365 * time.Hour, false},
		{time.Hour, time.Hour, true},
		{time.Second, -2 * time.Second, false},
	} {
		v := verifier(t, oldSecret)
		v.Tolerance, v.Now = tt.tolerance, func() time.Time { return signedAt.Add(tt.age) }
		if _, err := v.Verify(header, []byte(body)); (err == nil) != tt.ok || err != nil && !errors.Is(err, drover.CodeForbidden) {
			t.Errorf("%v old, tolerance %v: %v", tt.age, tt.tolerance, err)
		}
	}
	v := verifier(t, oldSecret)
	v.Now = nil
	if _, err := v.Verify(header, []byte(body)); !errors.Is(err, drover.CodeForbidden) {
		t.Errorf("by the clock of this machine it is not old: %v", err)
	}
}

// While a secret is changed, those who sign and those who verify may be at
// different places of the change.
func TestDelivery01SecretsAreRotated(t *testing.T) {
	for _, tt := range []struct {
		sign, know []string
		ok         bool
	}{
		{[]string{oldSecret}, []string{oldSecret}, true},
		{[]string{newSecret, oldSecret}, []string{oldSecret}, true},
		{[]string{newSecret, oldSecret}, []string{newSecret}, true},
		{[]string{newSecret, oldSecret}, []string{newSecret, oldSecret}, true},
		{[]string{oldSecret}, []string{newSecret, oldSecret}, true},
		{[]string{newSecret}, []string{newSecret}, true},
		{[]string{newSecret}, []string{oldSecret}, false},
		{[]string{oldSecret}, []string{newSecret}, false},
	} {
		_, err := verifier(t, tt.know...).Verify(signed(t, body, tt.sign...), []byte(body))
		if (err == nil) != tt.ok {
			t.Errorf("signed with %d, known %d: %v", len(tt.sign), len(tt.know), err)
		}
	}
}

func TestDelivery14VerifiersShowNoSecret(t *testing.T) {
	for _, bad := range [][]string{nil, {"nobodys-business"}, {oldSecret, "whsec_nobodys-business"}, {oldSecret[:20]}} {
		_, err := client.NewWebhookVerifier(bad...)
		if !errors.Is(err, drover.CodeInvalidRequest) || strings.Contains(err.Error(), "business") || strings.Contains(err.Error(), oldSecret[6:20]) {
			t.Errorf("%q: %v", bad, err)
		}
		if len(bad) > 0 {
			if _, err := client.SignWebhook("r_1:terminal:0", signedAt, nil, bad...); !errors.Is(err, drover.CodeInvalidRequest) {
				t.Errorf("%q signs: %v", bad, err)
			}
		}
	}
}

// A handler that takes outcomes, and a test of it.
func ExampleWebhookVerifier() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of your configuration

	verifier, err := client.NewWebhookVerifier(secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		outcome, err := verifier.Verify(r.Header, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		// Store it under outcome.DeliveryID here: it may come again.
		fmt.Println(outcome.RunID, "is", outcome.Status)
		w.WriteHeader(http.StatusNoContent)
	}

	sent := `{"delivery_id": "letter-1:terminal:0", "run_id": "letter-1", "status": "completed"}`
	request := httptest.NewRequest(http.MethodPost, "/outcomes", strings.NewReader(sent))
	request.Header, err = client.SignWebhook("letter-1:terminal:0", time.Now(), []byte(sent), secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := httptest.NewRecorder()
	handler(answer, request)
	fmt.Println(answer.Code)
	// Output:
	// letter-1 is completed
	// 204
}
