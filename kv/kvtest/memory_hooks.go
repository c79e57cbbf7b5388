package kvtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

type hooks struct{ *bucket }

func (h hooks) Claim(_ context.Context, token string, claim []byte) (uint64, error) {
	return h.put(subjects.HookKey(token), 0, claim)
}

func (h hooks) Get(_ context.Context, token string) (kv.Record, error) {
	rec, ok := h.get(subjects.HookKey(token))
	if !ok {
		return rec, drover.Errorf(drover.CodeNotFound, "nobody has claimed the token %q", token)
	}
	return rec, nil
}

func (h hooks) Release(_ context.Context, token string, revision uint64) error {
	return h.remove(subjects.HookKey(token), revision)
}

func (h hooks) Update(_ context.Context, token string, revision uint64, claim []byte) (uint64, error) {
	if revision == 0 {
		return 0, fmt.Errorf("%w: a claim of token %q has a revision", kv.ErrConflict, token)
	}
	return h.put(subjects.HookKey(token), revision, claim)
}

func (h hooks) Scan(_ context.Context, visit func(token string, rec kv.Record) bool) error {
	all := h.all("")
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return int(all[a].Revision) - int(all[b].Revision) })
	for _, key := range keys {
		if token, ok := subjects.TokenOfKey(key); ok && !visit(token, all[key]) {
			return nil
		}
	}
	return nil
}

func (h hooks) Reserve(_ context.Context, token, id string, revision uint64, data []byte, ttl time.Duration) (kv.Record, error) {
	if ttl < time.Second || ttl%time.Second != 0 {
		return kv.Record{}, drover.Errorf(drover.CodeInvalidRequest, "a reservation for %v must be for whole seconds, at least one", ttl)
	}
	key := subjects.HookIDKey(token, id)
	written, err := h.put(key, revision, data)
	if errors.Is(err, kv.ErrConflict) {
		there, _ := h.get(key)
		return there, err
	}
	time.AfterFunc(ttl, func() { _ = h.remove(key, written) })
	return kv.Record{Data: data, Revision: written}, err
}

func (h hooks) Reserved(_ context.Context, token, id string) (kv.Record, error) {
	rec, ok := h.get(subjects.HookIDKey(token, id))
	if !ok {
		return rec, drover.Errorf(drover.CodeNotFound, "id %q of token %q is not reserved", id, token)
	}
	return rec, nil
}
