// Package hook is the protocol of hooks: how a token comes to a run, how a
// delivery to the token comes to that run, and how both go on to the next.
//
// # Roles
//
// The key of a token says which run to ask, and nothing more: what counts is the
// fold of that run. A run holds a token while its state says so, and a delivery
// is accepted when a fold has accepted it. So the log of the run decides every
// race between claims, deliveries, releases and the end of the run.
//
//   - [Claimant] writes the key for a run whose fold decided to claim, release or
//     hand over, and tells the run what became of it by a claimed command.
//   - [Sender] reads the key and asks the run. Where nobody holds the token it
//     can claim it for a run that it then starts: the key holds the start and the
//     first delivery until both are known to have been folded, so that whoever
//     comes by can bring about what a sender that is gone had begun.
//   - [Sweeper] comes by where nobody else does.
//
// All of it is plain blocking code over small interfaces, with the clock passed
// in, so that a simulation can run each role and end it between any two calls.
//
// # Promises
//
//   - A key is created only where it is not there, and changed or removed only
//     with the revision that was read. So a token has one claim at most, and of
//     two who replace one claim, one has to look again.
//   - The first claimant's create is its whole claim: two writes, and no read.
//   - A claim is replaced by another run's only where its run does not hold the
//     token any more and says so by a state from after the claim; where it was
//     released and its time is past; or where the claimant may take over. The
//     displaced claim stays in the new one until its run has a command that tells
//     of it. Of claimants that take over from each other each does it once.
//   - A delivery with an id is accepted once, by one run, for as long as the id
//     is reserved: before a run is asked, a reservation names it, and before the
//     reservation names another run, the one it named has said that it does not
//     have the delivery and does not hold the token.
//   - Not found, full, conflict and the other definite errors mean that nothing
//     was stored. Where it is not known, the error is unavailable.
//   - What a successor refuses of a hand-over goes to another run only once a
//     reservation names that run, so that a repeat gives it to the same one, also
//     where the token has gone elsewhere meanwhile.
//   - A run that hands over gives its successor what nothing has read, in order
//     and before any later delivery: the key moves last. Where the successor is
//     over before it has got everything, what is left goes to the one after it.
//   - Every call may be repeated, whatever part of it had happened.
//
// # What may not be assumed
//
// A key may name a run that has just let go of the token, or never will know of
// it: the old owner of a partition may claim long after the new one. Such a claim
// is dead. Whoever meets it finds out, by a refused delivery or by the state of
// the run, and removes it.
//
// A run that answers no delivery has no say in when it is asked again: a repeat
// is known by its id only among the latest deliveries of the run with ids, of
// which the machine keeps 2,000.
//
// A claim by a start has no proof until its run has repeated it, so nobody takes
// that token over before the run lives.
package hook
