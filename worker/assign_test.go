package worker

import (
	"fmt"
	"testing"
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
