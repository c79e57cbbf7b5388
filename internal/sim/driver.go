package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// driver is a process that serves programs. It may die or hang between any two
// things that it does.
type driver struct {
	w       *World
	name    string
	version string
	keeps   bool
	old     bool // it does not know what a last drive is
	dead    bool
	leaving bool      // it takes nothing new
	hung    time.Time // until then it does nothing
	kept    map[drover.RunID]*play
	turns   map[drover.RunID]*turn
}

// room is how many drives a process has at a time.
const room = 3

// begin makes a process of a version.
func (w *World) begin(version string) *driver {
	pr := w.programs
	pr.made++
	d := &driver{
		w: w, name: fmt.Sprintf("process%d", pr.made), version: version, keeps: w.chance(0.7), old: version == "v1" || version == "" && w.chance(0.3),
		kept: map[drover.RunID]*play{}, turns: map[drover.RunID]*turn{},
	}
	pr.drivers = append(pr.drivers, d)
	return d
}

// do has a process do something, unless it is gone by then.
func (d *driver) do(f func()) {
	switch w := d.w; {
	case d.dead:
		return
	case w.now.Before(d.hung):
		w.at(d.hung, func() { d.do(f) })
		return
	case w.chance(w.faults.Crash / 2):
		d.die()
		return
	case w.chance(w.faults.Crash / 2):
		d.hang()
		w.at(d.hung, func() { d.do(f) })
		return
	}
	f()
}

// hang has a process do nothing for a while, and go on then as if nothing had been.
func (d *driver) hang() {
	d.w.saw("Programs03 a process hung")
	d.hung = d.w.now.Add(time.Duration(d.w.rng.Int64N(int64(45 * time.Second))))
}

// soon has a process do something a little later.
func (d *driver) soon(f func()) { d.w.soon(func() { d.do(f) }) }

// die ends a process with all that it has. Another one of its version comes, but
// where that is served no more.
func (d *driver) die() {
	if d.dead {
		return
	}
	w := d.w
	w.follow("%s dies", d.name)
	d.dead = true
	for _, t := range d.all() {
		w.saw("Programs03 a process died while it drove")
		t.over = true
		t.p.close()
	}
	for _, p := range d.kept {
		p.close()
	}
	w.programs.drivers = slices.DeleteFunc(w.programs.drivers, func(o *driver) bool { return o == d })
	if !d.leaving {
		w.within(5*time.Second, func() { w.begin(w.programs.successor(d.version)) })
	}
}

// all are the drives of a process, in the order of their runs.
func (d *driver) all() []*turn {
	var list []*turn
	for _, run := range slices.Sorted(maps.Keys(d.turns)) {
		list = append(list, d.turns[run])
	}
	return list
}

// serves reports whether a process takes calls of a function.
func (d *driver) serves(function drover.FunctionName) bool {
	return function == machine.DriveFunction(program, "") || d.version != "" && function == machine.DriveFunction(program, d.version)
}

// inbox is where a process is asked for drives of bodies that it keeps.
func (d *driver) inbox() string {
	if !d.keeps {
		return ""
	}
	return "_INBOX." + d.name
}

// behind finds the process of an inbox.
func (w *World) behind(inbox string) *driver {
	for _, d := range w.programs.drivers {
		if d.inbox() == inbox && !d.dead {
			return d
		}
	}
	return nil
}

// takeDirect takes a drive of a body that the process keeps, or says that it has it.
func (d *driver) takeDirect(req *drover.DriveRequest) bool {
	if t := d.turns[req.RunID]; t != nil {
		return req.Drive == t.req.Drive
	}
	p := d.kept[req.RunID]
	if p == nil || req.Look || d.leaving || len(d.turns) >= room || req.Drive <= p.latest {
		return false
	}
	d.enter(req, nil, 1, d.w.now)
	return true
}

// take takes a drive of the queue. One that is under way here is an older one, and
// ends; or it is a newer one, and this one is for nobody.
func (d *driver) take(req *drover.DriveRequest, m *asking, fence int, handed time.Time) {
	if t := d.turns[req.RunID]; t != nil {
		if req.Drive < t.req.Drive || req.Drive == t.req.Drive && fence <= t.fence {
			return
		}
		if t.m == m { // the message is that of this one now
			t.m = nil
		}
		t.drop()
	}
	d.enter(req, m, fence, handed)
}

// enter begins a drive. A body that is kept goes on, if it is of the same journal.
func (d *driver) enter(req *drover.DriveRequest, m *asking, fence int, handed time.Time) {
	w := d.w
	w.follow("%s drives %s %d (%d)", d.name, req.RunID, req.Drive, fence)
	t := &turn{d: d, req: *req, m: m, fence: fence, handed: handed, stored: map[string]*written{}}
	d.turns[req.RunID] = t
	p := d.kept[req.RunID]
	delete(d.kept, req.RunID)
	from := max(req.From, 1)
	switch {
	case p != nil && p.seed == req.Seed && p.have >= from-1 && p.at == req.Records:
		t.p = p
		p.learn(req.Journal)
		p.latest, p.last = req.Drive, req.Last
	default:
		if p != nil {
			p.close()
		}
		t.p = w.newPlay(w.programs.of(req), req, d)
	}
	if m == nil && w.chance(w.faults.Repeat) { // so that it is missed, and wakes beside another one
		d.hang()
	}
	d.soon(t.open)
	t.beats(time.Second)
}

