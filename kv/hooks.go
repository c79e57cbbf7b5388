package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// hooks is the bucket of claims, and of the ids of deliveries.
type hooks struct{ *bucket }

func (h *hooks) Claim(ctx context.Context, token string, claim []byte) (uint64, error) {
	revision, err := h.create(ctx, subjects.HookKey(token), claim)
	if err != nil {
		return 0, fmt.Errorf("token %q could not be claimed: %w", token, err)
	}
	return revision, nil
}

func (h *hooks) Get(ctx context.Context, token string) (Record, error) {
	e, err := h.read(ctx, subjects.HookKey(token))
	if err != nil {
		return Record{}, err
	}
	if !e.there() {
		return Record{}, drover.Errorf(drover.CodeNotFound, "nobody has claimed the token %q", token)
	}
	return e.Record, nil
}

func (h *hooks) Update(ctx context.Context, token string, revision uint64, claim []byte) (uint64, error) {
	if revision == 0 { // it would create the key
		return 0, fmt.Errorf("%w: a claim of token %q has a revision", ErrConflict, token)
	}
	revision, err := h.write(ctx, h.message(subjects.HookKey(token), revision, claim))
	if err != nil {
		return 0, fmt.Errorf("the claim of token %q could not be changed: %w", token, err)
	}
	return revision, nil
}

func (h *hooks) Release(ctx context.Context, token string, revision uint64) error {
	return h.remove(ctx, subjects.HookKey(token), revision)
}

func (h *hooks) Scan(ctx context.Context, visit func(token string, rec Record) bool) error {
	return h.scan(ctx, subjects.HookKeys(), func(key string, rec Record) bool {
		token, ok := subjects.TokenOfKey(key)
		return !ok || visit(token, rec)
	})
}

func (h *hooks) Reserve(ctx context.Context, token, id string, revision uint64, data []byte, ttl time.Duration) (Record, error) {
	seconds, err := wholeSeconds(ttl)
	if err != nil {
		return Record{}, err
	}
	key := subjects.HookIDKey(token, id)
	msg := h.message(key, revision, data)
	msg.Header[subjects.HeaderTTL] = []string{seconds}
	written, err := h.write(ctx, msg)
	if err == nil {
		return Record{Data: data, Revision: written}, nil
	}
	err = fmt.Errorf("id %q of token %q could not be reserved: %w", id, token, err)
	if !errors.Is(err, ErrConflict) {
		return Record{}, err
	}
	e, err2 := h.read(ctx, key)
	if err2 != nil {
		return Record{}, err2
	}
	if !e.there() {
		return Record{}, err
	}
	return e.Record, err
}

func (h *hooks) Reserved(ctx context.Context, token, id string) (Record, error) {
	e, err := h.read(ctx, subjects.HookIDKey(token, id))
	if err != nil {
		return Record{}, err
	}
	if !e.there() {
		return Record{}, drover.Errorf(drover.CodeNotFound, "id %q of token %q is not reserved", id, token)
	}
	return e.Record, nil
}
