package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// verbMany is the one request whose answer has several messages.
const verbMany = "hook.deliver.many"

// DeliverHook delivers to the run that holds a token, and returns once the run
// has taken it, or with Async once it is durable. Without an id each call is a
// delivery of its own.
//
// The codes of its error: not_found, nobody holds the token, and nothing was
// stored; invalid_input, the payload does not fit the schema of the hook, and
// nothing was stored; full, too much is unread; conflict, the id came with
// another payload before. After unavailable it is not known, and the same
// request with an id may be sent again.
func (c *Client) DeliverHook(ctx context.Context, req drover.HookRequest) (drover.HookReply, error) {
	if req.ID == "" {
		req.ID = chance("d_")
	}
	var reply drover.HookReply
	return reply, c.request(ctx, "hook.deliver", req, &reply)
}

// StartOrDeliver delivers to the run that holds a token, or starts one that
// holds it from its first moment, with the payload as its first delivery. The
// reply says which. Any number of callers at the same time start one run.
func (c *Client) StartOrDeliver(ctx context.Context, token string, payload json.RawMessage, start drover.StartRequest) (drover.HookReply, error) {
	return c.DeliverHook(ctx, drover.HookRequest{Token: token, Payload: payload, Start: &start})
}

// DeliverHooks delivers to every hook that a filter chooses, and gives how each
// delivery went, as it ends and in no order; a hook that did not take it is a
// result with an error. An error of the iteration ends it: some may have had
// the delivery then. Without an id it gets one here, so that ranging over it
// again tries what is left, and delivers nothing twice.
func (c *Client) DeliverHooks(ctx context.Context, req drover.HookManyRequest) iter.Seq2[drover.HookResult, error] {
	if req.ID == "" {
		req.ID = chance("d_")
	}
	req.Stream = true
	return func(yield func(drover.HookResult, error) bool) {
		if err := c.results(ctx, req, yield); err != nil {
			yield(drover.HookResult{}, err)
		}
	}
}

// results gives what comes of a delivery to many hooks, until all has come or
// yield does not want more.
func (c *Client) results(ctx context.Context, req drover.HookManyRequest, yield func(drover.HookResult, error) bool) error {
	data, err := encode(verbMany, req)
	if err != nil {
		return err
	}
	sub, m, err := c.stream(ctx, data)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	got := 0
	for m.Header.Get(subjects.HeaderMore) != "" {
		var result drover.HookResult
		if err := read(verbMany, m, &result); err != nil {
			return err
		}
		got++
		if !yield(result, nil) {
			return nil
		}
		if m, err = c.next(ctx, sub, len(data)); ctx.Err() != nil {
			return fmt.Errorf("client: %s: %w", verbMany, context.Cause(ctx))
		} else if errors.Is(err, drover.CodeUnavailable) {
			return drover.Errorf(drover.CodeUnavailable, "%v, after the results of %d hooks: deliver again with the id %q", err, got, req.ID)
		} else if err != nil {
			return err
		}
	}
	var sum drover.HookManyReply
	if err := read(verbMany, m, &sum); err != nil {
		return err
	}
	if got < sum.Matched {
		return drover.Errorf(drover.CodeUnavailable, "%d of %d results were lost on their way, %d of all were accepted: deliver again with the id %q",
			sum.Matched-got, sum.Matched, sum.Accepted, req.ID)
	}
	return nil
}

// stream asks for a delivery to many hooks until the first message of an answer
// comes. The subscription, which has the rest, is the caller's to end.
func (c *Client) stream(ctx context.Context, data []byte) (sub *nats.Subscription, first *nats.Msg, err error) {
	err = c.repeat(ctx, verbMany, answerTime(verbMany), func(ctx context.Context) error {
		inbox := c.nc.NewInbox()
		var err error
		if sub, err = c.nc.SubscribeSync(inbox); err != nil {
			return c.unanswered(verbMany, len(data), err)
		}
		if err = c.nc.PublishRequest(c.names.API(verbMany), inbox, data); err != nil {
			err = c.unanswered(verbMany, len(data), err)
		} else {
			first, err = c.next(ctx, sub, len(data))
		}
		if err != nil {
			_ = sub.Unsubscribe()
		}
		return err
	})
	return sub, first, err
}

// next is the next message of an answer.
func (c *Client) next(ctx context.Context, sub *nats.Subscription, size int) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime(verbMany))
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, c.unanswered(verbMany, size, err)
	}
	return m, answered(m)
}

// ListHooks gives tokens that are taken, sorted.
func (c *Client) ListHooks(ctx context.Context, req drover.HookListRequest) (drover.HookList, error) {
	var reply drover.HookList
	return reply, c.request(ctx, "hook.list", req, &reply)
}

// ShowHook shows a token that is taken: who holds it since when, and how much
// of what was delivered nothing has read. The error has the code not_found
// where it is free.
func (c *Client) ShowHook(ctx context.Context, token string) (drover.Hook, error) {
	var reply drover.Hook
	return reply, c.request(ctx, "hook.show", drover.HookTokenRequest{Token: token}, &reply)
}

// ReleaseHook frees a token that nobody can use any more, as its run is gone or
// has let go of it, and with Force also one that a run holds or that is
// retained. It gives the hook as it was. The error has the code not_found where
// the token is free, also by this call when its first answer was lost.
func (c *Client) ReleaseHook(ctx context.Context, req drover.HookTokenRequest) (drover.Hook, error) {
	var reply drover.Hook
	return reply, c.request(ctx, "hook.release", req, &reply)
}
