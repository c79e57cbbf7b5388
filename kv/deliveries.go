package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/subjects"
)

// deliveries is the bucket that lists deliveries.
type deliveries struct{ *bucket }

func (d *deliveries) List(key string, hint Hint, done func(error)) {
	d.hint(key, nats.Header{}, []byte(hint), done)
}

// Unlist writes a mark over the key, which the server forgets soon: a write can
// be sent with others, and stays behind those to the same key that were sent
// before it, which a request to delete a message would not.
func (d *deliveries) Unlist(key string, done func(error)) {
	d.hint(key, nats.Header{
		subjects.HeaderOperation: {"PURGE"},
		subjects.HeaderTTL:       {unlistTTL},
	}, nil, done)
}

// unlistTTL is how long the mark of a key that was removed stays, the least that
// the server knows: nobody waits for it.
const unlistTTL = "1s"

func (d *deliveries) hint(key string, header nats.Header, data []byte, done func(error)) {
	msg := &nats.Msg{Subject: d.subject + key, Header: header, Data: data}
	d.p.Publish(msg, func(_ publish.Ack, err error) {
		if err != nil && !errors.Is(err, drover.CodeUnavailable) {
			err = fmt.Errorf("%w: %w", drover.CodeUnavailable, err)
		}
		if err != nil {
			err = fmt.Errorf("key %q of the list of deliveries could not be written: %w", key, err)
		}
		done(err)
	})
}

func (d *deliveries) Scan(ctx context.Context, filter string, visit func(key string, hint Hint) bool) error {
	return d.scan(ctx, cmp.Or(filter, ">"), func(key string, rec Record) bool { return visit(key, Hint(rec.Data)) })
}

func (d *deliveries) Purge(ctx context.Context, keys []string, last uint64) error {
	for _, key := range keys {
		if err := d.purge(ctx, key, last); err != nil {
			return err
		}
	}
	return nil
}
