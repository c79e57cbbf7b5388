package machine

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// record takes what the process that drives has to say.
func (f *fold) record(m *drover.RecordRequest) {
	g := f.s.Program
	if f.refused = f.fenced(m); f.refused != nil {
		return
	}
	if !g.driving() || f.s.Terminal() {
		f.answer = f.recorded(m) // a repeat of the end
		return
	}
	done := g.Records - m.At // of these records, as their answer was lost
	records := m.Records[min(done, len(m.Records)):]
	if f.refused = f.recordable(m, records); f.refused != nil {
		return
	}
	f.recording = true
	if f.handedAgain(m) {
		f.adopt(m)
		f.due(nil)
	}
	if !f.s.Terminal() {
		for i := range records {
			f.journal(&records[i])
		}
		f.advance()
		f.vacate()
	}
	if m.End != nil && !f.s.Terminal() && len(f.need) == 0 {
		f.driveEnds(m, len(records))
	}
	if len(f.need) == 0 {
		f.answer = f.recorded(m)
	}
}

// driving reports whether a process is asked for, or drives.
func (g *Program) driving() bool { return g.State == DriveQueued || g.State == DriveRunning }

// fenced says why a process may not record, or nil: it has no drive of this run,
// or somebody else has it, or its journal is another.
func (f *fold) fenced(m *drover.RecordRequest) *drover.Error {
	g := f.s.Program
	switch {
	case g == nil:
		return drover.Errorf(drover.CodeInvalidRequest, "run %s is no program: it takes no records", f.s.Run)
	case !f.fits(f.s.driveID(m.Drive).String(), m.Token):
		return drover.Errorf(drover.CodeForbidden, "the record for drive %d of run %s does not have the token that came with the drive", m.Drive, f.s.Run)
	case m.Drive != g.Drive || m.Fence < g.Fence:
		return drover.Errorf(drover.CodeFenced, "drive %d (%d) of run %s is over: drive %d (%d) has it now; stop the body", m.Drive, m.Fence, f.s.Run, g.Drive, g.Fence)
	case m.Fence == g.Fence && m.Instance != g.Instance:
		return drover.Errorf(drover.CodeFenced, "drive %d (%d) of run %s was handed out twice, and %s has it; stop the body", m.Drive, m.Fence, f.s.Run, g.Instance)
	case (f.s.Terminal() || !g.driving()) && (m.Fence > g.Fence || m.At+len(m.Records) > g.Records):
		return drover.Errorf(drover.CodeFenced, "drive %d of run %s has ended; stop the body", m.Drive, f.s.Run)
	case m.At > g.Records, m.Fence > g.Fence && m.At != g.Records, m.Have > g.Entries:
		return drover.Errorf(drover.CodeStale, "run %s has %d records in %d entries, and drive %d speaks of %d in %d: read its journal, and drive it anew",
			f.s.Run, g.Records, g.Entries, m.Drive, m.At, m.Have)
	}
	return nil
}

// recordable says why records cannot be taken, or nil. Nothing of them is then.
func (f *fold) recordable(m *drover.RecordRequest, records []drover.Entry) *drover.Error {
	g := f.s.Program
	if len(records) > 0 && g.Entries+len(records) > maxEntries {
		return drover.Errorf(drover.CodeTooLarge, "the journal of run %s has %d entries, and may have %d: begin anew (continue as new)", f.s.Run, g.Entries, maxEntries)
	}
	room := newRoom(f.s)
	for i := range records {
		r := &records[i]
		if size := len(r.Output) + len(r.Input); size > drover.MaxValue {
			return drover.Errorf(drover.CodeTooLarge, "record %q of run %s has %d bytes, more than %d: record a reference", cut(r.ID, 60), f.s.Run, size, drover.MaxValue)
		}
		if len(r.Step) > maxStep {
			return drover.Errorf(drover.CodeTooLarge, "the step of record %q of run %s has %d bytes, more than %d: put what is big into its input", cut(r.ID, 60), f.s.Run, len(r.Step), maxStep)
		}
		why := room.take(r)
		if why == "" && r.Kind == drover.EntryNode {
			if err := checkStep(r.ID, r.Step, room.asked); err != nil {
				return drover.AsError(err, drover.CodeInvalidRequest)
			}
		}
		if why != "" {
			return drover.Errorf(drover.CodeInvalidRequest, "record %d of run %s (%s %q) cannot be: %s",
				m.At+len(m.Records)-len(records)+i+1, f.s.Run, cut(string(r.Kind), 40), cut(r.ID, 60), why)
		}
	}
	if room.open > maxSlots || room.held > maxHeld {
		return drover.Errorf(drover.CodeTooLarge, "run %s would wait for %d things at a time, more than %d", f.s.Run, room.open, maxSlots)
	}
	return nil
}

