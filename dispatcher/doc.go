// Package dispatcher performs what the machine decides: it is the only place
// where the effects of a run reach the world.
//
// # Roles
//
// [Dispatcher.Perform] takes the effects of one commit and makes messages of
// them: calls go to the work queue, commands to the logs of other runs, the
// outcome to its stream, its deliveries to a delivery.Deliverer. The small
// methods beside it (Tick, Schedule, Dead, Answer, Event) are what the loop of
// a partition needs besides.
//
// What changes who has the token of a hook, it does as a hook.Claimant, with
// workers that do nothing else; a hand-over, which may take long, is one of the
// slow ones. All such effects of a batch are performed in their order, as a fold
// may claim and release a token at once.
//
// [Dispatcher.Run] serves the functions that belong to Drover itself, out of
// the same work queue as any other function, on every worker: _request (a NATS
// request) and _http (an HTTP request). A worker that dies while it runs one
// loses nothing: the queue gives the message to the next.
//
// # Promises
//
//   - Nothing here blocks its caller, nor waits for one run before another.
//   - The batches of one run are performed in the order in which they were
//     given, each after the end of the one before. Within a batch there is no
//     order, but among the effects of hooks, and around what takes something
//     back: a cancel, a withdraw or a stop comes after the calls, drives and
//     starts before it, and before those behind it.
//   - A cancel takes its call out of the queue, and no other: a call that nobody
//     has pulled by then is never performed.
//   - A batch ends exactly once: with nil when all of it has happened, or with
//     the first error, and then it is to be given again as a whole. Every
//     effect may happen twice: a repeated call is fenced by its attempt, a
//     repeated outcome by its message id, a repeated command by what it means.
//   - What can never be sent does not become an error, which would be repeated
//     forever. A call or a child run whose input is gone, or does not fit in a
//     message, becomes a failed attempt of its node. An outcome whose result is
//     gone, or does not fit, is told without it, and its error says why.
//   - All bytes of one outcome come from [Encode], so each delivery of it
//     carries the same, unless its result was gone by then.
//   - A built-in call is acknowledged only after what it gave is durable in the
//     log of the run.
//
// # What may not be assumed
//
// Whoever performs a call hears of a cancel by a core message: it may be lost, and
// the call then goes on to its deadline. A call that was taken out of the queue may
// be running already; and one whose publish had failed, as its answer was lost, may
// reach the queue after it was taken back. A
// built-in call may be performed twice, after a crash or a lost connection; the
// other side tells repeats by the header Idempotency-Key (HTTP) or Drover-Call
// (NATS), and a subscriber by Drover-Delivery.
//
// # Who is trusted
//
// Whoever may publish on <prefix>.call.> can make the workers send requests, so
// that right belongs to the workers alone. They do not trust the messages they
// find there: one that carries no call id and no token is thrown away. Targets
// that a workflow names are checked here whoever wrote them: no request, answer
// or outcome goes to the server's own subjects ("$...") or to the fleet's,
// except that _request may use the API; and HTTP reaches public addresses only,
// checked when the connection is made, unless Options.AllowPrivate says
// otherwise.
package dispatcher
