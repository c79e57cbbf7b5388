package subjects

import (
	"strconv"
	"time"

	"github.com/droverhq/drover"
)

// The headers of commands, calls and deliveries.
const (
	HeaderReply     = "Drover-Reply"     // command: the inbox that wants the answer of the fold
	HeaderCall      = "Drover-Call"      // call: its id
	HeaderToken     = "Drover-Token"     // call, delivery: must come back with the result
	HeaderRun       = "Drover-Run"       // call: the run
	HeaderFunction  = "Drover-Function"  // call: the function
	HeaderAttempt   = "Drover-Attempt"   // call: from 1
	HeaderDeadline  = "Drover-Deadline"  // call: RFC 3339; a result after it is too late
	HeaderHeartbeat = "Drover-Heartbeat" // call: a duration; silence for longer loses the call
	HeaderDelivery  = "Drover-Delivery"  // outcome: its delivery id
	HeaderOutcomes  = "Drover-Outcomes"  // request with several outcomes: how many
	HeaderCode      = "Drover-Error"     // answer: the code of an error
	HeaderAnswered  = "Drover-Status"    // what a run answers to a delivery: a status of HTTP
	HeaderMore      = "Drover-More"      // answer: "1", another one follows
)

// HeaderRetired is on what is left of the record of a run that is being removed.
const HeaderRetired = "Drover-Retired"

// The headers of the messages of a stream that a program writes.
const (
	HeaderChunk      = "Drover-Chunk"      // its number in the stream, from 1
	HeaderType       = "Drover-Type"       // text, json or bytes
	HeaderEnd        = "Drover-End"        // "1": no chunk, but the end of the stream
	HeaderDrive      = "Drover-Drive"      // the drive that wrote it
	HeaderFence      = "Drover-Fence"      // and how often that was handed out
	HeaderGeneration = "Drover-Generation" // how often the body had begun anew; absent: never
	HeaderBase       = "Drover-Base"       // the messages of the stream before that
)

// The headers of the server that Drover uses.
const (
	HeaderSchedule        = "Nats-Schedule"                       // timer: "@at <RFC 3339 with fractions>"
	HeaderScheduleTarget  = "Nats-Schedule-Target"                // timer: the subject to publish on
	HeaderExpectedSubject = "Nats-Expected-Last-Subject-Sequence" // revision check
	HeaderTTL             = "Nats-TTL"                            // lease
	HeaderRollup          = "Nats-Rollup"                         // what a message replaces: sub is all under its subject
	HeaderMessageID       = "Nats-Msg-Id"                         // dropped repeats
	HeaderOperation       = "KV-Operation"                        // PURGE, DEL
	HeaderMarker          = "Nats-Marker-Reason"                  // on what the server leaves of an expired key
	HeaderSequence        = "Nats-Sequence"                       // of a message that was read directly
	HeaderTimeStamp       = "Nats-Time-Stamp"                     // likewise: when it was stored, RFC 3339
	HeaderLeft            = "Nats-Num-Pending"                    // likewise: how many come after it
	HeaderRequestInfo     = "Nats-Request-Info"                   // who asks, set by the server
	HeaderStatus          = "Status"                              // of an answer without a body
	HeaderDescription     = "Description"                         // of a status, in words
	HeaderPending         = "Nats-Pending-Messages"               // of a status: what a pull asked for and will not get
	HeaderBatch           = "Nats-Batch-Id"                       // of messages that are stored together or not at all
	HeaderBatchSequence   = "Nats-Batch-Sequence"                 // place in the batch, from 1
	HeaderBatchCommit     = "Nats-Batch-Commit"                   // 1: the last one
)

// MessageID is the HeaderMessageID of what a run publishes under an id, such as that
// of a delivery. A run id may be used anew, so it says as well when the run started:
// the same whoever repeats it and however late, and no repeat of what an earlier run
// with this id has published.
func MessageID(id string, started time.Time) string {
	return id + "@" + strconv.FormatInt(started.UnixMilli(), 10)
}

// The functions that every worker serves itself. No user may name one.
const (
	FunctionRequest drover.FunctionName = "_request" // a NATS request
	FunctionHTTP    drover.FunctionName = "_http"    // an HTTP request
	FunctionAgent   drover.FunctionName = "agent"    // a user's: performs agent nodes
)
