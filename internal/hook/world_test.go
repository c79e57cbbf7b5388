package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/kv/kvtest"
)

// The definitions that the runs of the tests have.
const (
	reader = `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: t}}`
	leader = `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: t, on_unread: restart}}`
	pair = `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: t, on_unread: restart, count: 2}}`
	taker = `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: t, takeover: true}}`
	holder = `
output: {from: node:end}
nodes:
  inbox: {wait: {hook: t, hold: true}}
  second: {wait: {from: inbox}}
  end: {release: {hook: inbox, unread: take}, depends_on: [second]}`
	worker = `
output: {from: node:work}
nodes:
  inbox: {wait: {hook: t, on_unread: restart}}
  work: {sleep: 1h, depends_on: [inbox]}`
	claimer = `
output: {from: node:inbox}
nodes:
  pause: {sleep: 1ms}
  inbox: {wait: {hook: t}, depends_on: [pause]}`
)

// world is runs whose folds are those of the machine, and processes that go on
// one call at a time, in an order that choose decides.
type world struct {
	t      testing.TB
	choose func(options []option) int
	now    time.Time
	hooks  kv.Hooks
	plans  map[string]*machine.Plan // by their text and by their hash
	runs   map[drover.RunID]*run
	order  []drover.RunID
	procs  []*proc
	seq    uint64
	made   int
	fail   func() (before, after bool) // a call fails, and whether it has happened
	eager  bool                        // a command is folded once it is stored
	alarms bool                        // a run that sleeps may wake at any time
	taken  map[string]int              // how often a fold has accepted what a sender sent
	trace  []string
}

type run struct {
	id     drover.RunID
	plan   *machine.Plan
	log    []*entry
	folded int
	record []byte
	owed   [][]machine.Effect
	acting bool
}

type entry struct {
	command *machine.Command
	answer  any
	refused *drover.Error
	done    bool
}

// option is one way to go on.
type option struct {
	proc *proc // a call of it, or
	run  *run  // a fold
	kill bool  // the process ends here, or
	wake *run
}

// proc is something that goes on between calls only.
type proc struct {
	name string
	next func() (struct{}, bool)
	stop func()
	dead bool
	// waits: it can do nothing before another has.
	waits bool
	over  func(killed bool)
	// mortal: it may be killed. A process of a run comes back then.
	mortal bool
}

var errKilled = errors.New("killed")

// plans are shared by all worlds: to compile takes longer than most of them.
var plans = map[string]*machine.Plan{}

func newWorld(t testing.TB, choose func([]option) int) *world {
	return &world{
		t: t, choose: choose, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), hooks: kvtest.NewMemory().Hooks,
		plans: plans, runs: map[drover.RunID]*run{}, taken: map[string]int{},
		fail: func() (bool, bool) { return false, false },
	}
}

func (w *world) plan(text string) *machine.Plan {
	if p := w.plans[text]; p != nil {
		return p
	}
	def, err := drover.ParseDefinition([]byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := machine.Compile(def)
	if err != nil {
		w.t.Fatal(err)
	}
	w.plans[text], w.plans[string(p.Hash)] = p, p
	return p
}

// spawn begins a process. do makes its calls through what it is given, and over
// is told when it has ended, or was killed.
func (w *world) spawn(name string, mortal bool, do func(*calls), over func(killed bool)) {
	p := &proc{name: name, mortal: mortal, over: over}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		do(&calls{world: w, name: name, wait: func() { p.waits = true }, yield: func() bool {
			if p.dead {
				return false
			}
			p.dead = !yield(struct{}{})
			return !p.dead
		}})
	})
	w.procs = append(w.procs, p)
}

// step goes on in one way, and is false where there is none.
func (w *world) step() bool {
	var options []option
	for _, p := range w.procs {
		options = append(options, option{proc: p})
	}
	for _, id := range w.order {
		if r := w.runs[id]; r.folded < len(r.log) {
			options = append(options, option{run: r})
		} else if w.alarms && r.record != nil && w.state(r).Deadline() != 0 {
			options = append(options, option{wake: r})
		}
	}
	if len(options) == 0 {
		return false
	}
	for _, p := range w.procs {
		if p.mortal {
			options = append(options, option{proc: p, kill: true})
		}
	}
	w.now = w.now.Add(100 * time.Microsecond)
	o := options[w.choose(options)]
	switch {
	case o.run != nil:
		w.fold(o.run)
	case o.wake != nil:
		w.wake(o.wake)
	case o.kill:
		w.trace = append(w.trace, o.proc.name+" is killed")
		o.proc.dead = true
		o.proc.stop()
		w.end(o.proc, true)
	default:
		if _, more := o.proc.next(); !more {
			w.end(o.proc, false)
		}
	}
	return true
}

