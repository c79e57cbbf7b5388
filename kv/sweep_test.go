package kv

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
)

// listed is a stream in which something is written once it has said what its last
// sequence is.
type listed struct {
	jetstream.Stream
	meanwhile func()
	purges    int
}

func (s *listed) Info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := s.Stream.Info(ctx, opts...)
	s.meanwhile()
	return info, err
}

func (s *listed) Purge(ctx context.Context, opts ...jetstream.StreamPurgeOpt) error {
	s.purges++
	return s.Stream.Purge(ctx, opts...)
}

// openListed gives the values of a new fleet, on such a stream.
func openListed(t *testing.T) (*values, *listed) {
	t.Helper()
	nc := natstest.New(t).Connect()
	js, names := natstest.JetStream(t, nc), subjects.Default()
	if _, err := topology.Ensure(t.Context(), js, names, topology.Settings{}); err != nil {
		t.Fatal(err)
	}
	p, err := publish.New(nc, publish.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	store, err := Open(t.Context(), js, p, names)
	if err != nil {
		t.Fatal(err)
	}
	v := store.Values.(*values)
	s := &listed{Stream: v.stream, meanwhile: func() {}}
	v.stream = s
	return v, s
}

func (v *values) puts(t *testing.T, keys ...string) {
	t.Helper()
	done := make(chan error, len(keys))
	for _, key := range keys {
		v.Put(key, []byte(`1`), func(err error) { done <- err })
	}
	for range keys {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func (v *values) count(t *testing.T, keys ...string) int {
	t.Helper()
	got, err := v.Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return len(got)
}

// A value that is stored while the list is read stays, whether the list has it or not.
func TestPrograms16AValueThatComesDuringASweepStays(t *testing.T) {
	v, s := openListed(t)
	v.puts(t, "a.x.1", "a.x.2")
	s.meanwhile = func() { v.puts(t, "a.x.3") }
	if err := v.Sweep(t.Context(), "a", func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if v.count(t, "a.x.3") != 1 {
		t.Error("the value that came is gone")
	}
	if n := v.count(t, "a.x.1", "a.x.2"); n != 0 {
		t.Errorf("%d dead values are left", n)
	}
}

// Where dead values stand among living ones, a sweep makes so many requests and no
// more, begins with those that take many values, and the next ones go on.
func TestPrograms16ASweepIsBounded(t *testing.T) {
	v, s := openListed(t)
	var dead []string
	for i := range maxPurges + 10 {
		dead = append(dead, fmt.Sprintf("a.b.%d", i))
	}
	many := []string{"a.z.1", "a.z.2"}
	v.puts(t, append(append([]string{"a.b.live"}, dead...), many...)...)
	isDead := func(key string) bool { return key != "a.b.live" }
	for left := range 3 {
		s.purges = 0
		if err := v.Sweep(t.Context(), "a", isDead); err != nil {
			t.Fatal(err)
		}
		want := []int{11, 0, 0}[left]
		if n := v.count(t, dead...); n != want || s.purges > maxPurges {
			t.Fatalf("after sweep %d %d dead values are left, want %d; it made %d requests", left, n, want, s.purges)
		}
		if v.count(t, many...) != 0 || v.count(t, "a.b.live") != 1 {
			t.Fatal("a living value is gone, or those that go with one request are left")
		}
	}
}

// Of a run with very many values the server lists the first ones: what may stand
// behind those, under the same front, is not known to be dead.
func TestPrograms16ASweepKnowsNothingBehindItsList(t *testing.T) {
	keys := []string{"a.b.1", "a.b.2", "a.c.1.x", "a.c.2.x", "a.c.2.y"}
	all := func(string) bool { return true }
	for whole, want := range map[bool][]string{true: {"a.>"}, false: {"a.b.>", "a.c.1.x", "a.c.2.x"}} {
		if got := patterns(keys, 1, inList(keys, whole, all)); !slices.Equal(got, want) {
			t.Errorf("whole %t: %v are removed, want %v", whole, got, want)
		}
	}
	if got := patterns(nil, 1, inList(nil, false, all)); got != nil {
		t.Errorf("%v are removed of nothing", got)
	}
}
