package kv

import (
	"context"
	"fmt"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// hooks is the bucket of claims.
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

func (h *hooks) Release(ctx context.Context, token string, revision uint64) error {
	return h.remove(ctx, subjects.HookKey(token), revision)
}