// asking is a message that asks for a drive, in the queue.
type asking struct {
	id        string
	function  drover.FunctionName
	req       drover.DriveRequest
	delivered int
	holder    *driver
}

// drive performs an effect: the process that has the body in memory is asked, and
// the queue where that does not take it, or does not say so in time.
func (w *World) drive(e *machine.Effect) {
	if e.Inbox != "" {
		d := w.behind(e.Inbox)
		if d != nil && !w.now.Before(d.hung) && d.takeDirect(e.Drive) {
			if !w.chance(w.faults.Lose) {
				return
			}
			w.saw("Programs03 a process took what the queue had as well")
		} else {
			w.saw("Programs03 the process that kept the body did not take the drive")
		}
	}
	req := *e.Drive
	if req.From > 0 {
		req.Journal, req.From, req.Partial = nil, 0, true
	}
	if e.Value.Key != "" {
		req.Partial = true
	} else {
		req.Input = e.Value.JSON
	}
	if e.Again && w.programs.queue[e.Call.ID.String()] != nil {
		return
	}
	const window = 2 * time.Minute // in which the queue knows a message
	id, pr := e.Call.ID.String(), w.programs
	if at, ok := pr.queued[id]; ok && w.now.Sub(at) < window {
		return
	}
	pr.queued[id] = w.now
	m := &asking{id: id, function: e.Call.Function, req: req}
	pr.queue[id] = m
	w.soon(func() { w.offer(m) })
}

// offer hands a message to some process that serves its function, and to another
// one where that does not say for 10 s that it is at it.
func (w *World) offer(m *asking) {
	pr := w.programs
	if pr.queue[m.id] != m {
		return
	}
	var able []*driver
	for _, d := range pr.drivers {
		if d.serves(m.function) && !d.dead && !d.leaving && len(d.turns) < room && !w.now.Before(d.hung) {
			able = append(able, d)
		}
	}
	if len(able) == 0 {
		w.at(w.now.Add(time.Second), func() { w.offer(m) })
		return
	}
	d := able[w.rng.IntN(len(able))]
	m.delivered++
	handed := w.now
	m.holder = d
	if m.delivered > 1 {
		w.saw("Programs03 the queue handed a drive out again")
	}
	if w.chance(w.faults.Repeat / 2) {
		w.saw("Programs03 a process gave a drive back")
		w.soon(func() { w.offer(m) })
		return
	}
	req, fence := m.req, m.delivered+1
	req.Partial = req.Partial || m.delivered > 1
	d.soon(func() { d.take(&req, m, fence, handed) })
	w.at(w.now.Add(10*time.Second), func() { w.overdue(m, fence) })
}

// overdue looks after a message that was handed out.
func (w *World) overdue(m *asking, fence int) {
	if w.programs.queue[m.id] != m || m.delivered+1 != fence {
		return
	}
	d := m.holder
	t := d.turns[m.req.RunID]
	if d.dead || w.now.Before(d.hung) || t == nil || t.m != m || w.chance(w.faults.Repeat/4) {
		w.offer(m)
		return
	}
	w.at(w.now.Add(10*time.Second), func() { w.overdue(m, fence) })
}

// acknowledge takes a message out of the queue.
func (w *World) acknowledge(m *asking) {
	if m != nil && w.programs.queue[m.id] == m && !w.chance(w.faults.Lose) {
		delete(w.programs.queue, m.id)
	}
}

// withdraw takes the drives of a run back.
func (w *World) withdraw(run drover.RunID, functions []drover.FunctionName) {
	pr := w.programs
	for id, m := range pr.queue {
		if m.req.RunID == run && slices.Contains(functions, m.function) {
			delete(pr.queue, id)
		}
	}
	for _, d := range slices.Clone(pr.drivers) {
		if t := d.turns[run]; t != nil && t.m != nil && slices.Contains(functions, t.m.function) {
			d.soon(t.drop)
		}
	}
}

// nudge tells a process that a journal has grown.
func (w *World) nudge(e *machine.Effect) {
	for _, d := range w.programs.drivers {
		if d.name == e.Inbox && !w.chance(w.faults.Lose) {
			d.soon(func() {
				if t := d.turns[e.Run]; t != nil {
					t.hint = max(t.hint, e.Entries)
					t.pump()
				}
			})
		}
	}
}

// lookFor looks for a process that a drive is waiting for, and says where there is none.
func (w *World) lookFor(e *machine.Effect) {
	w.soon(func() {
		if w.missing(e) && !w.chance(w.faults.Lose) {
			w.saw("Programs03 a look found nobody")
			w.append(e.Run, drover.VerbLooked, e.Look)
		}
	})
}

// missing reports whether a process that is looked for is not there.
func (w *World) missing(e *machine.Effect) bool {
	if e.Inbox != "" {
		d := w.behind(e.Inbox)
		return d == nil || !w.now.Before(d.hung) && !d.takeDirect(e.Drive)
	}
	for _, d := range w.programs.drivers {
		if d.serves(e.Call.Function) {
			return false
		}
	}
	return true
}
