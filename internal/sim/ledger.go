package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
)

// ledger is what a plain fold of the log says of deliveries and tokens.
type ledger struct {
	taken  map[int]int                      // by parcel: how often a fold accepted it from its sender
	got    map[drover.RunID]int             // deliveries that a run accepted, from whomever
	where  map[drover.RunID]map[int]int     // by run: where parcels are in its state, read or unread
	lost   map[drover.RunID]int             // parcels that were in a state, and are not any more
	owners map[string]map[drover.RunID]bool // of tokens, as the folds have it
	heirs  map[drover.RunID]bool            // runs that were started as successors
}

func newLedger() ledger {
	return ledger{
		taken: map[int]int{}, got: map[drover.RunID]int{}, where: map[drover.RunID]map[int]int{},
		lost: map[drover.RunID]int{}, owners: map[string]map[drover.RunID]bool{}, heirs: map[drover.RunID]bool{},
	}
}

// folded takes one command of the plain fold into the ledger.
func (h *hooked) folded(w *World, m partition.Message, step *machine.Step, states map[drover.RunID]*machine.State) {
	l, id := &h.ledger, drover.RunID(m.Run)
	w.follow("command %d, folded for %s: %+v, changed %v", m.Seq, id, step.Answer, step.Changed)
	if d, ok := step.Answer.(drover.DeliverReply); ok && !d.Repeat {
		var req drover.DeliverRequest
		if err := json.Unmarshal(m.Data, &req); err != nil {
			w.violated("command %d was accepted, and cannot be read: %v", m.Seq, err)
			return
		}
		l.got[id]++
		if !strings.Contains(req.ID, "/") { // not from a predecessor
			each(req.Payload, func(n int) { l.taken[n]++ })
		}
	}
	if !step.Changed {
		return
	}
	for _, e := range step.Effects {
		if e.Kind == machine.EffectHandOver {
			l.heirs[e.To] = true
		}
	}
	now, _ := w.parcels(step.State)
	for n, was := range l.where[id] {
		l.lost[id] += max(0, was-now[n])
	}
	l.where[id] = now
	h.own(w, m, step.State, states)
}

// own holds that no token has two owners, whatever command is the last. Where
// tokens are taken over, or a sweeper came between a run and its successor, the
// one who lost it may hear of it a little later.
func (h *hooked) own(w *World, m partition.Message, s *machine.State, states map[drover.RunID]*machine.State) {
	for token, runs := range h.ledger.owners {
		if delete(runs, s.Run); len(runs) == 0 {
			delete(h.ledger.owners, token)
		}
	}
	for i := range s.Hooks {
		if hk := &s.Hooks[i]; hk.Mark == machine.HookOwned {
			if h.ledger.owners[hk.Token] == nil {
				h.ledger.owners[hk.Token] = map[drover.RunID]bool{}
			}
			h.ledger.owners[hk.Token][s.Run] = true
		}
	}
	for token, runs := range h.ledger.owners {
		if len(runs) < 2 || h.wild() || w.skewed {
			continue
		}
		var all []drover.RunID
		for _, run := range slices.Sorted(maps.Keys(runs)) {
			if w.holds(states[run], token, m) {
				all = append(all, run)
			}
		}
		if len(all) > 1 {
			w.violated("token %s is held by %v after command %d", token, all, m.Seq)
		}
	}
}

// holds reports whether a run holds a token at the time of a message, also when
// it has done what is due: until then it refuses what comes after that.
func (w *World) holds(s *machine.State, token string, m partition.Message) bool {
	record, err := machine.Encode(s)
	if err == nil {
		s, err = machine.Decode(record)
	}
	if err != nil {
		w.violated("run %s: %v", s.Run, err)
		return false
	}
	tick, _, _ := machine.DecodeCommand(m.Seq+1, m.At, string(s.Run), string(drover.VerbTick), nil, "")
	step, err := machine.Apply(w.plans[s.Hash], s, tick, func(key string) (json.RawMessage, bool) { v, ok := w.values[key]; return v, ok })
	if err != nil {
		w.violated("run %s: %v", s.Run, err)
		return false
	}
	return step.State.Holds(token)
}

