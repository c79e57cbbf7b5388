package kv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/kv/kvtest"
	"github.com/droverhq/drover/subjects"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// open gives the store of a new fleet on a server.
func open(t testing.TB, s *natstest.Server, settings topology.Settings) (*kv.Store, jetstream.JetStream) {
	t.Helper()
	return openWith(t, s, settings, publish.Options{})
}

func openWith(t testing.TB, s *natstest.Server, settings topology.Settings, opts publish.Options) (*kv.Store, jetstream.JetStream) {
	t.Helper()
	names := subjects.Default()
	nc := s.Connect()
	js := natstest.JetStream(t, nc)
	if _, err := topology.Ensure(t.Context(), js, names, settings); err != nil {
		t.Fatal(err)
	}
	p, err := publish.New(nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	store, err := kv.Open(t.Context(), js, p, names)
	if err != nil {
		t.Fatal(err)
	}
	return store, js
}

func TestJetStream(t *testing.T) {
	kvtest.RunSuite(t, func(t *testing.T) *kv.Store {
		store, _ := open(t, natstest.New(t), topology.Settings{})
		return store
	})
}

func TestJetStreamGrouped(t *testing.T) {
	kvtest.RunSuite(t, func(t *testing.T) *kv.Store {
		store, _ := openWith(t, natstest.New(t), topology.Settings{Storage: topology.StorageMemory}, publish.Options{Group: subjects.Default().StreamOf})
		return store
	})
}

// commit writes one record and waits.
func commit(s *kv.Store, key string, revision uint64, data string) (rev uint64, err error) {
	done := make(chan struct{})
	s.Runs.Commit([]kv.Commit{{Key: key, Revision: revision, Data: []byte(data), Done: func(r uint64, e error) {
		rev, err = r, e
		close(done)
	}}})
	<-done
	return rev, err
}

// A record that somebody deleted with a KV client leaves a mark, which must not
// keep the run from being started anew.
func TestRecordOverAMark(t *testing.T) {
	store, js := open(t, natstest.New(t), topology.Settings{})
	key := subjects.RunKey(0, "run")
	first, err := commit(store, key, 0, "1")
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(t.Context(), subjects.Default().Runs())
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Runs.Load(t.Context(), key); !errors.Is(err, drover.CodeNotFound) {
		t.Fatalf("error %v, want not found", err)
	}
	if _, err := commit(store, key, first, "2"); !errors.Is(err, kv.ErrConflict) {
		t.Fatalf("error %v, want a conflict", err)
	}
	if _, err := commit(store, key, 0, "2"); err != nil {
		t.Fatal(err)
	}
	if rec, err := store.Runs.Load(t.Context(), key); err != nil || string(rec.Data) != "2" {
		t.Fatalf("record %q, error %v", rec.Data, err)
	}
}

// A value is read from the leader where no replica answers, or the one that does
// has not got it yet.
func TestValuesWithoutReplicas(t *testing.T) {
	store, js := open(t, natstest.New(t), topology.Settings{})
	stream, err := js.Stream(t.Context(), subjects.BucketStream(subjects.Default().Values()))
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	key := subjects.InputKey("run")
	done := make(chan error, 1)
	store.Values.Put(key, []byte("1"), func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got, err := store.Values.Get(t.Context(), []string{key, "run.none"})
	if err != nil || len(got) != 1 || string(got[key]) != "1" {
		t.Fatalf("values %v, error %v", got, err)
	}
}

// A replica that is behind still has the value of a run that was removed: whoever has
// purged it does not take it for that of a new run with the same id.
func TestAnOldValueOfAReplicaIsNotThatOfANewRun(t *testing.T) {
	s := natstest.New(t)
	store, js := open(t, s, topology.Settings{})
	name := subjects.BucketStream(subjects.Default().Values())
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false // the replica is the one below
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) {
		t.Helper()
		done := make(chan error, 1)
		store.Values.Put(key, []byte(value), func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	gives := func(key, want string) {
		t.Helper()
		got, err := store.Values.Get(t.Context(), []string{key})
		if err != nil || string(got[key]) != want {
			t.Errorf("%s is %q, want %q, error %v", key, got[key], want, err)
		}
	}
	key, other := subjects.InputKey("run"), subjects.InputKey("other")
	put(key, `"old"`)
	put(other, `"other"`)
	last, err := store.Values.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nc := s.Connect()
	asked := make(chan string, 10)
	if _, err := nc.Subscribe(subjects.ReadDirect(name, ">"), func(m *nats.Msg) {
		asked <- m.Subject
		answer := nats.NewMsg(m.Reply)
		answer.Header.Set(subjects.HeaderSequence, "1")
		answer.Data = []byte(`"of the replica"`)
		_ = nc.PublishMsg(answer)
	}); err != nil || nc.Flush() != nil {
		t.Fatal("no replica")
	}
	gives(key, `"of the replica"`)
	if err := store.Values.PurgeRun(t.Context(), "run", last); err != nil {
		t.Fatal(err)
	}
	gives(key, "")
	put(key, `"new"`)
	gives(key, `"new"`)
	gives(other, `"of the replica"`)
	if len(asked) != 4 {
		t.Errorf("the replica was asked %d times, want 4", len(asked))
	}
}

// A scan ends although the last of what it counted is deleted before it is sent:
// the first pull takes one record less than there are.
func TestScanOfWhatIsDeletedMeanwhile(t *testing.T) {
	store, js := open(t, natstest.New(t), topology.Settings{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const records = 257
	last := uint64(0)
	for i := range records {
		var err error
		if last, err = commit(store, subjects.RunKey(0, drover.RunID(fmt.Sprint("run", i))), 0, "1"); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := js.Stream(ctx, subjects.BucketStream(subjects.Default().Runs()))
	if err != nil {
		t.Fatal(err)
	}
	sent := func() (n uint64) {
		for c := range stream.ListConsumers(ctx).Info() {
			n = max(n, c.Delivered.Consumer)
		}
		return n
	}
	seen := 0
	err = store.Runs.Scan(ctx, func(string, kv.Record) bool {
		if seen++; seen > 1 {
			return true
		}
		for sent() < records-1 && ctx.Err() == nil {
		}
		if err := stream.DeleteMsg(ctx, last); err != nil {
			t.Error(err)
		}
		return true
	})
	if err != nil || seen != records-1 {
		t.Fatalf("%d records, error %v", seen, err)
	}
}

// What the server forgets while nobody is connected is seen by a watch that
// comes back.
func TestWatchAfterARestart(t *testing.T) {
	s := natstest.New(t)
	store, js := open(t, s, topology.Settings{})
	member, err := store.Fleet.Join(t.Context(), "w", []byte("1"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan int, 100), make(chan struct{})
	go func() {
		defer close(ended)
		_ = store.Fleet.WatchMembers(ctx, func(m []kv.Member) { told <- len(m) })
	}()
	defer func() {
		cancel()
		<-ended
	}()
	if n := <-told; n != 1 {
		t.Fatalf("%d members, want 1", n)
	}
	// The message goes without a mark, as if the mark had gone meanwhile.
	stream, err := js.Stream(t.Context(), subjects.BucketStream(subjects.Default().Fleet()))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), member.Revision); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	for n := range told {
		if n == 0 {
			return
		}
	}
}

// On a cluster a store does what one in memory does, whichever server a worker
// is connected to.
func TestCluster(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	stores := make([]*kv.Store, 3)
	for i, s := range c.Servers {
		stores[i], _ = open(t, s, topology.Settings{Replicas: 3})
	}
	const runs = 200
	revisions := make([]uint64, runs)
	for round := range 5 {
		s := stores[round%3]
		errs := make(chan error, runs)
		var batch []kv.Commit
		for i := range runs {
			batch = append(batch, kv.Commit{
				Key: subjects.RunKey(0, drover.RunID(fmt.Sprint(i))), Revision: revisions[i], Data: []byte(fmt.Sprint(round)),
				Done: func(r uint64, err error) {
					revisions[i] = r
					errs <- err
				},
			})
		}
		s.Runs.Commit(batch)
		for range runs {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
	rec, err := stores[0].Runs.Load(t.Context(), subjects.RunKey(0, "7"))
	if err != nil || string(rec.Data) != "4" || rec.Revision != revisions[7] {
		t.Fatalf("record %q at %d, error %v", rec.Data, rec.Revision, err)
	}
	// A value is found at once, even where the replica that is asked has not
	// got it yet.
	for i := range 200 {
		key := subjects.InputKey(drover.RunID(fmt.Sprint(i)))
		done := make(chan error, 1)
		stores[0].Values.Put(key, []byte("1"), func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got, err := stores[i%3].Values.Get(t.Context(), []string{key}); err != nil || len(got) != 1 {
			t.Fatalf("value %d: %v, error %v", i, got, err)
		}
	}
}
