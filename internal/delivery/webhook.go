package delivery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/webhook"
)

const (
	defaultSecret  = "default"
	maxAnswer      = 4 << 10 // bytes of a response that are read
	maxShown       = 256     // of them that are kept
	maxPostpone    = time.Hour
	leastToConceal = 4 // bytes of a value of a query: shorter ones are in every text
)

// post makes one attempt to deliver an outcome to a URL, for as long as ctx lets
// it. unmade says that there was no secret to sign with, or that nobody took a
// connection, so that nothing was sent. No error and no receipt shows the query of
// the URL, or a user in it.
func (d *Deliverer) post(ctx context.Context, j *Job) (receipt string, unmade bool, err *drover.Error) {
	return post(ctx, d.opts.HTTP, d.opts.Secrets, time.Now, j)
}

// Post makes what a run hears of one attempt to deliver its outcome to a URL. The
// client follows no redirects; secrets is Options.Secrets.
func Post(ctx context.Context, client *http.Client, secrets func(string) [][]byte, now func() time.Time, j *Job) drover.HeardMessage {
	receipt, unmade, err := post(ctx, client, secrets, now, j)
	return verdict{receipt: receipt, unmade: unmade, err: err}.heard(j)
}

func post(ctx context.Context, client *http.Client, secrets func(string) [][]byte, now func() time.Time, j *Job) (string, bool, *drover.Error) {
	var signing [][]byte
	name := cmp.Or(j.Notify.Secret, defaultSecret)
	if secrets != nil {
		signing = secrets(name)
	}
	if len(signing) == 0 {
		return "", true, unsigned(name)
	}
	ctx, reached := traced(ctx)
	req, err := signed(ctx, j, signing, now())
	if err != nil {
		e := drover.Errorf(drover.CodeInvalidRequest, "the url of a webhook must be https://<host>/... or http://<host>/...") // not shown: it may have a secret
		e.Permanent = true
		return "", true, e
	}
	resp, err := client.Do(req)
	if err != nil {
		e := unanswered(req, err)
		return "", !reached.Load() && !e.Permanent, e
	}
	defer func() { _ = resp.Body.Close() }() // there is nothing to do about it

	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // as much as came: the status decides
	said := shown(req.URL, body)
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return cmp.Or(said, strings.TrimSpace(strconv.Itoa(resp.StatusCode)+" "+http.StatusText(resp.StatusCode))), false, nil
	}
	return "", false, refused(req, resp, said, now())
}

// signed is the request of one attempt.
func signed(ctx context.Context, j *Job, secrets [][]byte, at time.Time) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.Notify.URL, bytes.NewReader(j.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "drover")
	// Not sent: it tells the client that the request may be sent on another
	// connection where the one that it had turns out to be closed.
	req.Header["Idempotency-Key"] = nil
	webhook.Sign(req.Header, secrets, string(j.ID), at, j.Body)
	return req, nil
}

// traced tells whether anybody took a connection.
func traced(ctx context.Context) (context.Context, *atomic.Bool) {
	reached := &atomic.Bool{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { reached.Store(true) },
		ConnectDone: func(_, _ string, err error) { // before TLS, which may fail
			if err == nil {
				reached.Store(true)
			}
		},
	}), reached
}

func unsigned(name string) *drover.Error {
	if webhook.Mistaken(name) {
		return drover.Errorf(drover.CodeUnavailable,
			"secret of the subscriber must be the name of a secret, and not the secret itself, which others have seen now: make another")
	}
	return drover.Errorf(drover.CodeUnavailable,
		"no secret %.200q to sign a webhook with: add it to the file that --webhook-secrets of the workers names", name)
}

// unanswered makes an error of a request that got no response.
func unanswered(req *http.Request, err error) *drover.Error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // its own text has the URL
	}
	if e, ok := errors.AsType[*drover.Error](err); ok { // of the client: it may not go there
		return &drover.Error{Code: e.Code, Message: to(req) + ": " + e.Message, Permanent: e.Permanent}
	}
	code := drover.CodeUnavailable
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		code = drover.CodeTimeout
	}
	return drover.Errorf(code, "%s got no answer: %s", to(req), conceal(req.URL, err.Error()))
}

// refused makes an error of a response that is none of 200 to 299.
func refused(req *http.Request, resp *http.Response, said string, now time.Time) *drover.Error {
	status := strings.TrimSpace(strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode))
	e := drover.Errorf(drover.CodeFailed, "%s was answered with %s", to(req), status)
	switch {
	case resp.StatusCode < 400:
		e.Message += ": redirects are not followed, use the url that it leads to"
		return e
	case resp.StatusCode == http.StatusGone:
		e.Permanent = true
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		e.RetryAfter = postponed(resp.Header.Get("Retry-After"), now)
	}
	if said != "" {
		e.Message += ": " + said
	}
	return e
}

// to names a request without anything that may be secret.
func to(req *http.Request) string { return "webhook to " + req.URL.Host }

// postponed reads the header Retry-After: seconds, or a date.
func postponed(text string, now time.Time) drover.Duration {
	var after time.Duration
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		after = at.Sub(now)
	}
	return drover.Duration(min(max(after, 0), maxPostpone))
}

// shown is the beginning of a body as one line of text; "" if it is none.
func shown(u *url.URL, body []byte) string {
	text := string(body)
	if len(text) == maxAnswer { // it may be cut within a rune
		text = strings.ToValidUTF8(text, "")
	}
	if !utf8.ValidString(text) {
		return ""
	}
	text = conceal(u, text)
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "")
	}
	return text
}

// conceal takes out of a text what a URL has that may be secret, should whoever
// was asked have said it.
func conceal(u *url.URL, text string) string {
	password, _ := u.User.Password()
	secrets := []string{u.RawQuery, password, u.User.Username()}
	for _, values := range u.Query() {
		for _, value := range values {
			secrets = append(secrets, value, url.QueryEscape(value))
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may be a part of another
	for _, secret := range secrets {
		if len(secret) >= leastToConceal {
			text = strings.ReplaceAll(text, secret, "...")
		}
	}
	return text
}
