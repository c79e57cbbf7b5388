package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// journalLedger is the journal of one generation of a run.
type journalLedger struct {
	w          *World
	run        drover.RunID
	generation int
	seen       int // entries
	state      machine.DriveState
	drive      int
	records    int
	version    string
	blocked    bool
	nodes      map[string]time.Time // that are open, and since when
	steps      map[string]int       // that succeeded: the number of the entry
	dropped    map[string]bool      // that nobody waits for
	over       map[string]bool      // steps and undos that are over, children that were asked for
	attempts   map[string]int       // of steps and undos that failed
	pauses     map[string]time.Time // until when, by id and attempt
	due        map[string]machine.Millis
	undone     []string
	stopped    bool
	stopping   []string // that were open when it was asked to stop
}

func (w *World) newJournal(run drover.RunID, generation int) *journalLedger {
	return &journalLedger{
		w: w, run: run, generation: generation, nodes: map[string]time.Time{}, steps: map[string]int{}, over: map[string]bool{}, dropped: map[string]bool{},
		attempts: map[string]int{}, pauses: map[string]time.Time{}, due: map[string]machine.Millis{},
	}
}

// committed holds what a record that is about to be written has of its journal to the
// promises.
func (l *programLedger) committed(run drover.RunID, state *machine.State) {
	g, w := state.Program, l.w
	if g == nil {
		return
	}
	l.owed[owing{run, state.Applied}] = slices.Clone(state.Owed)
	j := l.journal(run, g)
	if j == nil {
		return
	}
	list, err := w.entries(state, j.seen+1)
	if err != nil {
		w.violated("the journal of %s cannot be read: %v", run, err)
		return
	}
	s := w.scriptOf(state)
	for i := range list {
		if list[i].Number != j.seen+1 {
			w.violated("entry %d of %s comes after %d", list[i].Number, run, j.seen)
		}
		j.seen = list[i].Number
		if why := j.take(s, &list[i]); why != "" {
			w.violated("run %s: entry %d (%s %q) %s", run, list[i].Number, list[i].Kind, list[i].ID, why)
		}
	}
	for _, id := range j.stopping {
		if _, open := j.nodes[id]; open {
			w.violated("run %s was asked to stop, and node %s goes on", run, id)
		}
	}
	j.stopping = nil
	j.deadlines(state)
	j.sawState(state)
}

// journal is that of the generation that a run is in, or nil where the run has gone
// back.
func (l *programLedger) journal(run drover.RunID, g *machine.Program) *journalLedger {
	j := l.journals[run]
	switch {
	case j == nil, g.Generation > j.generation:
		if g.Generation > 0 {
			l.w.saw("Programs16 a body began anew")
		}
		was := j
		j = l.w.newJournal(run, g.Generation)
		if was != nil {
			j.stopped = was.stopped
		}
		l.journals[run] = j
	case g.Generation < j.generation:
		l.w.violated("run %s has gone back from journal %d to %d", run, j.generation, g.Generation)
		return nil
	case g.Entries < j.seen:
		l.w.violated("the journal of %s had %d entries, and has %d", run, j.seen, g.Entries)
		return nil
	}
	return j
}

