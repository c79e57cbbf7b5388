// Package machine is the pure core of Drover: what a command does to a run.
//
// # Roles
//
// [Compile] makes a [Plan] of a valid definition: nodes in an order in which
// each comes after what it needs, the closure of the output, compiled
// expressions and schemas. A plan is immutable and shared by all runs of its
// definition.
//
// [Apply] folds one [Command] into the [State] of one run, in place, and says
// what follows from it: values to store before the state is committed, effects
// to perform after. It decides everything; whoever calls it only carries out.
//
// # Promises
//
//   - Apply sees nothing but its arguments. Time is the time of the command,
//     chance is the entropy that the start brought. The same state and command
//     give the same state and effects, byte for byte.
//   - Time in a run never goes back: State.Now is the latest of all commands.
//   - A refused command has changed nothing. Only a child's start that is refused
//     has an effect: its parent is told, which waits for it.
//   - A terminal state never changes again, but for its deliveries.
//   - A delivery is accepted by a fold or not at all. What is accepted is read
//     in the order of the log, once, or stays among State.Unread: there it is
//     counted in the outcome, or handed over to the successor, which the fold
//     that decides the end names with all that it gets. A release takes it from
//     there only on the words of the definition.
//   - The id of a delivery is looked at before all else, also in a terminal
//     state: a repeat is told that it is one.
//   - A hook is claimed by an effect, and held once a claimed command, or a
//     delivery whose sender has read the claim, says so. Until then its wait
//     reads nothing. Whatever ends it, its release or its hand-over is an effect
//     of that fold, behind those of the claim; a claim that is known too late
//     changes nothing, and is freed by them.
//   - No wait is left on a hook that is gone: it fails, and says who has it.
//   - Every effect is named by what the state holds, so that an [Owed] entry of
//     a few bytes is enough to make it again: see [Effects].
//   - A non-terminal state is waiting for something that will come: a call with
//     a deadline, a timer, a delivery, a claim, a child. [State.Check] holds it to that.
//
// # What may not be assumed
//
// Values that are too big for the record are not in it. Where Apply must read
// one that [Values] does not hold, it gives a [NeedError] that lists the keys,
// and the state that it was given is garbage then: decode it again from what
// was last committed, load the values, and apply the commands again.
//
// Nothing here panics on any input; it has no clock, no goroutine, no channel,
// no I/O. A test of the module holds it to that.
package machine
