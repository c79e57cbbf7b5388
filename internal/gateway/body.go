package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

// oddBody is a body that is no payload.
type oddBody struct {
	status int
	err    *drover.Error
}

func (e *oddBody) Error() string { return e.err.Error() }

func odd(status int, code drover.Code, format string, args ...any) error {
	return &oddBody{status: status, err: drover.Errorf(code, format, args...)}
}

// body is the body of a request in memory, which is bounded for all together.
type body struct {
	left  *atomic.Int64 // that all may take
	taken int64
}

// take takes memory, if so much is left.
func (b *body) take(n int) bool {
	if b.left.Add(int64(-n)) < 0 {
		b.left.Add(int64(n))
		return false
	}
	b.taken += int64(n)
	return true
}

// free gives the memory back.
func (b *body) free() {
	b.left.Add(b.taken)
	b.taken = 0
}

// payload reads the body, which must have come whole by the end of bodyTime, and
// gives it as JSON: as it is where its type says that it is JSON, else as a
// string. Of nothing it gives null.
func (b *body) payload(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, odd(http.StatusUnsupportedMediaType, drover.CodeInvalidRequest, "the body has a Content-Encoding: send it plain")
	}
	if r.ContentLength > drover.MaxValue {
		return nil, tooLarge()
	}
	// A connection that has no deadlines is a test.
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyTime))
	text, err := b.read(http.MaxBytesReader(w, r.Body, drover.MaxValue))
	if err != nil {
		return nil, unread(err)
	}
	// Reading goes on, to notice when the caller goes away.
	_ = deadline.SetReadDeadline(time.Time{})
	return payloadOf(r.Header.Get("Content-Type"), text)
}

// read reads to the end, and takes memory only for what has come.
func (b *body) read(from io.Reader) ([]byte, error) {
	var text []byte
	for {
		if len(text) == cap(text) {
			more := max(5<<10, cap(text)) // doubled again and again it ends a little above MaxValue
			if !b.take(more) {
				return nil, drover.Errorf(drover.CodeUnavailable, "too many bodies are held")
			}
			text = slices.Grow(text, more)
		}
		n, err := from.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// unread says why a body was not read to its end.
func unread(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge()
	}
	if _, ok := errors.AsType[*drover.Error](err); ok {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return odd(http.StatusRequestTimeout, drover.CodeTimeout, "the body did not come within %s", bodyTime)
	}
	return odd(http.StatusBadRequest, drover.CodeInvalidRequest, "the body did not come whole")
}

func tooLarge() error {
	return odd(http.StatusRequestEntityTooLarge, drover.CodeTooLarge, "the body has more than %d bytes: pass a reference to it", drover.MaxValue)
}

// payloadOf makes JSON of a text that came with a Content-Type.
func payloadOf(contentType string, text []byte) (json.RawMessage, error) {
	switch {
	case len(text) == 0:
		return json.RawMessage("null"), nil
	case isJSON(contentType):
		if !utf8.Valid(text) || !json.Valid(text) {
			return nil, odd(http.StatusBadRequest, drover.CodeInvalidRequest, "the body is no JSON, as its Content-Type says: mend it, or send it as text/plain")
		}
		return text, nil
	case !utf8.Valid(text):
		return nil, odd(http.StatusUnsupportedMediaType, drover.CodeInvalidRequest, "the body is neither JSON nor text in UTF-8: send a reference to it")
	}
	data, err := rawjson.Encode(string(text))
	if err != nil {
		return nil, odd(http.StatusBadRequest, drover.CodeInvalidRequest, "the body cannot be made JSON: %v", err)
	}
	return data, nil
}

// isJSON reports application/json, text/json, and what ends in +json.
func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return false
	}
	return kind == jsonType || kind == "text/json" || strings.HasSuffix(kind, "+json")
}
