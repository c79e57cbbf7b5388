package kvtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// put stores one value and waits.
func put(t *testing.T, s *kv.Store, key, value string) {
	t.Helper()
	done := make(chan error, 1)
	s.Values.Put(key, json.RawMessage(value), func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatalf("put of %q: %v", key, err)
	}
}

func get(t *testing.T, s *kv.Store, keys ...string) map[string]json.RawMessage {
	t.Helper()
	got, err := s.Values.Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func testValues(t *testing.T, s *kv.Store) {
	key := subjects.OutputKey(drover.CallID{Run: "run", Node: "node é", Item: 3, Attempt: 1})
	if got := get(t, s, key); len(got) != 0 {
		t.Fatalf("values %v, want none", got)
	}
	if got := get(t, s); len(got) != 0 {
		t.Fatalf("values %v, want none", got)
	}
	put(t, s, key, `"first"`)
	put(t, s, key, `"first"`)
	put(t, s, key, `"second"`)
	if got := get(t, s, key, key); string(got[key]) != `"first"` {
		t.Fatalf("value %s, want the first", got[key])
	}
}

func testManyValues(t *testing.T, s *kv.Store) {
	const n = 1000
	big := strings.Repeat("x", drover.MaxValue-2)
	done := make(chan error, n)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("run.node.n.%d.1", i)
		value := fmt.Sprint(i)
		if i%100 == 0 {
			value = `"` + big + `"`
		}
		s.Values.Put(keys[i], json.RawMessage(value), func(err error) { done <- err })
	}
	for range keys {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	got := get(t, s, append(keys, "run.input")...)
	if len(got) != n {
		t.Fatalf("%d values, want %d", len(got), n)
	}
	for i, key := range keys {
		if i%100 == 0 && len(got[key]) != drover.MaxValue || i%100 != 0 && string(got[key]) != fmt.Sprint(i) {
			t.Fatalf("value %d has %d bytes: %.20s", i, len(got[key]), got[key])
		}
	}
}

func testPurgeRun(t *testing.T, s *kv.Store) {
	last := func() uint64 {
		t.Helper()
		n, err := s.Values.Last(t.Context())
		want(t, err, nil)
		return n
	}
	none := last()
	want(t, s.Values.PurgeRun(t.Context(), "a", none), nil)
	mine := []string{subjects.InputKey("a"), subjects.ResultKey("a"), subjects.DeliveredKey("a", 7)}
	other := subjects.InputKey("ab")
	for _, key := range append(mine, other) {
		put(t, s, key, "1")
	}
	want(t, s.Values.PurgeRun(t.Context(), "a", none), nil)
	if got := get(t, s, mine...); len(got) != len(mine) {
		t.Fatalf("values %v are left, of which all came later", got)
	}
	before := last()
	want(t, s.Values.PurgeRun(t.Context(), "a", before), nil)
	if got := get(t, s, append(mine, other)...); len(got) != 1 || string(got[other]) != "1" {
		t.Fatalf("values %v are left, want that of the other run", got)
	}
	put(t, s, mine[0], "2")
	want(t, s.Values.PurgeRun(t.Context(), "a", before), nil) // late
	if got := get(t, s, mine[0]); string(got[mine[0]]) != "2" {
		t.Fatalf("value %s of a run that was purged and began anew", got[mine[0]])
	}
}

func testDefinitions(t *testing.T, s *kv.Store) {
	ctx := t.Context()
	a, b := drover.Hash(strings.Repeat("a", 64)), drover.Hash(strings.Repeat("b", 64))
	_, err := s.Definitions.Get(ctx, a)
	want(t, err, drover.CodeNotFound)
	_, err = s.Definitions.Lookup(ctx, "flow")
	want(t, err, drover.CodeNotFound)
	list, err := s.Definitions.List(ctx)
	if err != nil || len(list) != 0 {
		t.Fatalf("list %v, error %v", list, err)
	}
	for range 2 {
		want(t, s.Definitions.Put(ctx, a, []byte("A")), nil)
	}
	want(t, s.Definitions.Put(ctx, b, []byte("B")), nil)
	data, err := s.Definitions.Get(ctx, a)
	if err != nil || string(data) != "A" {
		t.Fatalf("definition %q, error %v", data, err)
	}
	want(t, s.Definitions.SetName(ctx, "flow", a), nil)
	want(t, s.Definitions.SetName(ctx, "flow", b), nil)
	want(t, s.Definitions.SetName(ctx, "extra", a), nil)
	hash, err := s.Definitions.Lookup(ctx, "flow")
	if err != nil || hash != b {
		t.Fatalf("hash %q, error %v", hash, err)
	}
	list, err = s.Definitions.List(ctx)
	if err != nil || len(list) != 2 || list[0] != (kv.Registered{Name: "extra", Hash: a}) || list[1] != (kv.Registered{Name: "flow", Hash: b}) {
		t.Fatalf("list %v, error %v", list, err)
	}
}
