package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
)

// refold is a plain fold of the whole log, command by command. A run that was
// removed has several lives in it.
type refold struct {
	w       *World
	states  map[drover.RunID]*machine.State
	begun   map[drover.RunID]int // lives
	refused map[uint64]*drover.Error
	// unclear are commands that changed nothing of a run that was removed: they may
	// have been folded before or after that, or both, where their owner crashed.
	unclear map[uint64]bool
	held    holds
}

// replay folds the log once more, command by command, and holds every record
// against what comes of it. It finds commands that were folded twice, not at
// all, or out of order.
func (w *World) replay() {
	r := &refold{
		w: w, states: map[drover.RunID]*machine.State{}, begun: map[drover.RunID]int{},
		refused: map[uint64]*drover.Error{}, unclear: map[uint64]bool{},
		held: holds{until: map[string]time.Time{}, takers: map[drover.RunID]string{}},
	}
	for _, m := range w.log {
		id, err := drover.ParseRunID(m.Run)
		if err != nil {
			r.refused[m.Seq] = drover.AsError(err, drover.CodeInvalidID)
			continue
		}
		step, why := r.fold(id, m)
		outlived := r.states[id] == nil && m.Verb == string(drover.VerbTick) && m.Reply == "" // by its timer
		if why != nil && !outlived {
			r.refused[m.Seq] = why
		}
		if step.Changed {
			if r.states[id] == nil {
				r.begun[id]++
			}
			r.states[id] = step.State
		}
		r.held.folded(w, id, m, &step)
		if w.programs != nil {
			step.Refused = why
			w.programs.ledger.folded(id, m, &step)
		}
		if w.hooked != nil {
			w.hooked.folded(w, m, &step, r.states)
		}
	}
	r.end()
	r.compareRefusals()
}

// fold folds a message into the life of its run that it found.
func (r *refold) fold(id drover.RunID, m partition.Message) (machine.Step, *drover.Error) {
	lives, n := r.w.lives[id], r.begun[id]
	state := r.states[id]
	if state == nil || !lives[n-1].removed || m.Seq <= lives[n-1].applied {
		return r.w.fold(state, r.life(id, state != nil), id, m)
	}
	// Of a start that a new life began with, its time is known.
	begins := n < len(lives) && m.Verb == string(drover.VerbStart) && machine.Millis(m.At.UnixMilli()) == lives[n].created
	if !begins {
		record, err := machine.Encode(state)
		if err == nil {
			state, err = machine.Decode(record)
		}
		if err != nil {
			r.w.violated("run %s: %v", id, err)
		}
		step, why := r.w.fold(state, r.life(id, true), id, m)
		if !step.Changed {
			r.unclear[m.Seq] = true
			return step, why
		}
	}
	// It came after the removal. Its sender may have been told before what the old
	// run says, by an owner that crashed before it was done with the command.
	r.unclear[m.Seq] = true
	r.over(id)
	return r.w.fold(nil, r.life(id, false), id, m)
}

// life is that of a run that has begun, or the one that begins next.
func (r *refold) life(id drover.RunID, begun bool) *life {
	n := r.begun[id]
	if begun {
		n--
	}
	if n < len(r.w.lives[id]) {
		return &r.w.lives[id][n]
	}
	return &life{}
}

// over ends a life, whose last record was what the log gives.
func (r *refold) over(id drover.RunID) {
	r.w.compare(id, r.states[id], r.w.lives[id][r.begun[id]-1].data)
	delete(r.states, id)
	delete(r.held.takers, id)
	maps.DeleteFunc(r.held.until, func(key string, _ time.Time) bool { return strings.HasPrefix(key, string(id)+" ") })
}

