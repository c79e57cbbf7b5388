package dispatcher

import (
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// maxNoted is how much of an error's text is left where its outcome did not fit.
const maxNoted = 4 << 10

// Encode gives the bytes of an outcome with its result; no result is null. The
// same outcome and result give the same bytes, always.
func Encode(o *drover.Outcome, result json.RawMessage) []byte {
	told := *o
	told.Result = orNull(result)
	data, err := rawjson.Encode(&told)
	if err != nil { // the result is no JSON
		return encodeWithout(o, drover.Errorf(drover.CodeInternal, "the result of run %s cannot be told: %v", o.RunID, err))
	}
	return data
}

// encodeWithout gives the bytes of an outcome whose result cannot be told. The
// status stays what it is, and the error says why there is no result.
func encodeWithout(o *drover.Outcome, why *drover.Error) []byte {
	told := *o
	told.Result = null
	told.Error = note(o.Error, why)
	return encode(&told)
}

// note gives an error that says why besides what e says, and is small.
func note(e, why *drover.Error) *drover.Error {
	if e == nil {
		return why
	}
	text := cut(e.Message, maxNoted)
	return &drover.Error{Code: e.Code, Message: text + " (" + why.Message + ")", Permanent: e.Permanent, RetryAfter: e.RetryAfter}
}

// cut gives at most n bytes of a text, and no half characters.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

// outcome publishes the outcome of a run for whoever listens, and keeps it. A
// repeat is dropped by the stream for as long as that remembers its id.
func (d *Dispatcher) outcome(e *machine.Effect, in input, done func(error)) {
	header := nats.Header{
		subjects.HeaderDelivery:  {string(e.Outcome.DeliveryID)},
		subjects.HeaderMessageID: {subjects.MessageID(string(e.Outcome.DeliveryID), e.Outcome.StartedAt)},
	}
	d.told(&nats.Msg{Subject: d.opts.Names.Done(e.Outcome.Workflow, e.Run), Header: header}, e, in, done)
}

// told publishes a message whose body is the outcome of e.
func (d *Dispatcher) told(msg *nats.Msg, e *machine.Effect, in input, done func(error)) {
	if in.gone != "" {
		msg.Data = encodeWithout(e.Outcome, gone(in.gone, "the result of run "+string(e.Run)))
		d.publish(msg, done)
		return
	}
	msg.Data = Encode(e.Outcome, in.json)
	d.orElse(msg, done, func() {
		small := &nats.Msg{Subject: msg.Subject, Header: msg.Header}
		small.Data = encodeWithout(e.Outcome, d.large("the outcome of run "+string(e.Run), len(msg.Data)))
		d.publish(small, done)
	})
}
