// Package partition is the loop of a partition's owner, as a pure state
// machine: messages of the log and the ends of operations go in, operations to
// perform come out. It has no clock, no goroutine, no channel and no I/O, so
// that the worker drives it with real stores and the simulator with faulty ones.
//
// # Roles
//
// The driver, in one goroutine, calls [Partition.Advance] with the time, then
// [Partition.Receive] for a message or [Partition.Complete] for the end of an
// operation, and then performs what [Partition.Take] gives. Operations run at
// the same time and may end in any order; each ends exactly once. How many
// messages there is memory for, [Partition.Room] says.
//
// # Promises
//
//   - Commands of one run are folded strictly in the order of the log. All that
//     wait are folded together into one commit, so a burst costs one write.
//   - Runs do not wait for each other.
//   - What a commit decided is performed after it, and again until it is known
//     to have happened. The record names it (Owed) as long as it is not.
//   - A command that cannot be folded becomes a dead letter, durably, before
//     anything later of its run is committed; or an answer, where its sender
//     wants one. The log goes on.
//   - The cursor is the lowest sequence whose command is not done. A command is
//     done when its effects have happened and its run either needs no wake-up
//     or has one that is durable. The deadlines of a run that lives shorter
//     than CoverAfter are kept in memory only.
//   - An operation that fails is tried again with growing pauses. Nothing here
//     gives up: a partition that is not owned any more is dropped by its driver.
//   - Deadlines are times of the log, and the owner's clock may be off by any
//     amount: what is stored and read tells how much. A tick that comes too early
//     is followed by pauses that grow.
//
// # What may not be assumed
//
// A commit whose end is unknown may have happened. The record is read again
// then, and its Applied sequence tells. Records that are read may be what
// another owner wrote; they are what counts. An owner that comes after a crash
// performs again what the last commits owed, so an effect may happen twice. The
// log may have lost its end, and give sequences that a record has seen to other
// commands: those are told from the lost ones by their time, and by what the log
// has where the record was.
package partition
