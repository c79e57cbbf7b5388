package function

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// Call is what a handler may know of the call that it performs.
type Call struct {
	// ID is the same each time the call is delivered. It names the run, the
	// node and the attempt: the next attempt has another one.
	ID drover.CallID
	// Function is the name of the function.
	Function drover.FunctionName
	// Instance is the server that performs the call.
	Instance string
	// Deadline is when the context ends; the zero time: never.
	Deadline time.Time
	// Heartbeat is for how long the call may be silent; 0: it is not watched.
	// The server sends heartbeats by itself.
	Heartbeat time.Duration
	// Session is the subject on which the call hears of runs that it has started
	// with ReplyTo: a drover.SessionReply, to be answered, as that is the receipt.
	Session string
}

// call is one call in flight. Its message is replaced when the queue delivers
// it once more while it runs.
type call struct {
	Call
	token    string
	session  func() string // nil for a message function
	input    []byte
	message  atomic.Pointer[nats.Msg]
	delivery *nats.MsgMetadata // of a message function
	end      context.CancelCauseFunc
	send     func(ctx context.Context, progress json.RawMessage) error
	last     atomic.Pointer[json.RawMessage] // progress
}

// key tells a call from others: also from one that somebody forged, who does
// not know the token. An id has no space in it.
func (c *call) key() string { return c.ID.String() + " " + c.token }

type callKey struct{}

// Info gives the call that a handler performs. It is the zero Call when the
// context is not that of a handler.
func Info(ctx context.Context) Call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		info := c.Call
		if c.session != nil {
			info.Session = c.session()
		}
		return info
	}
	return Call{}
}

// Heartbeat tells the run that the call goes on, with any JSON value that says
// how far it has come. It returns when that is durable. No handler must call
// it to stay alive: the server sends heartbeats by itself, with the progress
// that was last told.
func Heartbeat(ctx context.Context, progress any) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return drover.Errorf(drover.CodeInvalidRequest,
			"a heartbeat needs the context that the handler was called with, or one made from it")
	}
	progressed, err := rawjson.Encode(progress)
	if err != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "the progress of call %s is no JSON: %v", c.ID, err)
	}
	if len(progressed) > drover.MaxInlineValue {
		return drover.Errorf(drover.CodeTooLarge, "the progress of call %s has %d bytes, over the limit of %d: tell less",
			c.ID, len(progressed), drover.MaxInlineValue)
	}
	c.last.Store(&progressed)
	return c.send(ctx, progressed)
}

// parseCall reads a queued message. Anyone may have published it.
func parseCall(m *nats.Msg, function drover.FunctionName, instance string) (*call, error) {
	bad := func(what, value string) (*call, error) {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "message on %s is no call: header %s is %q", m.Subject, what, value)
	}
	c := &call{input: m.Data, token: m.Header.Get(subjects.HeaderToken)}
	c.Function, c.Instance = function, instance
	c.message.Store(m)
	if len(c.input) == 0 {
		c.input = []byte("null")
	}
	var err error
	text := m.Header.Get(subjects.HeaderCall)
	if c.ID, err = drover.ParseCallID(text); err != nil {
		return bad(subjects.HeaderCall, text)
	}
	if c.token == "" {
		return bad(subjects.HeaderToken, "")
	}
	if text = m.Header.Get(subjects.HeaderDeadline); text != "" {
		if c.Deadline, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return bad(subjects.HeaderDeadline, text)
		}
	}
	if text = m.Header.Get(subjects.HeaderHeartbeat); text != "" {
		if c.Heartbeat, err = time.ParseDuration(text); err != nil || c.Heartbeat <= 0 {
			return bad(subjects.HeaderHeartbeat, text)
		}
	}
	return c, nil
}
