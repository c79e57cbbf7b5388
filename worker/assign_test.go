package worker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
)

func TestAssignGivesEqualSharesAndMovesFew(t *testing.T) {
	const partitions = 64
	var members []string
	var before []string
	for n := 1; n <= 12; n++ {
		members = append([]string{fmt.Sprintf("w%d", n)}, members...)
		got := assign(members, partitions)
		load := map[string]int{}
		moved := 0
		for p, m := range got {
			load[m]++
			if before != nil && before[p] != m {
				moved++
			}
		}
		share := (partitions + n - 1) / n
		for _, m := range members {
			if load[m] > share {
				t.Errorf("%d members: %s owns %d partitions, its share is %d", n, m, load[m], share)
			}
		}
		// A new member has to take its own share; as many again may move for
		// the sake of the shares.
		if n > 1 && moved > 2*share+2 {
			t.Errorf("%d members: %d partitions moved, the share of the new one is %d", n, moved, share)
		}
		before = got
	}
}

func TestAssignWithoutMembersOwnsNothing(t *testing.T) {
	for n, m := range assign(nil, 4) {
		if m != "" {
			t.Errorf("partition %d belongs to %q", n, m)
		}
	}
}

// A lease that is renewed changes nobody's partitions, and costs no assignment: it
// would be a hash for each member and partition, each second, for each member.
func TestARenewalAssignsNothingAnew(t *testing.T) {
	m := &member{Worker: &Worker{settings: topology.Settings{Partitions: 8}}, live: map[string]bool{}}
	two := []kv.Member{{ID: "a", Revision: 1}, {ID: "b", Revision: 2}}
	m.members(two)
	first := &m.should[0]
	two[0].Revision = 3
	m.members(two)
	if first != &m.should[0] {
		t.Error("it is assigned anew")
	}
	m.members(two[:1])
	if slices.Contains(m.should, "b") {
		t.Errorf("one that left should own some: %v", m.should)
	}
}
