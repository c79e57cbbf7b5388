package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/droverhq/drover"
)

// DecodeCommand reads the message of a command. The time is the log's. For a
// start it gives the request as well, which is the one in the command: the
// caller finds its definition and sets Start.Hash and Start.Secret. What cannot
// be a command is refused with a code and a sentence, and nothing of it is used.
// Unknown fields are ignored, but in a stop those that JetStream answers with.
// The body of a tick is not read, that of a stop may be empty.
func DecodeCommand(seq uint64, at time.Time, run, verb string, data []byte, reply string) (*Command, *drover.StartRequest, *drover.Error) {
	id, err := drover.ParseRunID(run)
	if err != nil {
		return nil, nil, drover.AsError(err, drover.CodeInvalidID)
	}
	c := &Command{Seq: seq, At: at, Run: id, Verb: drover.Verb(verb), Reply: reply}
	if c.Verb == drover.VerbTick {
		return c, nil, nil
	}
	if c.Verb == drover.VerbStart {
		c.Start = &Start{}
		bad := read(c, data, &c.Start.StartRequest)
		if bad == nil {
			bad = checkStart(id, &c.Start.StartRequest)
		}
		if bad != nil {
			return nil, nil, bad
		}
		return c, &c.Start.StartRequest, nil
	}
	if bad := c.body(data); bad != nil {
		return nil, nil, bad
	}
	return c, nil, nil
}

// body reads and checks the body of a command to a run that is there.
func (c *Command) body(data []byte) *drover.Error {
	var bad *drover.Error
	switch c.Verb {
	case drover.VerbStop:
		c.Stop = &drover.StopRequest{}
		if len(bytes.TrimSpace(data)) > 0 {
			bad = read(c, data, c.Stop)
		}
		if bad == nil && fromServer(data) {
			bad = drover.Errorf(drover.CodeForbidden,
				"the stop of run %s is an answer of JetStream, which someone had sent here: publish {\"reason\": ...}", c.Run)
		}
	case drover.VerbDeliver:
		c.Deliver = &drover.DeliverRequest{}
		if bad = read(c, data, c.Deliver); bad == nil {
			bad = checkDeliver(c.Deliver)
		}
	case drover.VerbResult:
		c.Result = &drover.ResultMessage{}
		if bad = read(c, data, c.Result); bad == nil {
			bad = checkResult(c.Run, c.Result)
		}
	case drover.VerbChild:
		c.Child = &drover.ChildMessage{}
		if bad = read(c, data, c.Child); bad == nil {
			bad = sameRun(c.Run, c.Child.Call)
			c.Child.Result = compact(c.Child.Result)
		}
	case drover.VerbHeard:
		c.Heard = &drover.HeardMessage{}
		if bad = read(c, data, c.Heard); bad == nil {
			bad = checkHeard(c.Heard)
		}
	case drover.VerbHold:
		c.Hold = &drover.HoldRequest{}
		if bad = read(c, data, c.Hold); bad == nil {
			bad = checkHold(c.Hold)
		}
	case drover.VerbConsume, drover.VerbRelease:
		c.Waiter = &drover.WaiterRequest{}
		if bad = read(c, data, c.Waiter); bad == nil {
			bad = checkWaiter(c.Waiter.Waiter)
		}
	case drover.VerbReplay:
		c.Replay = &drover.ReplayMessage{}
		if len(bytes.TrimSpace(data)) > 0 {
			bad = read(c, data, c.Replay)
		}
	case drover.VerbRecord:
		c.Record = &drover.RecordRequest{}
		if bad = read(c, data, c.Record); bad == nil {
			bad = checkRecord(c.Run, c.Record)
		}
	case drover.VerbLooked:
		c.Looked = &drover.LookedMessage{}
		bad = read(c, data, c.Looked)
	case drover.VerbMeta:
		c.Meta = &drover.MetaMessage{}
		if bad = read(c, data, c.Meta); bad == nil {
			bad = checkMeta(c.Run, c.Meta)
		}
	case drover.VerbClaimed:
		c.Claimed = &drover.ClaimedMessage{}
		bad = read(c, data, c.Claimed)
	case drover.VerbStart, drover.VerbTick:
	default:
		bad = drover.Errorf(drover.CodeUnknownVerb, "run %s cannot be told to %q: use start, stop, tick or deliver", c.Run, cut(string(c.Verb), 60))
	}
	return bad
}

