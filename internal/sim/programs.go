package sim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// programs is what a world with programs has beside the others.
type programs struct {
	scripts []*script
	drivers []*driver
	made    int
	release bool // v1 is served no more: v2 comes in its place
	queue   map[string]*asking
	queued  map[string]time.Time // when the queue got a message first, by its id
	counts  map[string]int
	chunks  map[string][]chunk
	letters map[drover.RunID]int
	forgot  map[string]json.RawMessage // values that were removed
	parcels map[int]bool               // that bodies got
	ledger  *programLedger
	drives  int
}

// RunPrograms lives the world of a seed in which processes serve programs, and runs
// of them live through what happens to these processes. tell, if not nil, is told all
// that happens.
func RunPrograms(seed uint64, faults Faults, tell func(format string, args ...any)) (Report, error) {
	w := newWorld(seed, faults)
	w.tell = tell
	begin := w.now
	w.take()
	w.people()
	w.at(w.now.Add(trouble), w.calm)
	w.live(begin)
	pr := w.programs
	for _, d := range pr.drivers {
		for _, t := range d.all() {
			t.p.close()
		}
		for _, p := range d.kept {
			p.close()
		}
	}
	if w.failure == nil {
		pr.audit(w)
	}
	report := w.report(begin)
	report.Drives, report.Left = pr.drives, pr.left(w)
	return report, w.failure
}

// people gives a world its processes, and clients with runs.
func (w *World) people() {
	pr := &programs{
		queue: map[string]*asking{}, queued: map[string]time.Time{}, counts: map[string]int{}, chunks: map[string][]chunk{},
		letters: map[drover.RunID]int{}, forgot: map[string]json.RawMessage{}, parcels: map[int]bool{}, ledger: newProgramLedger(w),
	}
	w.programs = pr
	mixes := [][]string{{"", "", ""}, {"v1", "v1", "v2"}, {"v1", "v2", ""}, {"", "", "v2"}, {"", "v2"}, {""}, {"v1"}}
	versions := mixes[w.rng.IntN(len(mixes))]
	for _, version := range versions {
		w.begin(version)
	}
	if versions[0] != "" && w.chance(0.6) {
		w.within(30*time.Second, w.retireVersion)
	}
	if w.chance(0.4) {
		w.tokenHolders()
	}
	for n := range 1 + w.rng.IntN(3) {
		w.customer(drover.RunID(fmt.Sprintf("p%d", n)))
	}
	if w.chance(0.3) {
		w.forger()
	}
	w.at(w.now.Add(3*time.Minute), w.tend)
}

// tokenHolders gives a world tokens that bodies claim, and senders.
func (w *World) tokenHolders() {
	h := &hooked{
		stopped: map[drover.RunID]bool{}, kept: map[drover.RunID]int{}, ledger: newLedger(), tokens: []string{"t0", "t1"}, settled: true,
	}
	w.hooked = h
	for range 1 + w.rng.IntN(4) {
		h.moments = append(h.moments, w.now.Add(time.Duration(w.rng.Int64N(int64(time.Minute)))))
	}
	for n := range 4 + w.rng.IntN(12) {
		p := &parcel{n: n, req: drover.HookRequest{Token: h.tokens[w.rng.IntN(2)], Payload: json.RawMessage(fmt.Sprintf(`{"parcel":%d}`, n))}}
		if w.chance(0.7) {
			p.req.ID, p.repeat = fmt.Sprintf("id%d", n), w.rng.IntN(3)
		}
		h.parcels = append(h.parcels, p)
		w.post(p)
	}
	for range 4 {
		w.within(100*time.Second, w.approve)
	}
	w.at(w.now.Add(10*time.Second), w.sweep)
}

// retireVersion has version v1 served no more: its processes finish what they have.
func (w *World) retireVersion() {
	w.saw("Programs12 a version was served no more")
	w.programs.release = true
	for _, d := range slices.Clone(w.programs.drivers) {
		if d.version == "v1" {
			w.dismiss(d)
			w.begin("v2")
		}
	}
}

// dismiss ends a process in good order, or not.
func (w *World) dismiss(d *driver) {
	d.leaving = true
	w.at(w.now.Add(20*time.Second), d.die)
}

