package machine

import (
	"fmt"
	"slices"
	"strings"
)

// checkProgram says which invariant of a program the state breaks.
func (s *State) checkProgram(busy map[int]int) error {
	g := s.Program
	bad := func(format string, args ...any) error {
		return fmt.Errorf("program %s: "+format, append([]any{s.Run}, args...)...)
	}
	open := 0
	for i, slot := range g.Slots {
		over := s.Nodes[i].Status.over()
		switch {
		case slot.ID == "" && (!over || busy[i] > 0):
			return bad("slot %d is free, and its node is not", i)
		case slot.ID != "" && over && s.hookOf(i) < 0 && !strings.Contains(slot.Step, `"detach"`) && !strings.Contains(slot.Step, `"abandon"`):
			return bad("node %s is over, and has its slot", slot.ID)
		case slot.ID != "" && !over && busy[i] == 0:
			return bad("node %s does nothing, and is not over", slot.ID)
		case slot.ID != "" && !over:
			open++
		}
	}
	switch {
	case len(g.Tail) > g.Entries || g.Records > g.Entries || g.Fence > 0 && g.State == DriveQueued:
		return bad("%d records, %d entries, %d of them in the record, state %s", g.Records, g.Entries, len(g.Tail), g.State)
	case g.State == DriveQueued && (g.Version != "" || g.Keep != "") && g.Due == 0, (g.State == DriveRunning || g.State == DrivePausing) && g.Due == 0,
		(g.State == DriveParked || g.State == DriveBlocked) && g.Due > 0, g.State == DriveOver:
		return bad("it is %s, and its time is %d", g.State, g.Due)
	case g.State == DriveParked && open == 0:
		return bad("it is parked, and waits for nothing")
	case g.Missed > g.Heard || g.Heard > g.Looks || g.Quiet > g.Looks || g.Letter > 0 && g.State != DriveOver:
		return bad("it is %s, and was looked for %d times (%d), %d (%d) for nothing; letter %d", g.State, g.Looks, g.Quiet, g.Missed, g.Heard, g.Letter)
	case g.Misfit && g.Stop == nil:
		return bad("it was blocked when it was asked to stop, and was not asked")
	case !slices.IsSorted(g.Segments) || !slices.IsSorted(g.Pages) || len(g.Segments) >= maxSegments || (len(g.Pages)+len(g.Segments) > 0) != (g.Entries > len(g.Tail)):
		return bad("its segments are not in order, or some are missing")
	case g.Limit > 0 && g.State != DriveRunning || g.Late && g.Stop == nil:
		return bad("it is %s, and is stopped when its time is up: %t, %v", g.State, g.Late, g.Stop)
	case s.Inline != s.inlined():
		return bad("%d bytes of values are in the record, and %d were counted", s.inlined(), s.Inline)
	case open > maxSlots || len(g.Slots) > 0 && !g.Slots[len(g.Slots)-1].taken():
		return bad("%d nodes are open, and of its %d slots the last is free", open, len(g.Slots))
	}
	return nil
}
