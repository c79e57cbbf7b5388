package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/subjects"
)

// maxReads is how many values are asked for at a time. The server cuts off a
// client that is 64 MiB behind, and a value may have 1 MiB.
const maxReads = 32

// values is the bucket of big values.
type values struct {
	*bucket
	reads chan struct{} // holds an element for each read under way
}

func (v *values) Put(key string, value json.RawMessage, done func(error)) {
	v.p.Publish(v.message(key, 0, value), func(_ publish.Ack, err error) {
		if errors.Is(err, ErrConflict) {
			err = nil
		}
		done(err)
	})
}

// found collects what a Get has read.
type found struct {
	mu     sync.Mutex
	values map[string]json.RawMessage
	err    error
}

func (f *found) add(key string, e entry, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		f.err = errors.Join(f.err, fmt.Errorf("value %q: %w", key, err))
	case e.there():
		f.values[key] = e.Data
	}
}

func (v *values) Get(ctx context.Context, keys []string) (map[string]json.RawMessage, error) {
	f := &found{values: make(map[string]json.RawMessage, len(keys))}
	got := make(chan struct{}, len(keys))
	cut := func() error {
		return fmt.Errorf("%w: %d values: %w", drover.CodeUnavailable, len(keys), context.Cause(ctx))
	}
	for _, key := range keys {
		select {
		case v.reads <- struct{}{}:
		case <-ctx.Done():
			return nil, cut()
		}
		v.direct(key, func(e entry, err error) {
			f.add(key, e, err)
			<-v.reads
			got <- struct{}{}
		})
	}
	for range keys {
		select {
		case <-got:
		case <-ctx.Done():
			return nil, cut()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	return maps.Clone(f.values), nil
}

func (v *values) PurgeRun(ctx context.Context, run drover.RunID) error {
	if err := v.stream.Purge(ctx, jetstream.WithPurgeSubject(v.subject+subjects.ValuesOf(run))); err != nil {
		return fmt.Errorf("%w: the values of run %q could not be purged: %w", drover.CodeUnavailable, run, err)
	}
	return nil
}

// direct asks any replica for a key whose value never changes, and the leader
// where that replica has none or does not answer: it may be behind.
func (b *bucket) direct(key string, done func(entry, error)) {
	subject := subjects.ReadDirect(b.name, b.subject+key)
	b.p.Request(nats.NewMsg(subject), func(m *nats.Msg, err error) {
		if err == nil {
			if e, ok := replica(m); ok {
				done(e, nil)
				return
			}
		}
		b.readNow(key, done)
	})
}

// replica reads the answer of a replica, if it has the key.
func replica(m *nats.Msg) (entry, bool) {
	revision, err := strconv.ParseUint(m.Header.Get(subjects.HeaderSequence), 10, 64)
	if err != nil || m.Header.Get(subjects.HeaderStatus) != "" {
		return entry{}, false
	}
	return entry{Record: Record{Data: m.Data, Revision: revision}, mark: isMark(m.Header)}, true
}
