package worker

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// assign says which member should own which partition, by rendezvous hashing
// with equal shares: every member that sees the same members comes to the same
// answer, no member gets more than its share rounded up, and few partitions
// move when a member comes or goes.
func assign(members []string, partitions int) []string {
	owners := make([]string, partitions)
	if len(members) == 0 {
		return owners
	}
	members = slices.Sorted(slices.Values(members))
	share := (partitions + len(members) - 1) / len(members)
	load := make(map[string]int, len(members))
	for n := range owners {
		best := uint64(0)
		for _, m := range members {
			if s := score(m, n); load[m] < share && (owners[n] == "" || s > best) {
				owners[n], best = m, s
			}
		}
		load[owners[n]]++
	}
	return owners
}

func score(member string, partition int) uint64 {
	h := sha256.Sum256(fmt.Appendf(nil, "%d/%s", partition, member))
	return binary.BigEndian.Uint64(h[:])
}
