// Package kv keeps what a fleet must remember, in buckets of JetStream: records
// of runs, values, definitions, claims of hooks, hints where deliveries wait, and
// who owns what.
//
// # Roles
//
// Each interface is one bucket, or one side of it, seen by those who use it.
// [Open] gives all of them over JetStream; kvtest has them in memory, and the
// suite that holds both to what is promised here. internal/topology makes the
// buckets.
//
// # Promises
//
//   - A write with a revision happens only if the key has that revision at that
//     moment. Revision 0 means that the key must not be there; a key that was
//     deleted is not there.
//   - Of several writers with the same revision at most one succeeds.
//   - A write that was confirmed is as durable as the fleet's replicas and the
//     server's sync interval make it, and every later write is checked against
//     it.
//   - Callbacks are called exactly once, never inside the call that they were
//     given to, and must not block: they run on the goroutine of the publisher.
//
// # What may not be assumed
//
// Reads may be stale. Records, claims, names and the fleet are read from the
// leader of their bucket, and even that may have been deposed without knowing.
// Never act on what was read before a write with its revision has confirmed it.
//
// An answer may be missing. An error that is drover.CodeUnavailable leaves open
// whether the write happened, and may still happen; the next write then ends in
// [ErrConflict], which need not mean that there is another writer. Whoever must
// know has to put something in the data that tells its writes from others', and
// read again until the revision has moved.
//
// [ErrBusy] is no conflict: nothing was written, and the same write may succeed
// when it is tried again. Calls that take a context try again by themselves.
package kv