// room is what a run has open, and would have with some more records.
type room struct {
	open, held int
	asked      map[string]string // nodes, with their steps
	paused     map[string]bool   // steps whose next attempt comes after a pause
}

func newRoom(s *State) *room {
	r := &room{asked: map[string]string{}, paused: map[string]bool{}}
	for i := range s.Program.Slots {
		slot := &s.Program.Slots[i]
		if !slot.taken() {
			continue
		}
		switch {
		case slot.Older > 0: // it is over, and its id is free
		case slot.Pause > 0:
			r.paused[slot.ID] = true
		default:
			r.asked[slot.ID] = slot.Step
		}
		r.held++
		if !s.Nodes[i].Status.over() {
			r.open++
		}
	}
	return r
}

// take says why there is no room for a record, or "".
func (r *room) take(e *drover.Entry) string {
	const length = 100
	if e.Kind == drover.EntryPanic { // it is of the body, and has no id
		if e.ID != "" || e.Error == nil {
			return "it must have error, and no id"
		}
		return ""
	}
	if _, err := drover.ParseNodeID(e.ID); err != nil || len(e.ID) > length || strings.ContainsAny(e.ID, "~@") {
		return "its id must be 1 to 100 bytes without # . / * > ~ @ or white space"
	}
	switch e.Kind {
	case drover.EntryStep, drover.EntryValue, drover.EntryUndo, drover.EntryCancel:
		return ""
	case drover.EntryMeta:
		return badMeta(e)
	case drover.EntryAttempt:
		if e.Attempt < 1 || e.Error == nil {
			return "it must have attempt and error"
		}
		if r.paused[e.ID] {
			return "the step waits for its next attempt already"
		}
		r.paused[e.ID] = true
	case drover.EntryNode:
		if _, there := r.asked[e.ID]; there {
			return "the run has an open node with this id"
		}
		r.asked[e.ID] = string(e.Step)
	default:
		return "its kind must be one of step, attempt, node, cancel, value, undo, meta, panic"
	}
	r.open++
	r.held++
	return ""
}

// adopt notes who drives, and that it lives.
func (f *fold) adopt(m *drover.RecordRequest) {
	g := f.s.Program
	if g.State == DriveQueued {
		g.State, g.Since, g.Trouble = DriveRunning, f.now, ""
		if limit := time.Duration(f.p.Definition.ComputeTimeout); limit > 0 && !g.Late {
			g.Limit = after(f.ceil, limit-time.Duration(g.Spent)*time.Millisecond)
		}
	}
	if m.Version != "" && tells(m) {
		g.Version = m.Version
	}
	g.Fence, g.Instance, g.Keep = m.Fence, m.Instance, m.Keep
	f.watch()
	f.changed = true
}

// tells reports whether a process has shown that the body of its version fits the
// run: it has something to record, or came to an end. One that panicked, or does not
// fit, leaves the run to any other.
func tells(m *drover.RecordRequest) bool {
	return len(m.Records) > 0 || m.End != nil && m.End.Status != drover.DriveBlocked && m.End.Status != drover.DrivePanicked
}

