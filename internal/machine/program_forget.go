package machine

import (
	"slices"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// Forgotten says which values of a program belong to a journal that is over, and
// are needed by nobody any more. It says it of a key alone: what the body has
// stored since it began anew is never meant, however late this is asked.
type Forgotten struct {
	Run        drover.RunID
	Generation int    // that the body is in
	Began      uint64 // sequence of the command that began it
	Kept       map[string]bool
}

// Dead reports whether the value behind a key of the run may go.
func (g *Forgotten) Dead(key string) bool {
	if g.Kept[key] {
		return false
	}
	if generation, ok := subjects.GenerationOfKey(g.Run, key); ok {
		return generation < g.Generation
	}
	if node, ok := subjects.NodeOfKey(g.Run, key); ok {
		return generationOf(node) < g.Generation
	}
	sequence, ok := subjects.DeliveredOfKey(g.Run, key)
	return ok && sequence < g.Began
}

// forgetEffect has the values of earlier journals removed. It says what to spare
// by what the state has had since the body began anew, so that it can be made
// again at any time, also for one that began even later.
func (f *fold) forgetEffect(generation int) Effect {
	g := f.s.Program
	gone := &Forgotten{Run: f.s.Run, Generation: g.Generation, Began: g.Began, Kept: map[string]bool{}}
	for _, sequence := range g.Inherited {
		gone.Kept[subjects.DeliveredKey(f.s.Run, sequence)] = true
	}
	for i := range g.Slots { // of a child that may not have been started
		if key := g.Slots[i].Input.Key; key != "" {
			gone.Kept[key] = true
		}
	}
	return Effect{Owed: Owed{Kind: EffectForget, Attempt: generation}, Run: f.s.Run, Forget: gone}
}

// inherited are the deliveries that a new journal begins with, as nothing has read
// them: those with a value outside of the record.
func (s *State) inherited() (sequences []uint64) {
	for i := range s.Unread {
		if sequence, ok := subjects.DeliveredOfKey(s.Run, s.Unread[i].Payload.Key); ok {
			sequences = append(sequences, sequence)
		}
	}
	slices.Sort(sequences)
	return sequences
}
