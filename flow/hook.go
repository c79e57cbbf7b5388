package flow

import (
	"encoding/json"
	"time"

	"github.com/droverhq/drover"
)

// Made is the token of a hook that Drover makes, and that nobody can guess.
const Made = ""

// HookOptions say more of a hook; see drover.Wait.
type HookOptions struct {
	Tags     map[string]string
	Metadata any             // any JSON
	Schema   json.RawMessage // of each payload
	OnUnread drover.OnUnread
	Retain   time.Duration // how long the token stays taken after its release
	Takeover bool          // takes the token from a run that holds it
	Public   bool          // may be delivered to by HTTP; only with Made
}

// Hook is a token that the run holds, until it is released or the run is over.
type Hook struct {
	o     *op
	token string
	taken bool // the first delivery, which the node of the hook reads
}

// Hook claims a token. What is wrong with it is an error of [Next].
func (r *Run) Hook(id, token string, o HookOptions) *Hook {
	w := &drover.Wait{
		Hook: &drover.HookToken{Text: token, Made: token == Made}, Hold: true, Tags: o.Tags, Schema: o.Schema, OnUnread: o.OnUnread,
		Retain: drover.Duration(o.Retain), Takeover: o.Takeover, Public: o.Public,
	}
	var err error
	if o.Metadata != nil {
		w.Metadata, err = encode(o.Metadata)
	}
	return &Hook{token: token, o: nodeFuture[json.RawMessage](r, err, id, &drover.Step{Wait: w}, nil, "").o}
}

// Token is the token. One that Drover makes is waited for.
func (h *Hook) Token(run *Run) (string, error) {
	if h.token != Made {
		return h.token, nil
	}
	return token(run, h.o)
}

// Next waits for the next delivery to a hook. Options: [Timeout].
func Next[T any](run *Run, hook *Hook, id string, opts ...Option) (T, error) {
	run.b.enter()
	var none T
	o, err := read(id, opts, "Timeout")
	if err != nil {
		return none, err
	}
	if !hook.taken {
		first, err := hook.first(run, id, o.policy.timeout)
		if err != nil {
			return none, err
		}
		if first {
			return result[T](hook.o)
		}
		id += ":next"
	}
	step := &drover.Step{Wait: &drover.Wait{From: drover.NodeID(hook.o.entry.ID), Timeout: drover.Duration(o.policy.timeout)}}
	return nodeFuture[T](run, nil, id, step, nil, "hook "+hook.o.entry.ID).Get(run)
}

// StartNext begins to wait, see [Next].
func StartNext[T any](run *Run, hook *Hook, id string, opts ...Option) *Future[T] {
	return Go(run, func(run *Run) (T, error) { return Next[T](run, hook, id, opts...) })
}

// first waits for the first delivery, unless another branch takes it.
func (h *Hook) first(run *Run, id string, limit time.Duration) (bool, error) {
	list := []*op{h.o}
	if limit > 0 && !h.o.over {
		list = append(list, StartSleep(run, id, limit).o)
	} else if err := run.b.c.use(id, "a wait"); err != nil {
		return false, err
	}
	over := func() bool { return h.o.over || h.taken || len(list) > 1 && list[1].over }
	if err := run.b.share(over, list...); err != nil {
		return false, err
	}
	switch {
	case h.o.over:
		if len(list) > 1 {
			run.b.c.drop(list[1], nil)
		}
		if h.o.err != nil || h.taken {
			return false, h.o.err
		}
		h.taken = true
		return true, nil
	case list[1].err != nil:
		return false, list[1].err
	}
	return false, drover.Errorf(drover.CodeTimeout, "nothing was delivered to hook %q within %s", h.o.entry.ID, limit)
}

// Release frees the token. What nothing has read is dealt with as how says: with
// drover.UnreadTake its payloads are returned.
func (h *Hook) Release(run *Run, how drover.Unread) ([]json.RawMessage, error) {
	step := &drover.Step{Release: &drover.Release{Hook: drover.NodeID(h.o.entry.ID), Unread: how}}
	f := nodeFuture[json.RawMessage](run, nil, h.o.entry.ID+":release", step, nil, "")
	raw, err := f.Get(run)
	if err != nil || how != drover.UnreadTake {
		return nil, err
	}
	return result[[]json.RawMessage](&op{entry: f.o.entry, output: raw})
}
