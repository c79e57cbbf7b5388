// Package gateway lets HTTP reach a fleet. Its first room is hooks: whoever
// knows the token of a public hook delivers to it with POST /hooks/<token>.
// What else HTTP may do one day gets rooms beside it.
//
// # Roles
//
// A [Gateway] turns a request into one to drover.api.*, through package client,
// and what comes back into an answer. It knows nothing else of Drover, and keeps
// nothing: any number of gateways may stand before one fleet. The fleet decides
// whether a hook is there and public, and the run what the answer is; that comes
// as a message to an inbox on which the gateway listens before it delivers.
//
// # Promises
//
//   - 202, and what a hook or its run answers, come only once the run has
//     accepted the delivery. 503 says that this is not known, or that nothing
//     was tried; the same request with the same Idempotency-Key is harmless.
//   - A token that is unknown, released, retained or not public is answered
//     exactly like a path that there is not: 404 and nothing else.
//   - What strangers can make it hold is bounded: requests under way, the bytes
//     of their bodies, and the time that headers, a body, a wait and an answer
//     may take.
//   - A token never gets into the logs, nor does an error that may name one.
//
// # What may not be assumed
//
// That the caller gets what its run answers: the answer travels beside the log,
// and a caller that has waited for too long, or has asked a gateway that ends,
// gets 202. A repeat gets the answer as well where it comes in time for it.
//
// There is no TLS, no check of signatures and no limit for each caller here: a
// proxy does that.
package gateway
