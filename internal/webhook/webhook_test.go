package webhook

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// The example that libraries of Standard Webhooks are tested with.
const (
	exampleSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	exampleTime      = 1614265330
	exampleBody      = `{"test": 2432232314}`
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestDelivery01WebhooksAreSignedAsTheStandardSays(t *testing.T) {
	secret, err := ParseSecret(exampleSecret)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	at := time.Unix(exampleTime, 999_999_999)
	Sign(header, [][]byte{secret}, exampleID, at, []byte(exampleBody))
	for name, want := range map[string]string{
		"webhook-id": exampleID, "webhook-timestamp": "1614265330", "webhook-signature": exampleSignature,
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	other := bytes.Repeat([]byte("b"), 32)
	Sign(header, [][]byte{other, secret}, exampleID, at, []byte(exampleBody))
	if got := strings.Fields(header.Get(HeaderSignature)); len(got) != 2 || got[1] != exampleSignature || got[0] == got[1] {
		t.Errorf("two secrets give the signatures %q", got)
	}
}

func TestSigned(t *testing.T) {
	secret, _ := ParseSecret(exampleSecret)
	other := bytes.Repeat([]byte("b"), 32)
	for _, tt := range []struct {
		what                            string
		secrets                         [][]byte
		id, timestamp, signatures, body string
		want                            bool
	}{
		{"as it is", [][]byte{secret}, exampleID, "1614265330", exampleSignature, exampleBody, true},
		{"the second of two secrets", [][]byte{other, secret}, exampleID, "1614265330", exampleSignature, exampleBody, true},
		{"the last of three signatures", [][]byte{secret}, exampleID, "1614265330", "v1a,x v1,AAAA  " + exampleSignature, exampleBody, true},
		{"another secret", [][]byte{other}, exampleID, "1614265330", exampleSignature, exampleBody, false},
		{"no secret", nil, exampleID, "1614265330", exampleSignature, exampleBody, false},
		{"no signature", [][]byte{secret}, exampleID, "1614265330", "", exampleBody, false},
		{"another scheme", [][]byte{secret}, exampleID, "1614265330", "v2" + exampleSignature[2:], exampleBody, false},
		{"no scheme", [][]byte{secret}, exampleID, "1614265330", exampleSignature[3:], exampleBody, false},
		{"a signature that is cut off", [][]byte{secret}, exampleID, "1614265330", exampleSignature[:20], exampleBody, false},
		{"another id", [][]byte{secret}, exampleID + "k", "1614265330", exampleSignature, exampleBody, false},
		{"another time", [][]byte{secret}, exampleID, "1614265331", exampleSignature, exampleBody, false},
		{"another body", [][]byte{secret}, exampleID, "1614265330", exampleSignature, exampleBody + " ", false},
	} {
		if got := Signed(tt.secrets, tt.id, tt.timestamp, tt.signatures, []byte(tt.body)); got != tt.want {
			t.Errorf("%s: %v", tt.what, got)
		}
	}
}

func TestDelivery14SecretsAreReadAndNotShown(t *testing.T) {
	text := func(n int) string { return prefix + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, good := range []string{exampleSecret, text(24), text(64)} {
		if _, err := ParseSecret(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "whsec_", "hunter2hunter2hunter2hunter2", text(23), text(65), exampleSecret[len(prefix):],
		"whsec_" + strings.Repeat("!", 40), text(25)[:len(text(25))-2], "WHSEC_" + exampleSecret[len(prefix):],
	} {
		_, err := ParseSecret(bad)
		if !errors.Is(err, drover.CodeInvalidRequest) || !strings.Contains(err.Error(), "whsec_") {
			t.Errorf("%s: %v", bad, err)
		}
		if value := strings.TrimPrefix(bad, prefix); err != nil && value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("the error shows what was given: %v", err)
		}
	}
}

// A request that was signed is known again, and no other one.
func FuzzSigned(f *testing.F) {
	f.Add([]byte("secret"), "r_1:terminal:0", int64(exampleTime), []byte(`{}`), []byte("x"))
	f.Fuzz(func(t *testing.T, secret []byte, id string, at int64, body, noise []byte) {
		if id = strings.ReplaceAll(id, ".", ""); strings.TrimSpace(id) != id {
			return
		}
		header := http.Header{}
		Sign(header, [][]byte{secret}, id, time.Unix(at, 0), body)
		check := func(body []byte) bool {
			return Signed([][]byte{secret}, header.Get(HeaderID), header.Get(HeaderTimestamp), header.Get(HeaderSignature), body)
		}
		if !check(body) {
			t.Error("what was signed is refused")
		}
		if other := append(bytes.Clone(body), noise...); len(noise) > 0 && check(other) {
			t.Error("another body is accepted")
		}
	})
}