// journal takes one record.
func (f *fold) journal(r *drover.Entry) {
	g := f.s.Program
	g.Records++
	g.Failed, g.Misfit, g.Acted = 0, false, g.Acted || acts(r)
	l := Line{Kind: r.Kind, ID: r.ID, Attempt: r.Attempt, Error: clip(r.Error)}
	if r.Started != nil {
		l.Started = min(max(Millis(r.Started.UnixMilli()), 1), farthest)
	}
	switch r.Kind {
	case drover.EntryNode:
		l.Step, l.Output = string(compact(r.Step)), f.madeToken(r)
	case drover.EntryAttempt:
		l.Pause = pauseOf(r)
	case drover.EntryStep, drover.EntryValue, drover.EntryUndo, drover.EntryMeta:
		l.Output = f.keep(compact(r.Output), f.s.lineKey(g.Entries+1))
	case drover.EntryPanic:
		f.note("drive " + strconv.Itoa(g.Drive) + " failed, the last one that it may: " + r.Error.Message + "; it undoes what it did")
	case drover.EntryCancel, drover.EntryEnded, drover.EntryStop:
	}
	f.write(l)
	switch r.Kind {
	case drover.EntryNode:
		f.open(Slot{ID: r.ID, Step: l.Step, Input: f.keep(compact(r.Input), f.s.lineKey(g.Entries))})
	case drover.EntryAttempt:
		f.open(Slot{ID: r.ID, Step: fmt.Sprintf(`{"sleep":"%dms"}`, l.Pause), Pause: r.Attempt + 1})
	case drover.EntryCancel:
		f.cancelNode(r.ID)
	case drover.EntryMeta:
		f.metaRecord(r)
	case drover.EntryStep, drover.EntryValue, drover.EntryUndo, drover.EntryPanic, drover.EntryEnded, drover.EntryStop:
	}
}

// acts reports whether a record tells of something that may have to be undone: a
// step that was done, or what others were asked to do.
func acts(r *drover.Entry) bool {
	var step drover.Step
	switch r.Kind {
	case drover.EntryStep:
		return r.Error == nil
	case drover.EntryNode:
		return json.Unmarshal(r.Step, &step) != nil || step.Wait == nil && step.Sleep == nil && step.Release == nil
	case drover.EntryAttempt, drover.EntryCancel, drover.EntryValue, drover.EntryUndo, drover.EntryMeta, drover.EntryPanic, drover.EntryEnded, drover.EntryStop:
	}
	return false
}

// madeToken is the token that the run makes for a wait, which the body may want
// to tell somebody; null for all others.
func (f *fold) madeToken(r *drover.Entry) Value {
	var step drover.Step
	if json.Unmarshal(r.Step, &step) != nil || step.Wait == nil || step.Wait.Approve == nil && (step.Wait.Hook == nil || !step.Wait.Hook.Made) {
		return Value{}
	}
	return Value{JSON: appendText(nil, f.tokenMade(f.s.nodeID(r.ID)))}
}

// pauseOf is the pause that a failed attempt asks for, as long as a sleep may be.
func pauseOf(r *drover.Entry) Millis {
	const most = 365 * 24 * time.Hour
	return after(0, min(max(time.Duration(r.Pause), time.Millisecond), most))
}

// cancelNode ends a node that the body does not wait for any more. One that has
// ended by then stays as it is in the journal, and the body has what it gave.
func (f *fold) cancelNode(id string) {
	at := f.s.slotOf(id)
	if at >= 0 && f.p.nodes[at].outlives() {
		f.advance() // its child is started, also where it was asked for just now
	}
	if at < 0 || f.s.Nodes[at].Status.over() {
		return
	}
	f.hush = at + 1
	f.closeNode(at, drover.Errorf(drover.CodeStopped, "nobody waits for node %s any more", id))
	f.hush = 0
}

// recorded answers a record, with what is new as far as it fits.
func (f *fold) recorded(m *drover.RecordRequest) drover.RecordReply {
	g := f.s.Program
	reply := drover.RecordReply{
		RunID: f.s.Run, Status: f.shown(), Records: g.Records, Entries: g.Entries, Stop: g.Stop,
		Driving: g.State == DriveRunning && !f.s.Terminal(),
	}
	first, room := g.Entries-len(g.Tail)+1, maxAnswer
	reply.Last = reply.Driving && f.lastDrive()
	if f.s.Terminal() || m.Have+1 < first {
		reply.Partial = m.Have < g.Entries
		return reply
	}
	for n := m.Have + 1; n <= g.Entries; n++ {
		l := &g.Tail[n-first]
		raw, err := f.load(l.Output)
		if room -= len(raw); err != nil || room < 0 {
			reply.New, reply.Partial = nil, err == nil
			return reply
		}
		if l.Output.zero() {
			raw = nil
		}
		reply.New = append(reply.New, l.Entry(n, raw))
	}
	return reply
}
