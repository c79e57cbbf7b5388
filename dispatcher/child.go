package dispatcher

import (
	"fmt"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// startChild sends a start to a child run. Where that is impossible, the parent
// hears of a child that failed.
func (d *Dispatcher) startChild(e *machine.Effect, in input, done func(error)) {
	if in.gone != "" {
		d.failChild(e, gone(in.gone, "the input of child run "+string(e.To)), done)
		return
	}
	start := *e.Start
	start.Input = in.json
	msg, err := d.command(e.To, drover.VerbStart, &start)
	if err != nil {
		done(err)
		return
	}
	d.orElse(msg, done, func() {
		d.failChild(e, d.large("the start of child run "+string(e.To), len(msg.Data)), done)
	})
}

// failChild ends a call of a parent whose child can never be started. A start
// without a parent has nobody to tell.
func (d *Dispatcher) failChild(e *machine.Effect, why *drover.Error, done func(error)) {
	p := e.Start.Parent
	if p == nil {
		d.opts.Logger.Error().Err(why).Str("run", string(e.Run)).Str("child", string(e.To)).Msg("a detached child cannot be started")
		done(nil)
		return
	}
	d.send(p.Call.Run, drover.VerbChild, drover.ChildMessage{
		Call: p.Call, Token: p.Token, Child: e.To, Status: drover.StatusFailed, Error: why,
	}, done)
}

// tell tells the parent how its child ended. A result that is gone, or too
// large, makes the child a failed one for its parent, who needs that result.
func (d *Dispatcher) tell(e *machine.Effect, in input, done func(error)) {
	if in.gone != "" {
		d.tellFailed(e, gone(in.gone, fmt.Sprintf("the result of child run %s", e.Child.Child)), done)
		return
	}
	child := *e.Child
	child.Result = in.json
	msg, err := d.command(e.To, drover.VerbChild, &child)
	if err != nil {
		done(err)
		return
	}
	d.orElse(msg, done, func() {
		d.tellFailed(e, d.large(fmt.Sprintf("the result of child run %s", child.Child), len(msg.Data)), done)
	})
}

func (d *Dispatcher) tellFailed(e *machine.Effect, why *drover.Error, done func(error)) {
	child := *e.Child
	child.Result = nil
	if child.Status == drover.StatusCompleted {
		child.Status = drover.StatusFailed
	}
	child.Error = note(child.Error, why)
	d.send(e.To, drover.VerbChild, &child, done)
}
