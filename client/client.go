package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/calling"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// DefaultPatience is for how long a request is asked again.
const DefaultPatience = 15 * time.Second

// How requests are repeated.
const (
	// For one answer; the worker that took the request may be gone.
	readTime    = 4 * time.Second
	commandTime = 10 * time.Second // the owner of the run answers as well
	listTime    = time.Minute      // all of something is gone through
	// Between two tries.
	againFirst = 50 * time.Millisecond
	againMost  = time.Second
)

// Options of a client. The zero value is good for most.
type Options struct {
	// Prefix is that of the fleet; "": subjects.DefaultPrefix.
	Prefix string
	// Patience is for how long a request that nobody can answer is asked
	// again, as when the fleet is just starting; 0: DefaultPatience. The
	// context of a request may end it earlier.
	Patience time.Duration
}

// Client asks the workers of one fleet.
type Client struct {
	nc       *nats.Conn
	names    subjects.Names
	patience time.Duration
}

// New makes a client on a connection, which stays the caller's. A connection
// that reconnects for ever (nats.MaxReconnects(-1)) is best.
func New(nc *nats.Conn, opts Options) (*Client, error) {
	names, err := subjects.New(opts.Prefix)
	if err != nil {
		return nil, err
	}
	return &Client{nc: nc, names: names, patience: cmp.Or(opts.Patience, DefaultPatience)}, nil
}

// Start starts a run, and returns once it is durable and accepted. Without an
// id and an idempotency key the run gets an id here. The reply says whether the
// same start had come before; where a first answer was lost, it may have been
// this one.
func (c *Client) Start(ctx context.Context, req drover.StartRequest) (drover.StartReply, error) {
	if req.RunID == "" && req.IdempotencyKey == "" {
		req.RunID = drover.RunID(chance("r_"))
	}
	var reply drover.StartReply
	return reply, c.request(ctx, "start", req, &reply)
}

// Stop asks for the end of a run. Its outcome comes when what it did has been
// compensated. The reply of a run that was over has its terminal status; the
// error has the code not_found where there is no such run.
func (c *Client) Stop(ctx context.Context, run drover.RunID, reason string) (drover.StopReply, error) {
	var reply drover.StopReply
	return reply, c.request(ctx, "stop", drover.StopRequest{RunID: run, Reason: reason}, &reply)
}

// ForceStop ends a program at once: its body is not asked, and undoes nothing. A
// run of another kind is stopped as Stop does.
func (c *Client) ForceStop(ctx context.Context, run drover.RunID, reason string) (drover.StopReply, error) {
	var reply drover.StopReply
	return reply, c.request(ctx, "stop", drover.StopRequest{RunID: run, Reason: reason, Force: true}, &reply)
}

// Tick makes a run look at its deadlines now.
func (c *Client) Tick(ctx context.Context, run drover.RunID) error {
	return c.request(ctx, "tick", drover.RunRequest{RunID: run}, nil)
}

// Deliver feeds a wait of a run, and returns once the delivery is durable and
// in the order of the run. A repeat with the same id does nothing; without one
// each call is a delivery of its own.
func (c *Client) Deliver(ctx context.Context, req drover.DeliverRequest) (drover.DeliverReply, error) {
	if req.ID == "" {
		req.ID = chance("d_")
	}
	var reply drover.DeliverReply
	return reply, c.request(ctx, "deliver", req, &reply)
}

// Status shows a run, with the definition that it runs.
func (c *Client) Status(ctx context.Context, req drover.RunRequest) (drover.StatusReply, error) {
	var reply drover.StatusReply
	return reply, c.request(ctx, "status", req, &reply)
}

// Result gives the result of a run, or of one of its nodes or items. With Wait it
// waits for the end of the run; the status of the reply says whether that came.
func (c *Client) Result(ctx context.Context, req drover.RunRequest) (drover.ResultReply, error) {
	var reply drover.ResultReply
	limit := answerTime("result")
	if req.Wait > 0 {
		limit += commandTime + time.Duration(req.Wait)
	}
	return reply, c.requestWithin(ctx, "result", limit, req, &reply)
}

// Why says what a run is waiting for.
func (c *Client) Why(ctx context.Context, run drover.RunID) (drover.WhyReply, error) {
	var reply drover.WhyReply
	return reply, c.request(ctx, "why", drover.RunRequest{RunID: run}, &reply)
}

// List gives runs, newest first.
func (c *Client) List(ctx context.Context, req drover.ListRequest) (drover.ListReply, error) {
	var reply drover.ListReply
	return reply, c.request(ctx, "list", req, &reply)
}

// PutDefinition stores a definition, and registers it where the request has a
// name. All problems of one that is not valid come back in one error.
func (c *Client) PutDefinition(ctx context.Context, req drover.DefinitionRequest) (drover.DefinitionReply, error) {
	var reply drover.DefinitionReply
	return reply, c.request(ctx, "definition.put", req, &reply)
}

// GetDefinition gives the definition with a name or a hash.
func (c *Client) GetDefinition(ctx context.Context, req drover.DefinitionRequest) (drover.DefinitionReply, error) {
	var reply drover.DefinitionReply
	return reply, c.request(ctx, "definition.get", req, &reply)
}

// ListDefinitions gives every registered name with its hash.
func (c *Client) ListDefinitions(ctx context.Context) (drover.DefinitionList, error) {
	var reply drover.DefinitionList
	return reply, c.request(ctx, "definition.list", struct{}{}, &reply)
}

// ListDead gives dead letters, newest first: commands that could not be folded.
func (c *Client) ListDead(ctx context.Context, req drover.DeadListRequest) (drover.DeadList, error) {
	var reply drover.DeadList
	return reply, c.request(ctx, "dead.list", req, &reply)
}

