package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
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
	if old.rev == 0 {
		w.lives[run] = append(w.lives[run], life{secret: state.Secret, created: state.Created})
	}
	w.changed(run, state)
	if w.programs != nil {
		w.programs.ledger.committed(run, state)
	}
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
		if !ok && w.records[run].data == nil && w.gone(run) {
			continue
		}
		if !ok {
			return fmt.Sprintf("run %s is not over: %s", run, w.why(run))
		}
		if w.outcomes[run] == nil {
			return fmt.Sprintf("run %s is %s, and its outcome was not published", run, f.status)
		}
	}
	if why := cmp.Or(w.untold(), w.leftover()); why != "" {
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
