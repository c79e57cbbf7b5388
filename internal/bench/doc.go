// Package bench measures how fast a fleet works, on a server of its own or on
// one that is there.
//
// # Roles
//
// [Run] goes through the workloads; each row has a fleet of its own: servers
// where none was named, workers, functions and publishers, all in this process.
// Publishers send raw commands and learn of the end of a run from its outcome,
// as any NATS client can; those of hooks ask the API with the Go client, which
// gives each delivery an id. A row is a closed loop: so many runs are in flight,
// and each that ends makes room for the next.
//
// # Workloads
//
//	W1  a run with one `set`, from the start until its notification came
//	W2  ten calls one after the other, from the start until the outcome
//	W3  a fan-out of 100 calls and its join
//	W5  a run that waits, from the delivery until the outcome
//	W6  2,000 runs whose timers are due within one second; the times are lateness
//	W7  deliveries to runs that hold a hook, until they are answered
//	W8  deliveries that start a run, until they are answered
//	W9  one delivery by tag to 10,000 hooks, until the last has answered
//	W11 a program of ten steps that do nothing, from the start until the outcome
//	W12 a program of 1,000 such steps
//
// # Promises
//
//   - Every run of a row ended, completed, before the row is given; one that did
//     not is an error.
//   - The floor is measured on the row's own server just before the row:
//     pipelined revision-checked updates a second, in a bucket of the same kind.
//     What else the machine did at that time slows both.
//   - A fleet on a server that was there has a prefix of its own, and is removed
//     in the end.
//
// # What may not be assumed
//
// The numbers are those of one process that does the work of all parts. The
// parked runs of W5 are still in the memory of their worker, and so are, with a
// short Lead, the timers of W6.
package bench
