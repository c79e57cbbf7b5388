package machine

import (
	"time"

	"github.com/droverhq/drover"
)

// EffectKind says what an effect is.
type EffectKind string

// The effects. Each may be performed any number of times. What takes something
// back (cancel, withdraw, stop) is performed after all calls and starts before it,
// and before those behind it: what was queued later may have the same name.
const (
	EffectCall     EffectKind = "call"     // queue a call
	EffectCancel   EffectKind = "cancel"   // take one call out of the queue, and tell its function that it is not wanted any more
	EffectWithdraw EffectKind = "withdraw" // the same of all that is queued for the run and for each of Functions; of a delivery: of Call
	EffectStart    EffectKind = "start"    // send a start to a child run
	EffectStop     EffectKind = "stop"     // send a stop to a child run
	EffectTell     EffectKind = "tell"     // tell the parent how the run ended
	EffectDone     EffectKind = "done"     // publish the outcome
	EffectDeliver  EffectKind = "deliver"  // make an attempt to deliver the outcome to one subscriber, and send how it went as a heard command; to a function: queue Call with the outcome
	EffectDrive    EffectKind = "drive"    // ask the process behind Inbox, if there is one and it answers, else any by the queue, to drive a program
	EffectMeta     EffectKind = "meta"     // send changes of metadata to the parent
	EffectLook     EffectKind = "look"     // look for a process that takes, or has, a drive: the one behind Inbox, or any that serves Call.Function; and send a looked command where there is none; may be lost
	EffectLetter   EffectKind = "letter"   // keep a dead letter
	EffectForget   EffectKind = "forget"   // remove the values of journals of a program that are over; may be lost: a later one does it too
	EffectNudge    EffectKind = "nudge"    // tell the process behind Inbox that the journal has Entries; may be lost
	EffectList     EffectKind = "list"     // list a delivery among those that did not succeed at once
	EffectUnlist   EffectKind = "unlist"   // and take it off that list
	EffectClaim    EffectKind = "claim"    // claim the token of a hook, and send what became of it as a claimed command
	EffectRelease  EffectKind = "release"  // free the token of a hook, where its claim is still ClaimID, or that of the start that brought it
	EffectHandOver EffectKind = "handover" // start the successor of the run, give it Deliveries in their order, then the tokens
	EffectRespond  EffectKind = "respond"  // answer whoever sent a delivery, as core message to Inbox
)

// Owed names an effect by what the state holds. It is kept in the record until
// the effect is known to have happened.
type Owed struct {
	Kind    EffectKind    `json:"e"`
	Node    drover.NodeID `json:"n,omitempty"`
	Item    int           `json:"i,omitempty"` // item + 1; 0: the node has none
	Last    int           `json:"l,omitempty"` // item + 1 of the last item of a range; 0: only Item
	Undo    bool          `json:"u,omitempty"` // of the compensation
	Attempt int           `json:"a,omitempty"` // of a call, child or delivery; of a withdraw: the delivery whose call it takes back, 0: those of nodes
	Index   int           `json:"x,omitempty"` // of the subscriber
	Token   string        `json:"t,omitempty"` // of the hook; of a cancel in a program: the function
	Until   Millis        `json:"r,omitempty"` // of a release: the token stays taken until then; 0: it is free at once
}

// Effect is one thing to perform, with all that it takes. One of its pointers
// is set, by its kind: Call for call, cancel and the withdraw of a delivery, Start, Stop, Child (tell),
// Outcome (done, deliver), Delivery (list, unlist), Drive, Look, Letter, Forget, Claim. Value is the one value that its message
// carries, where that may be big: the input of a call, a child or a successor,
// the result of a run, the answer to a delivery.
type Effect struct {
	Owed
	Run      drover.RunID
	Call     *Call
	To       drover.RunID // start, stop, tell, hand over: the run that gets the command
	Start    *drover.StartRequest
	Stop     *drover.StopRequest
	Child    *drover.ChildMessage
	Meta     *drover.MetaMessage
	Outcome  *drover.Outcome
	Delivery *Delivery
	Drive    *drover.DriveRequest // without its input, which is Value
	Look     *drover.LookedMessage
	Letter   *drover.DeadLetter
	Forget   *Forgotten
	Entries  int
	Again    bool // drive: it was asked for before, and is in the queue, unless that has lost it
	Value    Value
	// Functions are the functions whose calls a withdraw takes back. Others may
	// have calls of the run in the queue that are wanted: those that are told the
	// outcome, and compensations. So it purges one subject for each of them, and never
	// all that is queued for the run.
	Functions []drover.FunctionName

	Claim      *Claim
	ClaimID    string   // release
	ClaimIDs   []string // hand over: of the claims of the tokens Start.Hooks, in their order
	Deliveries []Handed // hand over, oldest first
	Inbox      string   // respond
	Status     int      // respond: of HTTP
}

// Call is one attempt, for a function.
type Call struct {
	ID        drover.CallID
	Function  drover.FunctionName
	Token     string
	Deadline  time.Time
	Heartbeat time.Duration // 0: not watched
}

// Delivery is one attempt to deliver an outcome to one subscriber; with list and
// unlist it has no token and no attempt.
type Delivery struct {
	ID      drover.DeliveryID
	Notify  drover.Notify
	Token   string
	Attempt int
	Dead    bool // list: it waits for nobody any more
}