// fromServer reports an acknowledgement or an answer of JetStream. Whoever may
// publish anything to a stream can have one sent to any subject, as the reply
// to what he published; it must not stop a run.
func fromServer(body []byte) bool {
	var answer struct {
		Stream json.RawMessage `json:"stream"`
		Type   json.RawMessage `json:"type"`
		Error  json.RawMessage `json:"error"`
	}
	err := json.Unmarshal(body, &answer)
	return err == nil && (answer.Stream != nil || answer.Type != nil || answer.Error != nil)
}

// read reads a body strictly: UTF-8, one JSON object, each field of its type.
func read(c *Command, data []byte, into any) *drover.Error {
	invalid := func(format string, args ...any) *drover.Error {
		return drover.Errorf(drover.CodeInvalidRequest, "the body of %s for run %s "+format, append([]any{c.Verb, c.Run}, args...)...)
	}
	body := bytes.TrimSpace(data)
	switch {
	case !utf8.Valid(body):
		return invalid("is not UTF-8")
	case len(body) == 0:
		return invalid("is empty: send a JSON object")
	case body[0] != '{':
		return invalid("begins with %q: send a JSON object", body[:1])
	case nested(body) > maxNesting:
		return invalid("is nested deeper than %d levels: make it flatter", maxNesting)
	}
	err := json.Unmarshal(body, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid("has a %s in %q, where %s must be", wrong.Value, wrong.Field, wrong.Type)
	}
	if err != nil {
		if e := drover.AsError(err, ""); e.Code != "" {
			return e
		}
		return invalid("is no JSON: %s", err)
	}
	return nil
}

func checkStart(run drover.RunID, r *drover.StartRequest) *drover.Error {
	invalid := func(format string, args ...any) *drover.Error {
		return drover.Errorf(drover.CodeInvalidRequest, "the start of run "+string(run)+" "+format, args...)
	}
	if isNull(r.Definition) {
		r.Definition = nil
	}
	said := 0
	for _, is := range []bool{r.Definition != nil, r.Hash != "", r.Workflow != "" && r.Hash == ""} {
		if is {
			said++
		}
	}
	if said != 1 {
		return invalid("must say what to run with exactly one of definition, hash and workflow, and has %d of them", said)
	}
	if r.Hash != "" {
		if _, err := drover.ParseHash(string(r.Hash)); err != nil {
			return drover.AsError(err, drover.CodeInvalidID)
		}
	}
	if r.Workflow != "" {
		if _, err := drover.ParseWorkflowName(string(r.Workflow)); err != nil {
			return drover.AsError(err, drover.CodeInvalidID)
		}
	}
	switch {
	case len(r.Definition) > 2*drover.MaxDefinition: // in a string of YAML much is escaped
		return drover.Errorf(drover.CodeTooLarge, "the definition of run %s has %d bytes, more than %d", run, len(r.Definition), drover.MaxDefinition)
	case len(r.IdempotencyKey) > drover.MaxIdempotencyKey:
		return drover.Errorf(drover.CodeTooLarge, "the idempotency_key of run %s has %d bytes, more than %d", run, len(r.IdempotencyKey), drover.MaxIdempotencyKey)
	}
	if r.Input = compact(r.Input); len(r.Input) > drover.MaxValue {
		return drover.Errorf(drover.CodeTooLarge, "the input of run %s has %d bytes, more than %d: pass a reference to it", run, len(r.Input), drover.MaxValue)
	}
	if want := drover.KeyRunID("", r.IdempotencyKey); r.IdempotencyKey != "" && run != want {
		return drover.Errorf(drover.CodeConflict, "run %s is not the run of its idempotency_key: start run %s, or leave the key out", run, want)
	}
	if p := r.Parent; p != nil && (p.Depth < 1 || len(p.Token) > 128 || p.Call.Run == "" || drover.ChildRunID(p.Call) != run) {
		return invalid("has a parent that it is no child of: leave parent out")
	}
	return checkBrought(run, r)
}

