package dispatcher

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

const (
	maxErrorBody  = 512            // bytes of a response that an error shows
	maxRetryAfter = 24 * time.Hour // that another side can ask for
)

// httpInput is the input of _http.
type httpInput struct {
	Method  string            `json:"method"` // "": POST with a body, else GET
	URL     string            `json:"url"`    // http or https
	Headers map[string]string `json:"headers"`
	// Body is sent as JSON; a string is sent as it is where Headers name a
	// content type that is not JSON. Absent: no body.
	Body json.RawMessage `json:"body"`
}

// httpOutput is what _http gives for a status of 200 to 299.
type httpOutput struct {
	Status   int               `json:"status"`
	Headers  map[string]string `json:"headers"`            // names in lower case; several values are joined by ", "
	Body     json.RawMessage   `json:"body"`               // the value, where the response says that it is JSON; else a string
	Encoding string            `json:"encoding,omitempty"` // base64: Body is that, as the bytes are no text
}

// doHTTP performs an HTTP request. Redirects are not followed. What it is sent,
// the query and the credentials of its URL are in no error and in no log.
func (d *Dispatcher) doHTTP(ctx context.Context, in httpInput) (json.RawMessage, error) {
	req, err := newRequest(ctx, in)
	if err != nil {
		return nil, err
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, httpError(req, err)
	}
	defer func() { _ = resp.Body.Close() }() // there is nothing to do about it
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return nil, statusError(req, resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, drover.MaxValue+1))
	if err != nil {
		return nil, httpError(req, err)
	}
	if len(body) > drover.MaxValue {
		return nil, permanent(drover.CodeTooLarge,
			"%s answered with more than %d bytes: have it store the response, and pass a reference", target(req), drover.MaxValue)
	}
	out := httpOutput{Status: resp.StatusCode, Headers: map[string]string{}}
	for name, values := range resp.Header {
		out.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	out.Body, out.Encoding = responseBody(resp.Header.Get("Content-Type"), body)
	return encode(out), nil
}

func newRequest(ctx context.Context, in httpInput) (*http.Request, error) {
	u, err := url.Parse(in.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The URL may hold a secret, so it is not shown.
		return nil, permanent(drover.CodeInvalidInput, "the url of an http node must be http://<host>/... or https://<host>/...")
	}
	headers := http.Header{"User-Agent": {"drover"}}
	var body io.Reader = http.NoBody
	method := in.Method
	if hasBody := len(in.Body) > 0 && !bytes.Equal(in.Body, null); hasBody {
		headers.Set("Content-Type", "application/json")
		method = cmp.Or(method, http.MethodPost)
		body = bytes.NewReader(requestBody(in))
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(method, http.MethodGet), "http://host", body)
	if err != nil {
		return nil, permanent(drover.CodeInvalidInput, "the http node for host %q: %v", u.Host, err)
	}
	headers.Set("Idempotency-Key", function.Info(ctx).ID.String())
	for name, value := range in.Headers {
		if !isHeader(name, value) {
			return nil, permanent(drover.CodeInvalidInput, "header %q of the http node for host %q cannot be sent: remove what is no letter, digit or - from its name, and line breaks from its value", name, u.Host)
		}
		headers.Set(name, value)
	}
	req.URL, req.Host, req.Header = u, cmp.Or(headers.Get("Host"), u.Host), headers
	return req, nil
}

// isHeader reports whether a header can be sent.
func isHeader(name, value string) bool {
	const others = "!#$%&'*+-.^_`|~" // that a name may have
	badName := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(others, r))
	}
	badValue := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	return name != "" && !strings.ContainsFunc(name, badName) && !strings.ContainsFunc(value, badValue)
}

// requestBody is the body to send: JSON, or the text in a JSON string.
func requestBody(in httpInput) []byte {
	var text string
	for name, value := range in.Headers {
		if http.CanonicalHeaderKey(name) == "Content-Type" && !isJSON(value) && json.Unmarshal(in.Body, &text) == nil {
			return []byte(text)
		}
	}
	return in.Body
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// responseBody makes a JSON value of a body, and says how it is encoded.
func responseBody(contentType string, body []byte) (json.RawMessage, string) {
	switch {
	case isJSON(contentType) && json.Valid(body):
		return body, ""
	case utf8.Valid(body):
		return encode(string(body)), ""
	}
	return encode(base64.StdEncoding.EncodeToString(body)), "base64"
}

// target names a request without anything that may be secret.
func target(req *http.Request) string { return req.Method + " to " + req.URL.Host }

// httpError makes an error of a request that got no response.
func httpError(req *http.Request, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // its own text has the URL
	}
	var e *drover.Error
	var timeout net.Error
	switch {
	case errors.As(err, &e):
		return &drover.Error{Code: e.Code, Message: target(req) + ": " + e.Message, Permanent: e.Permanent}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return drover.Errorf(drover.CodeTimeout, "%s took too long: %v", target(req), err)
	}
	return drover.Errorf(drover.CodeUnavailable, "%s failed: %v", target(req), err)
}

// statusError makes an error of a response that is none of 200 to 299.
func statusError(req *http.Request, resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // as much as came
	e := drover.Errorf(drover.CodeFailed, "%s answered %d %s", target(req), resp.StatusCode, http.StatusText(resp.StatusCode))
	if text := strings.TrimSpace(strings.ToValidUTF8(string(body), "")); text != "" {
		e.Message += ": " + text
	}
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	case resp.StatusCode < 400:
		e.Permanent = true
		host := "nowhere"
		if to, err := resp.Location(); err == nil {
			host = to.Host
		}
		e.Message = strings.Join([]string{
			target(req), "answered", resp.Status, "to", host + ":", "redirects are not followed, use the url that it leads to",
		}, " ")
	default:
		e.Permanent = true
	}
	return e
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(text string, now time.Time) drover.Duration {
	var after time.Duration
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		after = at.Sub(now)
	}
	return drover.Duration(min(max(after, 0), maxRetryAfter))
}

func permanent(code drover.Code, format string, args ...any) *drover.Error {
	e := drover.Errorf(code, format, args...)
	e.Permanent = true
	return e
}
