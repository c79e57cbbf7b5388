package flowtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/machine"
)

// Fake stands for a function or a child: it gets the input, and gives what is
// made JSON of.
type Fake func(input json.RawMessage) (any, error)

// Script says what the world of a run is. It may be called several times, and
// must make everything anew: what its fakes count belongs to one world.
type Script func(e *Env)

// Env is the world of a run.
type Env struct {
	def       *flow.Def
	functions map[string]Fake
	children  map[string]Fake
	changes   []func(*drover.Definition)
	events    []event
	tags      map[string]string
	crash     bool
	eager     bool
	drop      bool
	blocks    bool
	w         *world
}

// event is something that happens in the course of the run.
type event struct {
	at time.Duration
	do func()
}

func newEnv(def *flow.Def, script Script) *Env {
	e := &Env{def: def, functions: map[string]Fake{}, children: map[string]Fake{}}
	if script != nil {
		script(e)
	}
	return e
}

// Function has calls of a function, or of _request, _http and agent, go to fake.
func (e *Env) Function(name string, fake Fake) { e.functions[name] = fake }

// Child has children of a workflow, or of a program, be fake.
func (e *Env) Child(name string, fake Fake) { e.children[name] = fake }

// Definition changes that of the run: its timeouts and retries.
func (e *Env) Definition(change func(*drover.Definition)) { e.changes = append(e.changes, change) }

// Tags are those of the run.
func (e *Env) Tags(tags map[string]string) { e.tags = tags }

// Eager has what functions and children give come as soon as it can, while the
// body is driven, and not when it parks.
func (e *Env) Eager() { e.eager = true }

// Dies has the process that drives die after each record: after it was taken and
// before it was answered. Another one goes on.
func (e *Env) Dies() { e.crash = true }

// Forget has the body not stay in memory when it parks.
func (e *Env) Forget() { e.drop = true }

// Blocks says that the run may end blocked. Else a body that does not fit its journal
// fails the test.
func (e *Env) Blocks() { e.blocks = true }

// After has do happen when the run is so old. It may call all that makes things
// happen now.
func (e *Env) After(d time.Duration, do func()) {
	e.events = append(e.events, event{d, do})
	slices.SortStableFunc(e.events, func(a, b event) int { return int(a.at - b.at) })
}

// Deliver delivers to a wait by its name: at once in After, else when the run has
// started.
func (e *Env) Deliver(name string, payload any) {
	if e.w != nil {
		e.w.tb.Helper()
	}
	e.now(func() {
		e.w.tb.Helper()
		e.w.apply(&machine.Command{Verb: drover.VerbDeliver, Deliver: &drover.DeliverRequest{Name: name, Payload: e.json(payload)}})
	})
}

// DeliverHook delivers to a token.
func (e *Env) DeliverHook(token string, payload any) {
	if e.w != nil {
		e.w.tb.Helper()
	}
	e.now(func() {
		e.w.tb.Helper()
		e.hook(fmt.Sprintf("the delivery to hook %q", token), token, payload)
	})
}

// Decide answers an approval, by the id that the body gives it: without the ~n that
// it has outside of a body that has begun anew.
func (e *Env) Decide(id string, approved bool) {
	if e.w != nil {
		e.w.tb.Helper()
	}
	e.now(func() {
		e.w.tb.Helper()
		if open := e.w.approvals(); !slices.Contains(open, id) {
			e.w.tb.Errorf("flowtest: the decision on %q was refused, after %s: the body asks for no such approval, but for %s: give the id that the body gives, without ~n",
				id, e.w.now.Sub(epoch), list(open))
			return
		}
		e.hook(fmt.Sprintf("the decision on %q", id), "h_"+machine.Token(secret, "hook/"+e.w.nodeID(id)), map[string]bool{"approved": approved})
	})
}

// Stop asks the run to stop.
func (e *Env) Stop(reason string) {
	e.now(func() {
		e.w.apply(&machine.Command{Verb: drover.VerbStop, Stop: &drover.StopRequest{Reason: reason}})
	})
}

func (e *Env) now(do func()) {
	if e.w == nil {
		e.After(0, do)
		return
	}
	e.w.tb.Helper()
	do()
}

// hook delivers to a token, which is what of the run.
func (e *Env) hook(what, token string, payload any) {
	e.w.tb.Helper()
	step := e.w.apply(&machine.Command{Verb: drover.VerbDeliver, Deliver: &drover.DeliverRequest{
		Hook: token, Claim: e.w.claims[token], Payload: e.json(payload),
	}})
	if step.Refused != nil {
		e.w.tb.Errorf("flowtest: %s was refused, after %s: %v", what, e.w.now.Sub(epoch), step.Refused)
	}
}

func (e *Env) json(v any) json.RawMessage {
	e.w.tb.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		e.w.tb.Errorf("flowtest: a payload is no JSON: %v", err)
	}
	return data
}

// Result is how a run ended.
type Result struct {
	Status   drover.Status
	Output   json.RawMessage
	Error    *drover.Error
	Note     string                     // why it is blocked
	Journal  []drover.Entry             // since the body began, or began anew
	Metadata map[string]json.RawMessage // of the run, when it was over
	Streams  map[string][]drover.Chunk  // by id: what readers get
	Drives   int                        // as often as the body was driven
	Elapsed  time.Duration              // of the clock of the run
	tb       testing.TB
}

// Output reads what a run gave. It fails the test where the run did not complete.
func Output[T any](r *Result) T {
	r.tb.Helper()
	var v T
	if r.Status != drover.StatusCompleted {
		r.tb.Fatalf("flowtest: the run is %s: %v%s", r.Status, r.Error, undecided(r.Journal))
	}
	if err := json.Unmarshal(r.Output, &v); err != nil {
		r.tb.Fatalf("flowtest: the result %s is no %T: %v", r.Output, v, err)
	}
	return v
}
