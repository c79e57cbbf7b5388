package flow

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover"
)

// core is the life of a body in memory: its branches, and how far they have come
// in the journal. All of it belongs to whoever has the baton.
//
// What a body asks for is in the journal in two ways. What is asked for without
// waiting (nodes, cancels, values) comes in the order in which it was issued, so
// the oldest that is not matched yet must be the next of that kind. What ends at
// a time of its own (steps, undos) is matched by its id. The loop consumes one
// entry at a time, and all branches run until they are blocked in between, in the
// first drive as in any other: so the order of entries alone decides.
type core struct {
	def     *Def
	req     *drover.DriveRequest
	trace   func(Op)
	panics  func(drover.Entry) // of steps and undos
	working *sync.WaitGroup    // functions of steps

	branches []*branch
	ready    []*branch
	baton    chan struct{} // comes back from a branch
	current  atomic.Pointer[branch]
	dead     bool
	gone     chan struct{}   // closed: dropped
	base     context.Context //nolint:containedctx // of undos, which no stop ends
	endBase  context.CancelFunc
	root     *scope
	idle     *branch          // waits for all others to be over
	run      *Run             // of the first branch
	broken   *drover.DriveEnd // panicked or blocked
	last     bool             // if the body panics, it is not driven again
	burst    *burst           // it panicked, and is not broken off
	failure  *drover.Error    // and this is what the journal has of that: what was done is to be undone
	end      *drover.DriveEnd // the body is over

	journal  []drover.Entry // known, and not consumed
	consumed int
	have     int // known
	now      time.Time
	stop     *drover.Error // it was asked to stop

	streams map[string]*stream
	out     *outbox // of the drive

	used    map[string]string // ids, and what they are of
	patches map[string]bool   // what was said of the ids of Patched, which are others
	issued  []*op             // not matched, oldest first
	unsent  int               // the last of those
	steps   map[string]*op    // that are not over
	undos   map[string]*op    // likewise
	nodes   map[string]*op
	begun   int            // functions of steps that run
	done    chan stepDone  // and how they end
	spare   []*op          // waits that were cancelled, and got a delivery nevertheless
	single  int            // records that are sent one by one, as one of them was refused
	queue   []drover.Entry // records to send
	at      int            // records that the owner has
	rand    *rand.Rand     // of the author
	uuid    *rand.ChaCha8  // of UUID
	reading int            // branches that wait for an entry of their own to be in the journal
	due     []*op          // steps and undos whose next attempt is to begin
}

// op is one thing that a body has asked for.
type op struct {
	entry   drover.Entry // of what was issued; its id
	scope   *scope
	waiters []*branch
	over    bool
	matched bool // its own entry was consumed
	output  json.RawMessage
	err     error
	source  string // of a wait: what it takes deliveries of
	dropped bool   // nobody waits for it any more
	branch  bool
	value   any // of a branch; of what was matched: its JSON

	work    func(ctx context.Context) (json.RawMessage, error) // of a step or undo
	policy  policy
	attempt int
	state   stepState
}

type stepState int

const (
	stepDue     stepState = iota // its next attempt begins when the journal is at its end
	stepRunning                  // or its record is under way
	stepPausing
)

func newCore(d *Def, req *drover.DriveRequest, trace func(Op)) *core {
	c := &core{
		def: d, req: req, trace: trace, now: req.Started,
		baton: make(chan struct{}), gone: make(chan struct{}), done: make(chan stepDone),
		streams: map[string]*stream{}, used: map[string]string{}, patches: map[string]bool{}, steps: map[string]*op{}, undos: map[string]*op{}, nodes: map[string]*op{},
		rand: rand.New(rand.NewChaCha8(sha256.Sum256([]byte("rand/" + req.Seed)))),
		uuid: rand.NewChaCha8(sha256.Sum256([]byte("uuid/" + req.Seed))),
	}
	c.base, c.endBase = context.WithCancel(context.Background())
	c.root = newScope(nil, c.base)
	run := &Run{undo: &undoList{}}
	run.b = c.fork(c.root, func() { c.main(run) })
	c.run = run
	return c
}

