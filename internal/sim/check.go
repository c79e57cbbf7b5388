package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
)

// inspect holds a record that is about to be written to the promises.
func (w *World) inspect(run drover.RunID, old record, rec *record) {
	state, err := machine.Decode(rec.data)
	if err != nil {
		w.violated("the record of %s cannot be decoded: %v", run, err)
		return
	}
	plan := w.plans[state.Hash]
	if err := state.Check(plan); err != nil {
		w.violated("run %s: %v", run, err)
	}
	rec.seq = state.Applied
	if rec.seq <= old.seq {
		w.violated("run %s went from command %d to %d", run, old.seq, rec.seq)
	}
	w.changed(run, state)
	if !state.Terminal() {
		if f, ok := w.finals[run]; ok {
			w.violated("run %s was %s, and is %s again", run, f.status, state.Status)
		}
		return
	}
	result, _ := json.Marshal(state.Result)
	problem, _ := json.Marshal(state.Error)
	f := final{state.Status, string(result), string(problem)}
	if was, ok := w.finals[run]; ok && was != f {
		w.violated("run %s ended as %+v, and now as %+v", run, was, f)
	}
	w.finals[run] = f
}

// settled reports whether everything that was asked for is over and told.
func (w *World) settled() bool {
	return w.unsettled() == ""
}

// unsettled names something that is not over or not told.
func (w *World) unsettled() string {
	for _, run := range slices.Sorted(maps.Keys(w.starts)) {
		f, ok := w.finals[run]
		if !ok {
			return fmt.Sprintf("run %s is not over: %s", run, w.why(run))
		}
		if w.outcomes[run] == nil {
			return fmt.Sprintf("run %s is %s, and its outcome was not published", run, f.status)
		}
	}
	if why := w.untold(); why != "" {
		return why
	}
	if w.hooked == nil {
		return ""
	}
	if tokens := w.tokens.tokens(); len(tokens) > 0 {
		return fmt.Sprintf("token %s is not free: %s", tokens[0], w.tokens.claims[tokens[0]].Data)
	}
	if n := len(w.processes); n > 0 || !w.hooked.settled {
		return fmt.Sprintf("%d processes go on", n)
	}
	return ""
}

func (w *World) why(run drover.RunID) string {
	rec, ok := w.records[run]
	if !ok {
		return "it has no record"
	}
	state, err := machine.Decode(rec.data)
	if err != nil {
		return err.Error()
	}
	text := string(state.Status)
	for _, r := range machine.Why(w.plans[state.Hash], state) {
		text += "\n  " + r.Text
	}
	return text
}

// replay folds the log once more, command by command, and holds every record
// against what comes of it. It finds commands that were folded twice, not at
// all, or out of order.
func (w *World) replay() {
	states := map[drover.RunID]*machine.State{}
	refused := map[uint64]*drover.Error{}
	held := holds{until: map[string]time.Time{}, takers: map[drover.RunID]string{}}
	values := func(key string) (json.RawMessage, bool) { v, ok := w.values[key]; return v, ok }
	for _, m := range w.log {
		id, err := drover.ParseRunID(m.Run)
		if err != nil {
			refused[m.Seq] = drover.AsError(err, drover.CodeInvalidID)
			continue
		}
		step, why := w.fold(states[id], id, m, values)
		if why != nil {
			refused[m.Seq] = why
		}
		if step.Changed {
			states[id] = step.State
		}
		held.folded(w, id, m, &step)
		if w.hooked != nil {
			w.hooked.folded(w, m, &step, states)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		w.compare(id, states[id])
	}
	if len(states) != len(w.records) {
		w.violated("a plain fold makes %d runs, there are %d records", len(states), len(w.records))
	}
	w.compareRefusals(refused)
}

// compareRefusals holds what was refused against a plain fold: a dead letter, or
// an answer where the sender wanted one, which may have been lost in a crash.
func (w *World) compareRefusals(refused map[uint64]*drover.Error) {
	letters := 0
	for _, seq := range slices.Sorted(maps.Keys(refused)) {
		code, letter := refused[seq].Code, w.dead[seq]
		switch {
		case w.log[seq-1].Reply != "":
			if told, ok := w.refused[seq]; ok && told != code {
				w.violated("the sender of command %d was told %s, a plain fold says %s", seq, told, code)
			}
		case letter == nil || letter.Code != code:
			w.violated("command %d should be a dead letter: %v; there is %v", seq, refused[seq], letter)
		default:
			letters++
		}
	}
	if len(w.dead) != letters {
		w.violated("there are %d dead letters, a plain fold has %d", len(w.dead), letters)
	}
	for _, seq := range slices.Sorted(maps.Keys(w.refused)) {
		if refused[seq] == nil {
			w.violated("the sender of command %d was told %s, and a plain fold accepts it", seq, w.refused[seq])
		}
	}
}

// fold is the plain fold of one message, and why it was refused.
func (w *World) fold(state *machine.State, id drover.RunID, m partition.Message, values machine.Values) (machine.Step, *drover.Error) {
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
		cmd.Start.Hash = plan.Hash
		cmd.Start.Secret = w.secret(id)
	}
	step, err := machine.Apply(plan, state, cmd, values)
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

// secret is the secret that the record of a run got.
func (w *World) secret(id drover.RunID) string {
	state, err := machine.Decode(w.records[id].data)
	if err != nil {
		return ""
	}
	return state.Secret
}

// compare holds a record against the state that a plain fold came to.
func (w *World) compare(id drover.RunID, want *machine.State) {
	got, err := machine.Decode(w.records[id].data)
	if err != nil || want == nil {
		w.violated("run %s: record %v, plain fold %v", id, err, want != nil)
		return
	}
	var texts [2][]byte
	for i, s := range []*machine.State{got, want} {
		s.Timer, s.Owed = 0, nil
		if texts[i], err = json.Marshal(s); err != nil {
			w.violated("run %s: %v", id, err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		w.violated("run %s: the record is not what the log gives:\nrecord %s\nfold   %s", id, texts[0], texts[1])
	}
}
