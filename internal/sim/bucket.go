package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
)

// bucket keeps claims of tokens, and ids of deliveries, as the real one does: a
// write needs the revision that is there.
type bucket struct {
	claims   map[string]kv.Record
	ids      map[string]reservation // by token and id
	revision uint64
}

type reservation struct {
	kv.Record
	until time.Time
}

// put writes a claim that has a revision, or 0: there must be none.
func (b *bucket) put(token string, revision uint64, claim []byte) (uint64, error) {
	if b.claims[token].Revision != revision {
		return 0, fmt.Errorf("token %q: %w", token, kv.ErrConflict)
	}
	b.revision++
	b.claims[token] = kv.Record{Data: slices.Clone(claim), Revision: b.revision}
	return b.revision, nil
}

func (b *bucket) get(token string) (kv.Record, error) {
	rec, ok := b.claims[token]
	if !ok {
		return rec, drover.Errorf(drover.CodeNotFound, "nobody has claimed the token %q", token)
	}
	return rec, nil
}

func (b *bucket) release(token string, revision uint64) error {
	if rec, ok := b.claims[token]; !ok || rec.Revision != revision {
		return fmt.Errorf("token %q: %w", token, kv.ErrConflict)
	}
	b.revision++
	delete(b.claims, token)
	return nil
}

// reserve writes a reservation that has a revision, or 0; with a conflict it
// gives the one that is there.
func (b *bucket) reserve(now time.Time, token, id string, revision uint64, data []byte, ttl time.Duration) (kv.Record, error) {
	was, _ := b.reserved(now, token, id)
	if was.Revision != revision {
		return was, fmt.Errorf("id %q of token %q: %w", id, token, kv.ErrConflict)
	}
	b.revision++
	rec := kv.Record{Data: slices.Clone(data), Revision: b.revision}
	b.ids[token+"\x00"+id] = reservation{rec, now.Add(ttl)}
	return rec, nil
}

func (b *bucket) reserved(now time.Time, token, id string) (kv.Record, error) {
	r, ok := b.ids[token+"\x00"+id]
	if !ok || !now.Before(r.until) {
		return kv.Record{}, drover.Errorf(drover.CodeNotFound, "id %q of token %q is not reserved", id, token)
	}
	return r.Record, nil
}

// tokens gives all that are claimed, sorted.
func (b *bucket) tokens() []string { return slices.Sorted(maps.Keys(b.claims)) }
