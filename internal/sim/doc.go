// Package sim is a simulated world for the machine and the loop of its owners:
// a log, a store, a clock, a work queue, functions and subscribers, with faults
// that one seed decides. A seed gives the same history every time.
//
// # Roles
//
// [Run] makes a [World] of a seed, a few random definitions in it, and clients
// that start, stop and feed runs, repeat themselves, and send garbage. Owners
// drive internal/partition as the worker does; they crash, hang and believe in
// leases that they lost, and each of their operations may fail before or after
// it happened. After a while the faults stop.
//
// # What is checked
//
// After every commit: the state holds its invariants, its sequence grows, and a
// terminal run stays as it is but for its deliveries. In the end: every run is
// terminal and its subscribers heard of it; all copies of an outcome are equal;
// every record is exactly what a plain fold of the log, command by command,
// gives; every command that could not be folded is a dead letter.
package sim
