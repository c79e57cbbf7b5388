package partition

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// maxBatch is how many commands of one run are folded into one commit.
const maxBatch = 512

// run is a run in memory. Its record is known, or is being found out.
type run struct {
	id        drover.RunID
	known     bool // state is what the store holds under rev; nil: no record
	sure      bool // rev was read or written; else a start took it for granted that there is no record
	doubt     bool // read the record before anything else, also before a start
	plan      *machine.Plan
	state     *machine.State
	committed []byte // what state was decoded from, or encoded to, last
	rev       uint64
	values    map[string]json.RawMessage
	size      int // bytes of values
	weight    int // bytes that it has in memory, more or less
	pressing  int // bytes of them that hold back what comes

	busy     bool          // an operation is under way that must end before the next fold
	queue    []*item       // not folded yet
	open     []*item       // not done yet, in the order of the log
	owing    []*act        // effects under way
	happened uint64        // what the record owes at this sequence, or an earlier one, has happened
	handing  bool          // what it has not read goes to its successor just now
	burying  int           // dead letters under way
	held     func()        // a commit that waits for them
	failures int           // of the operation under way, in a row
	spoiled  *drover.Error // its record cannot be read, and was given up: what comes is refused
	parked   bool          // its record cannot be read: what waits for it does not hold others back
	set      int           // bytes of that
	losses   int           // commits that were not known to succeed, in a row
	single   bool          // fold one command at a time: a commit was impossible

	timer     machine.Millis // the latest wake-up that was made durable; 0: none
	timed     uint64         // what names it, or one that may be there; 0: none is known
	over      bool           // the record says that the run is
	heard     machine.Millis // the latest time of the log that a command of it came with
	overdue   machine.Millis // a deadline at or before the present of the run for which a wake-up is durable: the next owner gets it
	uncovered time.Time      // since when the next wake-up is in memory only; zero: it is not
	covering  bool           // it is being made durable
	ticking   bool           // a tick is on its way
	tickSent  time.Time      // since when
	tickAfter time.Time      // no other tick before
	early     int            // ticks that came and changed nothing, in a row
	idleSince time.Time      // since when nothing is asked of it; zero: something is
	alarm     time.Time      // the earliest alarm that is set for it; zero: none
}

// item is one command until it is done.
type item struct {
	seq    uint64
	msg    Message // its Data goes when it is folded
	cmd    *machine.Command
	start  *drover.StartRequest
	bad    *drover.Error // it cannot even be read
	plan   *machine.Plan // of a start
	acting *act          // effects of its commit that are under way
	folded bool          // its commit is durable, or it needed none
	old    bool          // it was folded, although it is younger than its run: the log says so
	held   bool          // it counts as one that is in memory with its payload
	size   int           // bytes of that

	before, after *item // in the order of the log
}

// act is what one commit owes.
type act struct {
	seq     uint64 // when it is done, all has happened that the record owed at this sequence
	owed    []machine.Owed
	effects []machine.Effect
	done    bool
}

// step does for a run what can be done now.
func (p *Partition) step(r *run) {
	for !r.busy && len(r.queue) > 0 {
		head := r.queue[0]
		switch {
		case r.doubt || !r.known && head.start == nil && head.bad == nil:
			p.load(r)
		case r.doubtful(head):
			p.trace(r, head)
		case head.start != nil && !p.resolved(r, head):
			p.resolve(r, head)
		default:
			p.fold(r)
		}
	}
	if !r.busy && !r.known && len(r.open) > 0 {
		p.load(r) // all was refused unseen; but the run may need a wake-up
	}
	p.settle(r)
}

// load reads the record, and then its plan.
func (p *Partition) load(r *run) {
	r.busy, r.spoiled = true, nil
	p.do(&Op{Kind: OpLoad, Run: r.id}, func(res Result) {
		switch {
		case errors.Is(res.Err, drover.CodeNotFound):
			p.ready(r, nil, nil, 0)
		case res.Err != nil:
			p.again(r, OpLoad, res.Err, p.load)
		default:
			p.decode(r, res)
		}
	})
}

