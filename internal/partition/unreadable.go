package partition

import (
	"errors"
	"time"

	"github.com/droverhq/drover"
)

const (
	// hopeless is how often a record is read before it is given up: some ten
	// minutes. Another version of this binary may be able to read it, and take over
	// its partition meanwhile.
	hopeless = 120
	// givenUp is how long the record of a run that was given up is not read again:
	// what comes for it meanwhile is a dead letter at once.
	givenUp = 10 * time.Minute
	// maxGivenUp is how many such runs are remembered.
	maxGivenUp = 10_000
	// maxParked is how many bytes may wait for records that cannot be read. They
	// do not count as queued, or the first such command would hold back all others.
	maxParked = 2 << 20
)

// final reports whether an error says that the next try will end in the same way.
func final(err error) bool {
	_, coded := errors.AsType[*drover.Error](err)
	return coded && !errors.Is(err, drover.CodeUnavailable)
}

// unreadable deals with a record that this binary cannot go on with, and so may
// not change. In the end the commands that wait for it become dead letters, so
// that it does not hold the cursor for ever.
func (p *Partition) unreadable(r *run, kind OpKind, err error) {
	until, before := p.ruined[r.id]
	again := before && p.now.Before(until)
	if !again && r.failures < hopeless && p.parked <= maxParked {
		r.parked = true
		for _, it := range r.queue {
			p.park(r, it)
		}
		p.again(r, kind, err, p.load)
		return
	}
	if !again {
		if len(p.ruined) >= maxGivenUp {
			clear(p.ruined)
		}
		p.ruined[r.id] = p.now.Add(givenUp)
	}
	p.opts.Report(r.id, kind, err)
	r.spoiled = drover.Errorf(drover.CodeInternal, "the record of run %s cannot be used: %v; mend it, then requeue this command", r.id, err)
	p.ready(r, nil, nil, 0) // no record, as far as this owner goes
}

// park has a command of a run that cannot be read count no more as queued.
func (p *Partition) park(r *run, it *item) {
	if it.held {
		p.hold(it, false)
		r.set += it.size
		p.parked += it.size
	}
}

// unpark ends that.
func (p *Partition) unpark(r *run) {
	if !r.parked {
		return
	}
	p.parked -= r.set
	r.parked, r.set = false, 0
	for _, it := range r.queue {
		p.hold(it, true)
	}
}