// successor is the version of the process that comes for one that died.
func (pr *programs) successor(version string) string {
	if version == "v1" && pr.release {
		return "v2"
	}
	return version
}

// customer starts a run, feeds it, and may stop it.
func (w *World) customer(id drover.RunID) {
	s := w.author(w.chance(0.5), 0)
	req := drover.StartRequest{Definition: s.definition(), Input: s.input()}
	w.starts[id] = &req
	w.append(id, drover.VerbStart, req)
	for _, m := range s.waits {
		w.deliveries(id, s, m)
	}
	for n := w.rng.IntN(2); n > 0; n-- {
		w.within(time.Minute, func() { w.append(id, drover.VerbTick, nil) })
	}
	if s.pure || !w.chance(0.5) {
		return
	}
	for range 1 + w.rng.IntN(2) {
		force := w.chance(0.15)
		w.within(time.Minute, func() { w.append(id, drover.VerbStop, drover.StopRequest{Reason: "enough", Force: force}) })
	}
}

// deliveries feeds a wait, a while before or after it is there. What a pure script
// waits for comes for certain, and in time: it waits for as long as it takes.
func (w *World) deliveries(id drover.RunID, s *script, m *move) {
	count := 1
	if !s.pure {
		count = w.rng.IntN(3)
	}
	for n := range count {
		req := drover.DeliverRequest{Name: m.name, ID: fmt.Sprintf("%s-%s-%d", m.id, m.name, n), Payload: payloadOf(m, n)}
		if !s.pure && w.chance(0.2) {
			req.ID = ""
		}
		send := func() { w.append(id, drover.VerbDeliver, req) }
		w.within(100*time.Second, send)
		if req.ID != "" && w.chance(0.3) {
			w.within(200*time.Second, send)
		}
	}
}

func payloadOf(m *move, n int) json.RawMessage {
	if strings.HasSuffix(m.name, "-null") {
		return json.RawMessage(`null`)
	}
	return json.RawMessage(fmt.Sprintf(`{"for":%q,"n":%d,"pad":%q}`, m.id, n, strings.Repeat("x", m.pad)))
}

// forger says what only processes and owners may say, and has no token for it.
func (w *World) forger() {
	for range 6 {
		w.within(time.Minute, func() {
			id := drover.RunID(fmt.Sprintf("p%d", w.rng.IntN(3)))
			switch w.rng.IntN(4) {
			case 0:
				w.append(id, drover.VerbRecord, drover.RecordRequest{Drive: 1, Fence: 9, Token: "guess", Instance: "forger", Records: []drover.Entry{{Kind: drover.EntryStep, ID: "x"}}})
			case 1:
				w.append(id, drover.VerbLooked, drover.LookedMessage{Drive: 1, Look: 1, Token: "guess"})
			case 2:
				call := drover.CallID{Run: id, Node: "child1", Item: drover.NoItem, Attempt: 1}
				w.append(id, drover.VerbMeta, drover.MetaMessage{Call: call, Number: 1, Token: "guess", Ops: []drover.MetaOp{{Op: drover.MetaIncrement, Key: "count"}}})
			default:
				w.append(id, drover.VerbRecord, []byte(`{"drive":`))
			}
		})
	}
}

// tend has an operator look after runs: who is blocked is driven once more, and by
// other versions. In the end all that goes on is stopped, unless it should not.
func (w *World) tend() {
	if w.settled() {
		return
	}
	w.at(w.now.Add(time.Minute), w.tend)
	late := w.now.After(w.told.calmAt.Add(2 * time.Hour))
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		state, err := machine.Decode(w.records[id].data)
		if err != nil || state.Terminal() {
			continue
		}
		if len(machine.Why(w.plans[state.Hash], state)) == 0 {
			w.violated("run %s is %s, and nobody can say why", id, state.Status)
		}
		g := state.Program
		if g != nil && g.State == machine.DriveBlocked && !late {
			w.unblock(id)
		}
		switch s := w.scriptOf(state); {
		case !late:
		case s != nil && s.pure:
			w.violated("run %s is pure, and does not end: %s", id, w.why(id))
		default:
			w.saw("Programs14 what waited for nothing was stopped")
			w.append(id, drover.VerbStop, drover.StopRequest{Reason: "it is late"})
		}
	}
}

