package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
)

// life is what a run was from its start until its record was removed: its id may
// be used anew then.
type life struct {
	secret  string
	created machine.Millis
	removed bool
	data    []byte                     // the last record
	applied uint64                     // the command that is in it
	values  map[string]json.RawMessage // that it had then
}

// remains is what a retired record says of what its run has elsewhere: all that was
// written up to there.
type remains struct {
	values, list uint64
	listed       []drover.DeliveryID
}

// retention is how long a run is kept in worlds that remove runs.
const retention = 4 * time.Minute

// age has a world last until runs have been removed, with trouble for longer. In some
// nobody can save a cursor before that: who takes over reads all again.
func (w *World) age() {
	if w.faults != (Faults{}) {
		w.told.calmAt = w.now.Add(10 * time.Minute)
	}
	if w.Seed%5 == 0 {
		w.unsaved = w.now.Add(8 * time.Minute)
	}
	w.told.busy++
	w.at(w.now.Add(18*time.Minute), func() { w.told.busy-- })
	w.clean()
}

// clean has a janitor look for runs that are to go, as the workers do: first the
// record is retired, then all that belongs to it goes, then the rest of the record.
func (w *World) clean() {
	w.at(w.now.Add(15*time.Second), w.clean)
	until := machine.Millis(w.now.Add(-retention).UnixMilli())
	past := remains{values: w.writes, list: w.writes}
	for _, run := range slices.Sorted(maps.Keys(w.records)) {
		rec := w.records[run]
		if rec.retired != nil {
			w.saw("Delivery11 a removal was found half done")
			w.soon(func() { w.removeRest(run, rec, 0) })
			continue
		}
		state, err := machine.Decode(rec.data)
		if err != nil || !state.Terminal() || state.Ended > until || !toldBy(state, until) || w.readAgain(run, state) {
			continue
		}
		left := past
		for i := range state.Notify {
			if state.Notify[i].Listed {
				left.listed = append(left.listed, drover.DeliveryIDOf(run, i))
			}
		}
		slow := []time.Duration{time.Millisecond, 20 * time.Millisecond}[w.rng.IntN(2)]
		w.within(slow, func() { w.retire(run, rec.rev, left) })
		w.meddle(run, state)
	}
}

// readAgain reports whether the next owner would read a command for a run: one that is
// in its record, which may owe something, or one that changed nothing.
func (w *World) readAgain(run drover.RunID, s *machine.State) bool {
	return s.Position() >= w.lease.cursor ||
		slices.ContainsFunc(w.log[w.lease.cursor-1:], func(m partition.Message) bool { return m.Run == string(run) })
}

// toldBy reports whether everyone was told of a run, or was given up before a time.
func toldBy(s *machine.State, until machine.Millis) bool {
	return !slices.ContainsFunc(s.Notify, func(n machine.Subscriber) bool {
		return !n.Status.Over() || n.Status == drover.DeliveryDead && n.At > until
	})
}

// meddle has others do something with a run at the moment in which it goes.
func (w *World) meddle(run drover.RunID, state *machine.State) {
	for i := range state.Notify {
		if state.Notify[i].Status != drover.DeliveryDead || !w.chance(0.5) {
			continue
		}
		w.saw("Delivery12 a dead delivery was kept for the retention")
		w.told.busy++
		w.within(6*time.Millisecond, func() {
			w.told.busy--
			w.saw("Delivery12 a dead delivery was replayed while its run went")
			w.replayed(run, drover.ReplayMessage{DeliveryID: drover.DeliveryIDOf(run, i)})
		})
	}
	if w.now.Before(w.unsaved.Add(2 * duplicates)) {
		return // who took over has just published all again, and streams would take a new outcome for that
	}
	if len(w.lives[run]) < 3 && w.starts[run] != nil && w.chance(0.6) {
		w.told.busy++
		w.within([]time.Duration{5 * time.Millisecond, time.Second, time.Minute}[w.rng.IntN(3)], func() { w.restart(run, 0) })
	}
}

// restart starts a run anew under its id, until it is told that there is a new one.
func (w *World) restart(run drover.RunID, tries int) {
	done := false
	p := &waiter{w: w, run: run, name: "again"}
	req := *w.starts[run]
	req.Input = json.RawMessage(fmt.Sprintf(`{"n":%d,"list":[1,2,3]}`, 4+len(w.lives[run])))
	p.ask(drover.VerbStart, req, func(answer any, refused *drover.Error) {
		reply, _ := answer.(drover.StartReply)
		if refused != nil && refused.Code != drover.CodeConflict { // the old one is there still
			w.violated("run %s may not be started again: %v", run, refused)
		}
		if done = reply.Created; done {
			w.saw("Delivery13 a run was started again under its id")
		}
	})
	w.at(w.now.Add(answerTime+time.Second), func() {
		if done || tries == 8 {
			w.told.busy--
			return
		}
		w.restart(run, tries+1)
	})
}