// checkBrought checks the tokens that a start brings, and who is told.
func checkBrought(run drover.RunID, r *drover.StartRequest) *drover.Error {
	if len(r.Hooks) > drover.MaxStartHooks {
		return drover.Errorf(drover.CodeTooLarge, "the start of run %s brings %d hooks, more than %d", run, len(r.Hooks), drover.MaxStartHooks)
	}
	for i, token := range r.Hooks {
		if err := checkToken(token); err != nil {
			e := drover.AsError(err, drover.CodeInvalidRequest)
			return drover.Errorf(e.Code, "hook %d of the start of run %s cannot be: %s", i, run, e.Message)
		}
	}
	return checkTold(run, r)
}

// checkTold checks tags and subscribers.
func checkTold(run drover.RunID, r *drover.StartRequest) *drover.Error {
	if len(r.Tags) > drover.MaxTags {
		return drover.Errorf(drover.CodeTooLarge, "run %s has %d tags, more than %d", run, len(r.Tags), drover.MaxTags)
	}
	for k, v := range r.Tags {
		if k == "" || len(k) > drover.MaxTag || len(v) > drover.MaxTag {
			return drover.Errorf(drover.CodeInvalidRequest, "tag %q of run %s must have a key of 1 to %d bytes, and a value of at most so many", cut(k, 60), run, drover.MaxTag)
		}
	}
	if len(r.Notify) > drover.MaxSubscribers {
		return drover.Errorf(drover.CodeTooLarge, "run %s has %d subscribers, more than %d", run, len(r.Notify), drover.MaxSubscribers)
	}
	if r.ReplyTo != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "the start of run %s has reply_to, and says nothing of who sent it: ask the API to start it", run)
	}
	if r.Hold != nil {
		if bad := checkHold(r.Hold); bad != nil {
			return bad
		}
	}
	for i := range r.Notify {
		if why := r.Notify[i].Problem(); why != "" {
			return drover.Errorf(drover.CodeInvalidRequest, "notify %d of run %s cannot be: %s", i, run, why)
		}
	}
	return nil
}

func checkDeliver(r *drover.DeliverRequest) *drover.Error {
	const name, id, inbox = 128, 256, 256
	switch {
	case r.Name != "" && r.Hook != "":
		return drover.Errorf(drover.CodeInvalidRequest, "a delivery is to a name or to a hook, and this one has both")
	case r.Hook == "" && (r.Name == "" || len(r.Name) > name):
		return drover.Errorf(drover.CodeInvalidRequest, "a delivery must name its wait, in 1 to %d bytes", name)
	case len(r.Hook) > drover.MaxToken:
		return drover.Errorf(drover.CodeInvalidRequest, "the token of a delivery has %d bytes, more than %d", len(r.Hook), drover.MaxToken)
	case r.Hook == "" && r.Respond != "":
		return drover.Errorf(drover.CodeInvalidRequest, "only a delivery to a hook is answered by the run: leave respond out")
	case len(r.Respond) > inbox:
		return drover.Errorf(drover.CodeTooLarge, "the inbox that a delivery wants its answer on has %d bytes, more than %d", len(r.Respond), inbox)
	case len(r.ID) > id:
		return drover.Errorf(drover.CodeTooLarge, "the id of a delivery has %d bytes, more than %d", len(r.ID), id)
	}
	if r.Payload = compact(r.Payload); len(r.Payload) > drover.MaxValue {
		return drover.Errorf(drover.CodeTooLarge, "the payload of delivery %q has %d bytes, more than %d: pass a reference to it",
			cut(r.Name+r.Hook, shownToken), len(r.Payload), drover.MaxValue)
	}
	return nil
}

func checkResult(run drover.RunID, m *drover.ResultMessage) *drover.Error {
	if bad := sameRun(run, m.Call); bad != nil {
		return bad
	}
	said := 0
	for _, is := range []bool{m.Output != nil, m.Error != nil, !isNull(m.Progress)} {
		if is {
			said++
		}
	}
	if said > 1 {
		return drover.Errorf(drover.CodeInvalidRequest, "the result of call %s must have one of output, error and progress, and has %d", m.Call, said)
	}
	// A heartbeat with nothing to tell is one. Next to an end, null is nothing.
	if isNull(m.Progress) && (m.Output != nil || m.Error != nil) {
		m.Progress = nil
	}
	m.Output = compact(m.Output)
	return nil
}

func sameRun(run drover.RunID, call drover.CallID) *drover.Error {
	if call.Run != run {
		return drover.Errorf(drover.CodeInvalidRequest, "call %s was sent to run %s: send it to run %s", call, run, call.Run)
	}
	return nil
}
