// Package embed runs a NATS server with JetStream in this process, for fleets
// that are one binary: the commands dev and run, and benchmarks.
//
// What the server acknowledged is on disk within [Options.SyncInterval], 100 ms
// if not set: the loss of the process loses nothing, the loss of power may lose
// that much. With [Options.SyncAlways] it is on disk before the acknowledgement,
// which costs most of the throughput.
//
// A store folder belongs to one server at a time. The server does not check it;
// whoever starts one must see to it.
package embed
