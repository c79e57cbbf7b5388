// Package webhook signs HTTP requests as the Standard Webhooks specification
// says, with HMAC-SHA256: it is where whoever sends a webhook and whoever
// verifies one agree.
//
// # Promises
//
// What is signed is the id, the time of the attempt and the body, with a dot
// between. An id has no dot, so that nothing else gives the same bytes. A request
// that is signed with several secrets has a signature for each: one that knows
// any of them can verify it, which is how a secret is changed while webhooks are
// on their way. No error of this package shows a secret.
//
// # What may not be assumed
//
// That a signature which is right is new: a request may come again. The id says
// so, and the time how old it may be at most.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// The headers of a webhook.
const (
	HeaderID        = "Webhook-Id"        // the same for every attempt
	HeaderTimestamp = "Webhook-Timestamp" // of the attempt: seconds since 1970
	HeaderSignature = "Webhook-Signature" // signatures, with a space between
)

// prefix of a secret in text, and how many bytes one has.
const (
	prefix = "whsec_"
	least  = 24
	most   = 64
)

// scheme is the one that is spoken here; signatures of others are not looked at.
const scheme = "v1,"

// Mistaken reports whether a text that is to be a name is a secret, or looks
// like one, and so must not be shown.
func Mistaken(name string) bool { return strings.HasPrefix(name, prefix) }

// ParseSecret reads a secret: whsec_ and the base64 of 24 to 64 bytes. The error
// has the code invalid_request, and does not show what was given.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, prefix)
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return nil, drover.Errorf(drover.CodeInvalidRequest,
			"a webhook secret must be %s and base64 with its padding: make one with openssl rand -base64 32, and put %s before it", prefix, prefix)
	}
	if len(secret) < least || len(secret) > most {
		return nil, drover.Errorf(drover.CodeInvalidRequest,
			"a webhook secret has %d bytes, and must have %d to %d: make one with openssl rand -base64 32, and put %s before it", len(secret), least, most, prefix)
	}
	return secret, nil
}

// Sign sets the three headers of an attempt that is made at a time.
func Sign(header http.Header, secrets [][]byte, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signatures[i] = signature(secret, id, timestamp, body)
	}
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, timestamp)
	header.Set(HeaderSignature, strings.Join(signatures, " "))
}

// Signed reports whether any of the signatures is of any of the secrets. How
// long it takes does not tell how much of one was right.
func Signed(secrets [][]byte, id, timestamp, signatures string, body []byte) bool {
	found := false
	for _, secret := range secrets {
		want := []byte(signature(secret, id, timestamp, body))
		for given := range strings.FieldsSeq(signatures) {
			if hmac.Equal([]byte(given), want) {
				found = true
			}
		}
	}
	return found
}

func signature(secret []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return scheme + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
