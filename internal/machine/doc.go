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
//     a deadline, a timer, a delivery, a claim, a child, a process that drives.
//     [State.Check] holds it to that.
//
// # Programs
//
// A run whose definition is a program has a body in a process elsewhere, and a
// [Program] in its state: the journal of the body, and who drives it. A drive is
// one execution of the body from the top. What the journal has returns at once;
// what it does not have comes as records, which a fold appends. What the body
// asks for outside of its process is a node in a slot, made as a definition makes
// one. When it ends, the journal says so, and the body is driven, or told.
//
//   - The journal only grows, in the order of the log: records of the body, and
//     between them what happened to it. It begins anew only when the body does.
//   - One process drives at a time. It is known by the number of the drive, by
//     how often that was handed out (the fence), and by its instance. A higher
//     fence takes over, if it has the whole journal; what is lower, or of another
//     drive, is refused and changes nothing.
//   - A record is taken once: a repeat is answered and changes nothing, also when
//     it has ended the drive or the run, until there is another drive.
//   - A drive parks only if its process knows the whole journal, and something is
//     open that will end. What ends while the body is parked asks for a drive, and
//     what the fold has written is in the request.
//   - A drive that says nothing for 30 s is lost, one that panicked comes again
//     after a pause, one that does not fit the journal waits for a tick. Drives
//     in a row that add nothing to the journal are counted, and bounded.
//   - A stop ends what is open, and leaves the rest to the body; it has no time
//     limit but that of the run. When its time is up the body has a minute.
//   - The record holds the latest entries, and the numbers where the others begin
//     in the values bucket, so a step costs the same however many stand before it.
//   - A slot is used again once its node is over, holds no token, and owes no
//     start of a child that nobody waits for. No id of a node is used twice, as
//     long as the body uses none of its ids twice between two beginnings: the
//     machine refuses that of a node that is open, and cannot know the others.
//
// A wait that ended before the fold saw that the body had given it up has ended:
// its delivery is in the journal, and is the body's to give to another wait.
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
