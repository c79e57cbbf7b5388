// Package delivery hands outcomes of runs to those who are to be told, and tells
// the runs how that went.
//
// # Roles
//
// The record of a run says which deliveries are pending, and when the next
// attempt is due: internal/machine decides that. A [Deliverer] makes the attempts
// of one worker. It has a target for each subscriber, however many runs it is to
// be told of, with a queue, a bound on what is under way, and what is known of
// whether anybody is there. So a subscriber that is slow, broken or away delays
// its own deliveries only.
//
// A target that is away is asked again and again with one delivery, the canary.
// Once that finds somebody, everything that the list of the fleet has for the
// target is delivered, without waiting for the times that the records say. The
// list is a hint; whether something is still pending the record says, each time.
//
// All that a deliverer knows belongs to one goroutine, which never waits for a
// subscriber, a stream or the list. A request or a message to a stream under way is
// an entry in a table and an alarm; only URLs, and searches of the list, have
// goroutines of their own.
//
// # Promises
//
//   - Deliver never blocks, and keeps a bounded number of bytes. What there is no
//     room for is no attempt, and comes again.
//   - A target that keeps others out by its slowness leaves room for each that has
//     little, up to about a thousand such targets; and no target waits in a queue of
//     another's.
//   - While nobody is there, a record is told so once for each attempt that it asks
//     for; probes are no news, and cost no more than a bounded rate.
//   - Of one delivery at most one attempt is under way in a worker. An attempt that
//     was made there is not made again under the same number, and none is after a
//     receipt: how it went is told again instead, for the latest few thousand.
//   - Everything that a subscriber gets of a delivery has the same bytes and the
//     same id, whoever sends it and how often.
//   - An attempt that found nobody (no subscriber, no stream, no connection) is
//     told as one that was not made.
//   - No secret and no query of a URL is logged, or told.
//
// # What may not be assumed
//
// An attempt may be lost with its worker, and never be heard of; the record has a
// time for that. A subscriber may get a delivery more than once: its receipt may
// have been lost. Deliveries to one subscriber come in no order.
package delivery
