package kv

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover/subjects"
)

func (f *fleet) WatchMembers(ctx context.Context, changed func([]Member)) error {
	return f.watch(ctx, subjects.MemberKeys(), func(all map[string]Record) {
		list := make([]Member, 0, len(all))
		for key, rec := range all {
			if id, ok := subjects.MemberOfKey(key); ok {
				list = append(list, Member{ID: id, Info: rec.Data, Revision: rec.Revision})
			}
		}
		slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
		changed(list)
	})
}

func (f *fleet) WatchPartitions(ctx context.Context, changed func([]Partition)) error {
	known := map[string]Partition{} // or each checkpoint would have all partitions decoded
	return f.watch(ctx, subjects.PartitionKeys(), func(all map[string]Record) {
		list := make([]Partition, 0, len(all))
		for key, rec := range all {
			number, ok := subjects.PartitionOfKey(key)
			if !ok {
				continue
			}
			p, ok := known[key]
			if !ok || p.Revision != rec.Revision {
				// One that cannot be read has no owner; to take it will say why.
				p, _ = partition(number, entry{Record: rec})
				known[key] = p
			}
			list = append(list, p)
		}
		slices.SortFunc(list, func(a, b Partition) int { return cmp.Compare(a.Number, b.Number) })
		changed(list)
	})
}

// rewatch is how long to wait before a watch that could not begin is begun again.
const rewatch = 200 * time.Millisecond

// watch calls changed with all that is under keys, at first and after changes,
// until ctx ends.
//
// It begins anew with every new connection: whoever was away for longer than
// marks are kept would never learn of the keys that went meanwhile.
func (b *bucket) watch(ctx context.Context, keys string, changed func(map[string]Record)) error {
	nc := b.js.Conn()
	connected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connected)
	for {
		err := b.watchOnce(ctx, keys, connected, changed)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue
		}
		select {
		case <-time.After(rewatch):
		case <-connected:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchOnce watches until the connection is a new one.
func (b *bucket) watchOnce(ctx context.Context, keys string, connected <-chan nats.Status, changed func(map[string]Record)) error {
	c, err := b.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{b.subject + keys}})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	updates := make(chan jetstream.Msg, 256)
	done := make(chan struct{})
	cc, err := c.Consume(func(m jetstream.Msg) {
		select {
		case updates <- m:
		case <-done:
		}
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer func() {
		close(done)
		cc.Stop()
		<-cc.Closed()
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = b.stream.DeleteConsumer(gone, c.CachedInfo().Name)
	}()
	w := watched{bucket: b, all: map[string]Record{}, missing: c.CachedInfo().NumPending, dirty: true}
	for {
		if w.dirty && w.missing == 0 && len(updates) == 0 {
			w.dirty = false
			changed(w.all)
		}
		select {
		case m := <-updates:
			w.apply(m)
		case <-connected:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watched is what a watch knows.
type watched struct {
	*bucket
	all     map[string]Record
	missing uint64 // messages until all is known
	dirty   bool   // changed has not been called with it
}

func (w *watched) apply(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		return // every message of a consumer has it
	}
	if w.missing > 0 {
		w.missing--
	}
	if meta.NumPending == 0 {
		w.missing = 0
	}
	w.dirty = true
	key := strings.TrimPrefix(m.Subject(), w.subject)
	if isMark(m.Headers()) {
		delete(w.all, key)
		return
	}
	w.all[key] = Record{Data: m.Data(), Revision: meta.Sequence.Stream}
}
