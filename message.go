package drover

import (
	"encoding/json"
	"time"
)

// Verb is the last token of a command's subject: drover.in.<run>.<verb>.
type Verb string

// The commands. Anyone may send the first eight; the others carry a token
// that only their sender was given.
const (
	VerbStart   Verb = "start"
	VerbStop    Verb = "stop"
	VerbTick    Verb = "tick"
	VerbDeliver Verb = "deliver"
	VerbHold    Verb = "hold"    // from whoever waits for the outcome
	VerbConsume Verb = "consume" // the waiter has it
	VerbRelease Verb = "release" // the waiter has given up
	VerbReplay  Verb = "replay"  // try to deliver the outcome again
	VerbResult  Verb = "result"  // from a function
	VerbRecord  Verb = "record"  // from a process that drives a program
	VerbMeta    Verb = "meta"    // from the owner of a child run: changes of metadata
	VerbChild   Verb = "child"   // from the owner of a child run
	VerbHeard   Verb = "heard"   // from whoever delivered an outcome
	VerbLooked  Verb = "looked"  // from whoever looked for a process that serves a program
	VerbClaimed Verb = "claimed" // from whoever claimed a token for the run, or took it from it
)

// StartRequest asks for a run. Exactly one of Definition, Hash and Workflow
// says what to run. Unknown fields are ignored.
type StartRequest struct {
	// RunID is used by requests to drover.api.start only; a command has the
	// run id in its subject. Empty: derived from the key, or made up.
	RunID RunID `json:"run_id,omitempty"`
	// Definition is the definition itself: an object, or a string of YAML.
	Definition json.RawMessage `json:"definition,omitempty"`
	// Hash names a definition that is stored already.
	Hash Hash `json:"hash,omitempty"`
	// Workflow names a registered definition. Beside the hash of a command it is
	// only the name that the run shows.
	Workflow WorkflowName `json:"workflow,omitempty"`
	// Input is any JSON value, at most MaxValue bytes; absent means null.
	Input json.RawMessage `json:"input,omitempty"`
	// IdempotencyKey makes the run id, together with the caller: two starts
	// with one key are one run. It is for requests, whose run has no id otherwise. At
	// most MaxIdempotencyKey bytes.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// Notify lists who is told the outcome, at most MaxSubscribers. It, Hold and Tags
	// are those of the first start of a run: those of a repeat change nothing.
	Notify NotifyList `json:"notify,omitempty"`
	// ReplyTo asks drover.api.start for one more subscriber: the caller's session.
	// A command cannot have it, as it says nothing of who sent it.
	ReplyTo *ReplyTo `json:"reply_to,omitempty"`
	// Hold is for whoever starts the run and waits for its outcome.
	Hold *HoldRequest `json:"hold,omitempty"`
	// Tags are kept with the run and in its outcome.
	Tags map[string]string `json:"tags,omitempty"`
	// Parent is set by Drover for child runs; one without a valid token of a
	// parent gains nothing, as the parent refuses what it did not ask for.
	Parent *Parent `json:"parent,omitempty"`
	// Hooks are tokens that the run holds from its first moment, at most
	// MaxStartHooks: Drover has claimed them for it. One that names a token that
	// belongs to another gains nothing, as deliveries go by the claim.
	Hooks []string `json:"hooks,omitempty"`
}

// MaxStartHooks is how many tokens a start may bring.
const MaxStartHooks = 16

// Parent says which call of which run a child run answers to.
type Parent struct {
	Call  CallID `json:"call"`
	Token string `json:"token"` // proves to the parent that its child speaks
	Depth int    `json:"depth"` // of the child; a run that nobody started but a client has 0
	// Detached: the call does not wait, and is not told how the child ends.
	Detached bool `json:"detached,omitempty"`
}

// StartReply answers a start.
type StartReply struct {
	RunID    RunID     `json:"run_id"`
	Created  bool      `json:"created"` // false: the run was there already, the same start had come before
	Status   Status    `json:"status"`
	Inline   bool      `json:"inline,omitempty"`   // somebody is told the outcome only if nobody who waits takes it
	Warnings []Problem `json:"warnings,omitempty"` // unknown keys of the request, and those of a definition that came with it
}

// StopRequest asks for the end of a run.
type StopRequest struct {
	RunID  RunID  `json:"run_id,omitempty"` // of requests to drover.api.stop only
	Reason string `json:"reason,omitempty"`
	// Force ends a program at once: its body undoes nothing.
	Force bool `json:"force,omitempty"`
}

// StopReply answers a stop.
type StopReply struct {
	RunID  RunID  `json:"run_id"`
	Status Status `json:"status"`
}

