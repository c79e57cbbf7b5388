package sim

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/droverhq/drover"
)

// main is the first branch: the body, and what comes after it.
func (p *play) main(b *branch) {
	moves := p.s.gens[min(p.gen, len(p.s.gens)-1)]
	list := &undoList{}
	trace, err := b.all(moves, list)
	switch {
	case p.failure != nil:
		p.end = b.failed(list, p.failure)
	case err == nil:
		result, _ := json.Marshal(trace) // texts
		p.end = &drover.DriveEnd{Status: drover.DriveCompleted, Result: result}
	case err.Code == codeAgain:
		p.end = &drover.DriveEnd{Status: drover.DriveAgain, Input: p.s.input()}
	default:
		p.end = b.failed(list, err)
	}
}

// failed undoes what the body did, and says how the run ends.
func (b *branch) failed(list *undoList, err *drover.Error) *drover.DriveEnd {
	count := len(list.moves)
	bad := b.rollBack(list)
	end := &drover.DriveEnd{Error: err}
	switch {
	case len(bad) > 0:
		end.Status = drover.DriveCompensationFailed
	case count > 0:
		end.Status = drover.DriveCompensated
	case b.p.stop != nil && b.p.failure == nil:
		end.Status = drover.DriveCancelled
	default:
		end.Status = drover.DriveFailed
	}
	return end
}

// codeAgain is that of the error with which a body begins anew.
const codeAgain drover.Code = "again"

func failure(code drover.Code, id string) *drover.Error {
	return &drover.Error{Code: code, Message: fmt.Sprintf("%s of %s", code, id)}
}

// panics breaks a body, unless it has done so often enough. In the last drive that it
// has, a panic is how the run fails; old processes do not know of that.
func (b *branch) panics(m *move) *drover.Error {
	p := b.p
	if p.failure != nil {
		return p.failure
	}
	err := drover.Errorf(drover.CodePanic, "%s panicked", m.id)
	known := slices.ContainsFunc(p.journal, func(e drover.Entry) bool {
		return e.Kind == drover.EntryPanic && e.Error.Message == err.Message
	})
	if !known && (p.calm || p.w.programs.count(p, m) > m.times) {
		return nil
	}
	if p.old || !known && p.passed() {
		p.breakOff(drover.DrivePanicked, err)
	} else {
		p.burst = &burst{b: b, err: err}
	}
	for p.failure == nil {
		b.block()
	}
	return p.failure
}

// passed reports whether the journal has more of the body than it has asked for.
func (p *play) passed() bool {
	inOrder := 0
	for _, e := range p.journal {
		switch e.Kind {
		case drover.EntryNode, drover.EntryValue, drover.EntryCancel, drover.EntryMeta:
			if inOrder++; inOrder > len(p.issued) {
				return true
			}
		case drover.EntryStep, drover.EntryAttempt, drover.EntryUndo:
			if p.working(e.ID) == nil {
				return true
			}
		case drover.EntryPanic, drover.EntryEnded, drover.EntryStop:
		}
	}
	return false
}

// fails takes the entry of a panic: the body is to end, in each further drive as well.
func (p *play) fails(e drover.Entry) {
	if p.old || p.failure != nil || p.end != nil {
		p.misfit(e)
		return
	}
	p.failure = e.Error
	if p.burst != nil {
		p.wake(p.burst.b)
		p.burst = nil
	}
	p.cancel(p.root, e.Error, false)
}

// erupts says what a panic is, once the journal has no more: a record in the last
// drive, else the end of this one.
func (t *turn) erupts() {
	p := t.p
	switch {
	case p.burst.sent:
	case p.last:
		p.burst.sent = true
		p.queue = append(p.queue, drover.Entry{Kind: drover.EntryPanic, Error: p.burst.err})
	case !t.busy:
		p.breakOff(drover.DrivePanicked, p.burst.err)
		t.finish(p.broken)
	}
}
