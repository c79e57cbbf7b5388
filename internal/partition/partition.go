package partition

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// Options of a partition.
type Options struct {
	// Cursor is the first sequence that its last owner did not finish.
	Cursor uint64
	// CoverAfter is how long a run may live with its wake-up in memory only.
	// 0 means 10 s.
	CoverAfter time.Duration
	// IdleAfter is how long a parked run is kept in memory. 0 means 10 s.
	IdleAfter time.Duration
	// Memory is how many bytes runs may have in memory. Before they have, values
	// and parked runs go at once, and wake-ups are made durable after hurryAfter;
	// then Room is 0. 0 means 64 MiB.
	Memory int
	// Secret gives the entropy of a new run: text that nobody can guess.
	Secret func() string
	// Plan gives a plan that is at hand, or nil. It must not block.
	Plan func(*drover.StartRequest, drover.Hash) *machine.Plan
	// Admit says why a start may not make a run of its plan, or nil; nil: all may.
	// It must not block.
	Admit func(drover.RunID, *drover.StartRequest, *machine.Plan) *drover.Error
	// Report is told of what failed and is tried again.
	Report func(drover.RunID, OpKind, error)
}

// maxActed is how many runs are remembered that were let go. It is reached where
// the cursor is held for long.
const maxActed = 1 << 16

// Partition is the loop of one owner of one partition. Its methods must not be
// called at the same time.
type Partition struct {
	opts   Options
	now    time.Time
	clock  clock
	runs   map[drover.RunID]*run
	order  order  // every command that is not done
	last   uint64 // the latest sequence that was received
	nextID uint64
	ends   map[uint64]awaited // operations under way
	out    []*Op
	alarms alarms
	// acted remembers runs that were let go while the cursor had not passed
	// them: up to which sequence their effects are known to have happened.
	acted     map[drover.RunID]uint64
	ruined    map[drover.RunID]time.Time // runs whose records were given up, and until when they are not tried
	pruneAt   int                        // how many of them make it worth to look for those that are passed
	drain     bool
	queued    int  // commands whose payloads are in memory
	bytes     int  // of these payloads
	parked    int  // bytes of payloads that wait for records that cannot be read
	kept      int  // bytes of runs, more or less
	pressing  int  // bytes of them that hold back what comes
	relieving bool // runs are looked at again, for as long as they are too many
}

// awaited is an operation that is under way.
type awaited struct {
	end       func(Result) // what to do with its end
	handsOver bool         // what a run has not read goes to its successor
}

func handsOver(effects []machine.Effect) bool {
	return slices.ContainsFunc(effects, func(e machine.Effect) bool { return e.Kind == machine.EffectHandOver })
}

// New makes the loop of a partition that has just been taken.
func New(opts Options) *Partition {
	if opts.CoverAfter == 0 {
		opts.CoverAfter = 10 * time.Second
	}
	if opts.IdleAfter == 0 {
		opts.IdleAfter = 10 * time.Second
	}
	if opts.Memory == 0 {
		opts.Memory = 64 << 20
	}
	opts.Cursor = max(opts.Cursor, 1)
	if opts.Admit == nil {
		opts.Admit = func(drover.RunID, *drover.StartRequest, *machine.Plan) *drover.Error { return nil }
	}
	if opts.Report == nil {
		opts.Report = func(drover.RunID, OpKind, error) {}
	}
	return &Partition{
		opts:   opts,
		runs:   map[drover.RunID]*run{},
		last:   opts.Cursor - 1,
		ends:   map[uint64]awaited{},
		acted:  map[drover.RunID]uint64{},
		ruined: map[drover.RunID]time.Time{},
	}
}

// Advance tells the time and does what is due. Time that goes back is ignored.
func (p *Partition) Advance(now time.Time) {
	if now.After(p.now) {
		p.now = now
	}
	for {
		ring, ok := p.alarms.due(p.now)
		if !ok {
			return
		}
		ring()
	}
}

// Next is when Advance must be called at the latest; false: never.
func (p *Partition) Next() (time.Time, bool) {
	if len(p.alarms) == 0 {
		return time.Time{}, false
	}
	return p.alarms[0].at, true
}