// learn adds what the journal has.
func (c *core) learn(entries []drover.Entry) {
	for _, e := range entries {
		if e.Number == c.have+1 {
			c.journal = append(c.journal, e)
			c.have++
		}
	}
}

// use takes an id, which a run has once, for what is of it.
func (c *core) use(id, what string) error {
	if checkID(id) != nil {
		return badID(id, c.def.name)
	}
	switch before := c.used[id]; before {
	case "":
	case what:
		return permanent(drover.CodeConflict, "id %q is used twice in a run of program %s, each time for %s: in a loop, make it of the number of the round", id, c.def.name, what)
	default:
		return permanent(drover.CodeConflict, "id %q is used twice in a run of program %s, for %s and then for %s: a run has one id for one thing, so give one of them another", id, c.def.name, before, what)
	}
	c.used[id] = what
	return nil
}

func badID(id, program string) *drover.Error {
	return permanent(drover.CodeInvalidID, "id %q in program %s must be 1 to 100 bytes without # . / * > ~ @ or white space", cut(id, 110), program)
}

// issue asks for something that is matched in order.
func (c *core) issue(o *op) *op {
	c.issued = append(c.issued, o)
	c.unsent++
	c.traced(o.entry)
	return o
}

// resolve ends what was asked for.
func (c *core) resolve(o *op, output json.RawMessage, err error) {
	if o.over {
		return
	}
	o.over, o.output, o.err = true, output, err
	c.notify(o)
}

func (c *core) notify(o *op) {
	for _, b := range o.waiters {
		c.wake(b)
	}
	o.waiters = nil
}

// drop has the body not wait for a node any more.
func (c *core) drop(o *op, err error) {
	if o.over {
		return
	}
	o.dropped = true
	c.issue(&op{entry: drover.Entry{Kind: drover.EntryCancel, ID: o.entry.ID}})
	c.resolve(o, nil, err)
}

// cancel ends a scope: nodes that it waits for are dropped, steps hear of it and
// end by themselves, pauses are over.
func (c *core) cancel(s *scope, err *drover.Error, stopping bool) {
	if s.err != nil {
		return
	}
	s.err = err
	s.end(err)
	for _, id := range sortedKeys(c.nodes) {
		switch o := c.nodes[id]; {
		case o.over || !o.scope.within(s):
		case stopping && o.matched: // the owner ends what it has
			c.resolve(o, nil, err)
		default:
			c.drop(o, err)
		}
	}
	for _, id := range sortedKeys(c.steps) {
		if o := c.steps[id]; o.state == stepPausing && o.scope.within(s) {
			delete(c.steps, id)
			c.resolve(o, nil, err)
		}
	}
	for _, b := range c.branches {
		if b.started && b.scope.within(s) {
			c.wake(b)
		}
	}
}

// traced tells a test what the body has asked for.
func (c *core) traced(e drover.Entry) {
	if c.trace != nil {
		c.trace(Op{Kind: e.Kind, ID: e.ID, Step: e.Step, Input: e.Input})
	}
}

// doing says what the body waits for.
func (c *core) doing() string {
	if c.end != nil {
		return "has ended " + string(c.end.Status)
	}
	var list []string
	for _, o := range c.issued {
		list = append(list, describe(o.entry))
	}
	for _, id := range sortedKeys(c.steps) {
		list = append(list, fmt.Sprintf("step %q", id))
	}
	for _, id := range sortedKeys(c.undos) {
		list = append(list, fmt.Sprintf("undo %q", id))
	}
	for _, id := range sortedKeys(c.nodes) {
		if o := c.nodes[id]; !o.over && o.matched {
			list = append(list, describe(o.entry))
		}
	}
	switch {
	case len(list) == 0:
		return "asks for nothing"
	case len(list) > 5:
		return fmt.Sprintf("asks for %s, and %d more", join(list[:5]), len(list)-5)
	}
	return "asks for " + join(list)
}
