package kvtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// NewMemory gives an empty store in memory. Its answers are never missing, its
// reads never stale. Callbacks run on goroutines of their own.
func NewMemory() *kv.Store {
	return &kv.Store{
		Runs:        runs{newBucket()},
		Values:      values{newBucket()},
		Definitions: definitions{newBucket()},
		Hooks:       hooks{newBucket()},
		Deliveries:  deliveries{newBucket()},
		Fleet:       fleet{newBucket()},
	}
}

// bucket is keys with revisions. Keys that are gone leave no mark.
type bucket struct {
	mu       sync.Mutex
	last     uint64
	entries  map[string]kv.Record
	watchers map[chan struct{}]bool
}

func newBucket() *bucket {
	return &bucket{entries: map[string]kv.Record{}, watchers: map[chan struct{}]bool{}}
}

// put writes a key that has this revision, 0 for one that is not there.
func (b *bucket) put(key string, revision uint64, data []byte) (uint64, error) {
	return b.write(key, revision, kv.Record{Data: data})
}

func (b *bucket) write(key string, revision uint64, rec kv.Record) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if has := b.entries[key].Revision; has != revision {
		return 0, fmt.Errorf("%w: key %q has revision %d, not %d", kv.ErrConflict, key, has, revision)
	}
	b.last++
	rec.Data, rec.Revision = bytes.Clone(rec.Data), b.last
	b.entries[key] = rec
	b.notify()
	return b.last, nil
}

func (b *bucket) get(key string) (kv.Record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec, ok := b.entries[key]
	rec.Data = bytes.Clone(rec.Data)
	return rec, ok
}

// remove deletes a key that has this revision.
func (b *bucket) remove(key string, revision uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if has := b.entries[key].Revision; revision == 0 || has != revision {
		return fmt.Errorf("%w: key %q has revision %d, not %d", kv.ErrConflict, key, has, revision)
	}
	delete(b.entries, key)
	b.notify()
	return nil
}

// Last gives the revision of the latest write.
func (b *bucket) Last(context.Context) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, nil
}

// purge deletes what was written up to a revision, of all keys with a prefix.
func (b *bucket) purge(prefix string, last uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.entries, func(key string, rec kv.Record) bool { return strings.HasPrefix(key, prefix) && rec.Revision <= last })
	b.notify()
}

// all copies the keys with a prefix.
func (b *bucket) all(prefix string) map[string]kv.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]kv.Record{}
	for key, rec := range b.entries {
		if strings.HasPrefix(key, prefix) {
			rec.Data = bytes.Clone(rec.Data)
			all[key] = rec
		}
	}
	return all
}

// notify is called with the lock held.
func (b *bucket) notify() {
	for w := range b.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// watch calls changed at first, and after each change, until ctx ends.
func (b *bucket) watch(ctx context.Context, prefix string, changed func(map[string]kv.Record)) error {
	news := make(chan struct{}, 1)
	news <- struct{}{}
	b.mu.Lock()
	b.watchers[news] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, news)
	}()
	for {
		select {
		case <-news:
			changed(b.all(prefix))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type runs struct{ *bucket }

func (r runs) Load(_ context.Context, key string) (kv.Record, error) {
	rec, ok := r.get(key)
	if !ok || rec.Retired {
		return rec, drover.Errorf(drover.CodeNotFound, "there is no record %q", key)
	}
	return rec, nil
}

func (r runs) Commit(batch []kv.Commit) {
	for _, c := range batch {
		revision, err := r.put(c.Key, c.Revision, c.Data)
		go c.Done(revision, err)
	}
}

func (r runs) Retire(_ context.Context, key string, revision uint64, left []byte) (uint64, error) {
	if revision == 0 {
		return 0, fmt.Errorf("%w: record %q has no revision to retire", kv.ErrConflict, key)
	}
	return r.write(key, revision, kv.Record{Data: left, Retired: true})
}

func (r runs) Purge(_ context.Context, key string, revision uint64) error {
	return r.remove(key, revision)
}

func (r runs) Scan(_ context.Context, visit func(key string, rec kv.Record) bool) error {
	all := r.all("")
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return int(all[a].Revision) - int(all[b].Revision) })
	for _, key := range keys {
		if !visit(key, all[key]) {
			return nil
		}
	}
	return nil
}

type values struct{ *bucket }

func (v values) Put(key string, value json.RawMessage, done func(error)) {
	_, _ = v.put(key, 0, value) // the first one stays
	go done(nil)
}

func (v values) Get(_ context.Context, keys []string) (map[string]json.RawMessage, error) {
	got := map[string]json.RawMessage{}
	for _, key := range keys {
		if rec, ok := v.get(key); ok {
			got[key] = rec.Data
		}
	}
	return got, nil
}

func (v values) Sweep(_ context.Context, run drover.RunID, dead func(key string) bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.entries, func(key string, _ kv.Record) bool {
		return strings.HasPrefix(key, strings.TrimSuffix(subjects.ValuesOf(run), ">")) && dead(key)
	})
	v.notify()
	return nil
}

func (v values) PurgeRun(_ context.Context, run drover.RunID, last uint64) error {
	v.purge(strings.TrimSuffix(subjects.ValuesOf(run), ">"), last)
	return nil
}

type definitions struct{ *bucket }

