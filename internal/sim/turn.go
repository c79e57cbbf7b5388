package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
)

// turn is one drive in a process.
type turn struct {
	d      *driver
	req    drover.DriveRequest
	m      *asking // nil: it was asked for directly
	fence  int
	handed time.Time // when the process was asked
	p      *play
	over   bool
	ready  bool // the journal is there, and nobody else may record
	busy   bool // a command is under way
	hint   int  // entries that the journal is said to have
	asked  int  // the hint when the command was sent
	sent   drover.RecordRequest
	said   bool // the run has been told of the drive
	stored map[string]*written
}

// soon has the process go on with the drive a little later.
func (t *turn) soon(f func()) { t.after(t.d.w.latency(), f) }

func (t *turn) after(pause time.Duration, f func()) {
	t.d.w.at(t.d.w.now.Add(pause), func() {
		t.d.do(func() {
			if !t.over {
				f()
			}
		})
	})
}

// open has the body come as far as the journal that the drive came with, or reads
// that where it may be old, and takes the drive then from whoever else may have it.
func (t *turn) open() {
	switch p := t.p; {
	case t.over:
	case t.req.Partial || p.have < max(t.req.From, 1)-1:
		t.reopen()
	case p.have < t.req.Entries:
		t.readOn(t.start)
	default:
		t.start()
	}
}

func (t *turn) start() {
	t.ready = true
	t.pump()
}

// reopen reads the journal from the top, and has the body begin there.
func (t *turn) reopen() {
	t.ready = false
	t.soon(func() {
		w := t.d.w
		reply, err := w.journal(t.req.RunID, 1)
		if err != nil {
			t.after(time.Second, t.reopen)
			return
		}
		req := t.req
		req.Input, req.Journal, req.Records, req.Entries, req.From = reply.Input, reply.Journal, reply.Records, reply.Entries, 0
		t.p.close()
		t.p = w.newPlay(w.programs.of(&req), &req, t.d)
		if w.chance(w.faults.Repeat) { // so that the journal grows in between
			t.d.hang()
			t.soon(t.claim)
			return
		}
		t.claim()
	})
}

// claim takes the drive from whoever may have it as well, before anything is done that
// he may have done.
func (t *turn) claim() {
	t.post(t.fill(drover.RecordRequest{}), func(reply drover.RecordReply, err *drover.Error) {
		switch {
		case err != nil:
			t.refused(err)
		case !reply.Driving:
			t.leave(false)
		case reply.Records != t.p.at:
			t.d.w.saw("Programs02 a journal was stale, and was read again")
			t.reopen()
		default:
			t.p.last = reply.Last
			t.start()
		}
	})
}

// readOn reads what the journal has after what is known.
func (t *turn) readOn(then func()) {
	t.soon(func() {
		reply, err := t.d.w.journal(t.req.RunID, t.p.have+1)
		if err != nil {
			t.after(time.Second, func() { t.readOn(then) })
			return
		}
		t.p.learn(reply.Journal)
		then()
	})
}

// pump has the body go on as far as it can: all branches until they wait, then the
// next entry; and where there is none, what is to be begun, said or awaited.
func (t *turn) pump() {
	p := t.p
	if t.over || !t.ready {
		return
	}
	for {
		p.settle()
		if p.broken != nil {
			if !t.busy {
				t.finish(p.broken)
			}
			return
		}
		if len(p.journal) == 0 {
			break
		}
		p.consume()
	}
	if p.burst == nil {
		t.begin()
	}
	p.send()
	if p.burst != nil {
		t.erupts()
	}
	if !t.over && p.broken == nil {
		t.say()
	}
}

// begin begins the attempts that are due, now that the journal has nothing of them.
func (t *turn) begin() {
	p := t.p
	due := p.due
	p.due = nil
	for _, a := range due {
		if a.over || a.running || a.pausing {
			continue
		}
		a.running = true
		if err := a.scope.cancelled(); err != nil {
			p.queue = append(p.queue, drover.Entry{Kind: drover.EntryStep, ID: a.entry.ID, Attempt: a.attempt, Error: err})
			continue
		}
		p.running++
		t.perform(a)
	}
}

// perform makes an attempt of a step or a compensation.
func (t *turn) perform(a *asked) {
	w, p, d := t.d.w, t.p, t.d
	w.programs.ledger.performed(t, a)
	w.at(w.now.Add(a.m.takes), func() {
		d.do(func() {
			if a.entry.Kind == drover.EntryStep && a.m.kills > 0 && w.programs.count(p, a.m) <= a.m.kills {
				w.saw("Programs15 a step ended its process")
				d.die()
				return
			}
			if p.running--; d.turns[p.run] == nil || d.turns[p.run].p != p {
				return // the body is not there any more
			}
			e := drover.Entry{Kind: a.entry.Kind, ID: a.entry.ID, Attempt: a.attempt}
			if e.Output, e.Error = outcome(a); a.m.again(a.attempt, e.Error) && a.scope.cancelled() == nil {
				e.Kind, e.Pause = drover.EntryAttempt, pause(a.attempt, e.Error)
			}
			p.queue = append(p.queue, e)
			d.turns[p.run].pump()
		})
	})
}

