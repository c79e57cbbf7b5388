package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/droverhq/drover"
)

// body is what the code of a program does: a list of things, one after the other.
type body []bodyOp

type bodyOp struct {
	kind string
	id   string
	many int // attempts that fail, or nodes that are open at a time
}

func makeBody(d *dice) body {
	var b body
	for i := range 1 + d.roll(8) {
		b = append(b, bodyOp{
			kind: []string{"step", "step", "tries", "sleep", "wait", "call", "run", "detach", "hook", "value", "dropped", "several"}[d.roll(12)],
			id:   fmt.Sprintf("o%d", i), many: 1 + d.roll(3),
		})
	}
	if d.roll(4) == 1 {
		b = append(b, bodyOp{kind: "again", id: "again"})
	}
	return b
}

// asks is what an op asks for outside of its process.
func (o *bodyOp) asks() []drover.Entry {
	steps := map[string]string{
		"sleep": `{"sleep":"10s"}`, "wait": `{"wait":{"name":"x","timeout":"5m"}}`, "call": `{"call":"f","timeout":"20s","retry":{"max_attempts":2,"initial":"5s"}}`,
		"run": `{"run":{"workflow":"sub"}}`, "detach": `{"run":{"workflow":"sub","detach":true}}`, "dropped": `{"wait":{"name":"x"}}`,
		"hook": `{"wait":{"hook":"t0","timeout":"2m"}}`,
	}
	if o.many == 2 {
		steps["dropped"] = `{"run":{"workflow":"sub","abandon":true}}`
	}
	if o.kind != "several" {
		return []drover.Entry{asked(o.id, steps[o.kind], `"`+o.id+`"`)}
	}
	var list []drover.Entry
	for i := range o.many {
		list = append(list, asked(fmt.Sprintf("%s-%d", o.id, i), steps[[]string{"call", "wait", "run"}[i]], string(quoted(1000*i))))
	}
	return list
}

// replay is the body, run from the top: what it has to record, and how the drive
// ends then. It sees nothing but the journal.
func (b body) replay(journal []string) ([]drover.Entry, *drover.DriveEnd) {
	has := func(format string, args ...any) bool {
		text := fmt.Sprintf(format, args...)
		return slices.ContainsFunc(journal, func(l string) bool { return l == text || strings.HasPrefix(l, text+" ") })
	}
	waiting := &drover.DriveEnd{Status: drover.DriveWaiting}
	if has("stop") {
		return b.undo(has)
	}
	done := 0
	for i := range b {
		o := &b[i]
		switch o.kind {
		case "step":
			if !has("step %s", o.id) {
				return []drover.Entry{stepped(o.id, string(quoted(700*o.many)))}, nil
			}
			done++
		case "value":
			if !has("value %s", o.id) {
				return []drover.Entry{{Kind: drover.EntryValue, ID: o.id, Output: raw(`true`)}}, nil
			}
		case "tries":
			for n := 1; n <= o.many; n++ {
				if !has("attempt %s@%d", o.id, n) {
					return []drover.Entry{{Kind: drover.EntryAttempt, ID: o.id, Attempt: n, Error: bad("no"), Pause: 3e9}}, waiting
				}
				if !has("ended %s@%d", o.id, n+1) {
					return nil, waiting
				}
			}
			if !has("step %s", o.id) {
				return []drover.Entry{stepped(o.id, `1`)}, nil
			}
			done++
		case "again":
			return nil, &drover.DriveEnd{Status: drover.DriveAgain, Input: raw(`{"again":true}`)}
		default:
			switch records, blocked := o.nodes(has); {
			case blocked:
				return records, waiting
			case records != nil:
				return records, nil
			}
		}
	}
	return nil, &drover.DriveEnd{Status: drover.DriveCompleted, Result: raw(fmt.Sprint(done))}
}

// nodes is replay for what is outside of the process.
func (o *bodyOp) nodes(has func(string, ...any) bool) (records []drover.Entry, blocked bool) {
	for _, e := range o.asks() {
		if !has("node %s", e.ID) {
			records = append(records, e)
		}
	}
	if o.kind == "dropped" {
		if !has("cancel %s", o.id) {
			return append(records, dropped(o.id)), false
		}
		return nil, false
	}
	if records != nil {
		return records, true
	}
	for _, e := range o.asks() {
		blocked = blocked || !has("ended %s", e.ID)
	}
	return nil, blocked
}

// undo undoes what was done, newest first.
func (b body) undo(has func(string, ...any) bool) ([]drover.Entry, *drover.DriveEnd) {
	end := &drover.DriveEnd{Status: drover.DriveCancelled, Error: bad("stopped")}
	for _, o := range slices.Backward(b) {
		if !has("step %s", o.id) {
			continue
		}
		end.Status = drover.DriveCompensated
		if !has("undo %s", o.id) {
			return []drover.Entry{{Kind: drover.EntryUndo, ID: o.id, Output: raw(`1`)}}, nil
		}
	}
	return nil, end
}

// process is one that drives: what it knows of the journal, and what it has sent
// without having an answer.
type process struct {
	d       *driver
	journal []string
	pending *drover.RecordRequest
}

// handOut gives the drive that is asked for to a new process, which reads the
// journal first.
func (w *world) handOut(instance string) *process {
	p := &process{d: w.driven()}
	p.d.instance = instance
	p.read()
	return p
}

// read reads the whole journal.
func (p *process) read() {
	p.journal = nil
	p.d.at, p.d.have = 0, 0
	for _, l := range p.d.w.lines() {
		p.know(p.d.w.entry(&l), l.Kind)
	}
}

func (p *process) know(text string, kind drover.EntryKind) {
	p.journal = append(p.journal, text)
	p.d.have++
	if kind != drover.EntryEnded && kind != drover.EntryStop {
		p.d.at++
	}
}

// next is what it sends next: again what it has no answer of.
func (p *process) next(b body) drover.RecordRequest {
	if p.pending != nil {
		return *p.pending
	}
	records, end := b.replay(p.journal)
	m := p.d.request(end, records...)
	p.pending = &m
	return m
}

// hear takes the answer. It reports whether it is to go on.
func (p *process) hear(r drover.RecordReply) bool {
	p.pending = nil
	if r.Partial {
		p.read()
	}
	for _, e := range r.New {
		l := Line{Kind: e.Kind, ID: e.ID, Attempt: e.Attempt, Error: e.Error, Output: Value{JSON: json.RawMessage(e.Output)}}
		p.know(p.d.w.entry(&l), e.Kind)
	}
	return r.Driving
}
