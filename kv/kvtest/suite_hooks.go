package kvtest

import (
	"slices"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
)

func testHooks(t *testing.T, s *kv.Store) {
	ctx := t.Context()
	const token = "order/7 > *.é"
	_, err := s.Hooks.Get(ctx, token)
	want(t, err, drover.CodeNotFound)
	rev, err := s.Hooks.Claim(ctx, token, []byte("run a"))
	want(t, err, nil)
	_, err = s.Hooks.Claim(ctx, token, []byte("run b"))
	want(t, err, kv.ErrConflict)
	rec, err := s.Hooks.Get(ctx, token)
	if err != nil || string(rec.Data) != "run a" || rec.Revision != rev {
		t.Fatalf("claim %q at %d, error %v", rec.Data, rec.Revision, err)
	}
	want(t, s.Hooks.Release(ctx, token, rev+1), kv.ErrConflict)
	want(t, s.Hooks.Release(ctx, token, rev), nil)
	want(t, s.Hooks.Release(ctx, token, rev), kv.ErrConflict)
	_, err = s.Hooks.Get(ctx, token)
	want(t, err, drover.CodeNotFound)
	next, err := s.Hooks.Claim(ctx, token, []byte("run b"))
	want(t, err, nil)
	want(t, s.Hooks.Release(ctx, token, rev), kv.ErrConflict)
	if rec, err := s.Hooks.Get(ctx, token); err != nil || rec.Revision != next {
		t.Fatalf("the old owner's release freed the claim of the next one: %v", err)
	}
}

func testUpdateOfHooks(t *testing.T, s *kv.Store) {
	ctx := t.Context()
	const token = "a b"
	_, err := s.Hooks.Update(ctx, token, 0, []byte("x"))
	want(t, err, kv.ErrConflict)
	_, err = s.Hooks.Update(ctx, token, 1, []byte("x"))
	want(t, err, kv.ErrConflict)
	first, err := s.Hooks.Claim(ctx, token, []byte("1"))
	want(t, err, nil)
	_, err = s.Hooks.Claim(ctx, "other", []byte("o"))
	want(t, err, nil)
	second, err := s.Hooks.Update(ctx, token, first, []byte("2"))
	want(t, err, nil)
	if second <= first {
		t.Fatalf("revision %d after %d", second, first)
	}
	_, err = s.Hooks.Update(ctx, token, first, []byte("late"))
	want(t, err, kv.ErrConflict)
	want(t, s.Hooks.Release(ctx, token, first), kv.ErrConflict)
	rec, err := s.Hooks.Get(ctx, token)
	want(t, err, nil)
	if string(rec.Data) != "2" || rec.Revision != second {
		t.Fatalf("claim %q at %d, want 2 at %d", rec.Data, rec.Revision, second)
	}
	want(t, s.Hooks.Release(ctx, token, second), nil)
	_, err = s.Hooks.Update(ctx, token, second, []byte("dead"))
	want(t, err, kv.ErrConflict)
}

func testScanOfHooks(t *testing.T, s *kv.Store) {
	ctx := t.Context()
	scan := func(most int) (tokens []string) {
		want(t, s.Hooks.Scan(ctx, func(token string, rec kv.Record) bool {
			if string(rec.Data) != "of "+token || rec.Revision == 0 {
				t.Errorf("token %q has %q at %d", token, rec.Data, rec.Revision)
			}
			tokens = append(tokens, token)
			return len(tokens) < most
		}), nil)
		return tokens
	}
	if got := scan(9); got != nil {
		t.Fatalf("an empty bucket has %q", got)
	}
	_, err := s.Hooks.Reserve(ctx, "plain", "id", 0, []byte("no claim"), time.Hour)
	want(t, err, nil)
	all := []string{"plain", "a.b", "_x", "é > *", "id.x"}
	for _, token := range all {
		_, err := s.Hooks.Claim(ctx, token, []byte("of "+token))
		want(t, err, nil)
	}
	if got := scan(9); !slices.Equal(got, all) {
		t.Fatalf("tokens %q, want %q", got, all)
	}
	if got := scan(2); !slices.Equal(got, all[:2]) {
		t.Fatalf("tokens %q, want the first two", got)
	}
}

func testReservations(t *testing.T, s *kv.Store) {
	ctx := t.Context()
	_, err := s.Hooks.Reserved(ctx, "t", "1")
	want(t, err, drover.CodeNotFound)
	_, err = s.Hooks.Reserve(ctx, "t", "1", 0, []byte("x"), time.Millisecond)
	want(t, err, drover.CodeInvalidRequest)
	first, err := s.Hooks.Reserve(ctx, "t", "1", 0, []byte("a"), time.Hour)
	want(t, err, nil)
	there, err := s.Hooks.Reserve(ctx, "t", "1", 0, []byte("b"), time.Hour)
	want(t, err, kv.ErrConflict)
	if string(there.Data) != "a" || there.Revision != first.Revision {
		t.Fatalf("a second one meets %q at %d, want a at %d", there.Data, there.Revision, first.Revision)
	}
	for _, other := range [][2]string{{"t", "2"}, {"u", "1"}, {"t1", ""}, {"", "t1"}} {
		_, err = s.Hooks.Reserve(ctx, other[0], other[1], 0, []byte("o"), time.Hour)
		want(t, err, nil)
	}
	second, err := s.Hooks.Reserve(ctx, "t", "1", first.Revision, []byte("c"), 2*time.Hour)
	want(t, err, nil)
	time.Sleep(90 * time.Minute)
	rec, err := s.Hooks.Reserved(ctx, "t", "1")
	if err != nil || string(rec.Data) != "c" || rec.Revision != second.Revision {
		t.Fatalf("reservation %q at %d, error %v", rec.Data, rec.Revision, err)
	}
	time.Sleep(time.Hour)
	_, err = s.Hooks.Reserved(ctx, "t", "1")
	want(t, err, drover.CodeNotFound)
	_, err = s.Hooks.Reserve(ctx, "t", "1", second.Revision, []byte("d"), time.Hour)
	want(t, err, kv.ErrConflict)
	_, err = s.Hooks.Reserve(ctx, "t", "1", 0, []byte("d"), time.Hour)
	want(t, err, nil)
}
