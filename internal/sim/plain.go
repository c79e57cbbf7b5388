package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// plain is a pure script executed from top to bottom, once, without a journal, a
// process or a fault: what its runs must come to.
type plain struct {
	w      *World
	trace  []string
	done   []*move // that can be undone
	undone []string
	failed []string // compensations
	chunks map[string]string

	count, parent, root int // of changes of metadata
}

// plainly executes a script.
func (w *World) plainly(s *script) (x *plain, status drover.Status, err *drover.Error) {
	x = &plain{w: w, chunks: map[string]string{}}
	for _, moves := range s.gens {
		x.trace, x.done, x.undone, x.failed = nil, nil, nil, nil
		if err = x.all(moves); err == nil || err.Code != codeAgain {
			break
		}
	}
	if err == nil {
		return x, drover.StatusCompleted, nil
	}
	some := len(x.done) > 0
	bad := x.rollBack(0)
	switch {
	case len(bad) > 0:
		return x, drover.StatusCompensationFailed, err
	case some:
		return x, drover.StatusCompensated, err
	}
	return x, drover.StatusFailed, err
}

func (x *plain) all(moves []move) *drover.Error {
	for i := range moves {
		m := &moves[i]
		err := x.one(m)
		x.trace = append(x.trace, mark(m, err))
		if err != nil && (!m.swallow || err.Code == codeAgain) {
			return err
		}
	}
	return nil
}

func (x *plain) one(m *move) *drover.Error {
	switch m.kind {
	case doStep:
		return x.step(m)
	case doWait:
		if m.limit > 0 {
			return failure(drover.CodeTimeout, m.id)
		}
		x.trace = append(x.trace, m.id+"="+text(payloadOf(m, 0)))
	case doChild:
		return x.child(m)
	case doGroup:
		before := len(x.done)
		err := x.all(m.inner)
		if err != nil && err.Code != codeAgain {
			for _, id := range x.rollBack(before) {
				x.trace = append(x.trace, id+"!undo")
			}
		}
		return err
	case doParallel:
		var first *drover.Error
		for _, moves := range m.branches {
			if err := x.all(moves); first == nil {
				first = err
			}
		}
		return first
	case doFail:
		return failure(drover.CodeFailed, m.id)
	case doAgain:
		return failure(codeAgain, m.id)
	case doChunk:
		x.chunks[m.name] += " " + m.id
	case doMeta:
		switch m.target {
		case drover.MetaSelf:
			x.count++
		case drover.MetaParent:
			x.parent++
		default:
			x.root++
		}
	case doSleep, doCall, doValue, doPanic, doSelect, doHook, doApprove, doStray:
	}
	return nil
}

func (x *plain) step(m *move) *drover.Error {
	a := &asked{entry: drover.Entry{Kind: drover.EntryStep}, m: m}
	for a.attempt = 1; ; a.attempt++ {
		_, err := outcome(a)
		if m.again(a.attempt, err) {
			continue
		}
		if err == nil && m.undo > 0 {
			x.done = append(x.done, m)
		}
		return err
	}
}

func (x *plain) child(m *move) *drover.Error {
	if m.script < 0 {
		return nil
	}
	own, status, _ := x.w.plainly(x.w.programs.scripts[m.script])
	x.count += own.parent
	x.root += own.root
	if status != drover.StatusCompleted {
		return failure(drover.CodeChild, m.id)
	}
	return nil
}

// rollBack undoes what was done since, newest first.
func (x *plain) rollBack(since int) (bad []string) {
	for _, m := range slices.Backward(x.done[since:]) {
		a := &asked{entry: drover.Entry{Kind: drover.EntryUndo}, m: m}
		for a.attempt = 1; ; a.attempt++ {
			_, err := outcome(a)
			if m.again(a.attempt, err) {
				continue
			}
			if x.undone = append(x.undone, m.id); err != nil {
				bad = append(bad, m.id)
			}
			break
		}
	}
	x.done = x.done[:since]
	return bad
}