// retire is the first step of a removal: of this and a command that changes the run,
// one wins.
func (w *World) retire(run drover.RunID, revision uint64, left remains) {
	if w.chance(0.05) {
		return // the janitor dies
	}
	rec := w.records[run]
	if rec.rev != revision || rec.retired != nil {
		w.saw("Delivery12 a run that was to go was changed before")
		return
	}
	w.follow("run %s is retired", run)
	w.published(run)
	lives := w.lives[run]
	last := &lives[len(lives)-1]
	last.removed, last.data, last.applied, last.values = true, rec.data, rec.seq, map[string]json.RawMessage{}
	for key, value := range w.values {
		if runOf(key) == run {
			last.values[key] = value
		}
	}
	if len(lives) > 1 {
		w.saw("Delivery13 a run that was started again was told and removed")
	}
	delete(w.finals, run)
	delete(w.outcomes, run)
	delete(w.told.latest, run)
	delete(w.told.takers, run)
	w.revision++
	rec = record{rev: w.revision, retired: &left}
	w.records[run] = rec
	w.later(func() { w.removeRest(run, rec, 0) })
}

// later has a janitor go on: now and then it has stood still for long.
func (w *World) later(do func()) {
	if w.chance(0.25) {
		w.within(2*time.Minute, do)
		return
	}
	w.soon(do)
}

// removeRest is the rest of a removal, from one of its steps on. Each may be the
// last one before a crash, and come very late.
func (w *World) removeRest(run drover.RunID, rec record, step int) {
	if w.chance(0.15) {
		return
	}
	w.removeStep(run, rec, step)
	if step == 2 {
		return
	}
	w.later(func() { w.removeRest(run, rec, step+1) })
}

func (w *World) removeStep(run drover.RunID, rec record, step int) {
	switch step {
	case 0:
		for _, key := range slices.Sorted(maps.Keys(w.values)) {
			if runOf(key) == run && w.written[key] <= rec.retired.values {
				delete(w.values, key)
			}
		}
	case 1:
		for _, id := range rec.retired.listed {
			if w.written[string(id)] <= rec.retired.list {
				delete(w.told.listed, id)
			}
		}
	default:
		if w.records[run].rev == rec.rev {
			w.follow("run %s is removed", run)
			delete(w.records, run)
			w.told.removals++
		}
	}
}

// met has an owner that meets a retired record remove the rest.
func (w *World) met(run drover.RunID) error {
	rec := w.records[run]
	for step := range 3 {
		if w.chance(w.faults.Fail) {
			return errUnavailable
		}
		w.removeStep(run, rec, step)
	}
	w.saw("Delivery13 a command met a run that was half removed")
	return nil
}

// gone reports whether a run was removed, be it that another has its id by now.
func (w *World) gone(run drover.RunID) bool {
	lives := w.lives[run]
	return len(lives) > 0 && lives[0].removed
}

// runOf gives the run of the key of a value.
func runOf(key string) drover.RunID {
	run, _, _ := strings.Cut(key, ".")
	return drover.RunID(run)
}

// refers reports whether a run that is there refers to a value.
func (w *World) refers(key string) bool {
	rec := w.records[runOf(key)]
	if rec.data == nil {
		return false
	}
	state, err := machine.Decode(rec.data)
	if err != nil {
		return true
	}
	text, err := json.Marshal(state)
	return err != nil || strings.Contains(string(text), strconv.Quote(key))
}

// leftover names something of a run that was removed, or "".
func (w *World) leftover() string {
	for _, run := range slices.Sorted(maps.Keys(w.records)) {
		if w.records[run].retired != nil {
			return "run " + string(run) + " is removed by half"
		}
	}
	return ""
}

// orphans holds that nothing is left of runs that were removed.
func (w *World) orphans() {
	for _, key := range slices.Sorted(maps.Keys(w.values)) {
		if _, there := w.records[runOf(key)]; !there && w.gone(runOf(key)) {
			w.violated("value %s is left of a run that was removed", key)
		}
	}
}