// take says what is wrong with the next entry, or "".
func (j *journalLedger) take(s *script, e *drover.Entry) string {
	key := work(e.Kind, e.ID)
	switch e.Kind {
	case drover.EntryStep:
		if j.over[key] {
			return "is of a step that was over"
		}
		switch j.over[key] = true; {
		case e.Error == nil:
			j.steps[e.ID] = e.Number
		case e.Error.Permanent:
			j.w.saw("Programs09 an error was fatal, and no other attempt came")
		}
	case drover.EntryUndo:
		return j.undo(s, e)
	case drover.EntryAttempt:
		if e.Attempt != j.attempts[e.ID]+1 && (e.Attempt != 1 || j.steps[e.ID] == 0) {
			return fmt.Sprintf("is attempt %d, after %d", e.Attempt, j.attempts[e.ID])
		}
		j.attempts[e.ID] = e.Attempt
		j.pauses[fmt.Sprint(e.ID, " ", e.Attempt+1)] = e.At.Add(time.Duration(e.Pause))
		if e.Error.RetryAfter > 0 {
			j.w.saw("Programs09 an attempt said when the next one was to come")
		}
		j.w.saw("Programs09 an attempt failed, and the next one came after a pause")
	case drover.EntryNode:
		if _, open := j.nodes[e.ID]; open || j.over[key] {
			return "was asked for twice"
		}
		j.nodes[e.ID], j.over[key] = *e.At, true
	case drover.EntryCancel:
		delete(j.nodes, e.ID)
		j.dropped[e.ID] = true
		j.w.saw("Programs05 a wait was cancelled, as another one was first")
	case drover.EntryEnded:
		return j.ended(e)
	case drover.EntryStop:
		if j.stopped {
			return "is the second stop"
		}
		j.stopped, j.stopping = true, slices.Collect(maps.Keys(j.nodes))
		if j.w.saw("Programs07 a body was asked to stop"); j.state == machine.DriveParked {
			j.w.saw("Programs07 a body that was parked was asked to stop")
		}
	case drover.EntryPanic:
		if j.over[key] {
			return "is the second panic"
		}
		j.over[key] = true
		j.w.saw("Programs15 a body panicked in its last drive, and undid what it did")
	case drover.EntryValue, drover.EntryMeta:
	}
	return ""
}

// ended takes that a node is over, or a pause. Each is so once, and none before its
// time.
func (j *journalLedger) ended(e *drover.Entry) string {
	if e.Attempt > 0 {
		key := fmt.Sprint(e.ID, " ", e.Attempt)
		until, ok := j.pauses[key]
		delete(j.pauses, key)
		switch {
		case !ok:
			return "ends a pause that is not there"
		case e.Error == nil && e.At.Before(until):
			return fmt.Sprintf("ends a pause that lasts until %s at %s", until, e.At)
		}
		return ""
	}
	if _, open := j.nodes[e.ID]; !open {
		if j.dropped[e.ID] && strings.HasPrefix(e.ID, "child") { // it was to outlive that, and was started
			delete(j.dropped, e.ID)
			return ""
		}
		return "ends a node that is not open"
	}
	delete(j.nodes, e.ID)
	due := j.due[fmt.Sprint(e.ID, " ", machine.ActiveWait, " 1 0")]
	switch timeout := e.Error != nil && e.Error.Code == drover.CodeTimeout; {
	case timeout && strings.HasPrefix(e.ID, "wait") && due.Time().After(*e.At):
		return fmt.Sprintf("has a timeout at %s, which was to be at %s", e.At, due.Time())
	case timeout && strings.HasPrefix(e.ID, "wait"):
		j.w.saw("Programs04 a wait had its timeout")
	case strings.HasPrefix(e.ID, "wait") && e.Error == nil && text(e.Output) == "null":
		j.w.saw("Programs04 a wait got an empty payload, which is no timeout")
	case strings.HasPrefix(e.ID, "child") && e.Error == nil:
		j.w.saw("Programs06 a child gave its result")
	case strings.HasPrefix(e.ID, "child") && e.Error.Code == drover.CodeChild:
		j.w.saw("Programs06 a child did not complete")
	}
	return ""
}

// undo takes a compensation. Each is made once, of what was done, and the newest
// first: of the whole body, or of its group.
func (j *journalLedger) undo(s *script, e *drover.Entry) string {
	number, done := j.steps[e.ID]
	if !done {
		return "undoes what was not done"
	}
	if j.over[work(e.Kind, e.ID)] {
		return "undoes what was undone"
	}
	j.over[work(e.Kind, e.ID)] = true
	j.undone = append(j.undone, e.ID)
	if s == nil {
		return ""
	}
	groups := s.groups(j.generation)
	own := groups[e.ID]
	for _, id := range slices.Sorted(maps.Keys(j.steps)) {
		if j.steps[id] > number && groups[id].undo && !j.over[work(drover.EntryUndo, id)] && (own.in == "" || own.in == groups[id].in) {
			return "is undone before " + id + ", which was done later"
		}
	}
	switch {
	case e.Error != nil:
		j.w.saw("Programs08 a compensation failed, and the others were made")
	case e.Attempt > 1:
		j.w.saw("Programs08 a compensation was tried again")
	case own.in != "":
		j.w.saw("Programs08 a step of a group was undone")
	default:
		j.w.saw("Programs08 a step was undone")
	}
	return ""
}

