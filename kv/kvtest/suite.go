package kvtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// RunSuite checks an implementation. open gives an empty store for one test; it
// is called under the fake clock of testing/synctest, so that what it starts
// has to work in a bubble, and must have ended when the test has.
func RunSuite(t *testing.T, open func(t *testing.T) *kv.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *kv.Store)
	}{
		{"records are written by revision", testRevisions},
		{"of many writers one succeeds", testWriters},
		{"a batch succeeds record by record", testBatch},
		{"a purged record is as if it had never been", testPurge},
		{"a retired record is none, and keeps its key", testRetire},
		{"a scan visits every record once", testScan},
		{"a record may be big", testBigRecord},
		{"the first value stays", testValues},
		{"many values are read at once", testManyValues},
		{"the values of a run go together", testPurgeRun},
		{"dead values of a run go by themselves", testSweep},
		{"definitions and names", testDefinitions},
		{"a token has one owner", testHooks},
		{"a claim is changed by revision", testUpdateOfHooks},
		{"all claims are visited", testScanOfHooks},
		{"ids are reserved for a time", testReservations},
		{"deliveries are listed", testListed},
		{"the list is filtered", testFilterOfList},
		{"the list hints", testHints},
		{"the list is purged up to a time", testPurgeOfList},
		{"what is unlisted leaves no trace", testUnlisted},
		{"a long list", testLongList},
		{"a fleet has one secret", testSecret},
		{"leases", testLeases},
		{"a lease that runs out is seen", testExpiry},
		{"members are watched", testWatchMembers},
		{"partitions are written by revision", testPartitions},
		{"an owner's own write is no conflict", testOwnWrite},
		{"partitions are watched", testWatchPartitions},
		{"a context that has ended", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			natstest.Clock(t, func(t *testing.T) { c.test(t, open(t)) })
		})
	}
}

// commit writes one record and waits.
func commit(s *kv.Store, key string, revision uint64, data string) (uint64, error) {
	type result struct {
		revision uint64
		err      error
	}
	got := make(chan result, 1)
	s.Runs.Commit([]kv.Commit{{Key: key, Revision: revision, Data: []byte(data), Done: func(rev uint64, err error) {
		got <- result{rev, err}
	}}})
	r := <-got
	return r.revision, r.err
}

func mustCommit(t *testing.T, s *kv.Store, key string, revision uint64, data string) uint64 {
	t.Helper()
	rev, err := commit(s, key, revision, data)
	if err != nil {
		t.Fatalf("commit of %q at revision %d: %v", key, revision, err)
	}
	return rev
}

func want(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want %v", err, target)
	}
}

func testRevisions(t *testing.T, s *kv.Store) {
	key := subjects.RunKey(7, "run")
	_, err := s.Runs.Load(t.Context(), key)
	want(t, err, drover.CodeNotFound)
	_, err = commit(s, key, 1, "x")
	want(t, err, kv.ErrConflict)
	first := mustCommit(t, s, key, 0, "one")
	_, err = commit(s, key, 0, "again")
	want(t, err, kv.ErrConflict)
	other := mustCommit(t, s, subjects.RunKey(7, "other"), 0, "o")
	_, err = commit(s, key, other, "x")
	want(t, err, kv.ErrConflict)
	second := mustCommit(t, s, key, first, "two")
	if second <= first {
		t.Fatalf("revision %d after %d", second, first)
	}
	_, err = commit(s, key, first, "late")
	want(t, err, kv.ErrConflict)
	rec, err := s.Runs.Load(t.Context(), key)
	want(t, err, nil)
	if string(rec.Data) != "two" || rec.Revision != second {
		t.Fatalf("record %q at %d, want two at %d", rec.Data, rec.Revision, second)
	}
}

func testWriters(t *testing.T, s *kv.Store) {
	key := subjects.RunKey(0, "run")
	revision := uint64(0)
	for round := range 20 {
		var mu sync.Mutex
		won, next := 0, uint64(0)
		var writers sync.WaitGroup
		for w := range 8 {
			writers.Go(func() {
				rev, err := commit(s, key, revision, fmt.Sprintf("%d by %d", round, w))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won, next = won+1, rev
				case !errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrBusy):
					t.Error(err)
				}
			})
		}
		writers.Wait()
		if won != 1 {
			t.Fatalf("round %d: %d writers succeeded", round, won)
		}
		revision = next
	}
}

func testBatch(t *testing.T, s *kv.Store) {
	taken := mustCommit(t, s, "0.taken", 0, "x")
	const n = 500
	errs := make([]error, n)
	var all sync.WaitGroup
	all.Add(n)
	batch := make([]kv.Commit, n)
	for i := range batch {
		key := fmt.Sprintf("0.run%d", i)
		if i%100 == 50 {
			key = "0.taken"
		}
		batch[i] = kv.Commit{Key: key, Data: []byte("x"), Done: func(_ uint64, err error) {
			errs[i] = err
			all.Done()
		}}
	}
	s.Runs.Commit(batch)
	all.Wait()
	for i, err := range errs {
		if i%100 == 50 {
			want(t, err, kv.ErrConflict)
		} else {
			want(t, err, nil)
		}
	}
	rec, err := s.Runs.Load(t.Context(), "0.taken")
	want(t, err, nil)
	if rec.Revision != taken {
		t.Fatalf("the record that was taken has revision %d, had %d", rec.Revision, taken)
	}
}

