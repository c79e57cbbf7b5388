package kv

import (
	"fmt"
	"testing"
)

// What is remembered of purges is of the latest runs, and bounded.
func TestPurgesAreRememberedForTheLatestRuns(t *testing.T) {
	var p purged
	for i := range 3 * maxPurged {
		p.note(fmt.Sprint("run", i), uint64(i)+1)
		p.note(fmt.Sprint("run", i), 1) // one that is late takes nothing back
	}
	if len(p.upTo) != maxPurged || len(p.order) != maxPurged {
		t.Errorf("%d runs are remembered", len(p.upTo))
	}
	for i, want := range map[int]uint64{0: 0, 2*maxPurged - 1: 0, 2 * maxPurged: 2*maxPurged + 1, 3*maxPurged - 1: 3 * maxPurged} {
		if got := p.of(fmt.Sprintf("run%d.a.1", i)); got != want {
			t.Errorf("run %d: up to %d, want %d", i, got, want)
		}
	}
}
