package partition

import (
	"errors"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// doubtful reports whether a command that its record seems to know may be another
// one: it was stored after all that the run has seen. Then the log may have lost
// its end, as in a power failure that the record has survived, and give the same
// sequences once more.
func (r *run) doubtful(it *item) bool {
	return r.known && r.state != nil && it.cmd != nil && !it.old && it.seq <= r.state.Position() &&
		machine.Millis(it.msg.At.UnixMilli()) > r.state.Now
}

// trace looks for the command in the log that the record has seen last. If it is
// there, the clock of the log was set back once, and what comes before it was
// folded. If not, the command is new.
func (p *Partition) trace(r *run, it *item) {
	r.busy = true
	op := &Op{Kind: OpTrace, Run: r.id, Seq: r.state.Position(), At: r.state.Now.Time()}
	p.do(op, func(res Result) {
		switch {
		case res.Err == nil:
			it.old = true
		case errors.Is(res.Err, drover.CodeNotFound):
			p.rebase(r, it.seq)
		default:
			p.again(r, OpTrace, res.Err, func(r *run) { p.trace(r, it) })
			return
		}
		r.busy, r.failures = false, 0
		p.step(r)
	})
}

// rebase has a run fold what comes from a sequence on. Its wake-up was in the log
// too, and may be lost; and what has happened so far was of the lost end.
func (p *Partition) rebase(r *run, first uint64) {
	r.state.Rebase(first)
	r.timer, r.overdue = 0, 0
	r.happened = min(r.happened, first-1)
	for _, a := range r.owing {
		a.seq = min(a.seq, first-1)
	}
	delete(p.acted, r.id)
}