// parcels gives where parcels are in a state, read, or unread and not handed
// over, and how many the run discarded.
func (w *World) parcels(s *machine.State) (where map[int]int, discarded int) {
	where = map[int]int{}
	add := func(n int) { where[n]++ }
	handed := map[string]bool{}
	for i := range s.Hooks {
		handed[s.Hooks[i].Token] = s.Hooks[i].Mark == machine.HookHanded
	}
	for i := range s.Unread {
		if u := &s.Unread[i]; !handed[u.Hook] {
			each(w.value(u.Payload), add)
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Reading != nil && n.Status != machine.MarkDone {
			for _, v := range n.Reading.Got {
				each(w.value(v), add)
			}
		}
		output := w.value(n.Output)
		each(output, add)
		var d struct{ Discarded int }
		if json.Unmarshal(output, &d) == nil {
			discarded += d.Discarded
		}
	}
	return where, discarded
}

// each gives the parcels in a payload, or in a list of payloads.
func each(value json.RawMessage, visit func(int)) {
	var list []struct{ Parcel *int }
	if json.Unmarshal(value, &list) != nil {
		list = make([]struct{ Parcel *int }, 1)
		if json.Unmarshal(value, &list[0]) != nil {
			return
		}
	}
	for _, p := range list {
		if p.Parcel != nil {
			visit(*p.Parcel)
		}
	}
}

// audit holds what senders were told to where the parcels are, in the end.
func (w *World) audit() {
	l := &w.hooked.ledger
	places := map[int]int{}
	lost := 0
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		s, err := machine.Decode(w.records[id].data)
		if err != nil {
			w.violated("run %s: %v", id, err)
			return
		}
		where, discarded := w.parcels(s)
		for n, times := range where {
			places[n] += times
		}
		handed := s.Terminal() && w.hooked.heirOf(s)
		if !handed && l.lost[id] != discarded {
			w.violated("run %s discarded %d deliveries, and has lost %d", id, discarded, l.lost[id])
		}
		lost += discarded
		began := strings.HasPrefix(string(id), "r") || l.heirs[id] && !w.hooked.wild()
		if began && l.got[id] == 0 && !w.hooked.stopped[id] && !(l.heirs[id] && impatient(s)) {
			w.violated("run %s was started in vain", id)
		}
	}
	missing, kept := 0, 0
	for _, n := range w.hooked.kept {
		kept += n
	}
	for _, p := range w.hooked.parcels {
		missing += w.auditOne(p, l.taken[p.n], places[p.n])
	}
	if missing < lost || missing > lost+kept {
		w.violated("%d deliveries were discarded and at most %d kept, and %d are nowhere", lost, kept, missing)
	}
}

// impatient reports a run whose wait may have been over before anybody could bring
// it anything. A successor gets what it is started for after its start, and a
// hand-over may take as long as its worker is slow, or is replaced: where the wait
// is shorter than that, nobody can promise that it finds something. That is why
// deliveries start no such runs in these worlds.
func impatient(s *machine.State) bool {
	return slices.ContainsFunc(s.Nodes, func(n machine.NodeState) bool {
		return n.Error != nil && n.Error.Code == drover.CodeTimeout && n.Ended.Time().Sub(n.Started.Time()) < trouble
	})
}

// wild reports that a token may have gone to another while a run handed it over:
// a run may then lose its heirs the token, each in turn, and in the end keep what
// none of them could read.
func (h *hooked) wild() bool { return h.takers || h.swept }

// heirOf reports whether a run handed something over.
func (h *hooked) heirOf(s *machine.State) bool {
	return slices.ContainsFunc(s.Hooks, func(k machine.Hook) bool { return k.Mark == machine.HookHanded })
}

// auditOne gives 1 where a parcel was accepted and is nowhere.
func (w *World) auditOne(p *parcel, taken, places int) int {
	switch {
	case taken > 1:
		w.violated("parcel %d was accepted %d times", p.n, taken)
	case places > taken:
		w.violated("parcel %d was accepted %d times, and is in %d places", p.n, taken, places)
	case p.reply != nil && !p.req.Async && taken == 0:
		w.violated("parcel %d was accepted by no run, and its sender was told %+v", p.n, p.reply)
	case p.err != nil && taken > 0:
		w.violated("parcel %d was accepted, and its sender was told: %v", p.n, p.err)
	}
	return taken - places
}

// unclear says which token is in nobody's hands, or in two, when all have had
// the time to see to it; "" where none is.
func (w *World) unclear() string {
	states := map[drover.RunID]*machine.State{}
	for id, rec := range w.records {
		s, err := machine.Decode(rec.data)
		if err != nil {
			return err.Error()
		}
		states[id] = s
	}
	keys := map[string]drover.RunID{}
	for _, token := range w.tokens.tokens() {
		held, err := hook.Decode(token, w.tokens.claims[token])
		if err != nil {
			return err.Error()
		}
		keys[token] = held.Run
		s := states[held.Run]
		if !held.Retained.IsZero() {
			continue
		}
		if s == nil || s.Terminal() || !s.Holds(token) || held.Starting != nil || len(held.Heirs) > 0 {
			return fmt.Sprintf("the key of %s names %s, which does not hold it: %s", token, held.Run, w.tokens.claims[token].Data)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(states)) {
		s := states[id]
		for i := range s.Hooks {
			if k := &s.Hooks[i]; !s.Terminal() && (k.Mark != machine.HookOwned || keys[k.Token] != id) {
				return fmt.Sprintf("run %s holds %s (%c), and the key names %q", id, k.Token, k.Mark, keys[k.Token])
			}
		}
	}
	return ""
}

// settling looks at the tokens some time after the faults have stopped.
func (w *World) settling(left int) {
	why := w.unclear()
	for _, p := range w.hooked.parcels {
		if !p.over {
			why = fmt.Sprintf("the sender of parcel %d does not know what became of it", p.n)
		}
	}
	switch {
	case why == "":
		w.hooked.settled = true
	case left == 0:
		w.violated("the world is not at rest: %s", why)
	default:
		w.at(w.now.Add(time.Second), func() { w.settling(left - 1) })
	}
}
