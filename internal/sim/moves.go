package sim

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// undoList is what a part of a body has done and can undo, oldest first.
type undoList struct{ moves []*move }

// all makes moves one after the other. The trace says how each of them ended.
func (b *branch) all(moves []move, list *undoList) (trace []string, err *drover.Error) {
	for i := range moves {
		m := &moves[i]
		inner, err := b.one(m, list)
		trace = append(trace, inner...)
		trace = append(trace, mark(m, err))
		if err != nil && (!m.swallow || err.Code == codeAgain) {
			return trace, err
		}
	}
	return trace, nil
}

// mark is how a move ended, in a trace.
func mark(m *move, err *drover.Error) string {
	if err != nil {
		return m.id + "!" + string(err.Code)
	}
	return m.id
}

// one makes one move. The trace is of what is in it.
func (b *branch) one(m *move, list *undoList) (trace []string, err *drover.Error) {
	p := b.p
	switch m.kind {
	case doStep:
		return nil, b.step(m, list)
	case doSleep, doWait, doHook, doApprove, doCall, doChild, doStray:
		a := b.ask(m)
		b.await(func() bool { return a.over }, a)
		return b.got(a), a.err
	case doSelect:
		return b.race(m)
	case doGroup:
		own := &undoList{}
		trace, err := b.all(m.inner, own)
		if err != nil && err.Code != codeAgain {
			for _, id := range b.rollBack(own) {
				trace = append(trace, id+"!undo")
			}
			return trace, err
		}
		list.moves = append(list.moves, own.moves...)
		return trace, err
	case doParallel:
		return b.parallel(m, list)
	case doFail:
		return nil, failure(drover.CodeFailed, m.id)
	case doAgain:
		return nil, failure(codeAgain, m.id)
	case doPanic:
		return nil, b.panics(m)
	case doChunk:
		if p.failure != nil {
			return nil, p.failure
		}
		p.chunks[m.name] = append(p.chunks[m.name], m.id)
		return nil, nil
	case doMeta, doValue:
	}
	if err := b.scope.cancelled(); err != nil {
		return nil, err
	}
	return nil, b.tell(m)
}

// tell makes a value or a change of metadata. The body waits for the value.
func (b *branch) tell(m *move) *drover.Error {
	if m.kind == doMeta {
		output := json.RawMessage(`[{"op":"increment","key":"count"}]`)
		b.p.issue(&asked{entry: drover.Entry{Kind: drover.EntryMeta, ID: string(m.target), Output: output}})
		return nil
	}
	a := b.p.issue(&asked{entry: drover.Entry{Kind: drover.EntryValue, ID: m.id, Output: json.RawMessage(`"v"`)}})
	b.p.reading++
	b.await(func() bool { return a.matched }, a)
	b.p.reading--
	return nil
}

// got is what a wait got, in a trace.
func (b *branch) got(a *asked) []string {
	if a.m.kind != doWait || a.err != nil {
		return nil
	}
	return []string{a.m.id + "=" + text(a.output)}
}

func text(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "null"
	}
	return string(raw)
}

// step makes a step. Of a script that was changed, version v2 has another id for it.
func (b *branch) step(m *move, list *undoList) *drover.Error {
	p := b.p
	if err := b.scope.cancelled(); err != nil {
		return err
	}
	if m.id == p.s.changed && p.newer && p.patched(m) {
		other := *m
		m = &other
		m.id += "-new"
	}
	a := &asked{entry: drover.Entry{Kind: drover.EntryStep, ID: m.id}, m: m, scope: b.scope, attempt: 1}
	p.works[work(drover.EntryStep, m.id)] = a
	p.due = append(p.due, a)
	b.await(func() bool { return a.over }, a)
	if a.err == nil && m.undo > 0 {
		list.moves = append(list.moves, m)
	}
	return a.err
}

// patched reports whether the new way is gone: in a script that does not mark its
// change always, else where nothing of the old way is in the journal.
func (p *play) patched(m *move) bool {
	if !p.s.patched {
		return true
	}
	for _, e := range p.journal {
		switch {
		case e.Kind == drover.EntryValue && e.ID == "patch":
			p.mark()
			return true
		case e.ID == m.id && (e.Kind == drover.EntryStep || e.Kind == drover.EntryAttempt):
			p.w.saw("Programs12 a change that is marked took the old way")
			return false
		}
	}
	p.w.saw("Programs12 a change that is marked took the new way")
	p.mark()
	return true
}

