package partition

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// epoch is when every script begins.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// driver performs nothing by itself: a script says what ends, and how. It keeps
// what was committed, and refuses a write whose revision is not the one there.
type driver struct {
	t       *testing.T
	p       *Partition
	now     time.Time // of the owner
	skew    time.Duration
	seq     uint64
	open    []*Op // taken, not ended
	sent    []*Op // whose end does not matter
	records map[drover.RunID]Result
	plans   map[string]*machine.Plan
	far     bool // no plan is at hand
	revs    uint64
	log     []Message // where a script keeps one
}

func newDriver(t *testing.T, opts Options) *driver {
	d := &driver{t: t, now: epoch, records: map[drover.RunID]Result{}, plans: map[string]*machine.Plan{}}
	d.own(opts)
	return d
}

// own makes a new owner over the same records.
func (d *driver) own(opts Options) {
	opts.Secret = func() string { return "secret" }
	opts.Plan = func(req *drover.StartRequest, hash drover.Hash) *machine.Plan {
		if d.far {
			return nil
		}
		if req != nil && len(req.Definition) > 0 {
			return d.plan(string(req.Definition))
		}
		return d.plans[string(hash)]
	}
	d.p, d.open = New(opts), nil
	d.p.Advance(d.now)
}

func (d *driver) plan(definition string) *machine.Plan {
	d.t.Helper()
	def, err := drover.ParseDefinition([]byte(definition))
	if err != nil {
		d.t.Fatal(err)
	}
	_, hash, err := def.Canonical()
	if err != nil {
		d.t.Fatal(err)
	}
	plan, err := machine.Compile(def)
	if err != nil {
		d.t.Fatal(err)
	}
	d.plans[string(hash)] = plan
	return plan
}

// send has the owner receive a command, and gives its sequence. The log's clock
// is skew ahead of the owner's.
func (d *driver) send(run string, verb drover.Verb, payload any) uint64 {
	d.t.Helper()
	data, ok := payload.([]byte)
	if !ok && payload != nil {
		var err error
		if data, err = json.Marshal(payload); err != nil {
			d.t.Fatal(err)
		}
	}
	d.seq++
	d.p.Receive(Message{Seq: d.seq, At: d.now.Add(d.skew), Run: run, Verb: string(verb), Data: data})
	return d.seq
}

func (d *driver) start(run, definition string, input any) uint64 {
	d.t.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.send(run, drover.VerbStart, drover.StartRequest{Definition: json.RawMessage(definition), Input: raw})
}

func (d *driver) deliver(run, name string) uint64 {
	d.t.Helper()
	return d.send(run, drover.VerbDeliver, drover.DeliverRequest{Name: name})
}

// pass lets time pass, and stops at each time that the owner asks for.
func (d *driver) pass(by time.Duration) {
	end := d.now.Add(by)
	for {
		at, ok := d.p.Next()
		if !ok || at.After(end) {
			break
		}
		if at.After(d.now) {
			d.now = at
		}
		d.p.Advance(d.now)
	}
	d.now = end
	d.p.Advance(d.now)
}

func (d *driver) take() {
	for _, op := range d.p.Take() {
		if op.Awaited() {
			d.open = append(d.open, op)
		} else {
			d.sent = append(d.sent, op)
		}
	}
}

// next gives the one operation of a kind that is under way.
func (d *driver) next(kind OpKind) *Op {
	d.t.Helper()
	d.take()
	at := slices.IndexFunc(d.open, func(op *Op) bool { return op.Kind == kind })
	if at < 0 {
		d.t.Fatalf("no %s is under way: %s", kind, d.under())
	}
	op := d.open[at]
	d.open = slices.Delete(d.open, at, at+1)
	return op
}

// under tells what is under way.
func (d *driver) under() string {
	d.take()
	kinds := []string{}
	for _, op := range d.open {
		kinds = append(kinds, op.Kind.String())
	}
	return strings.Join(kinds, " ")
}

func (d *driver) want(under string) {
	d.t.Helper()
	if got := d.under(); got != under {
		d.t.Fatalf("under way is %q, want %q", got, under)
	}
}

// end ends an operation as it should.
func (d *driver) end(kind OpKind) *Op {
	d.t.Helper()
	op := d.next(kind)
	d.p.Complete(op.ID, d.happen(op))
	return op
}

// fail ends an operation with an error; it did not happen.
func (d *driver) fail(kind OpKind, err error) *Op {
	d.t.Helper()
	op := d.next(kind)
	d.p.Complete(op.ID, Result{Err: err})
	return op
}

func (d *driver) happen(op *Op) Result {
	switch op.Kind {
	case OpCommit:
		if d.records[op.Run].Revision != op.Revision {
			return Result{Err: ErrConflict}
		}
		d.revs++
		d.records[op.Run] = Result{Data: op.Data, Revision: d.revs}
		return Result{Revision: d.revs}
	case OpLoad:
		rec, ok := d.records[op.Run]
		if !ok {
			return Result{Err: drover.Errorf(drover.CodeNotFound, "no run %s", op.Run)}
		}
		return rec
	case OpResolve:
		if op.Start != nil {
			return Result{Plan: d.plan(string(op.Start.Definition))}
		}
		return Result{Plan: d.plans[string(op.Hash)]}
	case OpTrace:
		if d.log != nil && (op.Seq > uint64(len(d.log)) || d.log[op.Seq-1].Run != string(op.Run) || d.log[op.Seq-1].At.After(op.At)) {
			return Result{Err: drover.Errorf(drover.CodeNotFound, "no command %d", op.Seq)}
		}
	case OpFetch, OpAct, OpDead, OpTick, OpSchedule, OpUnschedule, OpAnswer, OpEvent:
	}
	return Result{}
}

// settle ends everything until nothing is under way.
func (d *driver) settle() {
	d.t.Helper()
	for range 1000 {
		d.take()
		if len(d.open) == 0 {
			return
		}
		d.end(d.open[0].Kind)
	}
	d.t.Fatal("it goes on and on")
}

func (d *driver) state(data []byte) *machine.State {
	d.t.Helper()
	s, err := machine.Decode(data)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func (d *driver) cursor(want uint64) {
	d.t.Helper()
	if got := d.p.Cursor(); got != want {
		d.t.Fatalf("the cursor is %d, want %d", got, want)
	}
}

// calls names the calls among effects.
func calls(effects []machine.Effect) string {
	var ids []string
	for i := range effects {
		if e := &effects[i]; e.Kind == machine.EffectCall {
			ids = append(ids, e.Call.ID.String())
		} else {
			ids = append(ids, string(e.Kind))
		}
	}
	return strings.Join(ids, " ")
}

// waits is a definition with so many waits, each for a delivery of its own.
func waits(n int) string {
	var nodes []string
	for i := range n {
		nodes = append(nodes, fmt.Sprintf(`"w%d":{"wait":{"name":"go%d"}}`, i, i))
	}
	return `{"nodes":{` + strings.Join(nodes, ",") + `},"output":{"from":"node:w0"}}`
}

const (
	// afterWait calls twice: at once, and after a delivery.
	afterWait = `{"nodes":{
		"a":{"call":"f","timeout":"1h"},
		"w":{"wait":{"name":"go"}},
		"b":{"call":"g","timeout":"1h","depends_on":["w"]}},
		"output":{"from":"node:b"}}`
	sleeper = `{"nodes":{"s":{"sleep":"5s"}},"output":{"from":"node:s"}}`
)
