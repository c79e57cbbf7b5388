package kvtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// write calls List or Unlist for keys, one after the other, and waits for all.
func write(t *testing.T, call func(string, func(error)), keys ...string) {
	t.Helper()
	done := make(chan error, len(keys))
	for _, key := range keys {
		call(key, func(err error) { done <- err })
	}
	for range keys {
		want(t, <-done, nil)
	}
}

// list writes keys that wait.
func list(t *testing.T, s *kv.Store, keys ...string) {
	t.Helper()
	write(t, func(key string, done func(error)) { s.Deliveries.List(key, kv.HintWaits, done) }, keys...)
}

func listed(t *testing.T, s *kv.Store, filter string, most int) (keys []string) {
	t.Helper()
	want(t, s.Deliveries.Scan(t.Context(), filter, func(key string, _ kv.Hint) bool {
		keys = append(keys, key)
		return len(keys) < most
	}), nil)
	return keys
}

func wantListed(t *testing.T, s *kv.Store, filter string, keys ...string) {
	t.Helper()
	if got := listed(t, s, filter, 1<<30); !slices.Equal(got, keys) {
		t.Fatalf("filter %q gives %q, want %q", filter, got, keys)
	}
}

func testListed(t *testing.T, s *kv.Store) {
	a, b, c := subjects.DeliveryKey("x", 0, "a", 0), subjects.DeliveryKey("x", 1, "b", 0), subjects.DeliveryKey("y", 2, "c", 3)
	wantListed(t, s, "")
	write(t, s.Deliveries.Unlist, a) // was never there
	wantListed(t, s, "")
	list(t, s, a, b, c)
	wantListed(t, s, "", a, b, c)
	list(t, s, a) // again: it is one key, and the latest
	wantListed(t, s, "", b, c, a)
	if got := listed(t, s, "", 2); !slices.Equal(got, []string{b, c}) {
		t.Fatalf("a scan that is ended gives %q", got)
	}
	write(t, s.Deliveries.Unlist, c, c)
	wantListed(t, s, "", b, a)
}

func testFilterOfList(t *testing.T, s *kv.Store) {
	var all []string
	for _, target := range []string{"subject\na.b > *", ""} {
		for partition := range 2 {
			for subscriber := range 2 {
				all = append(all, subjects.DeliveryKey(target, partition, drover.RunID(fmt.Sprint("run-", partition)), subscriber))
			}
		}
	}
	list(t, s, all...)
	wantListed(t, s, subjects.DeliveriesTo(""), all[4:]...)
	wantListed(t, s, subjects.DeliveriesIn(1), all[2], all[3], all[6], all[7])
	wantListed(t, s, subjects.DeliveriesOf("run-0"), all[0], all[1], all[4], all[5])
	wantListed(t, s, subjects.DeliveriesOf("run"))
}

// What is listed and unlisted again and again is at last what was asked last,
// without waiting for answers, and a key that was unlisted can be listed anew:
// also when the time has come at which a mark would go.
func testUnlisted(t *testing.T, s *kv.Store) {
	a, b := subjects.DeliveryKey("x", 0, "a", 0), subjects.DeliveryKey("x", 0, "b", 0)
	var answers sync.WaitGroup
	done := func(err error) {
		if err != nil {
			t.Error(err)
		}
		answers.Done()
	}
	for range 200 {
		answers.Add(4)
		s.Deliveries.List(a, kv.HintWaits, done)
		s.Deliveries.Unlist(b, done)
		s.Deliveries.Unlist(a, done)
		s.Deliveries.List(b, kv.HintWaits, done)
	}
	answers.Wait()
	wantListed(t, s, "", b)
	list(t, s, a)
	time.Sleep(time.Minute)
	wantListed(t, s, "", b, a)
	write(t, s.Deliveries.Unlist, a, b)
	time.Sleep(time.Minute)
	wantListed(t, s, "")
}

func testHints(t *testing.T, s *kv.Store) {
	a, b, c := subjects.DeliveryKey("x", 0, "a", 0), subjects.DeliveryKey("x", 0, "b", 0), subjects.DeliveryKey("x", 0, "c", 0)
	hint := func(key string, hint kv.Hint) {
		write(t, func(key string, done func(error)) { s.Deliveries.List(key, hint, done) }, key)
	}
	hint(a, kv.HintWaits)
	hint(b, kv.HintQueued)
	hint(c, "")
	hint(a, kv.HintDead)
	var got []string
	want(t, s.Deliveries.Scan(t.Context(), "", func(key string, hint kv.Hint) bool {
		got = append(got, fmt.Sprintf("%s %q %t", key, hint, hint.Waits()))
		return true
	}), nil)
	if all := []string{b + ` "queued" false`, c + ` "" true`, a + ` "dead" false`}; !slices.Equal(got, all) {
		t.Fatalf("the list has %q, want %q", got, all)
	}
}

// What is listed after a time stays, also where a run with the same id was purged.
func testPurgeOfList(t *testing.T, s *kv.Store) {
	last := func() uint64 {
		t.Helper()
		n, err := s.Deliveries.Last(t.Context())
		want(t, err, nil)
		return n
	}
	a, b, c := subjects.DeliveryKey("x", 0, "a", 0), subjects.DeliveryKey("x", 0, "a", 1), subjects.DeliveryKey("x", 0, "c", 0)
	none := last()
	list(t, s, a, b, c)
	want(t, s.Deliveries.Purge(t.Context(), []string{a, b}, none), nil)
	wantListed(t, s, "", a, b, c)
	before := last()
	list(t, s, b)
	for range 2 {
		want(t, s.Deliveries.Purge(t.Context(), []string{a, b}, before), nil)
		wantListed(t, s, "", c, b)
	}
	want(t, s.Deliveries.Purge(t.Context(), []string{b}, last()), nil)
	wantListed(t, s, "", c)
}

func testLongList(t *testing.T, s *kv.Store) {
	keys := make([]string, 2000)
	for i := range keys {
		keys[i] = subjects.DeliveryKey("x", i%7, drover.RunID(fmt.Sprint("run", i)), 0)
	}
	list(t, s, keys...)
	wantListed(t, s, subjects.DeliveriesTo("x"), keys...)
	write(t, s.Deliveries.Unlist, keys[:1990]...)
	wantListed(t, s, "", keys[1990:]...)
}

func testSecret(t *testing.T, s *kv.Store) {
	secrets := make([][]byte, 8)
	var workers sync.WaitGroup
	for i := range secrets {
		workers.Go(func() {
			var err error
			if secrets[i], err = s.Fleet.Secret(t.Context()); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	workers.Wait()
	again, err := s.Fleet.Secret(t.Context())
	want(t, err, nil)
	for i, secret := range secrets {
		if !bytes.Equal(secret, again) || len(secret) != 32 || strings.Trim(string(secret), "\x00") == "" {
			t.Fatalf("worker %d has a secret of %d bytes, another than the next one has", i, len(secret))
		}
	}
	told := watch(t, s.Fleet.WatchMembers, memberText)
	until(t, told, "") // it is no member
}
