package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// programLedger is what a world knows of its programs, and holds their records to.
type programLedger struct {
	w        *World
	acked    map[string]ack // by run, generation and what was recorded
	begun    map[string]int // attempts, by the same
	journals map[drover.RunID]*journalLedger
	bound    map[drover.RunID]binding
	feeds    map[drover.RunID]*feed
	owed     map[owing][]machine.Owed
	children map[string]drover.RunID // by the run and the node of their parents
}

// owing names a commit: a run, and the last command in it.
type owing struct {
	run drover.RunID
	seq uint64
}

// ack is when a process was told that something is recorded.
type ack struct {
	at time.Time
	by *turn
}

func newProgramLedger(w *World) *programLedger {
	return &programLedger{
		w: w, acked: map[string]ack{}, begun: map[string]int{}, journals: map[drover.RunID]*journalLedger{},
		bound: map[drover.RunID]binding{}, feeds: map[drover.RunID]*feed{}, owed: map[owing][]machine.Owed{}, children: map[string]drover.RunID{},
	}
}

func doing(run drover.RunID, generation int, kind drover.EntryKind, id string, attempt int) string {
	return fmt.Sprintf("%s %d %s %s %d", run, generation, kind, id, attempt)
}

// performed hears that a process begins an attempt. One whose record was acknowledged
// before the process was asked is not made again.
func (l *programLedger) performed(t *turn, a *asked) {
	key := doing(t.p.run, t.p.gen, a.entry.Kind, a.entry.ID, a.attempt)
	if was, ok := l.acked[key]; ok && (was.by == t || t.handed.After(was.at)) {
		l.w.violated("%s makes %s again, which was recorded at %s", t.d.name, key, was.at.Format("15:04:05.000"))
	}
	if l.begun[key]++; l.begun[key] == 2 {
		l.w.saw("Programs01 an attempt was made again, as its record was not stored")
	}
}

// answered hears what a process is told of its records.
func (l *programLedger) answered(t *turn, m *drover.RecordRequest, reply drover.RecordReply, err *drover.Error) {
	run := t.req.RunID
	if err != nil {
		if err.Code == drover.CodeFenced {
			l.w.saw("Programs02 a process was told that another one has the drive")
		}
		return
	}
	j := l.journals[run]
	if j == nil {
		l.w.violated("records of %s were accepted, and there is no such run", run)
		return
	}
	if reply.Records < m.At+len(m.Records) && reply.Status.Terminal() {
		return
	}
	if !reply.Partial && j.generation == t.p.gen {
		l.same(run, m, reply.New)
	}
	for i := range m.Records {
		e := &m.Records[i]
		kind, number := e.Kind, e.Attempt
		if kind == drover.EntryAttempt {
			if kind = drover.EntryUndo; t.p.works[work(drover.EntryUndo, e.ID)] == nil {
				kind = drover.EntryStep
			}
		}
		key := doing(run, t.p.gen, kind, e.ID, number)
		if _, ok := l.acked[key]; !ok {
			l.acked[key] = ack{l.w.now, t}
		}
		if j.generation == t.p.gen && e.Kind == drover.EntryStep && !j.over[work(e.Kind, e.ID)] {
			l.w.violated("step %s of %s was acknowledged, and is not in the journal", e.ID, run)
		}
	}
	if len(m.Records) > 0 && j.generation == t.p.gen && reply.Records < m.At+len(m.Records) {
		l.w.violated("%d records of %s were accepted after %d, and now there are %d", len(m.Records), run, m.At, reply.Records)
	}
}

// same holds that the journal has what was recorded, as it was.
func (l *programLedger) same(run drover.RunID, m *drover.RecordRequest, list []drover.Entry) {
	records := m.Records
	for i := range list {
		e := &list[i]
		if e.Kind == drover.EntryEnded || e.Kind == drover.EntryStop || len(records) == 0 {
			continue
		}
		r := &records[0]
		records = records[1:]
		if e.Kind != r.Kind || e.ID != r.ID || e.Attempt != r.Attempt || e.Pause != r.Pause || e.Kind != drover.EntryNode && text(e.Output) != text(r.Output) || (e.Error == nil) != (r.Error == nil) {
			l.w.violated("run %s: %+v was recorded, and its journal has %+v", run, *r, *e)
		}
	}
	if len(records) > 0 {
		l.w.violated("run %s: %d records were accepted, and the answer does not have them", run, len(records))
	}
}

// undone are the compensations of the last generation of a run, as they were made.
func (l *programLedger) undone(state *machine.State) []string {
	if j := l.journals[state.Run]; j != nil {
		return slices.Clone(j.undone)
	}
	return nil
}

// binding is the drive that a run is bound to.
type binding struct {
	drive, fence int
	instance     string
}

// folded follows a plain fold of the log: of records, only those of the drive that has
// the run change it; and deliveries are read in their order.
func (l *programLedger) folded(id drover.RunID, m message, step *machine.Step) {
	if step.Refused == nil && (!step.Changed || step.State.Program == nil) {
		return
	}
	switch m.Verb {
	case string(drover.VerbRecord):
		l.recorded(id, m, step)
	case string(drover.VerbMeta):
		l.heard(m, step)
	}
	if step.Refused != nil {
		return
	}
	l.feed(id, m, step)
	// The place of a child that outlives the run is taken until its start is known to
	// have happened, so what is owed by then belongs to the history of a run.
	if owed, ok := l.owed[owing{id, m.Seq}]; ok {
		step.State.Owed = owed
	}
}

// recorded holds that no older drive changes a run, and no other process by the same.
func (l *programLedger) recorded(id drover.RunID, m message, step *machine.Step) {
	var req drover.RecordRequest
	err := json.Unmarshal(m.Data, &req)
	was := l.bound[id]
	switch {
	case step.Refused == nil && err != nil:
		l.w.violated("command %d is no record, and was accepted: %v", m.Seq, err)
	case step.Refused == nil:
	case req.Drive < was.drive && len(req.Records) > 0:
		l.w.saw("Programs02 what an older drive recorded was refused")
		return
	case req.Drive == was.drive && req.Fence < was.fence && len(req.Records) > 0:
		l.w.saw("Programs02 what a process recorded was refused, as another one has its drive")
		return
	default:
		return
	}
	if req.Drive < was.drive || req.Drive == was.drive && (req.Fence < was.fence || req.Fence == was.fence && req.Instance != was.instance) {
		l.w.violated("command %d of drive %d (%d, %s) changed run %s, which drive %d (%d, %s) has",
			m.Seq, req.Drive, req.Fence, req.Instance, id, was.drive, was.fence, was.instance)
	}
	l.bound[id] = binding{req.Drive, req.Fence, req.Instance}
}

// heard holds that what a child says of metadata counts once.
func (l *programLedger) heard(m message, step *machine.Step) {
	var msg drover.MetaMessage
	if step.Refused != nil || json.Unmarshal(m.Data, &msg) != nil {
		return
	}
	key := fmt.Sprint(msg.Call, " ", msg.Number)
	if l.begun[key]++; l.begun[key] > 1 {
		l.w.violated("message %d of %s to %s changed metadata twice", msg.Number, msg.Call, m.Run)
	}
	l.w.saw("Programs06 a child changed metadata of its parent")
}