func (d definitions) Put(_ context.Context, hash drover.Hash, canonical []byte) error {
	_, _ = d.put(subjects.DefinitionKey(hash), 0, canonical) // equal hashes are equal definitions
	return nil
}

func (d definitions) Get(_ context.Context, hash drover.Hash) ([]byte, error) {
	rec, ok := d.get(subjects.DefinitionKey(hash))
	if !ok {
		return nil, drover.Errorf(drover.CodeNotFound, "there is no definition with the hash %q", hash)
	}
	return rec.Data, nil
}

func (d definitions) SetName(_ context.Context, name drover.WorkflowName, hash drover.Hash) error {
	for {
		rec, _ := d.get(subjects.NameKey(name))
		if _, err := d.put(subjects.NameKey(name), rec.Revision, []byte(hash)); err == nil {
			return nil
		}
	}
}

func (d definitions) Lookup(_ context.Context, name drover.WorkflowName) (drover.Hash, error) {
	rec, ok := d.get(subjects.NameKey(name))
	if !ok {
		return "", drover.Errorf(drover.CodeNotFound, "no workflow is registered as %q", name)
	}
	return drover.Hash(rec.Data), nil
}

func (d definitions) List(context.Context) ([]kv.Registered, error) {
	all := d.all(strings.TrimSuffix(subjects.NameKeys(), "*"))
	list := make([]kv.Registered, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		name, _ := subjects.NameOfKey(key)
		list = append(list, kv.Registered{Name: name, Hash: drover.Hash(all[key].Data)})
	}
	return list, nil
}

type fleet struct{ *bucket }

func (f fleet) Join(ctx context.Context, id string, info []byte, ttl time.Duration) (kv.Member, error) {
	rec, ok := f.get(subjects.MemberKey(id))
	if ok && !bytes.Equal(rec.Data, info) {
		return kv.Member{}, fmt.Errorf("%w: a worker with the id %q is a member already", kv.ErrConflict, id)
	}
	return f.Renew(ctx, kv.Member{ID: id, Info: info, Revision: rec.Revision}, ttl)
}

func (f fleet) Renew(_ context.Context, m kv.Member, ttl time.Duration) (kv.Member, error) {
	if ttl < time.Second || ttl%time.Second != 0 {
		return m, drover.Errorf(drover.CodeInvalidRequest, "a lease of %v must be whole seconds, at least one", ttl)
	}
	key := subjects.MemberKey(m.ID)
	if rec, ok := f.get(key); ok && (bytes.Equal(rec.Data, m.Info) || m.Stored != nil && bytes.Equal(rec.Data, m.Stored)) {
		m.Revision = rec.Revision
	}
	revision, err := f.put(key, m.Revision, m.Info)
	if err != nil {
		return m, err
	}
	m.Revision, m.Stored = revision, m.Info
	time.AfterFunc(ttl, func() { _ = f.remove(key, revision) }) // a renewal has another revision
	return m, nil
}

func (f fleet) Leave(_ context.Context, m kv.Member) error {
	key := subjects.MemberKey(m.ID)
	if rec, ok := f.get(key); ok && bytes.Equal(rec.Data, m.Info) {
		return f.remove(key, rec.Revision)
	}
	return nil
}

func (f fleet) WatchMembers(ctx context.Context, changed func([]kv.Member)) error {
	prefix := strings.TrimSuffix(subjects.MemberKeys(), "*")
	return f.watch(ctx, prefix, func(all map[string]kv.Record) {
		list := make([]kv.Member, 0, len(all))
		for _, key := range slices.Sorted(maps.Keys(all)) {
			id, _ := subjects.MemberOfKey(key)
			list = append(list, kv.Member{ID: id, Info: all[key].Data, Revision: all[key].Revision})
		}
		changed(list)
	})
}

func (f fleet) Partition(_ context.Context, number int) (kv.Partition, error) {
	rec, _ := f.get(subjects.PartitionKey(number))
	return partition(number, rec)
}

func partition(number int, rec kv.Record) (kv.Partition, error) {
	p := kv.Partition{}
	if rec.Revision > 0 {
		if err := json.Unmarshal(rec.Data, &p); err != nil {
			return p, err
		}
	}
	p.Number, p.Revision = number, rec.Revision
	return p, nil
}

func (f fleet) Save(ctx context.Context, p kv.Partition) (kv.Partition, error) {
	stored, err := f.Partition(ctx, p.Number)
	if err != nil {
		return p, err
	}
	if p.Ours(stored) {
		p.Revision = stored.Revision
	}
	data, err := json.Marshal(p)
	if err != nil {
		return p, err
	}
	revision, err := f.put(subjects.PartitionKey(p.Number), p.Revision, data)
	if err != nil {
		return p, err
	}
	p.Revision = revision
	return p, nil
}

func (f fleet) WatchPartitions(ctx context.Context, changed func([]kv.Partition)) error {
	prefix := strings.TrimSuffix(subjects.PartitionKeys(), "*")
	return f.watch(ctx, prefix, func(all map[string]kv.Record) {
		list := make([]kv.Partition, 0, len(all))
		for key, rec := range all {
			if number, ok := subjects.PartitionOfKey(key); ok {
				p, _ := partition(number, rec)
				list = append(list, p)
			}
		}
		slices.SortFunc(list, func(a, b kv.Partition) int { return a.Number - b.Number })
		changed(list)
	})
}
