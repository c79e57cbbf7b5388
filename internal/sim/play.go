package sim

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"

	"github.com/droverhq/drover"
)

// play is a body in the memory of a process: the moves of a script, executed along
// the journal as the protocol says. Branches are coroutines that run one at a time,
// and each of them until it has to wait.
type play struct {
	w      *World
	s      *script
	run    drover.RunID
	gen    int
	seed   string
	drive  int  // in which it began
	latest int  // and that it was driven in last
	newer  bool // it is the body of version v2
	old    bool // its process does not know what a last drive is
	calm   bool // it does not panic any more

	journal []drover.Entry // known, and not consumed
	have    int            // entries that are known
	at      int            // records that the owner has

	branches []*branch
	ready    []*branch
	root     *scope
	issued   []*asked // in order, not matched
	unsent   int      // the last of those
	works    map[string]*asked
	nodes    map[string]*asked
	due      []*asked
	running  int // steps
	reading  int // branches that wait for an entry of their own
	spare    []*asked
	queue    []drover.Entry
	chunks   map[string][]string
	stop     *drover.Error
	end      *drover.DriveEnd // the body is over
	broken   *drover.DriveEnd // it panicked, or does not fit
	last     bool             // no other drive follows where it panics in this one
	burst    *burst           // it has panicked, and it is not known yet what comes of that
	failure  *drover.Error    // it panicked for the last time, as the journal says
}

// burst is a panic: until it is known whether it ends the drive or the run, no branch
// goes on.
type burst struct {
	b    *branch
	err  *drover.Error
	sent bool
}

// asked is one thing that the body asks for.
type asked struct {
	entry   drover.Entry
	m       *move
	scope   *scope // nil: no stop keeps it
	waiters []*branch
	over    bool
	matched bool
	dropped bool
	output  json.RawMessage
	err     *drover.Error
	attempt int
	running bool
	pausing bool
}

// scope is a part of the body that is cancelled as a whole.
type scope struct {
	outer *scope
	err   *drover.Error
}

func (s *scope) cancelled() *drover.Error {
	for ; s != nil; s = s.outer {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

func (s *scope) within(outer *scope) bool {
	for ; s != nil; s = s.outer {
		if s == outer {
			return true
		}
	}
	return false
}

// branch is one line of execution.
type branch struct {
	p     *play
	scope *scope
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	ready bool
}

// dropped is what a branch panics with whose body is not there any more.
type dropped struct{}

func (w *World) newPlay(s *script, req *drover.DriveRequest, d *driver) *play {
	p := &play{
		w: w, s: s, run: req.RunID, gen: req.Generation, seed: req.Seed, drive: req.Drive, latest: req.Drive, newer: d.version == "v2", old: d.old, root: &scope{},
		works: map[string]*asked{}, nodes: map[string]*asked{}, chunks: map[string][]string{}, at: req.Records, last: req.Last,
	}
	p.fork(p.root, p.main)
	p.learn(req.Journal)
	return p
}

// close drops the body.
func (p *play) close() {
	for _, b := range p.branches {
		b.stop()
	}
	p.branches, p.ready = nil, nil
}

func (p *play) learn(entries []drover.Entry) {
	for _, e := range entries {
		if e.Number == p.have+1 {
			p.journal = append(p.journal, e)
			p.have++
		}
	}
}

func (p *play) fork(s *scope, body func(b *branch)) {
	b := &branch{p: p, scope: s}
	b.next, b.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if v := recover(); v != nil {
				if _, gone := v.(dropped); !gone {
					panic(v)
				}
			}
		}()
		b.yield = yield
		body(b)
	})
	p.branches = append(p.branches, b)
	p.wake(b)
}

func (p *play) wake(b *branch) {
	if !b.ready {
		b.ready = true
		p.ready = append(p.ready, b)
	}
}

// settle runs branches, one at a time, until all of them wait.
func (p *play) settle() {
	for len(p.ready) > 0 && p.broken == nil && p.burst == nil {
		b := p.ready[0]
		p.ready = p.ready[1:]
		b.ready = false
		if _, more := b.next(); !more {
			p.branches = slices.DeleteFunc(p.branches, func(o *branch) bool { return o == b })
		}
	}
}

// block lets other branches run until this one is woken.
func (b *branch) block() {
	if !b.yield(struct{}{}) {
		panic(dropped{})
	}
}

// await blocks until one of several is over, or what else is asked for.
func (b *branch) await(enough func() bool, list ...*asked) {
	for !enough() {
		for _, a := range list {
			a.waiters = append(a.waiters, b)
		}
		b.block()
	}
}

func (p *play) resolve(a *asked, output json.RawMessage, err *drover.Error) {
	if a.over {
		return
	}
	a.over, a.output, a.err = true, output, err
	p.notify(a)
}

func (p *play) notify(a *asked) {
	for _, b := range a.waiters {
		p.wake(b)
	}
	a.waiters = nil
}

// issue asks for what is matched in order.
func (p *play) issue(a *asked) *asked {
	p.issued = append(p.issued, a)
	p.unsent++
	return a
}

