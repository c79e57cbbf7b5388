package partition

import "time"

// How many bytes of values a run may keep in memory between two commits, and
// when nothing is asked of it.
const (
	maxValues = 8 << 20
	maxIdle   = 1 << 20
)

// hurryAfter is CoverAfter, at most, while runs have nearly all the memory that
// they may.
const hurryAfter = time.Second

// What a run has in memory beside its record and its values, about: itself, and for
// each node. A program has a plan of its own for the nodes of its body.
const (
	overhead = 4 << 10
	perNode  = 256
	perSlot  = 3 << 9
)

// minRuns is how many runs may be in memory at least, however large they are.
const minRuns = 64

// weigh notes how much memory a run has.
func (p *Partition) weigh(r *run) {
	weight, pressing := r.weighs(), 0
	if !r.handing {
		pressing = weight
	}
	weight += r.size
	p.kept += weight - r.weight
	p.pressing += pressing - r.pressing
	r.weight, r.pressing = weight, pressing
	if p.crowded() && !p.relieving {
		p.relieving = true
		p.alarms.add(p.now, p.relieve)
	}
}

// weighs is how much memory a run has, but for its values. A state has about as
// much as the record that it was made from, and so have effects.
func (r *run) weighs() int {
	copies := 2
	if len(r.owing) > 0 {
		copies = 3
	}
	weight := overhead + copies*len(r.committed)
	if r.state == nil {
		return weight
	}
	if r.state.Program != nil {
		return weight + perSlot*len(r.state.Nodes)
	}
	return weight + perNode*len(r.state.Nodes)
}

// crowded reports whether runs have nearly all the memory that they may.
func (p *Partition) crowded() bool { return p.kept > p.opts.Memory/4*3 }

// relieve looks at all runs again while they are crowded: those that were not when
// they were looked at last would take their time.
func (p *Partition) relieve() {
	if p.relieving = p.crowded(); !p.relieving {
		return
	}
	for r := range p.live() {
		p.settle(r)
	}
	p.alarms.add(p.now.Add(hurryAfter), p.relieve)
}

// Room is for how many more commands there is memory, each of which may be for a
// run that is not in memory. A driver that has given so many asks again before it
// gives others. Where it is 0, runs go within about hurryAfter, for the most part.
// But they cannot where the server takes no wake-ups, as its disk is full, and
// what would make room on it may be a command that was not given yet. So a driver
// has to give one now and then all the same.
//
// Values do not count, which the next fold needs and which go by themselves; nor do
// runs that hand over, which wait for commands that come.
func (p *Partition) Room() int {
	return max((p.opts.Memory-p.pressing)/overhead, minRuns-len(p.runs), 0)
}
