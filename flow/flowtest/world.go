package flowtest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/machine"
)

// secret of all tokens of a run in memory.
const secret = "flowtest"

// epoch is when every run starts.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a run and its owner, in memory.
type world struct {
	tb      testing.TB
	env     *Env
	plan    *machine.Plan
	run     drover.RunID
	mu      sync.Mutex
	state   *machine.State
	seq     uint64
	now     time.Time
	values  map[string]json.RawMessage
	todo    []machine.Effect
	asked   *drover.DriveRequest // the drive that somebody has to take
	last    *drover.DriveRequest // that somebody took
	claims  map[string]uint64
	streams map[string][]flow.StreamMessage
	drives  int
	end     *drover.DriveEnd      // of the body, as it was recorded last
	ghost   *drover.RecordRequest // that came last, where processes die
}

func newWorld(tb testing.TB, env *Env) *world {
	tb.Helper()
	def := &drover.Definition{Program: env.def.Name()}
	for _, change := range env.changes {
		change(def)
	}
	plan, err := machine.Compile(def)
	if err != nil {
		tb.Fatalf("flowtest: program %s has no definition: %v", env.def.Name(), err)
	}
	return &world{tb: tb, env: env, plan: plan, run: "r1", now: epoch, values: map[string]json.RawMessage{}, claims: map[string]uint64{}, streams: map[string][]flow.StreamMessage{}}
}

// apply folds a command, and puts what follows from it on the list.
func (w *world) apply(c *machine.Command) machine.Step {
	w.seq++
	c.Seq, c.At, c.Run = w.seq, w.now, w.run
	step, err := machine.Apply(w.plan, w.state, c, w.value)
	if err != nil {
		panic(fmt.Sprintf("flowtest: %s: %v", c.Verb, err)) // all values are there
	}
	for _, put := range step.Puts {
		w.values[put.Key] = put.JSON
	}
	if w.state = step.State; w.state == nil || !step.Changed {
		return step
	}
	if err := w.state.Check(w.plan); err != nil {
		panic(fmt.Sprintf("flowtest: after %s: %v", c.Verb, err))
	}
	record, err := machine.Encode(w.state)
	if err == nil {
		w.state, err = machine.Decode(record)
	}
	if err != nil {
		panic(fmt.Sprintf("flowtest: the record cannot be kept: %v", err))
	}
	w.todo = append(w.todo, step.Effects...)
	return step
}

// nodeID is the id inside of a run of what its body knows under another.
func (w *world) nodeID(id string) string {
	if generation := w.state.Program.Generation; generation > 0 {
		id += fmt.Sprintf("~%d", generation+1)
	}
	return id
}

func (w *world) value(key string) (json.RawMessage, bool) {
	raw, ok := w.values[key]
	return raw, ok
}

func (w *world) load(v machine.Value) json.RawMessage {
	if v.Key != "" {
		return w.values[v.Key]
	}
	return v.JSON
}

// perform does all that is on the list, but drives.
func (w *world) perform() {
	for len(w.todo) > 0 {
		e := w.todo[0]
		w.todo = w.todo[1:]
		switch e.Kind {
		case machine.EffectDrive:
			req := *e.Drive
			req.Input = w.load(e.Value)
			w.asked = &req
		case machine.EffectCall:
			w.call(&e)
		case machine.EffectStart:
			w.child(&e)
		case machine.EffectClaim:
			w.claims[e.Claim.Token] = w.seq
			w.apply(&machine.Command{Verb: drover.VerbClaimed, Claimed: &drover.ClaimedMessage{
				Hook: e.Claim.Token, Claim: e.Claim.ID, Proof: e.Claim.Proof, Revision: w.seq,
			}})
		case machine.EffectRelease:
			delete(w.claims, e.Token)
		default:
		}
	}
}

// call has a fake perform a call.
func (w *world) call(e *machine.Effect) {
	m := &drover.ResultMessage{Call: e.Call.ID, Token: e.Call.Token}
	fake := w.env.functions[string(e.Call.Function)]
	if fake == nil {
		m.Error = missing("function", string(e.Call.Function))
	} else {
		m.Output, m.Error = answer(fake, w.load(e.Value))
	}
	w.apply(&machine.Command{Verb: drover.VerbResult, Result: m})
}

// child has a fake be a child.
func (w *world) child(e *machine.Effect) {
	name := string(e.Start.Workflow)
	if name == "" {
		var def drover.Definition
		_ = json.Unmarshal(e.Start.Definition, &def)
		if name = def.Program; name == "" {
			name = string(def.Name)
		}
	}
	m := &drover.ChildMessage{Call: e.Start.Parent.Call, Token: e.Start.Parent.Token, Child: e.To, Status: drover.StatusCompleted}
	fake := w.env.children[name]
	if fake == nil {
		m.Error = missing("child", name)
	} else {
		m.Result, m.Error = answer(fake, w.load(e.Value))
	}
	if m.Error != nil {
		m.Status = drover.StatusFailed
	}
	if !e.Start.Parent.Detached {
		w.apply(&machine.Command{Verb: drover.VerbChild, Child: m})
	}
}

func missing(what, name string) *drover.Error {
	return &drover.Error{Code: drover.CodeNotFound, Permanent: true, Message: fmt.Sprintf("flowtest: the script has no %s %q", what, name)}
}

// answer is what a fake gives.
func answer(fake Fake, input json.RawMessage) (json.RawMessage, *drover.Error) {
	if input == nil {
		input = json.RawMessage("null")
	}
	out, err := fake(input)
	if err != nil {
		return nil, drover.AsError(err, drover.CodeFailed)
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, drover.AsError(err, drover.CodeFailed)
	}
	return data, nil
}

// journal is the journal from an entry on.
func (w *world) journal(from int) []drover.Entry {
	parts, err := w.state.JournalParts(max(from, 1), w.value)
	if err != nil {
		panic(err.Error())
	}
	list := []drover.Entry{}
	for _, part := range parts {
		lines, err := w.state.JournalLines(part, w.values[part.Key])
		if err != nil {
			panic(err.Error())
		}
		for i := range lines {
			list = append(list, lines[i].Entry(part.First+i, w.load(lines[i].Output)))
		}
	}
	return list
}