// DeliverRequest feeds a wait of a run: by its name, or as a command also by
// the token of a hook that the run holds.
type DeliverRequest struct {
	RunID   RunID           `json:"run_id,omitempty"` // of requests to drover.api.deliver only
	Name    string          `json:"name,omitempty"`   // of the wait
	Hook    string          `json:"hook,omitempty"`   // or the token of the hook
	Claim   uint64          `json:"claim,omitempty"`  // with Hook: the revision of the claim that the sender has read; 0: it has not
	Payload json.RawMessage `json:"payload,omitempty"`
	ID      string          `json:"id,omitempty"` // makes a repeat harmless, as that of a HookRequest does
	// Respond is an inbox that gets what the run answers, with Hook only; see
	// Respond.
	Respond string `json:"respond,omitempty"`
}

// DeliverReply answers a delivery: it is durable and in the run's order.
type DeliverReply struct {
	RunID  RunID `json:"run_id"`
	Repeat bool  `json:"repeat,omitempty"` // the id had been accepted before
	Kept   bool  `json:"kept,omitempty"`   // no wait of that name was open: it is there for the next one
	Unread int   `json:"unread"`           // deliveries that no wait has read
}

// ResultMessage is how a call ends, or says that it goes on. Exactly one of
// Output, Error and Progress is set; none means an output of null.
type ResultMessage struct {
	Call     CallID          `json:"call"`
	Token    string          `json:"token"` // of the call's header
	Output   json.RawMessage `json:"output,omitempty"`
	Error    *Error          `json:"error,omitempty"`
	Progress json.RawMessage `json:"progress,omitempty"` // a heartbeat: the call goes on
	Instance string          `json:"instance,omitempty"` // who did it
}

// ChildMessage tells a parent how its child ended.
type ChildMessage struct {
	Call   CallID          `json:"call"` // of the parent
	Token  string          `json:"token"`
	Child  RunID           `json:"child"`
	Status Status          `json:"status"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// RunRequest asks for one run: status, result, why.
type RunRequest struct {
	RunID  RunID  `json:"run_id"`
	Node   NodeID `json:"node,omitempty"`   // result: of this node, not of the run
	Item   *int   `json:"item,omitempty"`   // result: of this item of the node
	Values bool   `json:"values,omitempty"` // status: with values that are not inline, and every item
	Brief  bool   `json:"brief,omitempty"`  // status: without the definition

	Wait   Duration `json:"wait,omitempty"`   // result of a run: for so long until it is over, at most MaxWait
	Waiter string   `json:"waiter,omitempty"` // with Wait: hold the outcome for this waiter, who consumes or releases it then
}

// MaxWait is for how long one request for a result may wait.
const MaxWait = 5 * time.Minute

// ResultReply answers a request for a result.
type ResultReply struct {
	RunID  RunID           `json:"run_id"`
	Status Status          `json:"status"`
	Node   *Node           `json:"node,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  *Error          `json:"error,omitempty"`

	HeldUntil *time.Time `json:"held_until,omitempty"` // with a waiter: until when it may consume the outcome
}

// StatusReply answers a request for a status.
type StatusReply struct {
	Run        Run             `json:"run"`
	Definition json.RawMessage `json:"definition,omitempty"` // that it runs
}

// Reason is one thing that a run is waiting for. Items of one fan-out that wait
// for the same are one reason.
type Reason struct {
	Node    NodeID `json:"node,omitempty"`
	Item    *int   `json:"item,omitempty"`  // where it is about one item
	Count   int    `json:"count,omitempty"` // where it is about several: how many
	Items   []int  `json:"items,omitempty"` // the first few of those
	Waiting string `json:"waiting"`         // call, retry, timer, delivery, hook, child, slot, drive, subscriber
	On      string `json:"on,omitempty"`    // the function, wait, token, child or subject; absent where it is about several children
	Text    string `json:"text"`            // a sentence for people
	Since   string `json:"since,omitempty"` // RFC 3339; of several: the earliest
	Until   string `json:"until,omitempty"` // RFC 3339: when it ends by itself; of several: the earliest

	// DeliveryID is the delivery to the subscriber that is not told.
	DeliveryID DeliveryID `json:"delivery_id,omitempty"`

	// Ask is what a person is asked, who approves by true or refuses by false.
	Ask json.RawMessage `json:"ask,omitempty"`
}

// WhyReply answers why a run is not over, or who was not told that it is.
type WhyReply struct {
	RunID   RunID    `json:"run_id"`
	Status  Status   `json:"status"`
	Reasons []Reason `json:"reasons"`

	Error       *Error `json:"error,omitempty"`       // of a run that is over
	Subscribers int    `json:"subscribers,omitempty"` // whom the run has to tell its outcome
	Unread      int    `json:"unread,omitempty"`      // deliveries that no wait has read
	// UnreadOf counts these by the name of the wait, or the token of the hook, of
	// the first 20 of those.
	UnreadOf map[string]int `json:"unread_of,omitempty"`
}