// say tells the run what is new, and that the drive ends where nothing is left to
// do in it.
func (t *turn) say() {
	w, p := t.d.w, t.p
	if t.busy {
		return
	}
	m := drover.RecordRequest{Records: p.queue}
	if n := len(p.queue); n > 1 && w.chance(0.1) { // as if they were large
		m.Records = p.queue[:1+w.rng.IntN(n-1)]
	}
	switch {
	case len(m.Records) < len(p.queue):
	case p.running > 0:
		if len(p.queue) == 0 && t.hint <= p.have {
			return
		}
	case p.end != nil:
		m.End = p.end
	case !p.awaits():
		m.End = &drover.DriveEnd{Status: drover.DriveWaiting}
	}
	t.busy = true
	send := func() {
		t.sent, t.asked = t.fill(m), t.hint
		t.post(t.sent, t.answered)
	}
	if m.End != nil || w.chance(0.5) {
		t.flush(send)
		return
	}
	send()
}

// fill completes a command.
func (t *turn) fill(m drover.RecordRequest) drover.RecordRequest {
	m.Drive, m.Fence, m.Token, m.At, m.Have = t.req.Drive, t.fence, t.req.Token, t.p.at, t.p.have
	m.Instance, m.Keep, m.Version = t.d.name, t.d.inbox(), t.d.version
	m.Records = slices.Clone(m.Records)
	return m
}

// post sends a command until there is an answer.
func (t *turn) post(m drover.RecordRequest, heard func(drover.RecordReply, *drover.Error)) {
	w, d := t.d.w, t.d
	t.said = true
	answered := false
	hear := func(answer any, err *drover.Error) {
		d.do(func() {
			if answered || t.over || err != nil && err.Code == drover.CodeUnavailable {
				return
			}
			answered = true
			reply, _ := answer.(drover.RecordReply)
			w.programs.ledger.answered(t, &m, reply, err)
			heard(reply, err)
		})
	}
	var try func()
	try = func() {
		if answered {
			return
		}
		if len(m.Records) > 0 && w.chance(w.faults.Crash) {
			w.saw("Programs01 a process died before its record was sent")
			d.die()
			return
		}
		if !w.chance(w.faults.Fail) {
			w.soon(func() { w.asked[w.store(t.req.RunID, drover.VerbRecord, m, true)] = hear })
		}
		if len(m.Records) > 0 && w.chance(w.faults.Crash) {
			w.saw("Programs01 a process died with a record on its way")
			d.die()
			return
		}
		t.after(5*time.Second, try)
	}
	try()
}

// refused deals with what the run does not take: it is another's, or the journal has
// moved on.
func (t *turn) refused(err *drover.Error) {
	switch err.Code {
	case drover.CodeFenced, drover.CodeForbidden:
		t.leave(false)
	case drover.CodeStale:
		t.d.w.saw("Programs02 a journal was stale, and was read again")
		t.busy = false
		t.reopen()
	default:
		t.d.w.violated("what drive %d of %s records is refused: %v", t.req.Drive, t.req.RunID, err)
	}
}

// answered takes what the run says to a command.
func (t *turn) answered(reply drover.RecordReply, err *drover.Error) {
	p, m := t.p, &t.sent
	switch {
	case err != nil:
		t.refused(err)
		return
	case !reply.Driving:
		own := m.End != nil && m.End.Status == drover.DriveWaiting && reply.Records == m.At+len(m.Records)
		if own {
			p.queue, p.at = nil, reply.Records
			p.learn(reply.New)
		}
		t.leave(own)
		return
	case reply.Records != m.At+len(m.Records):
		t.refused(drover.Errorf(drover.CodeStale, "it has moved on"))
		return
	}
	if t.hint == t.asked {
		t.hint = 0
	}
	p.at, p.last = reply.Records, reply.Last
	p.queue = p.queue[len(m.Records):]
	p.learn(reply.New)
	done := func() {
		t.busy = false
		t.pump()
	}
	if reply.Partial {
		t.d.w.saw("Programs02 what was new was read from the journal")
		t.readOn(done)
		return
	}
	done()
}

// finish ends a drive at once.
func (t *turn) finish(end *drover.DriveEnd) {
	t.busy = true
	t.flush(func() {
		t.post(t.fill(drover.RecordRequest{End: end}), func(_ drover.RecordReply, err *drover.Error) {
			if err != nil && err.Code == drover.CodeStale {
				t.refused(err)
				return
			}
			t.leave(false)
		})
	})
}

// leave ends the drive in this process. The body may stay, if it waits.
func (t *turn) leave(keep bool) {
	d := t.d
	d.w.acknowledge(t.m)
	t.over = true
	delete(d.turns, t.req.RunID)
	if !keep || !d.keeps || d.leaving {
		t.p.close()
		return
	}
	d.kept[t.req.RunID] = t.p
	for len(d.kept) > 2 { // the others are dropped
		runs := slices.Sorted(maps.Keys(d.kept))
		run := runs[d.w.rng.IntN(len(runs))]
		d.kept[run].close()
		delete(d.kept, run)
	}
}

// drop ends the drive without a word, as another one has it.
func (t *turn) drop() {
	if !t.over {
		t.leave(false)
	}
}

// beats has the drive say from time to time that it goes on, and hear what is new.
func (t *turn) beats(pause time.Duration) {
	const every = 10 * time.Second
	t.after(pause, func() {
		t.beats(every)
		if pause < every && t.said || !t.ready {
			return
		}
		m := t.fill(drover.RecordRequest{})
		if t.busy {
			m.At, m.Have = t.sent.At, t.sent.Have
		}
		t.post(m, func(reply drover.RecordReply, err *drover.Error) {
			switch {
			case err != nil && (err.Code == drover.CodeFenced || err.Code == drover.CodeForbidden):
				t.leave(false)
				return
			case err != nil:
				return
			case reply.Driving:
				t.hint = max(t.hint, reply.Entries)
			default:
				t.hint = max(t.hint, m.Have+1)
			}
			t.pump()
		})
	})
}