// end holds all records against the log.
func (r *refold) end() {
	w := r.w
	for _, id := range slices.Sorted(maps.Keys(w.lives)) {
		lives, n := w.lives[id], r.begun[id]
		switch {
		case n != len(lives):
			w.violated("run %s began %d times, and a plain fold begins it %d times", id, len(lives), n)
		case !lives[n-1].removed:
			w.compare(id, r.states[id], w.records[id].data)
		case r.states[id] != nil:
			r.over(id)
		}
		delete(r.states, id)
	}
	for _, id := range slices.Sorted(maps.Keys(r.states)) {
		w.violated("a plain fold makes run %s, and there is no record of it", id)
	}
}

// compareRefusals holds what was refused against a plain fold: a dead letter, or
// an answer where the sender wanted one, which may have been lost in a crash.
func (r *refold) compareRefusals() {
	w, letters := r.w, 0
	for _, seq := range slices.Sorted(maps.Keys(r.refused)) {
		code, letter := r.refused[seq].Code, w.dead[seq]
		switch {
		case r.unclear[seq]:
		case w.log[seq-1].Reply != "":
			if told, ok := w.refused[seq]; ok && told != code {
				w.violated("the sender of command %d was told %s, a plain fold says %s", seq, told, code)
			}
		case letter == nil || letter.Code != code:
			w.violated("command %d should be a dead letter: %v; there is %v", seq, r.refused[seq], letter)
		default:
			letters++
		}
	}
	for seq := range w.dead {
		if r.unclear[seq] {
			letters++
		}
	}
	if len(w.dead) != letters {
		w.violated("there are %d dead letters, a plain fold has %d", len(w.dead), letters)
	}
	for _, seq := range slices.Sorted(maps.Keys(w.refused)) {
		if r.refused[seq] == nil && !r.unclear[seq] {
			w.violated("the sender of command %d was told %s, and a plain fold accepts it", seq, w.refused[seq])
		}
	}
}

// fold is the plain fold of one message into a life of its run, and why it was
// refused.
func (w *World) fold(state *machine.State, of *life, id drover.RunID, m partition.Message) (machine.Step, *drover.Error) {
	cmd, req, bad := machine.DecodeCommand(m.Seq, m.At, m.Run, m.Verb, m.Data, "")
	if bad != nil {
		return machine.Step{}, bad
	}
	var plan *machine.Plan
	if state != nil {
		plan = w.plans[state.Hash]
	}
	if req != nil {
		got, err := w.resolve(req, "")
		if err != nil {
			return machine.Step{}, drover.AsError(err, drover.CodeInternal)
		}
		plan = got
		if bad := admit(id, req, plan); state == nil && bad != nil {
			return machine.Step{}, bad
		}
		cmd.Start.Hash = plan.Hash
		cmd.Start.Secret = of.secret
	}
	values := w.values
	if of.removed {
		values = of.values
	}
	step, err := machine.Apply(plan, state, cmd, func(key string) (json.RawMessage, bool) {
		v, ok := values[key]
		if !ok && w.forgotten(key) {
			return w.programs.forgot[key], true
		}
		return v, ok
	})
	var need *machine.NeedError
	switch {
	case errors.As(err, &need):
		w.violated("command %d of %s needs values that nobody stored: %q", m.Seq, id, need.Keys)
		return machine.Step{}, nil
	case step.Refused != nil:
		return machine.Step{}, step.Refused
	}
	return step, nil
}

// compare holds a record against the state that a plain fold came to.
func (w *World) compare(id drover.RunID, want *machine.State, record []byte) {
	got, err := machine.Decode(record)
	if err != nil || want == nil {
		w.violated("run %s: record %v, plain fold %v", id, err, want != nil)
		return
	}
	var texts [2][]byte
	for i, s := range []*machine.State{got, want} {
		s.Timer, s.Timed, s.Owed = 0, 0, nil
		if texts[i], err = json.Marshal(s); err != nil {
			w.violated("run %s: %v", id, err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		w.violated("run %s: the record is not what the log gives:\nrecord %s\nfold   %s", id, texts[0], texts[1])
	}
}