// audit holds how runs of programs ended against their scripts.
func (pr *programs) audit(w *World) {
	pr.ledger.family()
	if h := w.hooked; h != nil {
		for _, p := range h.parcels {
			w.auditOne(p, h.ledger.taken[p.n], h.ledger.taken[p.n])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		state, err := machine.Decode(w.records[id].data)
		if err != nil || state.Program == nil {
			continue
		}
		if (state.Program.Letter > 0) != (pr.letters[id] > 0) {
			w.violated("run %s has %d dead letters, and its record says %d", id, pr.letters[id], state.Program.Letter)
		}
		if s := w.scriptOf(state); s != nil {
			pr.redrive(w, s, state)
			if s.pure {
				pr.expect(w, s, state)
			}
		}
	}
}

// redrive has the body execute the whole journal once more: it must come to the end
// that the run came to.
func (pr *programs) redrive(w *World, s *script, state *machine.State) {
	if s.changed != "" || slices.ContainsFunc(s.gens[0], func(m move) bool { return m.kind == doStray }) {
		return
	}
	entries, err := w.entries(state, 1)
	if err != nil {
		w.violated("the journal of %s cannot be read: %v", state.Run, err)
		return
	}
	p := w.newPlay(s, &drover.DriveRequest{RunID: state.Run, Generation: state.Program.Generation, Journal: entries}, &driver{})
	p.calm = true
	defer p.close()
	for p.settle(); len(p.journal) > 0 && p.broken == nil; p.settle() {
		p.consume()
	}
	if p.broken != nil {
		w.violated("run %s: its whole journal does not fit its body: %v", state.Run, p.broken.Error)
		return
	}
	if p.end != nil && state.Status == drover.StatusCompleted && text(p.end.Result) != text(w.value(state.Result)) {
		w.violated("run %s gave %s, and its journal gives %s", state.Run, w.value(state.Result), p.end.Result)
	}
	if state.Status == drover.StatusCompleted && strings.Contains(text(w.value(state.Result)), "!timeout") {
		w.saw("Programs14 a wait was swallowed, and its run completed as its body returned")
	}
	if p.end == nil && (state.Status == drover.StatusCompleted || state.Status == drover.StatusCompensated) {
		w.violated("run %s is %s, and its journal does not say so", state.Run, state.Status)
	}
}

// expect holds a run of a pure script against a plain execution.
func (pr *programs) expect(w *World, s *script, state *machine.State) {
	x, status, err := w.plainly(s)
	if state.Status != status || (err == nil) != (state.Error == nil) || err != nil && state.Error.Message != err.Message && err.Code == drover.CodeFailed {
		w.violated("run %s ended %s (%v), and plainly it is %s (%v)", state.Run, state.Status, state.Error, status, err)
		return
	}
	result, _ := json.Marshal(x.trace)
	if status == drover.StatusCompleted && text(w.value(state.Result)) != string(result) {
		w.violated("run %s gave %s, and plainly it is %s", state.Run, w.value(state.Result), result)
	}
	undone := pr.ledger.undone(state)
	slices.Sort(undone) // their order is checked as they come
	slices.Sort(x.undone)
	if !slices.Equal(undone, x.undone) {
		w.violated("run %s has undone %q, and plainly it is %q", state.Run, undone, x.undone)
	}
	for _, id := range slices.Sorted(maps.Keys(x.chunks)) {
		if got := " " + pr.texts(state.Run, id); got != x.chunks[id] {
			w.violated("stream %s of run %s has%s, and plainly it is%s", id, state.Run, got, x.chunks[id])
		}
	}
	count := x.count
	if state.Parent == nil {
		count += x.parent + x.root
	}
	got := 0
	if state.Meta != nil {
		_ = json.Unmarshal(state.Meta.Values["count"], &got)
	}
	if got != count {
		w.violated("run %s has %d changes of metadata, and plainly it is %d", state.Run, got, count)
	}
	w.saw("Programs01 a run came to what a plain execution gives")
}

// left counts values of journals that were over before the last one.
func (pr *programs) left(w *World) (n int) {
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		state, err := machine.Decode(w.records[id].data)
		if err != nil || state.Program == nil {
			continue
		}
		dead := &machine.Forgotten{Run: id, Generation: state.Program.Generation, Began: state.Program.Began, Kept: map[string]bool{}}
		for key := range w.values {
			if runOf(key) == id && dead.Dead(key) && !w.refers(key) {
				n++
			}
		}
	}
	return n
}
