package flow

import (
	"time"

	"github.com/droverhq/drover"
)

// Target is what a body invokes as a child: [Workflow], [ProgramNamed],
// [Definition].
type Target struct{ run drover.RunStep }

// Workflow is a registered definition.
func Workflow(name string) Target {
	return Target{drover.RunStep{Workflow: drover.WorkflowName(name)}}
}

// ProgramNamed is a program that some process serves.
func ProgramNamed(name string) Target {
	return Target{drover.RunStep{Definition: &drover.Definition{Program: name}}}
}

// Definition is a definition itself.
func Definition(def *drover.Definition) Target { return Target{drover.RunStep{Definition: def}} }

// Invoke starts a child run, and waits for its result as JSON of the type T. One
// that does not complete is an error with the code child. No drive and no crash
// starts a second one. It is stopped when the run is, or when nobody waits for it
// any more. Options: [Timeout], [Retry], [Abandon], which keeps it from being
// stopped, and [Detach], where the result is what its start gives.
func Invoke[T any](run *Run, id string, target Target, input any, opts ...Option) (T, error) {
	return StartInvoke[T](run, id, target, input, opts...).Get(run)
}

// StartInvoke starts a child run, see [Invoke].
func StartInvoke[T any](run *Run, id string, target Target, input any, opts ...Option) *Future[T] {
	o, err := read(id, opts, "Timeout", "Retry", "Detach", "Abandon")
	child := target.run
	child.Detach, child.Abandon = o.detach, o.abandon
	return nodeFuture[T](run, err, id, o.step(&drover.Step{Run: &child}), input, "")
}

// Call calls a function of the fleet, and waits for what it gives. Options:
// [Timeout], [Retry].
func Call[T any](run *Run, id, function string, input any, opts ...Option) (T, error) {
	return StartCall[T](run, id, function, input, opts...).Get(run)
}

// StartCall calls a function, see [Call].
func StartCall[T any](run *Run, id, function string, input any, opts ...Option) *Future[T] {
	o, err := read(id, opts, "Timeout", "Retry")
	return nodeFuture[T](run, err, id, o.step(&drover.Step{Call: drover.FunctionName(function)}), input, "")
}

// Request sends a NATS request, and waits for the answer. Options: [Timeout],
// [Retry].
func Request[T any](run *Run, id, subject string, input any, opts ...Option) (T, error) {
	o, err := read(id, opts, "Timeout", "Retry")
	return nodeFuture[T](run, err, id, o.step(&drover.Step{Request: subject}), input, "").Get(run)
}

// HTTP sends an HTTP request, from a worker of the fleet. Its texts mean what they
// say: no expression in them is evaluated. Options: [Timeout], [Retry].
func HTTP[T any](run *Run, id string, request drover.HTTP, opts ...Option) (T, error) {
	o, err := read(id, opts, "Timeout", "Retry")
	return nodeFuture[T](run, err, id, o.step(&drover.Step{HTTP: &request}), nil, "").Get(run)
}

// Agent takes an agent's turn. Options: [Timeout], [Retry].
func Agent[T any](run *Run, id string, agent drover.Agent, input any, opts ...Option) (T, error) {
	o, err := read(id, opts, "Timeout", "Retry")
	return nodeFuture[T](run, err, id, o.step(&drover.Step{Agent: &agent}), input, "").Get(run)
}

// step adds the options of a call to its step.
func (o *options) step(s *drover.Step) *drover.Step {
	s.Retry = o.policy.wire()
	s.Timeout = drover.Duration(o.policy.timeout.Round(time.Millisecond))
	return s
}