// again calls what failed once more, after a pause. The run stays busy.
func (p *Partition) again(r *run, kind OpKind, err error, try func(*run)) {
	p.opts.Report(r.id, kind, err)
	p.alarms.add(p.now.Add(pause(r.failures)), func() { try(r) })
	r.failures++
}

// decode makes the state of a record, and finds its plan.
func (p *Partition) decode(r *run, res Result) {
	state, err := machine.Decode(res.Data)
	if err != nil {
		p.unreadable(r, OpLoad, err)
		return
	}
	if plan := p.opts.Plan(nil, state.Hash); plan != nil {
		r.plan = plan
		p.owe(r, state, res)
		return
	}
	p.do(&Op{Kind: OpResolve, Run: r.id, Hash: state.Hash}, func(got Result) {
		switch {
		case final(got.Err):
			p.unreadable(r, OpResolve, got.Err)
			return
		case got.Err != nil:
			p.again(r, OpResolve, got.Err, p.load)
			return
		}
		r.plan = got.Plan
		p.owe(r, state, res)
	})
}

// owe performs what a record that was read still owes, and makes it known. What
// this owner has performed already, or performs just now, it does not repeat.
func (p *Partition) owe(r *run, state *machine.State, res Result) {
	owed := state.Owed
	if state.Position() < p.Cursor() || state.Position() <= max(r.happened, p.acted[r.id]) {
		owed = nil
	}
	if n := len(r.owing); n > 0 && state.Position() <= r.owing[n-1].seq {
		p.owes(r, r.owing[n-1], state, res)
		return
	}
	effects, err := machine.Effects(r.plan, state, owed, r.value)
	var need *machine.NeedError
	if errors.As(err, &need) {
		p.fetch(r, need.Keys, func() { p.owe(r, state, res) })
		return
	}
	for i := range effects {
		if d := effects[i].Drive; d != nil {
			d.Partial = true // somebody may have been asked, and have recorded since
		}
	}
	p.owes(r, p.act(r, state.Position(), owed, effects), state, res)
}

// owes makes a record known whose effects are performed.
func (p *Partition) owes(r *run, a *act, state *machine.State, res Result) {
	for _, it := range r.open {
		if it.seq <= state.Position() {
			it.acting = a
		}
	}
	p.ready(r, state, res.Data, res.Revision)
}

// ready makes what was read the state of the run, and goes on.
func (p *Partition) ready(r *run, state *machine.State, data []byte, rev uint64) {
	r.busy, r.failures = false, 0
	p.unpark(r)
	r.known, r.sure, r.doubt = true, true, false
	r.state, r.committed, r.rev = state, data, rev
	r.timer, r.timed, r.over = 0, 0, false
	if state != nil {
		r.remember(state)
	}
	p.step(r)
}

// fetch loads values, then goes on. Values that are gone are null from then on.
func (p *Partition) fetch(r *run, keys []string, then func()) {
	r.busy = true
	p.do(&Op{Kind: OpFetch, Run: r.id, Keys: keys}, func(res Result) {
		if res.Err != nil {
			p.again(r, OpFetch, res.Err, func(r *run) { p.fetch(r, keys, then) })
			return
		}
		r.failures = 0
		for _, key := range keys {
			value, ok := res.Values[key]
			if !ok {
				value = json.RawMessage("null")
			}
			r.keep(key, value)
		}
		then()
	})
}

func (r *run) value(key string) (json.RawMessage, bool) {
	v, ok := r.values[key]
	return v, ok
}

