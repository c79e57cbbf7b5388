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
// [RunHooks] makes a world in which runs claim tokens, and senders deliver to
// them. The roles of internal/hook run in it as plain blocking code: each of
// their calls is a step of the world, which may take its time, fail, succeed
// unnoticed, or be the last one of its process.
//
// Outcomes are delivered by the process of whoever performs the effect: the
// attempt dies with it, unless it had left. A receipt may be lost, late, or be
// told twice. Targets are away for a while, and when they are back the owner
// delivers what is listed without a command, beside the timers of the records.
// [RunDeliveries] makes a world with many that are told, clients that wait for an
// outcome and take it, give it up or die, and operators who replay.
//
// Messages, webhooks and batches, and what their answers mean, are those of
// internal/delivery; whoever gets them is of the world, and fails in the ways of his
// kind: a subject with an error of Drover or of a service; a batch with some
// receipts, none, or an answer that is none; a stream that is full, or stores what it
// does not acknowledge; a web server with every kind of status, while the secret
// that signs is changed. Sessions are sealed for who asks; others forge seals.
//
// In some of these worlds runs are removed soon after their end, as the workers do
// that: janitors die between any two steps or come back late, owners meet what is
// half removed, operators replay and clients start the run anew at that moment.
// [RunSuccessors] makes a world with hooks in which all are told of every run and of
// its successor.
//
// [RunPrograms] makes a world in which processes serve programs: they die and hang
// between any two things that they do, lose answers, give drives back, keep bodies in
// memory, are of several versions, and of some there is none any more. What their bodies
// do is a script: steps that fail and can be undone, waits, hooks, calls, children,
// branches, metadata, streams, panics, and beginning anew.
//
// A body is a plain twin, which speaks the protocol of drives as docs/protocol.md has it,
// and not the engine of package flow. That has goroutines, timers and a connection, and
// one baton in each body, but none for all of them, so a seed would not give one history;
// and a second reading of the protocol finds what only one reading takes for granted.
// Branches of the twin are coroutines, and each thing that a process says, hears or begins
// is a step of the world. flow is held to the same protocol by flowtest, the conformance
// test and integration.
//
// # What is checked
//
// After every commit: the state holds its invariants, its sequence grows, and a
// terminal run stays as it is but for its deliveries. In the end: every run is
// terminal and its deliveries are over; all copies of an outcome are equal;
// every record is exactly what a plain fold of the log, command by command,
// gives; every command that could not be folded is a dead letter.
//
// Of deliveries: each ends delivered, consumed or dead, and dead only where its
// bounds say so. One is delivered only if its target gave a receipt, and has only
// attempts that reached it. Of a waiter who takes an outcome and those who are
// told only inline, exactly one gets it; who takes it holds it at that moment, and
// who holds it is not refused. One that did not succeed at once is on the list. A
// dead one is left alone. None dies of age untried whose target was there. What
// counts as a receipt is one of its kind, and of a batch for each by itself. A
// session is told only of runs that it asked for, and no start with a forged one
// makes a run. Every run that is over is in the stream of outcomes, with the bytes
// that others are told. A run that is removed leaves no value behind, and a new one
// under its id finds none: its outcome is its own, and each life is what the log
// gives.
//
// Of programs, after every commit: the journal only grows, and each of its entries may
// come after those before it: a step is over once, a node ends once and not before its
// time, a compensation is of what was done, succeeds once, and comes before those of what
// was done earlier. The deadline of what is open is the one that it had first. What was
// asked for by the time of a stop has ended. No step or compensation begins whose record
// was acknowledged before its process was asked, and the journal has what was recorded.
// Nothing that is forgotten is referred to. Of streams, after each write: numbers have no
// gap, and nothing is there twice. Along the plain fold: no record of an older drive, or
// of a process that lost it, changes a run; each delivery is read by one wait, in the order
// of its name, or is unread; what a child says of metadata counts once. In the end: a node
// has one child, those that are detached never reported, and none was stopped that was to
// outlive that; a body that executes the whole journal comes to the same end; and a run
// whose script asks for nothing that depends on when things happen has the status, the
// result, the compensations, the chunks and the metadata of a plain execution. A place that
// waits for the start of a child depends on when that is known to have happened, so the
// plain fold takes from each record what the run owed then.
//
// [Seen] counts what happened of each line of the cases; where something never does
// in some hundred worlds, the tests fail.
//
// With hooks besides: a delivery that a sender was told is accepted was accepted
// by one run, and is read, unread in a record, or discarded in one; what was
// refused is nowhere; an id is known for ever. No token has two owners after any
// command, but while it is taken over, or while a sweeper and a late hand-over
// are at odds. No run was started in vain. Some time after the faults every key
// names a run that holds the token and lives; in the end there are no keys.
package sim
