// Package worker is a member of the fleet: it owns partitions, folds their
// logs, and has the outcome performed.
//
// # Roles
//
//   - membership keeps the worker's lease and sees who else lives; assign says
//     which partitions are its own.
//   - an owner drives one partition: it reads the log from the cursor, feeds
//     internal/partition, which decides everything, and performs what comes out
//     against kv and dispatcher.
//   - the janitor removes runs whose retention is over, and commands that every
//     cursor has passed.
//   - internal/api answers requests; dispatcher serves the built-in functions.
//
// # Promises
//
// A worker that is asked to stop finishes what is under way, makes every
// wake-up durable, saves its cursors and gives its partitions back, so that the
// next owner goes on within milliseconds and repeats nothing, but for HTTP and NATS
// requests of nodes that run on for more than 5 s, which are made again. What cannot be
// finished within DrainTimeout, such as a run whose record is of a later version,
// is left to the next owner as it is. A worker that is
// killed is missed when its lease runs out; its partitions are then read again
// from their cursors, and effects of the last seconds may happen twice.
//
// # What may not be assumed
//
// A worker may believe that it owns a partition when another one does: it was
// stopped, or cut off. Every write of a record is checked against its revision,
// so neither can undo what the other did; the lease only keeps them from
// working twice.
package worker
