package partition

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// maxPuts is how many bytes of values are stored with one commit, more or less.
const maxPuts = 8 << 20

// batch is what was folded and waits for one commit.
type batch struct {
	size    int // bytes of puts
	items   []*item
	answers []Op
	effects []machine.Effect
	puts    []machine.Put
}

// fold applies what is queued, until something must come first, and commits it.
//
// A command that changes nothing is finished at once while the batch is empty.
// A refusal behind a change ends the batch, so that its dead letter can be
// written after that change and before the next.
//
// Values are stored before their record, and the first one under a key stays.
// So a start that stores some must know that there is no record: else it could
// give a run that is there values that are not its own.
func (p *Partition) fold(r *run) {
	r.busy = true // nothing lets go of the run meanwhile
	var b batch
	for len(r.queue) > 0 && b.open(r) {
		it := r.queue[0]
		if it.bad == nil && !p.foldable(r, it) {
			break
		}
		step, err := p.apply(r, it)
		var need *machine.NeedError
		if errors.As(err, &need) {
			p.rollBack(r, b.items)
			p.fetch(r, need.Keys, func() { r.busy = false; p.step(r) })
			return
		}
		if len(step.Puts) > 0 && !r.sure {
			p.rollBack(r, b.items)
			r.busy, r.doubt = false, true
			return
		}
		if step.Refused != nil && len(b.items) > 0 {
			break
		}
		r.pop()
		p.take(r, &b, it, step)
	}
	if len(b.items) == 0 {
		r.busy = false
		return
	}
	p.encode(r, &b)
}

// open reports whether one more command may join the batch.
func (b *batch) open(r *run) bool {
	return len(b.items) < maxBatch && b.size < maxPuts && (!r.single || len(b.items) == 0)
}

// foldable reports whether a command can be folded now.
func (p *Partition) foldable(r *run, it *item) bool {
	switch {
	case r.doubtful(it):
		return false
	case it.start != nil:
		return p.resolved(r, it)
	}
	return r.known
}

// apply folds one command, or finds that it was folded before.
func (p *Partition) apply(r *run, it *item) (machine.Step, error) {
	if it.bad == nil {
		it.bad = r.spoiled
	}
	if it.bad != nil {
		return machine.Step{Refused: it.bad}, nil
	}
	if it.cmd.Verb == drover.VerbTick {
		p.ticked(r, it.msg.At)
	}
	r.heard = max(r.heard, machine.Millis(it.cmd.At.UnixMilli()))
	r.passes(it.cmd.At)
	if r.state != nil && it.seq <= r.state.Position() {
		return machine.Step{State: r.state}, nil
	}
	plan := r.plan
	if it.start != nil {
		plan = it.plan
		if r.state == nil {
			if refused := p.opts.Admit(r.id, it.start, plan); refused != nil {
				return machine.Step{State: r.state, Refused: refused}, nil
			}
			it.cmd.Start.Secret = p.opts.Secret()
		}
		it.cmd.Start.Hash = plan.Hash
	}
	return machine.Apply(plan, r.state, it.cmd, r.value)
}

// take makes what a command did part of the batch, or finishes the command.
func (p *Partition) take(r *run, b *batch, it *item, step machine.Step) {
	answer := Op{Kind: OpAnswer, Reply: it.msg.Reply, Answer: step.Answer}
	switch {
	case step.Refused != nil && it.bad == nil && r.state == nil && it.cmd != nil && it.cmd.Verb == drover.VerbTick && it.msg.Reply == "":
		p.finish(it) // of a timer that has outlived its run, as a rule: nobody waits for it, and nothing is lost
		return
	case step.Refused != nil:
		p.bury(r, it, step.Refused, step.Effects)
		return
	case !step.Changed && len(b.items) == 0:
		p.finish(it)
		if step.Answer != nil && answer.Reply != "" {
			p.do(&answer, nil)
		}
		return
	}
	if step.Changed {
		r.state, r.known = step.State, true
		if it.start != nil {
			r.plan = it.plan
		}
	}
	b.items = append(b.items, it)
	b.effects = append(b.effects, step.Effects...)
	b.puts = append(b.puts, step.Puts...)
	if step.Answer != nil && answer.Reply != "" {
		b.answers = append(b.answers, answer)
	}
	for _, put := range step.Puts {
		b.size += len(put.JSON)
		r.keep(put.Key, put.JSON)
	}
}

func (r *run) pop() {
	r.queue[0] = nil
	r.queue = r.queue[1:]
}

// finish marks a command whose fold needs nothing more to be durable.
func (p *Partition) finish(it *item) {
	it.folded = true
	it.forget()
	p.hold(it, false)
}

// forget lets go of what a command brought.
func (it *item) forget() { it.msg.Data, it.cmd, it.start, it.plan = nil, nil, nil, nil }

