// Package api answers the requests on drover.api.<verb>: the service that every
// worker of a fleet serves, in one queue group, for clients that want an answer.
//
// # Roles
//
// [Service] is a NATS micro service, so that `nats micro` finds it and shows
// its figures. Requests that change a run (start, stop, deliver) are checked,
// published as commands in the log of the run like anyone's, and answered with
// what the owner of the run says after its commit, as are those of waiters (hold,
// consume, release); a tick is answered once it
// is durable. Requests that read (status, result, why, list, definition.*,
// dead.list and show, hook.list and show, delivery.list and show, fleet) are
// answered from the stores. A list of deliveries goes by hints, which the records
// decide on, and which are removed where they are wrong.
// Deliveries to hooks are checked here, and left to the sender of internal/hook,
// for which the service sends commands and reads answers; one to many hooks is
// so many deliveries, a bounded number at a time. Every endpoint tells in its
// metadata how to ask it: JSON Schemas of its request and its reply.
//
// # Promises
//
//   - Every request is answered, or was lost with its worker: with JSON of its
//     reply type, or with JSON of a drover.Error and the header Drover-Error.
//     No request, whatever it holds, does more than that.
//   - A start is checked whole before anything of it is durable: all problems
//     of a definition come back in one answer, and it is stored before the
//     command that names it. So is the start that comes with a delivery to a hook.
//   - Of a delivery to many hooks with a stream, nothing is kept of a hook once
//     its result is on its way.
//   - A request for a result may wait for the end of the run. It looks at the record
//     before, when an outcome is published, and at its end; it costs a goroutine and a
//     subscription, has a bound of its own, and is answered at once when the service
//     ends: with the status as it is.
//   - reply_to names no session: that is whose connection or whose call asks, and it is
//     sealed for the one run. A call must be outstanding as its record says.
//   - Requests do not wait for each other: each has a goroutine, and when there
//     are too many, further ones are refused as unavailable at once.
//   - Where the answer of an owner does not come in time, the error says that
//     the command is durable nonetheless. The same request may be sent again.
//
// # What may not be assumed
//
// Reads show what was committed last as far as the store knows, and the run may
// have gone on since. The API makes no run safer than a plain message does: it
// decides nothing, the fold does.
package api