// drop has the body not wait for a node any more.
func (p *play) drop(a *asked, why *drover.Error) {
	if a.over {
		return
	}
	a.dropped = true
	p.issue(&asked{entry: drover.Entry{Kind: drover.EntryCancel, ID: a.entry.ID}})
	p.resolve(a, nil, why)
}

// cancel ends a scope. What the run has open ends by itself where it was stopped;
// attempts that run go on to their end, and none begin.
func (p *play) cancel(s *scope, why *drover.Error, stopping bool) {
	if s.err != nil {
		return
	}
	s.err = why
	for _, id := range slices.Sorted(maps.Keys(p.nodes)) {
		switch a := p.nodes[id]; {
		case a.over || !a.scope.within(s):
		case stopping && a.matched:
			p.resolve(a, nil, why)
		default:
			p.drop(a, why)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.works)) {
		if a := p.works[key]; a.pausing && a.scope.within(s) {
			delete(p.works, key)
			p.resolve(a, nil, why)
		}
	}
}

func work(kind drover.EntryKind, id string) string { return string(kind) + " " + id }

// working gives the step or compensation that an entry speaks of.
func (p *play) working(id string) *asked {
	if a := p.works[work(drover.EntryStep, id)]; a != nil {
		return a
	}
	return p.works[work(drover.EntryUndo, id)]
}

// consume gives the body the next entry of its journal.
func (p *play) consume() {
	e := p.journal[0]
	p.journal = p.journal[1:]
	switch e.Kind {
	case drover.EntryStep, drover.EntryUndo:
		a := p.works[work(e.Kind, e.ID)]
		if a == nil || a.pausing {
			p.misfit(e)
			return
		}
		delete(p.works, work(e.Kind, e.ID))
		p.resolve(a, e.Output, e.Error)
	case drover.EntryAttempt:
		a := p.working(e.ID)
		if a == nil || a.pausing || e.Attempt != a.attempt {
			p.misfit(e)
			return
		}
		a.pausing, a.running = true, false
		if why := a.scope.cancelled(); why != nil {
			delete(p.works, work(drover.EntryStep, e.ID))
			p.resolve(a, nil, why)
		}
	case drover.EntryEnded:
		p.ended(e)
	case drover.EntryNode, drover.EntryValue, drover.EntryCancel, drover.EntryMeta:
		if len(p.issued) == 0 || p.issued[0].entry.Kind != e.Kind || p.issued[0].entry.ID != e.ID {
			p.misfit(e)
			return
		}
		a := p.issued[0]
		p.issued = p.issued[1:]
		p.unsent = min(p.unsent, len(p.issued))
		a.matched = true
		if e.Kind == drover.EntryCancel {
			delete(p.nodes, e.ID)
		}
		p.notify(a)
	case drover.EntryPanic:
		p.fails(e)
	case drover.EntryStop:
		p.stop = drover.Errorf(drover.CodeStopped, "the run was stopped: %s", e.ID)
		p.cancel(p.root, p.stop, true)
	}
}

// ended takes how a node ended, or that a pause is over. What a wait got that was
// dropped meanwhile goes to the next one for the same.
func (p *play) ended(e drover.Entry) {
	if e.Attempt > 0 {
		if a := p.working(e.ID); a != nil && a.pausing && e.Attempt == a.attempt+1 {
			a.pausing, a.attempt = false, e.Attempt
			p.due = append(p.due, a)
		}
		return
	}
	a := p.nodes[e.ID]
	if a == nil {
		return
	}
	delete(p.nodes, e.ID)
	if !a.over {
		p.resolve(a, e.Output, e.Error)
		return
	}
	if !a.dropped || a.m.kind != doWait || e.Error != nil {
		return
	}
	a.output = e.Output
	for _, id := range slices.Sorted(maps.Keys(p.nodes)) {
		if other := p.nodes[id]; !other.over && other.m.kind == doWait && other.m.name == a.m.name {
			p.drop(other, nil)
			other.dropped, other.output = false, e.Output
			return
		}
	}
	p.spare = append(p.spare, a)
}

func (p *play) misfit(e drover.Entry) {
	p.breakOff(drover.DriveBlocked, drover.Errorf(drover.CodeConflict, "entry %d is %s %q, and the body asks for something else", e.Number, e.Kind, e.ID))
}

func (p *play) breakOff(how drover.DriveStatus, err *drover.Error) {
	if p.broken == nil {
		p.broken = &drover.DriveEnd{Status: how, Error: err}
	}
}

// send queues what was issued.
func (p *play) send() {
	for _, a := range p.issued[len(p.issued)-p.unsent:] {
		p.queue = append(p.queue, a.entry)
	}
	p.unsent = 0
}

// awaits reports whether the body goes on once its records are in the journal.
func (p *play) awaits() bool {
	return len(p.queue) > 0 && p.reading > 0 || slices.ContainsFunc(p.queue, func(e drover.Entry) bool {
		return e.Kind == drover.EntryStep || e.Kind == drover.EntryUndo || e.Kind == drover.EntryPanic
	})
}
