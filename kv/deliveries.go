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

func (d *deliveries) List(key string, done func(error)) { d.hint(key, nats.Header{}, done) }

// Unlist writes a mark over the key, which the server forgets soon: a write can
// be sent with others, and stays behind those to the same key that were sent
// before it, which a request to delete a message would not.
func (d *deliveries) Unlist(key string, done func(error)) {
	d.hint(key, nats.Header{
		subjects.HeaderOperation: {"PURGE"},
		subjects.HeaderTTL:       {unlistTTL},
	}, done)
}

// unlistTTL is how long the mark of a key that was removed stays, the least that
// the server knows: nobody waits for it.
const unlistTTL = "1s"

func (d *deliveries) hint(key string, header nats.Header, done func(error)) {
	msg := &nats.Msg{Subject: d.subject + key, Header: header}
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

func (d *deliveries) Scan(ctx context.Context, filter string, visit func(key string) bool) error {
	return d.scan(ctx, cmp.Or(filter, ">"), func(key string, _ Record) bool { return visit(key) })
}