func (p *play) mark() {
	p.issue(&asked{entry: drover.Entry{Kind: drover.EntryValue, ID: "patch", Output: json.RawMessage("true")}})
}

// ask asks for a node. What can never be, as the body is to end, is over at once.
func (b *branch) ask(m *move) *asked {
	p := b.p
	a := &asked{entry: drover.Entry{Kind: drover.EntryNode, ID: m.id}, m: m, scope: b.scope}
	if m.kind == doStray {
		a.entry.ID = fmt.Sprintf("%s-%d", m.id, p.drive)
		own := *m
		own.kind, own.limit = doSleep, m.takes
		a.m = &own
	}
	if err := b.scope.cancelled(); err != nil {
		a.over, a.err = true, err
		return a
	}
	if m.kind == doWait {
		for i, spare := range p.spare {
			if spare.m.name == m.name {
				p.spare = append(p.spare[:i:i], p.spare[i+1:]...)
				a.over, a.output = true, spare.output
				return a
			}
		}
	}
	a.entry.Step, a.entry.Input = p.w.node(p.s, a.m)
	p.nodes[a.entry.ID] = a
	return p.issue(a)
}

// race waits for the first of several, and cancels the others.
func (b *branch) race(m *move) ([]string, *drover.Error) {
	var list []*asked
	for i := range m.inner {
		list = append(list, b.ask(&m.inner[i]))
	}
	first := -1
	b.await(func() bool {
		for i, a := range list {
			if a.over {
				first = i
				return true
			}
		}
		return false
	}, list...)
	for _, a := range list {
		b.p.drop(a, failure(drover.CodeStopped, a.entry.ID))
	}
	return append(b.got(list[first]), fmt.Sprintf("first=%d", first)), list[first].err
}

// parallel runs branches beside each other. Without settle the first error cancels
// the others; it returns when all are over.
func (b *branch) parallel(m *move, list *undoList) ([]string, *drover.Error) {
	p, around := b.p, &scope{outer: b.scope}
	all := &asked{}
	traces := make([][]string, len(m.branches))
	errs := make([]*drover.Error, len(m.branches))
	var first *drover.Error
	left := len(m.branches)
	for i := range m.branches {
		p.fork(around, func(inner *branch) {
			traces[i], errs[i] = inner.all(m.branches[i], list)
			left--
			if errs[i] != nil && first == nil {
				if first = errs[i]; !m.settle {
					p.cancel(around, failure(drover.CodeStopped, m.id), false)
				}
			}
			p.notify(all)
		})
	}
	b.await(func() bool { return left == 0 }, all)
	var trace []string
	for i := range traces {
		trace = append(trace, traces[i]...)
	}
	if m.settle {
		first = nil
		for _, err := range errs {
			if first == nil {
				first = err
			}
		}
	}
	return trace, first
}

// rollBack undoes all of a list, newest first, and gives what could not be undone.
func (b *branch) rollBack(list *undoList) (bad []string) {
	p := b.p
	moves := list.moves
	list.moves = nil
	for i := len(moves) - 1; i >= 0; i-- {
		m := moves[i]
		a := &asked{entry: drover.Entry{Kind: drover.EntryUndo, ID: m.id}, m: m, attempt: 1}
		p.works[work(drover.EntryUndo, m.id)] = a
		p.due = append(p.due, a)
		if b.await(func() bool { return a.over }, a); a.err != nil {
			bad = append(bad, m.id)
		}
	}
	return bad
}

// outcome is what one attempt of a step or a compensation gives.
func outcome(a *asked) (json.RawMessage, *drover.Error) {
	fails := a.m.fails
	if a.entry.Kind == drover.EntryUndo {
		fails = a.m.undo - 1
	}
	if a.attempt > fails {
		return json.RawMessage(fmt.Sprintf(`{"id":%q,"pad":%q}`, a.m.id, strings.Repeat("x", a.m.pad))), nil
	}
	err := failure(drover.CodeFailed, a.m.id)
	if err.Permanent = a.m.fatal; a.m.later {
		err.RetryAfter = drover.Duration(7 * time.Second)
	}
	return nil, err
}

// pause is the time before the attempt after one that failed.
func pause(attempt int, err *drover.Error) drover.Duration {
	if err.RetryAfter > 0 {
		return err.RetryAfter
	}
	return drover.Duration(time.Second << (attempt - 1))
}

// again says whether another attempt follows one that failed.
func (m *move) again(attempt int, err *drover.Error) bool {
	return err != nil && !err.Permanent && attempt < m.attempts
}
