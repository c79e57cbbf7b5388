package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/subjects"
)

// requestInput is the input of _request.
type requestInput struct {
	Subject string          `json:"subject"`
	Payload json.RawMessage `json:"payload"`           // the body, as it is; absent: no body
	Timeout drover.Duration `json:"timeout,omitempty"` // 0: until the deadline of the call
}

// request performs a NATS request. Its output is the body of the reply: as it
// is where that is JSON, else as a JSON string; no body is null.
func (d *Dispatcher) request(ctx context.Context, in requestInput) (json.RawMessage, error) {
	names := d.opts.Names
	if err := names.Foreign(in.Subject); err != nil && !d.isAPI(in.Subject) {
		return nil, function.Permanent(err)
	}
	if in.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(in.Timeout))
		defer cancel()
	}
	call := function.Info(ctx)
	reply, err := d.opts.Conn.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: in.Subject,
		Data:    in.Payload,
		Header: nats.Header{
			subjects.HeaderCall:    {call.ID.String()},
			subjects.HeaderRun:     {string(call.ID.Run)},
			subjects.HeaderAttempt: {strconv.Itoa(call.ID.Attempt)},
		},
	})
	if err != nil {
		return nil, d.requestError(in.Subject, len(in.Payload), err)
	}
	if err := replyError(in.Subject, reply); err != nil {
		return nil, err
	}
	return asJSON(reply.Data), nil
}

// isAPI reports whether a subject is a request to the fleet itself, which
// workflows may make: anyone who can start a run may.
func (d *Dispatcher) isAPI(subject string) bool {
	verb, ok := strings.CutPrefix(subject, d.opts.Names.APIRoot()+".")
	if !ok {
		return false
	}
	_, err := drover.ParseFunctionName(verb) // verbs have the same grammar
	return err == nil
}

// requestError makes an error of a request that got no reply.
func (d *Dispatcher) requestError(subject string, size int, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return drover.Errorf(drover.CodeUnavailable, "nobody serves subject %q: start its service, or correct the subject", subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return d.large("the payload for subject "+strconv.Quote(subject), size)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return drover.Errorf(drover.CodeTimeout, "subject %q did not reply in time", subject)
	}
	return drover.Errorf(drover.CodeUnavailable, "the request to subject %q failed: %v", subject, err)
}

// replyError is the error that a reply says it is: one of Drover, with its
// code, or one of a NATS service.
func replyError(subject string, reply *nats.Msg) error {
	if e := drover.ErrorOf(reply.Header.Get(subjects.HeaderCode), reply.Data); e != nil {
		return e
	}
	text, code := reply.Header.Get(micro.ErrorHeader), reply.Header.Get(micro.ErrorCodeHeader)
	if text == "" && code == "" {
		return nil
	}
	return drover.Errorf(drover.CodeFailed, "subject %q answered with error %s: %s", subject, cut(code, 64), cut(text, maxNoted))
}

// asJSON gives data that is JSON as it is, none as null, and else a string. In
// that, bytes that are no UTF-8 are replaced.
func asJSON(data []byte) json.RawMessage {
	switch {
	case len(data) == 0:
		return null
	case json.Valid(data):
		return data
	}
	return encode(string(data))
}
