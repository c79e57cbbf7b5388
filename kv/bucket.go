package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/subjects"
)

// Open gives the store of a fleet whose buckets internal/topology has made. It
// writes and reads with p, and keeps nothing open.
func Open(ctx context.Context, js jetstream.JetStream, p *publish.Publisher, n subjects.Names) (*Store, error) {
	var err error
	open := func(name string) *bucket {
		b, e := openBucket(ctx, js, p, name)
		err = errors.Join(err, e)
		return b
	}
	definitionsBucket, fleetBucket := open(n.Definitions()), open(n.Fleet())
	s := &Store{
		Runs:        &runs{open(n.Runs())},
		Values:      &values{bucket: open(n.Values()), reads: make(chan struct{}, maxReads)},
		Definitions: &definitions{definitionsBucket},
		Hooks:       &hooks{open(n.Hooks())},
		Deliveries:  &deliveries{open(n.Deliveries())},
		Fleet:       &fleet{fleetBucket},
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// bucket is the stream behind a bucket.
type bucket struct {
	p       *publish.Publisher
	js      jetstream.JetStream
	stream  jetstream.Stream
	name    string // of the stream
	subject string // of every key, with a dot at its end
	latest  string // where the leader is asked
}

func openBucket(ctx context.Context, js jetstream.JetStream, p *publish.Publisher, name string) (*bucket, error) {
	stream, err := js.Stream(ctx, subjects.BucketStream(name))
	if err != nil {
		return nil, fmt.Errorf("%w: bucket %q cannot be opened: %w", drover.CodeUnavailable, name, err)
	}
	return &bucket{
		p:       p,
		js:      js,
		stream:  stream,
		name:    subjects.BucketStream(name),
		subject: subjects.BucketKey(name, ""),
		latest:  subjects.ReadLatest(subjects.BucketStream(name)),
	}, nil
}

// entry is what a bucket has under a key. The zero value is nothing. Of a key
// that was deleted or has expired, a mark may be left, which has a revision.
type entry struct {
	Record
	mark bool
}

func (e entry) there() bool { return e.Revision > 0 && !e.mark }

// Last asks the leader.
func (b *bucket) Last(ctx context.Context) (uint64, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: the bucket does not say what it has: %w", drover.CodeUnavailable, err)
	}
	return info.State.LastSeq, nil
}

// purge removes what keys have that was written up to a sequence. The server takes
// the first sequence that stays, and 0 for none.
func (b *bucket) purge(ctx context.Context, keys string, last uint64) error {
	if last == 0 {
		return nil
	}
	err := b.stream.Purge(ctx, jetstream.WithPurgeSubject(b.subject+keys), jetstream.WithPurgeSequence(last+1))
	if err != nil {
		return fmt.Errorf("%w: keys %q could not be purged: %w", drover.CodeUnavailable, keys, err)
	}
	return nil
}

// message makes a write of a key that has a revision.
func (b *bucket) message(key string, revision uint64, data []byte) *nats.Msg {
	return &nats.Msg{
		Subject: b.subject + key,
		Data:    data,
		Header:  nats.Header{subjects.HeaderExpectedSubject: {strconv.FormatUint(revision, 10)}},
	}
}

// busyPause is how long to wait before a write that was refused as busy is
// tried again.
const busyPause = 5 * time.Millisecond

// write sends a message until the server is not busy, and gives the revision.
func (b *bucket) write(ctx context.Context, msg *nats.Msg) (uint64, error) {
	for {
		ack, err := b.p.Do(ctx, msg)
		if !errors.Is(err, ErrBusy) {
			return ack.Sequence, err
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return 0, err
		}
	}
}

// create writes a key that must not be there.
func (b *bucket) create(ctx context.Context, key string, data []byte) (uint64, error) {
	revision, err := b.write(ctx, b.message(key, 0, data))
	if !errors.Is(err, ErrConflict) {
		return revision, err
	}
	e, err2 := b.read(ctx, key)
	if err2 != nil {
		return 0, err2
	}
	if !e.mark {
		return 0, err
	}
	return b.write(ctx, b.message(key, e.Revision, data))
}

// remove deletes the message of a revision, and leaves no mark. It reads first,
// for the server would as well delete the message of another key. What is
// deleted is that revision, whatever is written between the two.
func (b *bucket) remove(ctx context.Context, key string, revision uint64) error {
	if err := b.expect(ctx, key, revision); err != nil {
		return err
	}
	err := b.stream.DeleteMsg(ctx, revision)
	if err == nil {
		return nil
	}
	// The server says the same when there is no such message any more, and when
	// its disk fails.
	if err := b.expect(ctx, key, revision); err != nil {
		return err
	}
	return fmt.Errorf("%w: key %q could not be removed: %w", drover.CodeUnavailable, key, err)
}

// expect refuses a key that has not this revision.
func (b *bucket) expect(ctx context.Context, key string, revision uint64) error {
	e, err := b.read(ctx, key)
	if err != nil {
		return err
	}
	if revision == 0 || e.Revision != revision {
		return fmt.Errorf("%w: key %q has revision %d, not %d", ErrConflict, key, e.Revision, revision)
	}
	return nil
}

// read asks the leader for a key.
func (b *bucket) read(ctx context.Context, key string) (entry, error) {
	return await(ctx, key, func(done func(entry, error)) {
		b.p.Request(b.ask(key), func(m *nats.Msg, err error) { done(latest(m, err)) })
	})
}

// readNow is read for use in a callback.
func (b *bucket) readNow(key string, done func(entry, error)) {
	b.p.RequestNow(b.ask(key), func(m *nats.Msg, err error) { done(latest(m, err)) })
}

// ask makes the request for the latest message of a key. Keys need no escaping.
func (b *bucket) ask(key string) *nats.Msg {
	return &nats.Msg{Subject: b.latest, Data: []byte(`{"last_by_subj":` + strconv.Quote(b.subject+key) + `}`)}
}

// await waits for a call that calls back.
func await[T any](ctx context.Context, key string, call func(done func(T, error))) (T, error) {
	type result struct {
		value T
		err   error
	}
	got := make(chan result, 1)
	call(func(v T, err error) { got <- result{v, err} })
	select {
	case r := <-got:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: key %q: %w", drover.CodeUnavailable, key, context.Cause(ctx))
	}
}

// latest reads the answer of the leader.
func latest(m *nats.Msg, err error) (entry, error) {
	if err != nil {
		return entry{}, err
	}
	var a struct {
		Message *struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return entry{}, fmt.Errorf("%w: the answer to a read cannot be read: %w", drover.CodeUnavailable, err)
	}
	switch {
	case a.Error != nil && a.Error.Code == 404 && a.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return entry{}, nil
	case a.Error != nil:
		return entry{}, fmt.Errorf("%w: a read was refused: %w", drover.CodeUnavailable, a.Error)
	case a.Message == nil:
		return entry{}, fmt.Errorf("%w: the answer to a read is empty", drover.CodeUnavailable)
	}
	e := entry{Record: Record{Data: a.Message.Data, Revision: a.Message.Sequence}}
	if len(a.Message.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(a.Message.Header)
		if err != nil {
			return entry{}, fmt.Errorf("%w: headers cannot be read: %w", drover.CodeUnavailable, err)
		}
		e.mark, e.Retired = isMark(h), isRetired(h)
	}
	return e, nil
}

// isMark reports whether a message says that its key is gone.
func isMark(h nats.Header) bool {
	return h.Get(subjects.HeaderOperation) != "" || h.Get(subjects.HeaderMarker) != ""
}

// isRetired reports whether a message is what is left of a record.
func isRetired(h nats.Header) bool { return h.Get(subjects.HeaderRetired) != "" }

// scan visits what a bucket has under keys, in the order of revisions.
func (b *bucket) scan(ctx context.Context, keys string, visit func(key string, rec Record) bool) error {
	c, err := b.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{b.subject + keys}})
	if err != nil {
		return fmt.Errorf("%w: the bucket cannot be read: %w", drover.CodeUnavailable, err)
	}
	defer func() {
		// The server forgets the consumer by itself, only later.
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = b.stream.DeleteConsumer(gone, c.CachedInfo().Name)
	}()
	// What is written during the scan comes after this many.
	left := c.CachedInfo().NumPending
	if left == 0 {
		return nil
	}
	it, err := c.Messages(jetstream.PullMaxMessages(256))
	if err != nil {
		return fmt.Errorf("%w: the bucket cannot be read: %w", drover.CodeUnavailable, err)
	}
	defer it.Stop()
	for ; left > 0; left-- {
		msg, err := next(ctx, c, it)
		if err != nil {
			return fmt.Errorf("%w: the bucket cannot be read on: %w", drover.CodeUnavailable, err)
		}
		if msg == nil {
			return nil // what was counted has been deleted meanwhile
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("%w: the bucket cannot be read on: %w", drover.CodeUnavailable, err)
		}
		key := strings.TrimPrefix(msg.Subject(), b.subject)
		h := msg.Headers()
		if !isMark(h) && !visit(key, Record{Data: msg.Data(), Revision: meta.Sequence.Stream, Retired: isRetired(h)}) {
			return nil
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
	return nil
}

// quietTime is how long a scan waits for a message before it asks whether there
// is one.
const quietTime = time.Second

// next gives the next message of a scan, or none where none is left. That the
// server says so counts only when nothing comes afterwards: what it sent before
// may still be on its way. A server that does not answer is waited for.
func next(ctx context.Context, c jetstream.Consumer, it jetstream.MessagesContext) (jetstream.Msg, error) {
	for over := false; ; {
		waiting, cancel := context.WithTimeout(ctx, quietTime)
		msg, err := it.Next(jetstream.NextContext(waiting))
		quiet := err != nil && waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if !quiet {
			return msg, err
		}
		if over {
			return nil, nil
		}
		asking, cancel := context.WithTimeout(ctx, quietTime)
		info, err := c.Info(asking)
		cancel()
		over = err == nil && info.NumPending == 0
	}
}