func testPurge(t *testing.T, s *kv.Store) {
	key := subjects.RunKey(1, "run")
	want(t, s.Runs.Purge(t.Context(), key, 0), kv.ErrConflict)
	other := mustCommit(t, s, "1.other", 0, "1")
	want(t, s.Runs.Purge(t.Context(), key, other), kv.ErrConflict)
	first := mustCommit(t, s, key, 0, "1")
	want(t, s.Runs.Purge(t.Context(), key, other), kv.ErrConflict)
	if _, err := s.Runs.Load(t.Context(), "1.other"); err != nil {
		t.Fatalf("the purge of one record took another: %v", err)
	}
	second := mustCommit(t, s, key, first, "2")
	want(t, s.Runs.Purge(t.Context(), key, first), kv.ErrConflict)
	want(t, s.Runs.Purge(t.Context(), key, second), nil)
	want(t, s.Runs.Purge(t.Context(), key, second), kv.ErrConflict)
	_, err := s.Runs.Load(t.Context(), key)
	want(t, err, drover.CodeNotFound)
	_, err = commit(s, key, second, "3")
	want(t, err, kv.ErrConflict)
	third := mustCommit(t, s, key, 0, "3")
	if third <= second {
		t.Fatalf("revision %d after %d", third, second)
	}
}

func testRetire(t *testing.T, s *kv.Store) {
	ctx, key := t.Context(), subjects.RunKey(1, "run")
	retire := func(key string, revision uint64, target error) uint64 {
		t.Helper()
		rev, err := s.Runs.Retire(ctx, key, revision, []byte("left"))
		want(t, err, target)
		return rev
	}
	retire(key, 0, kv.ErrConflict)
	retire(key, 7, kv.ErrConflict)
	first := mustCommit(t, s, key, 0, "1")
	second := mustCommit(t, s, key, first, "2")
	retire(key, first, kv.ErrConflict)
	retired := retire(key, second, nil)
	rec, err := s.Runs.Load(ctx, key)
	want(t, err, drover.CodeNotFound)
	if !rec.Retired || string(rec.Data) != "left" || rec.Revision != retired {
		t.Fatalf("what is left of the record is %+v", rec)
	}
	for _, revision := range []uint64{0, first, second} {
		_, err = commit(s, key, revision, "3")
		want(t, err, kv.ErrConflict)
	}
	retire(key, second, kv.ErrConflict)
	mustCommit(t, s, "1.other", 0, "1")
	var all []string
	want(t, s.Runs.Scan(ctx, func(key string, rec kv.Record) bool {
		all = append(all, fmt.Sprintf("%s=%s %t", key, rec.Data, rec.Retired))
		return true
	}), nil)
	if got := strings.Join(all, ", "); got != "1.run=left true, 1.other=1 false" {
		t.Fatalf("a scan gives %s", got)
	}
	want(t, s.Runs.Purge(ctx, key, second), kv.ErrConflict)
	want(t, s.Runs.Purge(ctx, key, retired), nil)
	if rec, err := s.Runs.Load(ctx, key); rec.Retired || !errors.Is(err, drover.CodeNotFound) {
		t.Fatalf("after the purge there is %+v, error %v", rec, err)
	}
	mustCommit(t, s, key, 0, "3")
}

func testScan(t *testing.T, s *kv.Store) {
	scan := func(most int) (keys []string) {
		t.Helper()
		want(t, s.Runs.Scan(t.Context(), func(key string, rec kv.Record) bool {
			keys = append(keys, key+"="+string(rec.Data))
			return len(keys) < most
		}), nil)
		return keys
	}
	if got := scan(10); len(got) != 0 {
		t.Fatalf("an empty bucket gives %q", got)
	}
	a := mustCommit(t, s, "0.a", 0, "1")
	b := mustCommit(t, s, "1.b", 0, "1")
	mustCommit(t, s, "2.c", 0, "1")
	want(t, s.Runs.Purge(t.Context(), "1.b", b), nil)
	mustCommit(t, s, "0.a", a, "2")
	mustCommit(t, s, "1.d", 0, "1")
	if got := strings.Join(scan(10), " "); got != "2.c=1 0.a=2 1.d=1" {
		t.Fatalf("scan gives %q", got)
	}
	if got := strings.Join(scan(2), " "); got != "2.c=1 0.a=2" {
		t.Fatalf("scan that is ended gives %q", got)
	}
	for i := range 1000 {
		mustCommit(t, s, fmt.Sprintf("3.%d", i), 0, "1")
	}
	if got := scan(5000); len(got) != 1003 {
		t.Fatalf("scan gives %d records, want 1003", len(got))
	}
}

func testBigRecord(t *testing.T, s *kv.Store) {
	big := strings.Repeat("x", 2<<20)
	rev := mustCommit(t, s, "0.run", 0, big)
	rec, err := s.Runs.Load(t.Context(), "0.run")
	want(t, err, nil)
	if string(rec.Data) != big || rec.Revision != rev {
		t.Fatalf("%d bytes at %d", len(rec.Data), rec.Revision)
	}
}

func testCancelled(t *testing.T, s *kv.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want(t, s.Fleet.WatchMembers(ctx, func([]kv.Member) {}), context.Canceled)
	want(t, s.Fleet.WatchPartitions(ctx, func([]kv.Partition) {}), context.Canceled)
}
