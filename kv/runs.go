package kv

import (
	"context"
	"errors"
	"fmt"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/subjects"
)

// runs is the bucket of records.
type runs struct{ *bucket }

func (r *runs) Load(ctx context.Context, key string) (Record, error) {
	e, err := r.read(ctx, key)
	if err != nil {
		return Record{}, err
	}
	if e.Retired {
		return e.Record, drover.Errorf(drover.CodeNotFound, "record %q is being removed", key)
	}
	if !e.there() {
		return Record{}, drover.Errorf(drover.CodeNotFound, "there is no record %q", key)
	}
	return e.Record, nil
}

func (r *runs) Commit(batch []Commit) {
	for _, c := range batch {
		r.p.Publish(r.message(c.Key, c.Revision, c.Data), func(ack publish.Ack, err error) {
			if c.Revision == 0 && errors.Is(err, ErrConflict) {
				r.overMark(c, err)
				return
			}
			c.Done(ack.Sequence, err)
		})
	}
}

// overMark writes a new record where there may be no more than the mark of one
// that was deleted. Drover leaves none, but people with a KV client do.
func (r *runs) overMark(c Commit, conflict error) {
	r.readNow(c.Key, func(e entry, err error) {
		switch {
		case err != nil:
			c.Done(0, err)
		case !e.mark:
			c.Done(0, conflict)
		default:
			r.p.PublishNow(r.message(c.Key, e.Revision, c.Data), func(ack publish.Ack, err error) {
				c.Done(ack.Sequence, err)
			})
		}
	})
}

// Retire keeps the key taken: what it writes is no mark, which a new record would
// be written over.
func (r *runs) Retire(ctx context.Context, key string, revision uint64, left []byte) (uint64, error) {
	if revision == 0 {
		return 0, fmt.Errorf("%w: record %q has no revision to retire", ErrConflict, key)
	}
	msg := r.message(key, revision, left)
	msg.Header.Set(subjects.HeaderRetired, "1")
	return r.write(ctx, msg)
}

func (r *runs) Purge(ctx context.Context, key string, revision uint64) error {
	return r.remove(ctx, key, revision)
}

func (r *runs) Scan(ctx context.Context, visit func(key string, rec Record) bool) error {
	return r.scan(ctx, ">", visit)
}