// resolved reports whether the plan of a start is at hand, or is not needed.
func (p *Partition) resolved(r *run, it *item) bool {
	if it.bad != nil || r.spoiled != nil || it.plan != nil || r.known && r.state != nil && it.seq <= r.state.Position() {
		return true
	}
	if r.known && r.state != nil && it.start.Workflow != "" && it.start.Workflow == r.state.Workflow {
		it.plan = r.plan // a run keeps the definition that the name had when it started
		return true
	}
	it.plan = p.opts.Plan(it.start, it.start.Hash)
	return it.plan != nil
}

// resolve finds the plan of a start. A definition that is wrong, or is not
// there, makes the start a bad command.
func (p *Partition) resolve(r *run, it *item) {
	r.busy = true
	p.do(&Op{Kind: OpResolve, Run: r.id, Start: it.start}, func(res Result) {
		switch {
		case res.Err == nil:
			it.plan = res.Plan
		case errors.Is(res.Err, drover.CodeNotFound) || errors.Is(res.Err, drover.CodeInvalidDefinition) ||
			errors.Is(res.Err, drover.CodeInvalidRequest) || errors.Is(res.Err, drover.CodeTooLarge):
			it.bad = drover.AsError(res.Err, drover.CodeInvalidRequest)
		default:
			p.again(r, OpResolve, res.Err, func(r *run) { p.resolve(r, it) })
			return
		}
		r.busy, r.failures = false, 0
		p.step(r)
	})
}

// act performs effects until they have happened. It is nil where there are none.
// Effects of one run happen in the order of its commits: what comes while some
// are under way is performed together after them.
func (p *Partition) act(r *run, seq uint64, owed []machine.Owed, effects []machine.Effect) *act {
	if len(effects) == 0 {
		if n := len(r.owing); n > 0 {
			r.owing[n-1].seq = max(r.owing[n-1].seq, seq)
		} else {
			r.happened = max(r.happened, seq)
		}
		return nil
	}
	a := &act{seq: seq, owed: owed, effects: effects}
	r.owing = append(r.owing, a)
	if len(r.owing) == 1 {
		p.perform(r)
	}
	return a
}

func (p *Partition) perform(r *run) {
	under := slices.Clone(r.owing)
	var effects []machine.Effect
	for _, a := range under {
		effects = append(effects, a.effects...)
	}
	r.handing = handsOver(effects)
	p.insist(Op{Kind: OpAct, Run: r.id, Effects: effects}, func() {
		r.handing = false
		for _, a := range under {
			a.done, a.effects = true, nil
			r.happened = max(r.happened, a.seq)
		}
		r.owing = r.owing[len(under):]
		if len(r.owing) > 0 {
			p.perform(r)
		}
		p.settle(r)
	})
}

// bury makes a command a dead letter, or tells its sender, and performs what
// follows from its refusal. r is nil where no run can be meant.
func (p *Partition) bury(r *run, it *item, why *drover.Error, effects []machine.Effect) {
	if it.start != nil && it.start.Parent != nil && len(effects) == 0 && r != nil {
		effects = []machine.Effect{machine.TellRefused(r.id, it.start.Parent, why)}
	}
	var ops []Op
	if it.msg.Reply != "" {
		p.do(&Op{Kind: OpAnswer, Reply: it.msg.Reply, Err: why}, nil)
	} else {
		ops = append(ops, Op{Kind: OpDead, Message: it.msg, Err: why})
	}
	if len(effects) > 0 {
		ops = append(ops, Op{Kind: OpAct, Run: r.id, Effects: effects})
	}
	it.forget()
	left := len(ops)
	if left == 0 {
		p.buried(r, it)
		return
	}
	if r != nil {
		r.burying++
	}
	for _, op := range ops {
		p.insist(op, func() {
			if left--; left > 0 {
				return
			}
			if r != nil {
				r.burying--
			}
			p.buried(r, it)
		})
	}
}

func (p *Partition) buried(r *run, it *item) {
	it.folded = true
	p.hold(it, false)
	if r == nil {
		p.done(it)
		return
	}
	if r.burying == 0 && r.held != nil {
		held := r.held
		r.held = nil
		held()
		return
	}
	p.settle(r)
}
