package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// definitions is the bucket of definitions and names.
type definitions struct{ *bucket }

func (d *definitions) Put(ctx context.Context, hash drover.Hash, canonical []byte) error {
	_, err := d.create(ctx, subjects.DefinitionKey(hash), canonical)
	if err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("definition %s could not be stored: %w", hash, err)
	}
	return nil
}

func (d *definitions) Get(ctx context.Context, hash drover.Hash) ([]byte, error) {
	key := subjects.DefinitionKey(hash)
	e, err := await(ctx, key, func(done func(entry, error)) { d.direct(key, 0, done) })
	if err != nil {
		return nil, err
	}
	if !e.there() {
		return nil, drover.Errorf(drover.CodeNotFound, "there is no definition with the hash %q: put it, or send it with the start", hash)
	}
	return e.Data, nil
}

func (d *definitions) SetName(ctx context.Context, name drover.WorkflowName, hash drover.Hash) error {
	_, err := d.write(ctx, &nats.Msg{Subject: d.subject + subjects.NameKey(name), Data: []byte(hash)})
	if err != nil {
		return fmt.Errorf("workflow %q could not be registered: %w", name, err)
	}
	return nil
}

func (d *definitions) Lookup(ctx context.Context, name drover.WorkflowName) (drover.Hash, error) {
	e, err := d.read(ctx, subjects.NameKey(name))
	if err != nil {
		return "", err
	}
	if !e.there() {
		return "", drover.Errorf(drover.CodeNotFound, "no workflow is registered as %q: put its definition under that name, with `drover definition put FILE`", name)
	}
	return drover.Hash(e.Data), nil
}

func (d *definitions) List(ctx context.Context) ([]Registered, error) {
	latest := map[drover.WorkflowName]drover.Hash{}
	err := d.scan(ctx, subjects.NameKeys(), func(key string, rec Record) bool {
		if name, ok := subjects.NameOfKey(key); ok {
			latest[name] = drover.Hash(rec.Data)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	list := make([]Registered, 0, len(latest))
	for name, hash := range latest {
		list = append(list, Registered{name, hash})
	}
	slices.SortFunc(list, func(a, b Registered) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}
