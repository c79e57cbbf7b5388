package kvtest

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

type deliveries struct{ *bucket }

func (d deliveries) List(key string, hint kv.Hint, done func(error)) {
	d.force(key, hint)
	go done(nil)
}

func (d deliveries) Unlist(key string, done func(error)) {
	d.drop(key)
	go done(nil)
}

func (d deliveries) Scan(_ context.Context, filter string, visit func(key string, hint kv.Hint) bool) error {
	all := d.all("")
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return int(all[a].Revision) - int(all[b].Revision) })
	for _, key := range keys {
		if fits(key, filter) && !visit(key, kv.Hint(all[key].Data)) {
			return nil
		}
	}
	return nil
}

func (d deliveries) Purge(_ context.Context, keys []string, last uint64) error {
	for _, key := range keys {
		if rec, ok := d.get(key); ok && rec.Revision <= last {
			_ = d.remove(key, rec.Revision)
		}
	}
	return nil
}

// fits reports whether a filter of tokens and "*" matches a key.
func fits(key, filter string) bool {
	if filter == "" {
		return true
	}
	tokens, wants := strings.Split(key, "."), strings.Split(filter, ".")
	return slices.EqualFunc(tokens, wants, func(token, want string) bool { return want == "*" || token == want })
}

// force writes a key, whatever revision it has.
func (b *bucket) force(key string, hint kv.Hint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	b.entries[key] = kv.Record{Data: []byte(hint), Revision: b.last}
	b.notify()
}

func (b *bucket) drop(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, key)
	b.notify()
}

func (f fleet) Secret(context.Context) ([]byte, error) {
	made := make([]byte, 32)
	_, _ = rand.Read(made)
	_, _ = f.put(subjects.SecretKey(), 0, made) // the first one stays
	rec, _ := f.get(subjects.SecretKey())
	return rec.Data, nil
}
