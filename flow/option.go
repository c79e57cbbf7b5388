package flow

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/droverhq/drover"
)

// Option says more of one thing that a body asks for: [Retry], [Timeout],
// [Compensate], [Schema], [Detach], [Abandon]. One that does not fit what it is given to is
// an error.
type Option interface{ apply(o *options) }

// StepOption is an option of a step: [Retry], [Timeout], [Compensate].
type StepOption = Option

type options struct {
	given      []string
	policy     policy
	compensate any // func(ctx, T) error
	schema     json.RawMessage
	detach     bool
	abandon    bool
}

// Retry has a step or call tried again when it failed. The zero value: 3
// attempts, 1 s before the second, twice as long before each later one, at most
// 1 min. The process may be gone meanwhile.
type Retry struct {
	Attempts int           // 0: 3
	Initial  time.Duration // 0: 1 s
	Factor   float64       // from 1; 0: 2
	Max      time.Duration // 0: 1 min
}

func (r Retry) apply(o *options) {
	o.given = append(o.given, "Retry")
	o.policy.Retry, o.policy.set = r, true
}

// Timeout is how long each attempt of a step or a call, or a wait, may take. It
// has failed then, with the code timeout.
type Timeout time.Duration

func (t Timeout) apply(o *options) {
	o.given = append(o.given, "Timeout")
	o.policy.timeout = time.Duration(t)
}

// Schema is a JSON Schema, which what is delivered must fit.
type Schema json.RawMessage

func (s Schema) apply(o *options) {
	o.given = append(o.given, "Schema")
	o.schema = json.RawMessage(s)
}

type optionFunc func(o *options)

func (f optionFunc) apply(o *options) { f(o) }

// Detach has a body not wait for a child that it invokes, and never hear of it.
func Detach() Option {
	return optionFunc(func(o *options) {
		o.given = append(o.given, "Detach")
		o.detach = true
	})
}

// Abandon has a child that a body invokes go on whatever becomes of the body: it is
// not stopped with its run, nor where nobody waits for it any more. With a
// [Timeout] and a [Retry] there may be several such children.
func Abandon() Option {
	return optionFunc(func(o *options) {
		o.given = append(o.given, "Abandon")
		o.abandon = true
	})
}

// Compensate has fn undo a step that was done, when the run, or its group, fails
// or is stopped. It gets what the step gave, and is tried again as the step is.
func Compensate[T any](fn func(ctx context.Context, done T) error) StepOption {
	return optionFunc(func(o *options) {
		o.given = append(o.given, "Compensate")
		o.compensate = fn
	})
}

// read collects options, and refuses those that do not fit.
func read(id string, opts []Option, fit ...string) (*options, error) {
	o := &options{}
	for _, opt := range opts {
		opt.apply(o)
	}
	for _, name := range o.given {
		if !slices.Contains(fit, name) {
			return o, permanent(drover.CodeInvalidRequest, "%q takes no option %s", id, name)
		}
	}
	return o, nil
}

// wire is the policy as a definition has it, or nil.
func (p policy) wire() *drover.Retry {
	if !p.set {
		return nil
	}
	return &drover.Retry{MaxAttempts: p.Attempts, Initial: drover.Duration(p.Initial), Factor: p.Factor, Max: drover.Duration(p.Max)}
}
