package kvtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
)

// watch runs a watch until the test ends, and gives what it tells as text.
func watch[T any](t *testing.T, begin func(context.Context, func([]T)) error, text func(T) string) <-chan string {
	t.Helper()
	told := make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := begin(ctx, func(list []T) {
			texts := make([]string, len(list))
			for i, e := range list {
				texts[i] = text(e)
			}
			told <- strings.Join(texts, " ")
		})
		if ctx.Err() == nil {
			t.Errorf("the watch ended before its context: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return told
}

// until waits for a watch to tell this. Before it, it may tell what led to it.
func until(t *testing.T, told <-chan string, want string) {
	t.Helper()
	last := "nothing"
	for {
		select {
		case got := <-told:
			if got == want {
				return
			}
			last = got
		case <-time.After(time.Hour): // of the fake clock
			t.Fatalf("the watch never told %q, the last was %q", want, last)
		}
	}
}

func memberText(m kv.Member) string { return m.ID + "=" + string(m.Info) }

func join(t *testing.T, s *kv.Store, id, info string) kv.Member {
	t.Helper()
	m, err := s.Fleet.Join(t.Context(), id, []byte(info), 3*time.Second)
	if err != nil {
		t.Fatalf("join of %q: %v", id, err)
	}
	return m
}

func testLeases(t *testing.T, s *kv.Store) {
	ctx := t.Context()
	_, err := s.Fleet.Join(ctx, "w", nil, 1500*time.Millisecond)
	want(t, err, drover.CodeInvalidRequest)
	first := join(t, s, "w", "start 1")
	_, err = s.Fleet.Join(ctx, "w", []byte("start 2"), 3*time.Second)
	want(t, err, kv.ErrConflict)
	// The same start may join again: its first answer may have been missing.
	again := join(t, s, "w", "start 1")
	renewed, err := s.Fleet.Renew(ctx, first, 3*time.Second)
	want(t, err, nil)
	if renewed.Revision <= again.Revision {
		t.Fatalf("revision %d after %d", renewed.Revision, again.Revision)
	}
	// A renewal whose answer was missing, and then one with other info.
	leaving := renewed
	leaving.Info = []byte("start 1, leaving")
	_, err = s.Fleet.Renew(ctx, renewed, 3*time.Second)
	want(t, err, nil)
	renewed, err = s.Fleet.Renew(ctx, leaving, 3*time.Second)
	want(t, err, nil)
	stranger := kv.Member{ID: "w", Info: []byte("start 2"), Revision: first.Revision}
	_, err = s.Fleet.Renew(ctx, stranger, 3*time.Second)
	want(t, err, kv.ErrConflict)
	want(t, s.Fleet.Leave(ctx, stranger), nil)
	_, err = s.Fleet.Renew(ctx, renewed, 3*time.Second)
	want(t, err, nil) // the stranger did not end this lease
	want(t, s.Fleet.Leave(ctx, renewed), nil)
	want(t, s.Fleet.Leave(ctx, renewed), nil)
	_, err = s.Fleet.Renew(ctx, renewed, 3*time.Second)
	want(t, err, kv.ErrConflict)
	join(t, s, "w", "start 2")
}

func testExpiry(t *testing.T, s *kv.Store) {
	told := watch(t, s.Fleet.WatchMembers, memberText)
	until(t, told, "")
	begin := time.Now()
	a, b := join(t, s, "a", "1"), join(t, s, "b", "1")
	until(t, told, "a=1 b=1")
	for range 10 {
		time.Sleep(time.Second)
		var err error
		if b, err = s.Fleet.Renew(t.Context(), b, 3*time.Second); err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) < 2*time.Second {
			if a, err = s.Fleet.Renew(t.Context(), a, 3*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, told, "b=1")
	_, err := s.Fleet.Renew(t.Context(), a, 3*time.Second)
	want(t, err, kv.ErrConflict)
	join(t, s, "a", "2") // over the mark of the lease that ran out
	until(t, told, "a=2 b=1")
	begin = time.Now()
	until(t, told, "")
	if d := time.Since(begin); d < 2*time.Second || d > 6*time.Second {
		t.Fatalf("leases of 3 s were seen to end after %v", d)
	}
	time.Sleep(time.Hour)
	join(t, s, "b", "2") // the mark is gone as well
	until(t, told, "b=2")
}

func testWatchMembers(t *testing.T, s *kv.Store) {
	a := join(t, s, "a", "1")
	join(t, s, "c", "1")
	early := watch(t, s.Fleet.WatchMembers, memberText)
	until(t, early, "a=1 c=1")
	join(t, s, "b", "1")
	until(t, early, "a=1 b=1 c=1")
	want(t, s.Fleet.Leave(t.Context(), a), nil)
	until(t, early, "b=1 c=1")
	late := watch(t, s.Fleet.WatchMembers, memberText)
	until(t, late, "b=1 c=1")
}

func save(t *testing.T, s *kv.Store, p kv.Partition) kv.Partition {
	t.Helper()
	saved, err := s.Fleet.Save(t.Context(), p)
	if err != nil {
		t.Fatalf("save of %+v: %v", p, err)
	}
	return saved
}

func testPartitions(t *testing.T, s *kv.Store) {
	p, err := s.Fleet.Partition(t.Context(), 3)
	if err != nil || p != (kv.Partition{Number: 3}) {
		t.Fatalf("partition %+v, error %v", p, err)
	}
	p.Worker, p.Epoch = "a", 1
	a := save(t, s, p)
	_, err = s.Fleet.Save(t.Context(), kv.Partition{Number: 3, Worker: "b", Epoch: 1})
	want(t, err, kv.ErrConflict)
	a.Cursor = 100
	a = save(t, s, a)
	got, err := s.Fleet.Partition(t.Context(), 3)
	if err != nil || got != a || got.Cursor != 100 {
		t.Fatalf("partition %+v, error %v, want %+v", got, err, a)
	}
	b := got
	b.Worker, b.Epoch = "b", 2
	b = save(t, s, b)
	a.Cursor = 200
	_, err = s.Fleet.Save(t.Context(), a)
	want(t, err, kv.ErrConflict)
	a.Worker = ""
	_, err = s.Fleet.Save(t.Context(), a)
	want(t, err, kv.ErrConflict)
	if got, err := s.Fleet.Partition(t.Context(), 3); err != nil || got != b {
		t.Fatalf("partition %+v, error %v, want %+v", got, err, b)
	}
}

func testOwnWrite(t *testing.T, s *kv.Store) {
	p := kv.Partition{Number: 3, Worker: "a", Epoch: 1}
	save(t, s, p)
	p.Cursor = 10 // the answer was missing: p still has revision 0
	save(t, s, p)
	p.Cursor = 20
	save(t, s, p)
	free := p
	free.Worker = ""
	free = save(t, s, free)
	got, err := s.Fleet.Partition(t.Context(), 3)
	if err != nil || got != free || got.Cursor != 20 {
		t.Fatalf("partition %+v, error %v, want %+v", got, err, free)
	}
}

func testWatchPartitions(t *testing.T, s *kv.Store) {
	text := func(p kv.Partition) string { return p.Worker + string(rune('0'+p.Cursor)) }
	save(t, s, kv.Partition{Number: 10, Worker: "x", Epoch: 1})
	told := watch(t, s.Fleet.WatchPartitions, text)
	until(t, told, "x0")
	p := save(t, s, kv.Partition{Number: 9, Worker: "y", Epoch: 1})
	until(t, told, "y0 x0")
	p.Cursor = 5
	p = save(t, s, p)
	until(t, told, "y5 x0")
	p.Worker = ""
	save(t, s, p)
	until(t, told, "5 x0")
}