// rollBack puts the commands of a batch back in front of the queue, and the
// state to what was last committed.
func (p *Partition) rollBack(r *run, items []*item) {
	r.requeue(items)
	if r.committed == nil {
		r.state, r.known = nil, r.sure
		return
	}
	state, err := machine.Decode(r.committed)
	if err != nil { // what was encoded can be decoded; if not, the store knows better
		p.forget(r)
		return
	}
	r.state = state
}

// forget drops what is in memory of a run: its record must be read.
func (p *Partition) forget(r *run) {
	r.known, r.sure, r.doubt = false, false, true
	r.state, r.committed, r.rev = nil, nil, 0
}

// encode makes the record of a batch, and commits it once nothing earlier
// waits to be a dead letter.
func (p *Partition) encode(r *run, b *batch) {
	r.state.Timer, r.state.Timed = r.timer, r.timed
	if r.ends() {
		r.state.Timer, r.state.Timed = 0, 0
	}
	owed := machine.Compact(b.effects)
	r.state.Owed = nil
	for _, a := range r.owing { // in the order in which they have to happen
		r.state.Owed = append(r.state.Owed, a.owed...)
	}
	r.state.Owed = append(r.state.Owed, owed...)
	data, err := machine.Encode(r.state)
	if err != nil {
		p.impossible(r, b, err)
		return
	}
	commit := func() { p.commit(r, b, owed, data) }
	if r.burying > 0 {
		r.held = commit
		return
	}
	commit()
}

// commit writes the record.
func (p *Partition) commit(r *run, b *batch, owed []machine.Owed, data []byte) {
	op := &Op{Kind: OpCommit, Run: r.id, Revision: r.rev, Puts: b.puts, Data: data}
	p.do(op, func(res Result) {
		switch {
		case res.Err == nil:
			p.committed(r, b, owed, data, res.Revision)
		case errors.Is(res.Err, ErrBusy):
			p.again(r, OpCommit, res.Err, func(r *run) { p.commit(r, b, owed, data) })
		case errors.Is(res.Err, ErrImpossible):
			p.impossible(r, b, res.Err)
		default: // another wrote, or it may have been written
			p.lost(r, b, res.Err)
		}
	})
}

// lost reads the record again after a commit that did not succeed, or may have.
// The first conflict is an ordinary thing. What goes on failing is tried after
// pauses that grow, although reading works: each try costs a write.
func (p *Partition) lost(r *run, b *batch, err error) {
	p.forget(r)
	r.requeue(b.items)
	if errors.Is(err, ErrConflict) && r.losses == 0 {
		r.losses++
		r.busy = false
		p.step(r)
		return
	}
	p.opts.Report(r.id, OpCommit, err)
	p.alarms.add(p.now.Add(pause(r.losses)), func() { p.load(r) })
	r.losses++
}

// requeue puts commands back in front of the queue.
func (r *run) requeue(items []*item) { r.queue = slices.Concat(items, r.queue) }

// committed performs what a commit decided, and goes on.
func (p *Partition) committed(r *run, b *batch, owed []machine.Owed, data []byte, rev uint64) {
	r.busy, r.single, r.sure, r.failures, r.losses = false, false, true, 0, 0
	if r.early = 0; r.tickAfter.After(p.now.Add(firstPause)) {
		r.tickAfter = p.now.Add(firstPause)
	}
	r.rev, r.committed = rev, data
	p.unschedule(r)
	r.shed(maxValues)
	a := p.act(r, r.state.Position(), owed, b.effects)
	for _, it := range b.items {
		it.acting = a
		p.finish(it)
	}
	for i := range b.answers {
		p.do(&b.answers[i], nil)
	}
	p.do(&Op{Kind: OpEvent, Run: r.id, Status: r.state.Status, Seq: r.state.Applied}, nil)
	p.step(r)
}

// impossible finds the one command of a batch that can never be committed, and
// makes it a dead letter.
func (p *Partition) impossible(r *run, b *batch, err error) {
	p.forget(r)
	if len(b.items) == 1 {
		b.items[0].bad = drover.Errorf(drover.CodeTooLarge,
			"run %s cannot be stored after command %d: %v", r.id, b.items[0].seq, err)
	}
	r.requeue(b.items)
	r.busy, r.single = false, true
	p.step(r)
}

// keep remembers a value that the next fold may want to read.
func (r *run) keep(key string, value json.RawMessage) {
	if r.values == nil {
		r.values = map[string]json.RawMessage{}
	}
	r.size += len(value) - len(r.values[key])
	r.values[key] = value
}

// shed forgets values where they are more than so many bytes. They can be
// fetched: what they belong to was committed.
func (r *run) shed(most int) {
	if r.size > most {
		r.values, r.size = nil, 0
	}
}
