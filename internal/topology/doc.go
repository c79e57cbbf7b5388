// Package topology makes the streams and buckets of a fleet, and nothing else
// does.
//
// # What there is
//
//	stream DROVER         commands and timers; the server puts each command into its partition
//	stream DROVER_CALLS   calls that no function has done, a work queue
//	stream DROVER_DONE    outcomes, in the order in which runs ended
//	stream DROVER_DEAD    commands that could not be folded, the latest 64 MiB
//	stream DROVER_STREAMS what programs write for their readers, for as long as the run is kept
//	bucket DROVER_RUNS    records
//	bucket DROVER_VALUES  values that are too big for their record
//	bucket DROVER_DELIVERIES  hints which deliveries of outcomes did not succeed at once
//	bucket DROVER_DEFINITIONS, DROVER_HOOKS, DROVER_FLEET
//
// A bucket is a stream that every KV client can read; it is made here, and not
// by a KV client, because its settings matter: records, claims and the fleet
// are read from the leader only, while values and definitions, which never
// change once they are written, and hints, which may be wrong, may be read from
// any replica.
//
// # Promises
//
// [Ensure] may be called by any number of workers at once, and again at every
// start. The first one decides: replicas and storage are those of the FLEET
// bucket, the other settings are its key "settings", which is written once.
// Whoever asks for something else is refused with both values, and nothing
// that exists is ever changed.
//
// # Nothing is dropped
//
// The command stream has no limit of its own on messages, bytes or age, so
// that nothing in it is ever discarded to make room: when the disk or the
// account is full, publishers get an error. (The server allows the policy that
// would say so, DiscardNew, only on streams without schedules.) It holds timers
// as well, which are older than the commands around them: whoever purges it
// must name the subjects of a partition, and never purge by sequence alone.
package topology
