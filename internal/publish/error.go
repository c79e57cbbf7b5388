package publish

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
)

// ErrConflict: the expected last sequence of the subject is not the real one.
// Nothing was stored. A reader has to ask the leader for the real one.
var ErrConflict = errors.New("the revision is not the expected one")

// ErrBusy: the server is still at work on another write to the same subject,
// or believes so, and stored nothing. The same write may succeed when it is
// sent again, so it is no conflict.
var ErrBusy = errors.New("another write to the same subject is in progress")

// Codes of the server.
const (
	codeConflict = 10071 // wrong last sequence: %d
	codeBusy     = 10164 // wrong last sequence, while a write is in flight
	codeTooLarge = 10054 // message size exceeds maximum allowed

	codeAccountFull = 10002 // resource limits exceeded for account
	codeMemoryFull  = 10028 // insufficient memory resources available
	codeStorageFull = 10047 // insufficient storage resources available

	codeNoBatches     = 10174 // atomic publish is disabled
	codeNoBatchHeader = 10177 // a header that an older server takes in no batch

	statusUnavailable = 503
)

// apiError makes an error of what the server answered.
func apiError(e *jetstream.APIError) error {
	switch {
	case e.ErrorCode == codeConflict:
		return fmt.Errorf("%w: %w", ErrConflict, e)
	case e.ErrorCode == codeBusy:
		return fmt.Errorf("%w: %w", ErrBusy, e)
	case e.ErrorCode == codeTooLarge:
		return fmt.Errorf("%w: %w", drover.CodeTooLarge, e)
	case e.Code == statusUnavailable, e.ErrorCode == codeAccountFull, e.ErrorCode == codeMemoryFull, e.ErrorCode == codeStorageFull:
		return fmt.Errorf("%w: %w", drover.CodeUnavailable, e)
	}
	return e
}

// sendError makes an error of what the connection said to a message.
func sendError(subject string, err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: the message on %q: %w", drover.CodeTooLarge, subject, err)
	}
	if errors.Is(err, nats.ErrBadSubject) {
		return fmt.Errorf("%w: subject %q: %w", drover.CodeInvalidRequest, subject, err)
	}
	return fmt.Errorf("%w: the message on %q was not sent: %w", drover.CodeUnavailable, subject, err)
}

var (
	errTimeout      = fmt.Errorf("%w: the server did not acknowledge the message in time", drover.CodeUnavailable)
	errNoStream     = fmt.Errorf("%w: no stream took the message", drover.CodeUnavailable)
	errNoResponders = fmt.Errorf("%w: nobody answers the request", drover.CodeUnavailable)
	errDisconnected = fmt.Errorf("%w: the connection broke before the message was acknowledged", drover.CodeUnavailable)
	errClosed       = fmt.Errorf("%w: the publisher is closed", drover.CodeUnavailable)
)

// noResponders reports whether the server says that nobody listens.
func noResponders(m *nats.Msg) bool {
	return len(m.Data) == 0 && len(m.Header) > 0 && m.Header.Get("Status") == "503"
}

// cannotBeSent reports whether the connection refused a message for what it is,
// before any of it was sent.
func cannotBeSent(err error) bool {
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrHeadersNotSupported)
}

// refusal reports whether an error says that nothing of a batch was stored.
func refusal(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) || errors.Is(err, errNoStream)
}

// noBatches reports whether other batches of the stream would be refused too.
func noBatches(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeNoBatches || api.ErrorCode == codeNoBatchHeader)
}

// answer is the JSON of an ack.
type answer struct {
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
	Count     uint64              `json:"count"` // of a batch
	Error     *jetstream.APIError `json:"error"`
}

// parse reads an ack, or the error that came in its place. stream is a name
// that is likely to be in it, so that its text need not be made again.
func parse(m *nats.Msg, stream string) (Ack, error) {
	if noResponders(m) {
		return Ack{}, errNoStream
	}
	if ack, ok := parsePlain(m.Data, stream); ok {
		return ack, nil
	}
	a, err := parseAny(m.Data)
	return Ack{Stream: a.Stream, Sequence: a.Sequence, Duplicate: a.Duplicate}, err
}

// parseAny reads any ack with the JSON decoder.
func parseAny(data []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return answer{}, fmt.Errorf("%w: the answer %.80q is no ack of JetStream: %w", drover.CodeUnavailable, data, err)
	}
	if a.Error != nil {
		return answer{}, apiError(a.Error)
	}
	if a.Stream == "" {
		return answer{}, fmt.Errorf("%w: the answer %.80q is no ack of JetStream", drover.CodeUnavailable, data)
	}
	return a, nil
}

// parseBatch reads the ack of a batch of so many messages: it is that of the
// last one, and the others have the sequences before it.
func parseBatch(m *nats.Msg, messages int) (Ack, error) {
	if noResponders(m) {
		return Ack{}, errNoStream
	}
	a, err := parseAny(m.Data)
	if err != nil {
		return Ack{}, err
	}
	if n := uint64(messages); a.Count != n || a.Sequence < n {
		return Ack{}, fmt.Errorf("%w: the answer %.120q is no ack of a batch of %d messages", drover.CodeUnavailable, m.Data, n)
	}
	return Ack{Stream: a.Stream, Sequence: a.Sequence}, nil
}

// parsePlain reads the one form that nearly all acks have:
//
//	{"stream":"<name>","seq":<digits>}
//
// with or without a space before a key. All else is for the JSON decoder.
func parsePlain(data []byte, stream string) (Ack, bool) {
	rest, ok := cut(data, `{"stream":"`)
	if !ok {
		return Ack{}, false
	}
	end := 0
	for end < len(rest) && rest[end] != '"' {
		if rest[end] == '\\' || rest[end] < ' ' || rest[end] > '~' {
			return Ack{}, false
		}
		end++
	}
	name := rest[:end]
	if rest, ok = cut(rest[end:], `",`); !ok || end == 0 {
		return Ack{}, false
	}
	if len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	if rest, ok = cut(rest, `"seq":`); !ok {
		return Ack{}, false
	}
	n, digits := uint64(0), 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		n = n*10 + uint64(rest[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 19 || digits > 1 && rest[0] == '0' || string(rest[digits:]) != "}" {
		return Ack{}, false
	}
	if string(name) != stream {
		stream = string(name)
	}
	return Ack{Stream: stream, Sequence: n}, true
}

func cut(data []byte, prefix string) ([]byte, bool) {
	if len(data) < len(prefix) || string(data[:len(prefix)]) != prefix {
		return nil, false
	}
	return data[len(prefix):], true
}