// Receive takes the next message of the log. One that was received before, or
// that comes out of order, is ignored.
func (p *Partition) Receive(m Message) {
	if m.Seq <= p.last {
		return
	}
	p.last = m.Seq
	p.hear(m.At)
	it := &item{seq: m.Seq, msg: m}
	p.order.add(it)
	p.hold(it, true)
	id, err := drover.ParseRunID(m.Run)
	if err != nil {
		p.bury(nil, it, drover.AsError(err, drover.CodeInvalidID), nil)
		return
	}
	var bad *drover.Error
	it.cmd, it.start, bad = machine.DecodeCommand(m.Seq, m.At, m.Run, m.Verb, m.Data, m.Reply)
	it.bad = bad
	r := p.runs[id]
	if r == nil {
		r = &run{id: id}
		p.runs[id] = r
	}
	r.queue = append(r.queue, it)
	r.open = append(r.open, it)
	if r.parked {
		p.park(r, it)
	}
	p.step(r)
}

// Complete tells how an operation ended.
func (p *Partition) Complete(id uint64, res Result) {
	under, ok := p.ends[id]
	if !ok {
		return
	}
	delete(p.ends, id)
	under.end(res)
}

// Take gives the operations to perform since the last call.
func (p *Partition) Take() []*Op {
	out := p.out
	p.out = nil
	return out
}

// Cursor is the first sequence that is not done: where the next owner must
// begin to read.
func (p *Partition) Cursor() uint64 {
	if first := p.order.first; first != nil {
		return first.seq
	}
	return p.last + 1
}

// Queued is how many commands are in memory with their payloads, and how many
// bytes these have: until they are committed, or are dead letters. A driver stops
// to read where they grow.
func (p *Partition) Queued() (commands, bytes int) { return p.queued, p.bytes }

// hold notes that a command is in memory with its payload, or that it is not
// any more.
func (p *Partition) hold(it *item, held bool) {
	switch {
	case held == it.held:
		return
	case held:
		it.size = len(it.msg.Data)
		p.queued++
		p.bytes += it.size
	default:
		p.queued--
		p.bytes -= it.size
	}
	it.held = held
}

// Drain makes every wake-up durable, so that the next owner finds nothing to
// repeat. The driver receives no more messages, and goes on until Quiet.
func (p *Partition) Drain() {
	p.drain = true
	for r := range p.live() {
		p.settle(r)
	}
}

// live gives the runs in memory, in an order that a seed repeats.
func (p *Partition) live() iter.Seq[*run] {
	return func(yield func(*run) bool) {
		for _, id := range slices.Sorted(maps.Keys(p.runs)) {
			if r := p.runs[id]; r != nil && !yield(r) {
				return
			}
		}
	}
}

// Quiet reports whether every received command is done and no operation is
// under way. While it drains, hand-overs do not count: one may wait for a run
// that nobody reads before the drain is over, and the next owner repeats it.
func (p *Partition) Quiet() bool {
	if !p.drain {
		return p.order.first == nil && len(p.ends) == 0
	}
	for _, under := range p.ends {
		if !under.handsOver {
			return false
		}
	}
	for it := p.order.first; it != nil; it = it.after {
		if r := p.runs[drover.RunID(it.msg.Run)]; r == nil || !r.handing {
			return false
		}
	}
	return true
}

// do issues an operation, and has end called with its result.
func (p *Partition) do(op *Op, end func(Result)) {
	p.nextID++
	op.ID = p.nextID
	if op.Awaited() {
		p.ends[op.ID] = awaited{end, op.Kind == OpAct && handsOver(op.Effects)}
	}
	p.out = append(p.out, op)
}

// insist issues an operation again and again until it succeeds.
func (p *Partition) insist(op Op, done func()) {
	failures := 0
	var try func()
	try = func() {
		again := op
		p.do(&again, func(res Result) {
			if res.Err == nil {
				done()
				return
			}
			p.opts.Report(op.Run, op.Kind, res.Err)
			p.alarms.add(p.now.Add(pause(failures)), try)
			failures++
		})
	}
	try()
}

// done takes a command off the order, and forgets what only mattered while the
// cursor was before it.
func (p *Partition) done(it *item) {
	it.acting = nil
	p.order.remove(it)
	if len(p.acted) > p.pruneAt {
		cursor := p.Cursor()
		maps.DeleteFunc(p.acted, func(_ drover.RunID, seq uint64) bool { return seq < cursor })
		if len(p.acted) > maxActed {
			clear(p.acted) // something may happen twice, and costs no more than that
		}
		p.pruneAt = 2*len(p.acted) + 256
	}
}
