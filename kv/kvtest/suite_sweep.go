package kvtest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

func testSweep(t *testing.T, s *kv.Store) {
	call := func(node drover.NodeID, item int) string {
		return subjects.OutputKey(drover.CallID{Run: "a", Node: node, Item: item, Attempt: 1})
	}
	dead := []string{subjects.DeliveredKey("a", 7), call("x", drover.NoItem), call("old", 0), call("old", 1)}
	for i := range 20 {
		dead = append(dead, subjects.JournalKey("a", 0, "line", i), subjects.JournalKey("a", 0, "segment", i), subjects.JournalKey("a", 1, "line", i))
	}
	live := []string{
		subjects.InputKey("a"), subjects.DeliveredKey("a", 8), call("x", 1), call("new", drover.NoItem),
		subjects.JournalKey("a", 1, "line", 20), subjects.JournalKey("a", 10, "line", 1), subjects.JournalKey("ab", 0, "line", 1), subjects.InputKey("ab"),
	}
	for _, key := range slices.Concat(dead, live) {
		put(t, s, key, "1")
	}
	asked := 0
	sweep := func(dead func(string) bool) {
		t.Helper()
		want(t, s.Values.Sweep(t.Context(), "a", dead), nil)
	}
	has := func(want []string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(get(t, s, slices.Concat(dead, live)...))); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Fatalf("values %v are left, want %v", got, want)
		}
	}
	sweep(func(key string) bool {
		asked++
		if !strings.HasPrefix(key, "a.") {
			t.Errorf("the sweep of run a comes by %s", key)
		}
		return false
	})
	if has(slices.Concat(dead, live)); asked < len(dead) {
		t.Errorf("%d keys were looked at, there are %d", asked, len(dead))
	}
	for range 2 { // the second time nothing is left to do
		sweep(func(key string) bool { return slices.Contains(dead, key) })
		has(live)
	}
	sweep(func(string) bool { return true })
	has(live[6:])
	put(t, s, dead[0], "2")
	if got := get(t, s, dead[0]); string(got[dead[0]]) != "2" {
		t.Fatalf("value %s under a key that was swept", got[dead[0]])
	}
}