// ShowDead gives a dead letter with its payload. The error has the code
// not_found where there is none.
func (c *Client) ShowDead(ctx context.Context, sequence uint64) (drover.DeadLetter, error) {
	var reply drover.DeadLetter
	return reply, c.request(ctx, "dead.show", drover.DeadRequest{Sequence: sequence}, &reply)
}

// RequeueDead puts the command of a dead letter into the log of its run again,
// and removes the letter. Where a first answer was lost the error has the code
// not_found, as there is no letter any more. A command that would be refused
// whatever its run is like stays where it is, and the error says why.
func (c *Client) RequeueDead(ctx context.Context, sequence uint64) (drover.RequeueReply, error) {
	var reply drover.RequeueReply
	return reply, c.request(ctx, "dead.requeue", drover.DeadRequest{Sequence: sequence}, &reply)
}

// Fleet shows the workers that live, and how far each partition has come.
func (c *Client) Fleet(ctx context.Context) (drover.FleetReply, error) {
	var reply drover.FleetReply
	return reply, c.request(ctx, "fleet", struct{}{}, &reply)
}

// request asks the API, again and again while nobody can answer, and reads the
// answer into reply unless that is nil.
func (c *Client) request(ctx context.Context, verb string, req, reply any) error {
	return c.requestWithin(ctx, verb, answerTime(verb), req, reply)
}

// requestWithin is request where one answer may take as long as limit.
func (c *Client) requestWithin(ctx context.Context, verb string, limit time.Duration, req, reply any) error {
	data, err := encode(verb, req)
	if err != nil {
		return err
	}
	var answer *nats.Msg
	err = c.repeat(ctx, verb, limit, func(ctx context.Context) (err error) {
		answer, err = c.try(ctx, limit, verb, data)
		return err
	})
	if err != nil {
		return err
	}
	return read(verb, answer, reply)
}

func encode(verb string, req any) ([]byte, error) {
	data, err := rawjson.Encode(req)
	if err != nil {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "the request for %s is no JSON: %v", verb, err)
	}
	return data, nil
}

// repeat asks until the answer is another than that nobody can answer, or
// patience is over. limit is that of one answer.
func (c *Client) repeat(ctx context.Context, verb string, limit time.Duration, ask func(context.Context) error) error {
	total := c.patience
	if limit > commandTime {
		total = max(total, limit)
	}
	patience, stop := context.WithTimeout(ctx, total)
	defer stop()
	for pause := againFirst; ; pause = min(2*pause, againMost) {
		err := ask(patience)
		if err == nil || !errors.Is(err, drover.CodeUnavailable) || c.nc.IsClosed() {
			return err
		}
		select {
		case <-time.After(pause):
			continue
		case <-patience.Done():
		}
		if ctx.Err() != nil {
			return fmt.Errorf("client: %s: %w (%w)", verb, context.Cause(ctx), err)
		}
		return err
	}
}

// answerTime is how long one answer may take.
func answerTime(verb string) time.Duration {
	switch verb {
	case "start", "stop", "tick", "deliver", "hold", "consume", "release", "definition.put", "dead.requeue", "hook.deliver", "hook.release":
		return commandTime
	case "list", "dead.list", "fleet", "hook.list", "delivery.list", "delivery.replay", verbMany:
		return listTime
	default:
		return readTime
	}
}

// try asks once. The error is a *drover.Error.
func (c *Client) try(ctx context.Context, limit time.Duration, verb string, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m := nats.NewMsg(c.names.API(verb))
	m.Data = data
	if verb == "start" || verb == "hook.deliver" {
		speak(ctx, m)
	}
	m, err := c.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, c.unanswered(verb, len(data), err)
	}
	return m, answered(m)
}

// speak says on behalf of which call a run is started.
func speak(ctx context.Context, m *nats.Msg) {
	if call, ok := calling.From(ctx); ok {
		m.Header.Set(subjects.HeaderCall, call.ID.String())
		m.Header.Set(subjects.HeaderToken, call.Token)
	}
}

// WithCall gives a context in which runs are started on behalf of a call, so that
// those with ReplyTo answer to the session of the call. Handlers of the SDK for
// functions have such a context already; this is for who takes calls off the
// queue by himself, with the headers Drover-Call and Drover-Token.
func WithCall(ctx context.Context, id drover.CallID, token string) context.Context {
	return calling.With(ctx, calling.Call{ID: id, Token: token})
}

// unanswered says why a request of so many bytes has no answer.
func (c *Client) unanswered(verb string, size int, err error) error {
	subject := c.names.API(verb)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return drover.Errorf(drover.CodeUnavailable,
			"no worker answers at %s: start one with this prefix, on the server at %s", subject, c.nc.ConnectedUrlRedacted())
	case errors.Is(err, nats.ErrMaxPayload):
		return drover.Errorf(drover.CodeTooLarge,
			"the request for %s has %d bytes, and the server takes %d: pass a reference in place of big values", verb, size, c.nc.MaxPayload())
	default:
		return drover.Errorf(drover.CodeUnavailable, "no answer at %s: %v", subject, err)
	}
}

// answered gives the error of an answer that is one.
func answered(m *nats.Msg) error {
	if e := drover.ErrorOf(m.Header.Get(subjects.HeaderCode), m.Data); e != nil {
		return e
	}
	return nil
}

func read(verb string, m *nats.Msg, reply any) error {
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(m.Data, reply); err != nil {
		return drover.Errorf(drover.CodeInternal, "the answer to %s cannot be read: %v: do client and worker have the same version?", verb, err)
	}
	return nil
}

// chance makes an id that nobody else makes.
func chance(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