// ListRequest asks for runs, newest first.
type ListRequest struct {
	Status   Status            `json:"status,omitempty"`
	Open     bool              `json:"open,omitempty"`     // only runs that are not over
	Workflow WorkflowName      `json:"workflow,omitempty"` // or program:NAME, or program:NAME@VERSION, for the runs of a program
	Tags     map[string]string `json:"tags,omitempty"`     // all must be equal
	Limit    int               `json:"limit,omitempty"`    // default 100, at most 1000
}

// ListReply is the list: runs without their nodes.
type ListReply struct {
	Runs []Run `json:"runs"`
	More bool  `json:"more,omitempty"`
}

// DefinitionRequest stores a definition, or asks for one.
type DefinitionRequest struct {
	Name       WorkflowName    `json:"name,omitempty"`
	Hash       Hash            `json:"hash,omitempty"`
	Definition json.RawMessage `json:"definition,omitempty"` // an object, or a string of YAML
}

// DefinitionReply is a stored definition.
type DefinitionReply struct {
	Name       WorkflowName    `json:"name,omitempty"`
	Hash       Hash            `json:"hash"`
	Definition json.RawMessage `json:"definition,omitempty"`
}

// DefinitionList is every registered name with its hash.
type DefinitionList struct {
	Definitions []DefinitionReply `json:"definitions"`
}

// Event hints that a run changed. It is published once for each commit, and
// may get lost: whoever must know asks for the status.
type Event struct {
	RunID   RunID  `json:"run_id"`
	Status  Status `json:"status"`
	Applied uint64 `json:"applied"` // sequence of the last command that was folded
}

// LetterDrive is in place of a verb in the letter of a drive: the body of its
// program broke each time, and the run has failed. There is no command behind it,
// and none can have such a verb, which is one part of a subject.
const LetterDrive = "program.drive"

// DeadLetter is a command that could not be folded, or the last drive of a program
// that broke each time.
type DeadLetter struct {
	Sequence uint64 `json:"sequence"` // in the command stream; of a drive: of the command that ended its run
	RunID    string `json:"run_id"`   // as it was spelled
	Verb     string `json:"verb"`     // or LetterDrive
	Error    *Error `json:"error"`
	Payload  []byte `json:"payload,omitempty"` // in base64; absent where it was too large to be kept

	// What whoever reads it adds.

	Bytes int        `json:"bytes,omitempty"` // of the payload
	At    *time.Time `json:"at,omitempty"`    // when it was put aside
}

// DeadDrive is the payload of the letter of a drive.
type DeadDrive struct {
	Program    string `json:"program"`
	Version    string `json:"version,omitempty"`
	Drive      int    `json:"drive"`
	Generation int    `json:"generation,omitempty"`
	Instance   string `json:"instance,omitempty"` // that drove last
	Records    int    `json:"records"`
	Entries    int    `json:"entries"` // that the journal has: drover history shows them
}

// DeadListRequest asks for dead letters, newest first.
type DeadListRequest struct {
	RunID string `json:"run_id,omitempty"` // of this run, as it was spelled
	Verb  string `json:"verb,omitempty"`
	Code  Code   `json:"code,omitempty"`  // of its error
	Limit int    `json:"limit,omitempty"` // default 100, at most 1000
}

// DeadList is the list: letters without their payloads.
type DeadList struct {
	Letters []DeadLetter `json:"letters"`
	More    bool         `json:"more,omitempty"`
}

// DeadRequest names one dead letter.
type DeadRequest struct {
	Sequence uint64 `json:"sequence"`
}

// RequeueReply says that the command of a dead letter is in the log of its run
// again. The letter is gone. A command that cannot be folded this time either
// makes a new one.
type RequeueReply struct {
	RunID    string `json:"run_id"`
	Verb     string `json:"verb"`
	Sequence uint64 `json:"sequence"` // that the command has now
}

// FleetReply shows a fleet.
type FleetReply struct {
	Members    []Member    `json:"members"`    // by name
	Partitions []Partition `json:"partitions"` // by number
	Dead       uint64      `json:"dead"`       // letters
}

// Member is a worker that lives.
type Member struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Since      time.Time `json:"since"`
	Leaving    bool      `json:"leaving,omitempty"` // it gives its partitions back
	Partitions int       `json:"partitions"`        // that it owns
}

// Partition is a slice of the runs: who owns it, and how far it has come. What
// is known of it is as old as its last checkpoint, which is made once a second
// where there is something new.
type Partition struct {
	Number int        `json:"number"`
	Worker string     `json:"worker,omitempty"` // id of its owner; absent: nobody
	Epoch  uint64     `json:"epoch"`            // grows with every change of owner
	Cursor uint64     `json:"cursor"`           // everything before this sequence of the log is done
	Lag    uint64     `json:"lag"`              // commands from the cursor on
	Oldest *time.Time `json:"oldest,omitempty"` // when the first of them was stored
	// Slow: that was longer ago than a healthy owner needs, or nobody who lives
	// owns it.
	Slow bool `json:"slow,omitempty"`
}
