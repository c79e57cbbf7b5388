package api

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestSlowPartitionsAreMarked(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	for _, c := range []struct {
		about string
		p     drover.Partition
		slow  bool
	}{
		{"nothing to do", drover.Partition{Worker: "w1"}, false},
		{"short runs are under way", drover.Partition{Worker: "w1", Lag: 9, Oldest: ago(12 * time.Second)}, false},
		{"the cursor does not move", drover.Partition{Worker: "w1", Lag: 1, Oldest: ago(21 * time.Second)}, true},
		{"nobody owns it", drover.Partition{}, true},
		{"its owner is gone", drover.Partition{Worker: "w2"}, true},
	} {
		all := []drover.Partition{c.p}
		if judge(all, map[string]bool{"w1": true}, now); all[0].Slow != c.slow {
			t.Errorf("%s: slow is %v", c.about, all[0].Slow)
		}
	}
}