// place is where in a script a step stands, and whether it can be undone.
type place struct {
	in   string // the group
	undo bool
}

// groups are the places of steps.
func (s *script) groups(generation int) map[string]place {
	list := map[string]place{}
	var all func(moves []move, in string)
	all = func(moves []move, in string) {
		for i := range moves {
			m := &moves[i]
			switch m.kind {
			case doStep:
				list[m.id] = place{in, m.undo > 0}
				list[m.id+"-new"] = list[m.id]
			case doGroup:
				all(m.inner, m.id)
			case doParallel:
				for _, branch := range m.branches {
					all(branch, in)
				}
			case doSleep, doWait, doCall, doChild, doSelect, doMeta, doValue, doChunk, doFail, doPanic, doAgain, doHook, doApprove, doStray:
			}
		}
	}
	all(s.gens[min(generation, len(s.gens)-1)], "")
	return list
}

// deadlines holds that the deadline of what is open is the one that it had first.
func (j *journalLedger) deadlines(state *machine.State) {
	was, children := j.due, 0
	j.due = map[string]machine.Millis{}
	for i := range state.Active {
		a := &state.Active[i]
		slot := &state.Program.Slots[a.Node]
		if slot.Older > 0 {
			continue
		}
		key := fmt.Sprint(slot.ID, " ", a.Kind, " ", a.Attempt, " ", slot.Pause)
		if due, ok := was[key]; ok && due != a.Due {
			j.w.violated("run %s: %s was due at %s, and is now due at %s", j.run, key, due.Time(), a.Due.Time())
		} else if ok && state.Program.Drive > 1 {
			j.w.saw("Programs04 a deadline stayed while the run went on")
		}
		if j.due[key] = a.Due; a.Kind == machine.ActiveChild {
			children++
		}
	}
	if children > 1 {
		j.w.saw("Programs06 several children ran at once")
	}
}

// sawState notes what happened to the drives of a run.
func (j *journalLedger) sawState(state *machine.State) {
	g, w := state.Program, j.w
	for _, end := range []drover.Status{drover.StatusCancelled, drover.StatusCompensated, drover.StatusCompensationFailed} {
		if state.Status == end {
			w.saw("Programs07 a run ended as " + string(end))
		}
	}
	switch {
	case g.State == machine.DriveBlocked && j.state != machine.DriveBlocked:
		w.saw("Programs12 a body did not fit the journal")
	case j.state == machine.DriveRunning && g.Drive > j.drive && g.Quiet == 0 && state.Now.Time().Sub(state.Program.Since.Time()) == 0:
		w.saw("Programs03 a drive was over without a word, and the next one began")
	case j.version != "" && g.Version != j.version && g.State != machine.DriveOver:
		w.saw("Programs12 a run left its version")
	case g.State == machine.DrivePausing && j.state != machine.DrivePausing:
		w.saw("Programs15 a body panicked, and was to be driven again")
	case g.State == machine.DriveOver && g.Letter > 0 && state.Error != nil && state.Error.Code == drover.CodePanic:
		w.saw("Programs15 a body panicked each time, and its last drive is a dead letter")
	case g.State == machine.DriveOver && g.Letter > 0:
		w.saw("Programs11 a run was driven too often for nothing, and failed")
	case g.State == machine.DriveOver && g.Late && strings.Contains(*g.Stop, "compute_timeout"):
		w.saw("Programs10 the time that a run may compute was up")
	case g.State == machine.DriveOver && g.Late:
		w.saw("Programs10 the time of a run was up")
	case g.State == machine.DriveOver && state.Error != nil && strings.Contains(state.Error.Message, "stopped at once"):
		w.saw("Programs07 a run was ended at once")
	}
	if state.Status == drover.StatusCompleted && g.Drive > 1 {
		w.saw("Programs14 a run that had waited completed, as its body returned")
	}
	if len(g.Segments) > 0 {
		w.saw("Programs16 a journal has segments")
	}
	if j.blocked && g.Records > j.records {
		w.saw("Programs12 a body fitted a journal by which others were blocked")
	}
	j.blocked = g.State == machine.DriveBlocked || j.blocked && g.Records == j.records
	j.state, j.version, j.drive, j.records = g.State, g.Version, g.Drive, g.Records
}
