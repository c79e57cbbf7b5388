package client

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/webhook"
)

// DefaultWebhookTolerance is how far the time of a webhook may be from now.
const DefaultWebhookTolerance = 5 * time.Minute

// WebhookVerifier tells outcomes that a fleet sent to a URL from what others
// send there. It is for the handler of that URL:
//
//	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
//	...
//	outcome, err := verifier.Verify(r.Header, body)
//	if err != nil {
//		http.Error(w, err.Error(), http.StatusUnauthorized)
//		return
//	}
//	// Store the outcome under outcome.DeliveryID, and only then answer: 2xx is
//	// the receipt, after which it does not come again.
//	w.WriteHeader(http.StatusNoContent)
//
// Make one with NewWebhookVerifier; any number of goroutines may use it.
type WebhookVerifier struct {
	// Tolerance is how far the time of a webhook may be from now, in both
	// directions, so that nobody can send an old one again later;
	// 0: DefaultWebhookTolerance. What comes again within it has the same
	// DeliveryID.
	Tolerance time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	secrets [][]byte
}

// NewWebhookVerifier makes a verifier that knows secrets: each is whsec_ and the
// base64 of 24 to 64 bytes, as in the file that the workers have. One that
// matches is enough: while a secret is changed, give the new and the old one. The
// error has the code invalid_request, and shows no secret.
func NewWebhookVerifier(secrets ...string) (*WebhookVerifier, error) {
	if len(secrets) == 0 {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "a verifier of webhooks needs a secret: give the one that the workers sign with")
	}
	parsed, err := parseSecrets(secrets)
	if err != nil {
		return nil, err
	}
	return &WebhookVerifier{secrets: parsed}, nil
}

// Verify gives the outcome in the body of a request, which must be exactly the
// bytes that came, if the headers of the request prove that somebody who knows a
// secret sent it, and lately. The error has the code forbidden where they do not;
// invalid_request where a header is missing, or the body is no outcome.
func (v *WebhookVerifier) Verify(header http.Header, body []byte) (drover.Outcome, error) {
	id, timestamp, signatures := header.Get(webhook.HeaderID), header.Get(webhook.HeaderTimestamp), header.Get(webhook.HeaderSignature)
	if err := v.check(id, timestamp, signatures); err != nil {
		return drover.Outcome{}, err
	}
	if !webhook.Signed(v.secrets, id, timestamp, signatures, body) {
		return drover.Outcome{}, drover.Errorf(drover.CodeForbidden,
			"no signature of webhook %.200q is of a secret that is known here: give the secret that the workers sign with, and the body exactly as it came", id)
	}
	var outcome drover.Outcome
	if err := json.Unmarshal(body, &outcome); err != nil || outcome.RunID == "" {
		return drover.Outcome{}, drover.Errorf(drover.CodeInvalidRequest, "webhook %.200q is signed, but its body is no outcome of a run: let only Drover use the secret", id)
	}
	return outcome, nil
}

// check looks at what the signatures do not say.
func (v *WebhookVerifier) check(id, timestamp, signatures string) error {
	switch {
	case id == "" || timestamp == "" || signatures == "":
		return drover.Errorf(drover.CodeInvalidRequest,
			"this is no webhook: it must have the headers webhook-id, webhook-timestamp and webhook-signature; see that a proxy passes them on")
	case strings.Contains(id, "."):
		return drover.Errorf(drover.CodeInvalidRequest, "webhook-id %.200q has a dot, and is no id of a delivery", id)
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "webhook-timestamp %.60q must be seconds since 1970", timestamp)
	}
	now := time.Now
	if v.Now != nil {
		now = v.Now
	}
	tolerance := cmp.Or(v.Tolerance, DefaultWebhookTolerance)
	if age := now().Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return drover.Errorf(drover.CodeForbidden,
			"webhook %.200q was signed at %d, seconds since 1970, which is more than %s from now: it was held up, or the clocks differ", id, seconds, tolerance)
	}
	return nil
}

// SignWebhook gives the headers that Drover sends with a body, for tests of a
// handler that verifies. Several secrets make several signatures. The error has
// the code invalid_request where a secret is none.
func SignWebhook(id drover.DeliveryID, at time.Time, body []byte, secrets ...string) (http.Header, error) {
	parsed, err := parseSecrets(secrets)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	webhook.Sign(header, parsed, string(id), at, body)
	return header, nil
}

func parseSecrets(texts []string) ([][]byte, error) {
	secrets := make([][]byte, len(texts))
	for i, text := range texts {
		var err error
		if secrets[i], err = webhook.ParseSecret(text); err != nil {
			return nil, err
		}
	}
	return secrets, nil
}
