// Package flow is the SDK for programs: workflows that are ordinary functions.
//
// # Roles
//
// [Program] makes a definition of a name and a body. A [Server] drives the
// bodies of runs as Drover asks for it, until its context ends. Any number of
// instances, in any number of processes, serve the same program.
//
// Drover keeps a journal for each run. A drive is one execution of the body from
// the top: what the journal has returns at once, and where nothing is left but to
// wait, the body parks, and the process may be gone. A body does all that is not
// the same each time by way of its [Run]: [Step] for what it does itself, [Wait],
// [Call], [Invoke] and their like for what others do.
//
// A [Body] is the body of one run in this process. It sees Drover through a
// [Transport], of which there are two: the server's, by NATS, and that of
// flowtest, in memory.
//
// # Promises
//
//   - The result of a step is durable before the body goes on with it. A process
//     that is killed repeats the steps that were under way, and no other.
//   - Branches ([Go], [Parallel]) are goroutines of which one runs at a time, and
//     they take turns by the journal alone: each drive goes the same way. The
//     functions of steps, and nothing else, run at the same time.
//   - A body that does not fit its journal any more is never guessed at: the run
//     is blocked, and its error says what the journal has and what the body did.
//   - A run completes only by the return of its body.
//   - What Drover refuses to do for a body (a call of no function, a schema that is
//     none) is an error of that one thing, in every drive.
//   - Losing the connection is no failure: the same command is sent until it is
//     answered, or until another process has the drive.
//   - After a stop, what the body waits for returns an error with the code
//     stopped, and so does all that it asks for anew. What it did is undone when
//     it returns an error, newest first.
//   - A body that panics is driven again. The last of these panics, where the
//     journal has nothing more of the body, is an error of the body: what other
//     branches wait for ends with the code panic, and what it did is undone.
//
// # What may not be assumed
//
// A step may run more than once: its process may be lost before its result is
// durable, and an attempt that timed out may have done its work. Its id and that of
// the run, which all attempts share, make a good idempotency key; in a body that
// begins anew ([Run.ContinueAsNew]) ids come again, so add what tells its rounds
// apart.
//
// Outside of steps a body must be the same in every drive: no clock but
// [Run.Now], no chance but [Run.Rand] and [Run.UUID], no order of maps, no
// goroutine, channel or lock of its own, nothing read that may change. flowtest
// finds most of it. A Run belongs to its branch: neither a step nor another
// goroutine may use it.
//
// A body that waits may stay in memory (Options.KeepBodies), or be dropped: its
// branches are unwound then by a panic that runs their defers. A body that
// recovers it gets it again from all that it asks for; what it does in a defer
// must not be work that counts.
//
// Steps whose context has ended should return. One that does not when its time is
// up is left behind, and the next attempt may begin beside it.
package flow
