// Package function is the SDK for functions: user code that performs the calls
// of runs.
//
// # Roles
//
// A [Function] is a name and a handler. A [Server] connects functions to the
// work queue of their calls, and [Server.Run] performs calls until its context
// ends. Any number of instances, in any number of processes, serve the same
// function, and share its calls.
//
// # Promises
//
//   - An instance takes no more calls from the queue than it has free slots,
//     as a taken call is hidden from all other instances.
//   - A call is taken off the queue only after its result is durable. A call
//     whose instance was lost comes to another instance some 10 s later; this
//     uses up no attempt.
//   - The context of a call ends at its deadline, when the call is cancelled,
//     and when the server has waited long enough for its end.
//   - A handler that panics fails its attempt, and nothing else.
//   - Run returns when everything that it started has ended. Calls that were
//     taken and not begun go back to the queue at once, and those that still
//     run after Options.DrainTimeout as soon as their handlers have returned.
//   - The worker need not be there: a server waits for the queue, and for its
//     connection, as long as it takes.
//
// # What may not be assumed
//
// A call may be performed more than once, even at the same time: when its
// instance was cut off and could not say that it is alive, or was lost after
// its work and before its result was durable. [Info] gives the id of the call,
// which is the same each time. It is that of one attempt, however: an attempt that
// timed out may have done its work, and the next one has another id. The id with an
// Attempt of 0 is that of all attempts, and makes a good idempotency key.
//
// A result that comes after the deadline, or after the run has ended, changes
// nothing.
//
// Whoever may publish on the call subjects of a fleet can make functions work,
// so that right belongs to its workers. Messages that are no calls are thrown
// away and logged.
package function