func (w *world) end(p *proc, killed bool) {
	w.procs = slices.DeleteFunc(w.procs, func(q *proc) bool { return p == q })
	if p.over != nil {
		p.over(killed)
	}
}

func (w *world) settle() {
	w.t.Helper()
	for n := 0; w.step() || w.tick(); n++ {
		if n > 200_000 {
			w.t.Fatalf("the world does not come to rest:\n%s", strings.Join(last(w.trace, 60), "\n"))
		}
	}
}

// tick wakes a run that sleeps.
func (w *world) tick() bool {
	for _, id := range w.order {
		if r := w.runs[id]; r.record != nil && w.state(r).Deadline() != 0 {
			w.wake(r)
			return true
		}
	}
	return false
}

func (w *world) wake(r *run) {
	if at := w.state(r).Deadline().Time(); at.After(w.now) {
		w.now = at
	}
	w.store(r.id, drover.VerbTick, struct{}{})
}

// rest goes on until nothing but time is waited for.
func (w *world) rest() {
	for w.step() {
	}
}

// store puts a command in a log.
func (w *world) store(id drover.RunID, verb drover.Verb, body any) *entry {
	data, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	r := w.runs[id]
	if r == nil {
		r = &run{id: id}
		w.runs[id], w.order = r, append(w.order, id)
	}
	w.seq++
	e := &entry{}
	var start *drover.StartRequest
	e.command, start, e.refused = machine.DecodeCommand(w.seq, w.now, string(id), string(verb), data, "")
	if start != nil {
		e.command.Start.Hash, e.command.Start.Secret = start.Hash, "secret of "+string(id)
	}
	r.log = append(r.log, e)
	if w.eager {
		w.fold(r)
	}
	return e
}

// fold folds the next command of a run.
func (w *world) fold(r *run) {
	e := r.log[r.folded]
	r.folded++
	e.done = true
	if e.refused != nil {
		return
	}
	var s *machine.State
	if r.record != nil {
		s = w.state(r)
	}
	plan := r.plan
	if e.command.Start != nil {
		plan = w.plans[string(e.command.Start.Hash)]
	}
	step, err := machine.Apply(plan, s, e.command, func(string) (json.RawMessage, bool) { return nil, false })
	if err != nil {
		w.t.Fatalf("run %s: %v", r.id, err)
	}
	e.answer, e.refused = step.Answer, step.Refused
	w.trace = append(w.trace, fmt.Sprintf("fold %s %s: answer %v, refused %v", r.id, e.command.Verb, step.Answer, step.Refused))
	w.count(e)
	if !step.Changed {
		return
	}
	r.plan = plan
	if err := step.State.Check(plan); err != nil {
		w.t.Fatalf("run %s: %v", r.id, err)
	}
	if r.record, err = machine.Encode(step.State); err != nil {
		w.t.Fatal(err)
	}
	batch := slices.DeleteFunc(step.Effects, func(e machine.Effect) bool {
		return e.Kind != machine.EffectClaim && e.Kind != machine.EffectRelease && e.Kind != machine.EffectHandOver
	})
	if len(batch) > 0 {
		r.owed = append(r.owed, batch)
		w.act(r)
	}
}

// count counts what a fold has accepted from a sender, not from a predecessor.
func (w *world) count(e *entry) {
	d, ok := e.answer.(drover.DeliverReply)
	if ok && !d.Repeat && !strings.Contains(e.command.Deliver.ID, "/") {
		w.taken[string(e.command.Deliver.Payload)]++
	}
}

func (w *world) state(r *run) *machine.State {
	s, err := machine.Decode(r.record)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// act performs what a run owes, batch by batch, again and again until it is done.
func (w *world) act(r *run) {
	if r.acting || len(r.owed) == 0 {
		return
	}
	r.acting = true
	done := false
	w.spawn("claimant of "+string(r.id), true, func(c *calls) {
		claimant := &Claimant{Claims: c, Runs: c, Log: c, Now: c.clock}
		for i := range r.owed[0] {
			if err := perform(claimant, &r.owed[0][i]); err != nil {
				return
			}
		}
		done = true
	}, func(bool) {
		if r.acting = false; done {
			r.owed = r.owed[1:]
		}
		w.act(r)
	})
}

func perform(c *Claimant, e *machine.Effect) error {
	ctx := context.Background()
	switch e.Kind {
	case machine.EffectClaim:
		return c.Claim(ctx, e.Claim)
	case machine.EffectRelease:
		return c.Release(ctx, e.Token, e.ClaimID, e.Until.Time())
	default:
		start := *e.Start
		start.Input = e.Value.JSON
		return c.HandOver(ctx, &HandOver{
			From: e.Run, To: e.To, Start: &start, Deliveries: e.Deliveries,
			Payload: func(_ context.Context, v machine.Value) (json.RawMessage, bool, error) { return v.JSON, true, nil },
		})
	}
}
