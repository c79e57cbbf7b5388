package flow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/droverhq/drover"
)

// node asks Drover for something outside of the process. What cannot be asked for
// is over at once.
func (r *Run) node(id string, step *drover.Step, input any, source string) *op {
	r.b.enter()
	c := r.b.c
	o := &op{entry: drover.Entry{Kind: drover.EntryNode, ID: id}, scope: r.b.scope, source: source}
	fail := func(err error) *op {
		o.over, o.err = true, err
		return o
	}
	if err := r.b.scope.cancelled(); err != nil {
		return fail(err)
	}
	if err := c.use(id, fmt.Sprintf("a node (%s)", step.Kind())); err != nil {
		return fail(err)
	}
	if source != "" {
		if got, ok := c.spared(source); ok {
			o.over, o.output = true, got.output
			return o
		}
	}
	var err error
	if o.entry.Step, err = encode(literal(step)); err == nil && input != nil {
		o.entry.Input, err = encode(input)
	}
	if err != nil {
		return fail(permanent(drover.CodeInvalidRequest, "what %q asks for is no JSON: %v", id, err))
	}
	c.nodes[id] = o
	return c.issue(o)
}

// nodeFuture is the future of a node, or of the error of its options.
func nodeFuture[T any](r *Run, err error, id string, step *drover.Step, input any, source string) *Future[T] {
	if err != nil {
		return &Future[T]{o: &op{entry: drover.Entry{ID: id}, over: true, err: err}, get: result[T]}
	}
	return &Future[T]{o: r.node(id, step, input, source), get: result[T]}
}

// Sleep pauses the branch. The process may be gone meanwhile. Its error is that
// of a stop.
func (r *Run) Sleep(id string, d time.Duration) error {
	_, err := StartSleep(r, id, d).Get(r)
	return err
}

// StartSleep begins a sleep.
func StartSleep(run *Run, id string, d time.Duration) *Future[struct{}] {
	return nodeFuture[struct{}](run, nil, id, &drover.Step{Sleep: &drover.Sleep{For: drover.Duration(max(d, time.Millisecond))}}, nil, "")
}

// SleepUntil pauses the branch until a time, which may have passed.
func (r *Run) SleepUntil(id string, t time.Time) error {
	step := &drover.Step{Sleep: &drover.Sleep{Until: strconv.Quote(t.UTC().Format(time.RFC3339Nano))}}
	_, err := nodeFuture[struct{}](r, nil, id, step, nil, "").Get(r)
	return err
}

// Wait waits for a delivery to the run by a name, as JSON of the type T. One that
// came before is there at once; each is given once, in their order. With
// [Timeout] its error may be of the code timeout. Options: [Timeout], [Schema].
func Wait[T any](run *Run, id, name string, opts ...Option) (T, error) {
	return StartWait[T](run, id, name, opts...).Get(run)
}

// StartWait begins a wait, see [Wait].
func StartWait[T any](run *Run, id, name string, opts ...Option) *Future[T] {
	o, err := read(id, opts, "Timeout", "Schema")
	step := &drover.Step{Wait: &drover.Wait{Name: name, Timeout: drover.Duration(o.policy.timeout), Schema: o.schema}}
	return nodeFuture[T](run, err, id, step, nil, "name "+name)
}

// Decision is what a person said.
type Decision struct {
	Approved bool
	Payload  json.RawMessage // all that they said: an object with approved
}

// UnmarshalJSON reads what was said.
func (d *Decision) UnmarshalJSON(data []byte) error {
	var said struct {
		Approved bool `json:"approved"`
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return err
	}
	d.Approved, d.Payload = said.Approved, append(json.RawMessage(nil), data...)
	return nil
}

// Approve asks a person, and waits for a yes or no. question is any JSON.
// Options: [Timeout].
func Approve(run *Run, id string, question any, opts ...Option) (Decision, error) {
	a := StartApprove(run, id, question, opts...)
	return a.Get(run)
}

// Approval is a question that was asked.
type Approval struct{ *Future[Decision] }

// StartApprove asks a person, see [Approve].
func StartApprove(run *Run, id string, question any, opts ...Option) Approval {
	o, err := read(id, opts, "Timeout")
	w := &drover.Wait{Timeout: drover.Duration(o.policy.timeout)}
	if err == nil {
		w.Approve, err = encode(question)
	}
	return Approval{nodeFuture[Decision](run, err, id, &drover.Step{Wait: w}, nil, "")}
}

// Token is what whoever decides has to show. It waits until the question is in
// the journal.
func (a Approval) Token(run *Run) (string, error) { return token(run, a.o) }

// token is the token that Drover made for a node, as its entry says.
func token(run *Run, o *op) (string, error) {
	run.b.enter()
	run.b.c.reading++
	err := run.b.share(func() bool { return o.matched || o.over }, o)
	run.b.c.reading--
	if err != nil {
		return "", err
	}
	if !o.matched {
		return "", o.err
	}
	raw, _ := o.value.(json.RawMessage)
	text, err := decode[string](raw)
	if err != nil || text == "" {
		return "", permanent(drover.CodeNotFound, "the journal does not say the token of %q", o.entry.ID)
	}
	return text, nil
}
