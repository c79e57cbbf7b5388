package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

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
	reads  chan struct{} // holds an element for each read under way
	purged purged
}

// maxPurged is of how many runs it is remembered that their values were purged.
const maxPurged = 4096

// purged remembers up to where the values of the latest runs were purged here. The id
// of such a run may be used anew, and a replica that is behind would still answer with
// what the old one had under the same key. What another worker has purged is not known
// here: a replica that is behind by more than the time between that and the new run's
// first read would not be found out.
type purged struct {
	mu    sync.Mutex
	upTo  map[string]uint64 // by run
	order []string          // a ring of maxPurged
	next  int               // the oldest, once it is full
}

func (p *purged) note(run string, last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.upTo == nil {
		p.upTo = map[string]uint64{}
	}
	if _, known := p.upTo[run]; !known {
		if len(p.order) < maxPurged {
			p.order = append(p.order, run)
		} else {
			delete(p.upTo, p.order[p.next])
			p.order[p.next] = run
			p.next = (p.next + 1) % maxPurged
		}
	}
	p.upTo[run] = max(p.upTo[run], last)
}

// of gives the latest sequence of the bucket that a value may not have.
func (p *purged) of(key string) uint64 {
	run, _, _ := strings.Cut(key, ".")
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upTo[run]
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
		v.direct(key, v.purged.of(key), func(e entry, err error) {
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

func (v *values) PurgeRun(ctx context.Context, run drover.RunID, last uint64) error {
	v.purged.note(string(run), last)
	return v.purge(ctx, subjects.ValuesOf(run), last)
}

// direct asks any replica for a key whose value never changes, and the leader
// where that replica has none, does not answer, or has one that was purged: up to
// that sequence. It may be behind.
func (b *bucket) direct(key string, purged uint64, done func(entry, error)) {
	subject := subjects.ReadDirect(b.name, b.subject+key)
	b.p.Request(nats.NewMsg(subject), func(m *nats.Msg, err error) {
		if err == nil {
			if e, ok := replica(m); ok && e.Revision > purged {
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
