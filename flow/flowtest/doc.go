// Package flowtest runs programs in memory: with the code that decides for every
// run of a fleet, a clock that jumps, and fakes of all that is outside.
//
// # Roles
//
// A [Script] says what the world of a run is: functions and children as
// functions of Go, and what is delivered when. [Run] runs a program in it, and
// then drives its body from the whole journal again and again: a body that does
// not ask for the same each time (by its clock, by the order of a map, by chance)
// fails the test, with the first difference. [Check] runs it once more in a world
// in which the process dies after every single record.
//
// # Promises
//
//   - Nothing waits: when nothing is left to do, the clock goes to what comes
//     next. Functions, children and steps take no time of that clock.
//   - A run that waits for what never comes fails the test, and says what that is.
//
// # What may not be assumed
//
// The functions of steps run in real time, and so do their timeouts: a test of
// these belongs into a bubble of testing/synctest.
package flowtest
