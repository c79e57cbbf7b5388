package machine

import (
	"time"

	"github.com/droverhq/drover"
)

// Apply folds a command into the state of its run, in place, and says what
// follows from it. p is the plan of the run, or of a start that makes one; s is
// nil where there is no run, and then p may be nil. The only error is a
// *NeedError; the state is garbage after it.
//
// A command with a sequence that was applied before changes nothing. Where a
// start that has a parent is refused, the step has the effect that tells it.
// v must know the values that earlier steps put, also when they are not
// durable yet.
func Apply(p *Plan, s *State, c *Command, v Values) (Step, error) {
	if s == nil {
		return begin(p, c, v)
	}
	if c.Seq <= s.Position() {
		return Step{State: s}, nil
	}
	if c.Verb == drover.VerbStart {
		return restart(s, c), nil
	}
	if p = s.grown(p); p == nil || p.Hash != s.Hash || len(p.nodes) != len(s.Nodes) {
		return refuse(s, drover.Errorf(drover.CodeInternal, "run %s runs definition %s, and was given the plan of another", s.Run, s.Hash)), nil
	}
	s.derive(p)
	s.derived.plan = p
	f := newFold(p, s, v)
	now := s.Now
	f.seq = c.Seq + s.Shift
	f.at(c.At)
	f.command(c)
	if f.changed && f.s.Terminal() {
		f.dueDeliveries() // whatever came: nothing that is due is left behind the time of the run
	}
	if len(f.need) > 0 {
		return Step{}, &NeedError{Keys: f.need}
	}
	if f.refused != nil || !f.changed {
		s.Now = now
		return Step{State: s, Refused: f.refused, Answer: f.answer}, nil
	}
	return f.step(c), nil
}

func newFold(p *Plan, s *State, v Values) *fold {
	f := &fold{p: p, s: s, d: s.derived, v: v, now: s.Now, ceil: s.Now}
	if s.Program != nil {
		f.drives = s.Program.Drive
	}
	return f
}

// at moves the time of the run to that of a command. It never goes back.
func (f *fold) at(t time.Time) {
	f.s.Now = max(f.s.Now, Millis(t.UnixMilli()))
	f.now = f.s.Now
	f.ceil = max(f.now, ceilMillis(t))
}

func ceilMillis(t time.Time) Millis {
	m := Millis(t.UnixMilli())
	if m.Time().Before(t) {
		m++
	}
	return m
}

// step is the end of a fold that changed the run.
func (f *fold) step(c *Command) Step {
	s := f.s
	s.Applied = c.Seq + s.Shift
	if g := s.Program; g != nil {
		f.settleProgram()
		g.Stored = g.Stored || len(f.puts) > 0
	}
	if s.Meta != nil {
		s.Meta.forgetHeard(s.Now, s.Terminal())
	}
	if !s.Terminal() {
		s.Status = f.status()
	}
	if s.Terminal() || f.d.cached > maxCached {
		s.derived = nil
	}
	return Step{State: s, Changed: true, Puts: f.puts, Effects: f.effects, Answer: f.answer}
}

// maxCached is how many bytes of JSON a state keeps decoded between commands.
const maxCached = 512 << 10

// status is that of a run that is not terminal: waiting, where nothing but
// timers, waits and children is outstanding.
func (f *fold) status() drover.Status {
	if g := f.s.Program; g != nil {
		switch g.State {
		case DriveBlocked:
			return drover.StatusBlocked
		case DriveQueued, DriveRunning:
			return drover.StatusRunning
		case DriveParked, DrivePausing, DriveOver:
		}
	}
	if len(f.s.Ready) > 0 || f.s.Undo != nil {
		return drover.StatusRunning
	}
	for i := range f.s.Active {
		if k := f.s.Active[i].Kind; k == ActiveCall || k == ActivePause {
			return drover.StatusRunning
		}
	}
	return drover.StatusWaiting
}

// command does what the verb of a command asks for.
func (f *fold) command(c *Command) {
	switch {
	case c.Verb == drover.VerbTick:
		f.tick()
	case c.Verb == drover.VerbStop && c.Stop != nil:
		f.stop(c.Stop)
	case c.Verb == drover.VerbDeliver && c.Deliver != nil:
		f.deliver(c.Deliver, f.seq)
	case c.Verb == drover.VerbResult && c.Result != nil:
		f.result(c.Result)
	case c.Verb == drover.VerbChild && c.Child != nil:
		f.childEnded(c.Child)
	case c.Verb == drover.VerbRecord && c.Record != nil:
		f.record(c.Record)
	case c.Verb == drover.VerbLooked && c.Looked != nil:
		f.looked(c.Looked)
	case c.Verb == drover.VerbMeta && c.Meta != nil:
		f.meta(c.Meta)
	case c.Verb == drover.VerbClaimed && c.Claimed != nil:
		f.claimed(c.Claimed)
	case c.Verb == drover.VerbHeard && c.Heard != nil:
		f.heard(c.Heard)
	case c.Verb == drover.VerbHold && c.Hold != nil:
		f.hold(c.Hold)
	case c.Verb == drover.VerbConsume && c.Waiter != nil:
		f.consume(c.Waiter)
	case c.Verb == drover.VerbRelease && c.Waiter != nil:
		f.letGo(c.Waiter)
	case c.Verb == drover.VerbReplay && c.Replay != nil:
		f.replay(c.Replay)
	default:
		f.refused = drover.Errorf(drover.CodeUnknownVerb, "run %s cannot be told to %q", f.s.Run, c.Verb)
	}
}

// tick does what time asks for. One that no time asked for comes from somebody
// who may have mended the body of a program.
func (f *fold) tick() {
	first := f.s.Deadline()
	f.due(nil)
	if g := f.s.Program; g != nil && g.State == DriveBlocked && (first == 0 || first > f.now) {
		g.Idle = 0
		f.drive()
	}
	f.advance()
	f.answer = struct{}{}
}

func refuse(s *State, err *drover.Error) Step { return Step{State: s, Refused: err} }

// note keeps something that changes nothing else.
func (f *fold) note(text string) {
	const most, length = 50, 300
	if len(text) > length {
		text = cut(text, length)
	}
	if len(f.s.Notes) == most {
		f.s.Notes = append(f.s.Notes[:0], f.s.Notes[1:]...)
		f.s.Dropped++
	}
	f.s.Notes = append(f.s.Notes, Note{At: f.now, Text: text})
	f.changed = true
}

// stop ends the run on request. An end that was decided before stays.
func (f *fold) stop(req *drover.StopRequest) {
	if !f.s.Terminal() {
		f.due(nil)
		f.advance()
	}
	switch {
	case f.s.Terminal():
	case f.s.Program != nil && !req.Force:
		f.stopProgram(reason(req), false)
	case f.s.Program != nil:
		f.endProgram(drover.StatusCancelled, f.leftDone(drover.Errorf(drover.CodeStopped, "the run was stopped at once: %s", reason(req))))
	case f.s.Undo != nil:
		f.note("a stop came while the run compensates; it goes on: " + reason(req))
	default:
		f.end(drover.StatusCancelled, drover.Errorf(drover.CodeStopped, "the run was stopped: %s", reason(req)))
		f.changed = true
	}
	f.answer = drover.StopReply{RunID: f.s.Run, Status: f.shown()}
}

// shown is the status after the fold.
func (f *fold) shown() drover.Status {
	if f.s.Terminal() {
		return f.s.Status
	}
	return f.status()
}

func reason(req *drover.StopRequest) string {
	if req.Reason == "" {
		return "no reason was given"
	}
	return cut(req.Reason, 500)
}
