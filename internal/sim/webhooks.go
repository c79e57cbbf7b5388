package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/webhook"
)

// rotation is how the secret that signs webhooks is changed while they are on
// their way: the workers sign with both, then the receiver takes the new one, then
// the workers drop the old one.
type rotation struct{ both, taken, dropped time.Time }

var oldSecret, newSecret = bytes.Repeat([]byte("o"), 32), bytes.Repeat([]byte("n"), 32)

func (w *World) rotate() {
	w.told.rotation.both = w.now.Add(time.Duration(w.rng.Int64N(int64(time.Minute))))
	w.told.rotation.taken = w.told.rotation.both.Add(time.Duration(w.rng.Int64N(int64(time.Minute))))
	w.told.rotation.dropped = w.told.rotation.taken.Add(time.Duration(w.rng.Int64N(int64(time.Minute))))
}

// signing are the secrets that the workers have.
func (w *World) signing() [][]byte {
	switch r := &w.told.rotation; {
	case w.now.Before(r.both):
		return [][]byte{oldSecret}
	case w.now.Before(r.dropped):
		return [][]byte{newSecret, oldSecret}
	}
	return [][]byte{newSecret}
}

// expected is the secret that a receiver has.
func (w *World) expected() [][]byte {
	if w.now.Before(w.told.rotation.taken) {
		return [][]byte{oldSecret}
	}
	return [][]byte{newSecret}
}

// receiver is whoever a webhook is for, as the transport of a client.
type receiver struct {
	w       *World
	a       *attempt
	away    bool
	reached bool
	lost    bool // what it answers does not arrive
	status  int
}

// errReset is a connection that ends too soon.
var errReset = errors.New("connection reset by peer")

// RoundTrip implements http.RoundTripper.
func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	w, id := r.w, string(r.a.d.ID)
	if r.away {
		return nil, errReset // nobody took a connection
	}
	if r.reached || req.URL.String() != r.a.d.Notify.URL || req.Method != http.MethodPost {
		w.violated("the webhook of %s goes to %s %s", id, req.Method, req.URL)
		return nil, errReset
	}
	r.reached = true
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	body, err := io.ReadAll(req.Body)
	h := req.Header
	if err != nil || h.Get(webhook.HeaderID) != id || h.Get("Content-Type") != "application/json" {
		w.violated("the webhook of %s has %v: %v", id, h, err)
	}
	if !webhook.Signed(w.expected(), id, h.Get(webhook.HeaderTimestamp), h.Get(webhook.HeaderSignature), body) {
		w.violated("the webhook of %s is not signed with the secret of its receiver", id)
	}
	if w.now.After(w.told.rotation.dropped) {
		w.saw("Delivery01 a webhook was signed with the new secret")
	}
	w.reach(r.a, body)
	return r.respond()
}

// respond answers in one of the ways that web servers have.
func (r *receiver) respond() (*http.Response, error) {
	w := r.w
	err := w.answerOf(r.a)
	header := http.Header{}
	switch {
	case err == nil:
		r.status = []int{200, 201, 202, 204}[w.rng.IntN(4)]
		if !w.yields(r.a) && w.chance(0.05) {
			r.lost = true
			w.saw("Delivery01 a receipt of a url was lost")
			return nil, errReset
		}
	case err.Code == drover.CodeTimeout:
		r.lost = true
		return nil, context.DeadlineExceeded
	case err.Permanent:
		r.status = http.StatusGone
	case err.RetryAfter > 0:
		r.status = []int{429, 503}[w.rng.IntN(2)]
		header.Set("Retry-After", "20")
	default:
		r.status = []int{301, 302, 307, 308, 400, 404, 500, 502}[w.rng.IntN(8)]
		if r.status < 400 {
			header.Set("Location", "https://elsewhere.example/")
		}
	}
	return &http.Response{StatusCode: r.status, Header: header, Body: io.NopCloser(bytes.NewReader([]byte("so it is")))}, nil
}

// webhook sends one as the workers do. A receiver that is away takes no
// connection, or the workers know no secret to sign with.
func (w *World) webhook(o *owner, a *attempt, away bool) ([]drover.HeardMessage, time.Duration) {
	r := &receiver{w: w, a: a, away: away}
	client := &http.Client{Transport: r, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	secrets := func(string) [][]byte { return w.signing() }
	if away && w.fate("secret of "+a.d.Notify.URL)%2 == 0 {
		r.away = false
		secrets = func(string) [][]byte { return nil }
	}
	if !away {
		w.made(a)
	}
	m := delivery.Post(context.Background(), client, secrets, func() time.Time { return w.now.Add(o.skew) }, a.job())
	receipt := r.reached && !r.lost && r.status < 300
	switch {
	case r.reached == away, r.reached == m.Unmade, receipt != (m.Error == nil):
		w.violated("the webhook of %s was answered with %d, lost %t, reached %t, and what is heard is %+v", a.d.ID, r.status, r.lost, r.reached, m)
	case m.Error != nil && r.reached && (m.Error.Permanent != (r.status == http.StatusGone) || (m.Error.RetryAfter > 0) != (r.status == 429 || r.status == 503)):
		w.violated("the webhook of %s was answered with %d, and what is heard is %+v", a.d.ID, r.status, m.Error)
	}
	w.sawPost(r, away)
	if receipt {
		w.gives(a)
	}
	if r.lost && r.status == 0 {
		return []drover.HeardMessage{m}, timeout([]*attempt{a})
	}
	return []drover.HeardMessage{m}, w.latency()
}

func (w *World) sawPost(r *receiver, away bool) {
	switch {
	case away && r.away:
		w.saw("Delivery14 nobody took the connection of a webhook")
	case away:
		w.saw("Delivery14 there was no secret to sign a webhook with")
	case r.lost && r.status == 0:
		w.saw("Delivery14 a webhook had no answer in time")
	case r.lost:
	case r.status < 300:
		w.saw("Delivery01 a url gave a receipt")
	case r.status < 400:
		w.saw("Delivery14 a redirect was not followed")
	case r.status == http.StatusGone:
		w.saw("Delivery14 a webhook was answered with 410")
	default:
		w.saw("Delivery14 a webhook was answered with another error")
	}
}