// unblock has a blocked run driven once more, by a process of any version.
func (w *World) unblock(id drover.RunID) {
	pr := w.programs
	if len(pr.drivers) > 0 && len(pr.drivers) < 6 && w.chance(0.3) {
		w.begin([]string{"v1", "v2"}[w.rng.IntN(2)])
	}
	w.saw("Programs12 a blocked run was driven once more")
	w.append(id, drover.VerbTick, nil)
}

// scriptOf is the script of a run, or nil.
func (w *World) scriptOf(state *machine.State) *script {
	if state.Program == nil {
		return nil
	}
	return w.programs.scriptIn(w.known(state.Input))
}

// known is a value, also one that was removed since.
func (w *World) known(v machine.Value) json.RawMessage {
	if data, ok := w.programs.forgot[v.Key]; ok && w.values[v.Key] == nil {
		return data
	}
	return w.value(v)
}

func (pr *programs) scriptIn(input json.RawMessage) *script {
	var in struct{ Script int }
	if json.Unmarshal(input, &in) != nil || in.Script < 0 || in.Script >= len(pr.scripts) {
		return nil
	}
	return pr.scripts[in.Script]
}

// of is the script that a drive asks for.
func (pr *programs) of(req *drover.DriveRequest) *script {
	pr.drives++
	return cmp.Or(pr.scriptIn(req.Input), &script{})
}

// count counts what happens in a generation of a run.
func (pr *programs) count(p *play, m *move) int {
	key := fmt.Sprintf("%s %d %s", p.run, p.gen, m.id)
	pr.counts[key]++
	return pr.counts[key]
}

// journal reads the journal of a run from an entry on, as processes do.
func (w *World) journal(run drover.RunID, from int) (*drover.JournalReply, error) {
	if w.chance(w.faults.Fail) {
		return nil, errUnavailable
	}
	state, err := machine.Decode(w.records[run].data)
	if err != nil {
		return nil, err
	}
	entries, err := w.entries(state, from)
	if err != nil {
		w.violated("the journal of %s cannot be read: %v", run, err)
		return nil, err
	}
	g := state.Program
	return &drover.JournalReply{RunID: run, Input: w.value(state.Input), Records: g.Records, Entries: g.Entries, Journal: entries}, nil
}

// entries are those of a state from a number on.
func (w *World) entries(state *machine.State, from int) ([]drover.Entry, error) {
	known := func(key string) (json.RawMessage, bool) {
		if v, ok := w.values[key]; ok {
			return v, true
		}
		v, ok := w.programs.forgot[key]
		return v, ok
	}
	parts, err := state.JournalParts(from, known)
	if err != nil {
		return nil, err
	}
	var entries []drover.Entry
	for _, part := range parts {
		segment, _ := known(part.Key) // one that is gone has no lines
		lines, err := state.JournalLines(part, segment)
		if err != nil {
			return nil, err
		}
		for i := range lines {
			output := lines[i].Output.JSON
			if key := lines[i].Output.Key; key != "" {
				var ok bool
				if output, ok = known(key); !ok {
					return nil, errors.New("there is no output " + key)
				}
			}
			entries = append(entries, lines[i].Entry(part.First+i, output))
		}
	}
	return entries, nil
}

// forget removes the values of journals that are over, as a worker does.
func (w *World) forget(e *machine.Effect) {
	if w.chance(w.faults.Lose) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(w.values)) {
		if runOf(key) != e.Run || !e.Forget.Dead(key) {
			continue
		}
		if w.refers(key) {
			w.violated("the value %s is forgotten, and run %s refers to it", key, e.Run)
		}
		w.saw("Programs16 a value of an earlier journal was removed")
		w.programs.forgot[key] = w.values[key]
		delete(w.values, key)
	}
}

// forgotten reports whether a value was removed with its journal.
func (w *World) forgotten(key string) bool { return w.programs != nil && w.programs.forgot[key] != nil }
