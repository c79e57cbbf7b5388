package machine

import (
	"encoding/json"
	"hash"

	"github.com/droverhq/drover"
)

// Version is the latest schema version of the states that Encode writes. Decode
// reads it and every earlier one; a binary that knows less refuses it, where it would
// drop what it does not know at its next commit.
const Version = 4

// schema is the version that a state needs: 4 only where its log has lost its end, as
// a binary that does not know of that would skip commands.
func (s *State) schema() int {
	if s.Shift > 0 {
		return Version
	}
	return 3
}

// State is the durable state of one run: what its record holds. Its exported
// fields are for reading, but for Timer, Timed and Owed, which belong to the caller.
// Unexported fields are derived from the others when they are first needed.
type State struct {
	V        int                 `json:"V"`
	Run      drover.RunID        `json:"run"`
	Workflow drover.WorkflowName `json:"wf,omitempty"`
	Hash     drover.Hash         `json:"def"`
	Status   drover.Status       `json:"st"`
	Secret   string              `json:"key"`           // of the tokens
	Print    string              `json:"fp"`            // fingerprint of the input of the start
	Applied  uint64              `json:"seq"`           // of the last command that changed the run, with Shift in it
	Shift    uint64              `json:"shi,omitempty"` // how much was added to the sequences of its log since that has lost commands
	Now      Millis              `json:"now"`           // the latest time that the run has seen
	Created  Millis              `json:"cre"`           //
	Ended    Millis              `json:"end,omitempty"` // 0: not terminal
	Due      Millis              `json:"due,omitempty"` // deadline of the whole run; 0: none
	Timer    Millis              `json:"tim,omitempty"` // set by the caller: the wake-up that is known to be durable
	Timed    uint64              `json:"tms,omitempty"` // set by the caller: the name of that wake-up
	Owed     []Owed              `json:"owe,omitempty"` // set by the caller: effects that are not known to have happened

	Input  Value             `json:"in,omitzero"`
	Result Value             `json:"res,omitzero"`
	Error  *drover.Error     `json:"err,omitempty"` // of a run that fails or is stopped, also while it compensates
	Tags   map[string]string `json:"tag,omitempty"`
	Parent *drover.Parent    `json:"par,omitempty"`
	Depth  int               `json:"dep,omitempty"`

	Nodes     []NodeState           `json:"n"`             // in the order of the plan
	Active    actives               `json:"act,omitempty"` // what is outstanding, by node and item
	Ready     actives               `json:"rdy,omitempty"` // attempts that wait for a free slot, oldest first
	Instances []string              `json:"ins,omitempty"` // names of function instances, which others refer to by index + 1
	Calls     int                   `json:"cal,omitempty"` // nodes and items that were set off, of MaxCalls
	Inline    int                   `json:"inl,omitempty"` // bytes of values that are kept in the record
	Kept      int                   `json:"kep,omitempty"` // bytes of errors of attempts that are kept in the record
	Hooks     []Hook                `json:"hok,omitempty"` // tokens that the run claims, holds, or has handed over
	Unread    []Unread              `json:"unr,omitempty"` // deliveries that no wait has read, oldest first
	Seen      []string              `json:"see,omitempty"` // digests of the latest deliveries that had an id
	Notify    []Subscriber          `json:"sub,omitempty"`
	Waiters   []Waiter              `json:"wai,omitempty"`
	Taker     string                `json:"tkr,omitempty"` // the waiter that has the outcome
	Notes     []Note                `json:"nte,omitempty"` // the latest, oldest first
	Dropped   int                   `json:"drp,omitempty"` // notes that had to make room
	Undo      *Undo                 `json:"und,omitempty"` // since the run compensates
	Meta      *Meta                 `json:"met,omitempty"` // metadata that programs change
	Program   *Program              `json:"prg,omitempty"` // of a run whose definition is a program
	Recall    []drover.FunctionName `json:"rec,omitempty"` // functions whose calls were outstanding when the run ended, sorted

	derived *derived
	size    int // of the JSON that Encode made last
}

// NodeState is the state of one node.
type NodeState struct {
	Status   Mark          `json:"s,omitempty"` // 0: pending
	Attempts int           `json:"a,omitempty"` // calls that were made; of a fan-out: 0
	Started  Millis        `json:"b,omitempty"`
	Last     Millis        `json:"l,omitempty"` // start of the last attempt
	Ended    Millis        `json:"e,omitempty"`
	Instance int           `json:"i,omitempty"` // of the attempt that ended it
	Output   Value         `json:"o,omitzero"`
	Error    *drover.Error `json:"x,omitempty"`
	Failed   []Failure     `json:"f,omitempty"` // attempts that failed, oldest first, as far as they were kept
	Items    *Items        `json:"g,omitempty"` // of a fan-out that was expanded
	Reading  *Reading      `json:"w,omitempty"` // of a wait
}

// Mark is the status of a node or an item, as one letter.
type Mark byte

// The marks.
const (
	MarkPending   Mark = 0
	MarkRunning   Mark = 'r'
	MarkWaiting   Mark = 'w'
	MarkDone      Mark = 'd'
	MarkFailed    Mark = 'f'
	MarkCancelled Mark = 'c'
	MarkSkipped   Mark = 's'
)

// Failure is one attempt that failed.
type Failure struct {
	Item     int           `json:"i,omitempty"` // of a fan-out: item + 1
	Undo     bool          `json:"u,omitempty"` // of the compensation
	Attempt  int           `json:"a"`
	Started  Millis        `json:"b"`
	Ended    Millis        `json:"e"`
	Deadline Millis        `json:"d,omitempty"`
	Instance int           `json:"n,omitempty"`
	Error    *drover.Error `json:"x"`
}

// Active is one thing that is outstanding: a call, a child, a sleep, a wait, or
// a pause before the next attempt.
type Active struct {
	Kind    ActiveKind
	Undo    bool
	Node    int // index in the plan
	Item    int // or drover.NoItem
	Attempt int // from 1; of a pause: the one that comes after it
	Used    int // attempts that used up the budget
	Since   Millis
	Due     Millis // when it ends by itself; 0: never
	Lost    Millis // when it was silent for too long; 0: it is not watched, or gave no sign of life yet
}

// ActiveKind says what is outstanding.
type ActiveKind byte

// The kinds of what is outstanding.
const (
	ActiveCall  ActiveKind = 'c'
	ActiveChild ActiveKind = 'k'
	ActivePause ActiveKind = 'p' // before the next attempt
	ActiveSleep ActiveKind = 's'
	ActiveWait  ActiveKind = 'w'
)

// Unread is a delivery that no wait has read.
type Unread struct {
	Name    string `json:"n,omitempty"` // of the wait
	Hook    string `json:"k,omitempty"` // or the token
	Payload Value  `json:"p,omitzero"`
	At      Millis `json:"t"`
	Respond string `json:"r,omitempty"` // inbox that gets an answer
}

// Waiter is one who waits for the outcome, and may take it before anybody who is
// told only inline.
type Waiter struct {
	Name  string `json:"n"`
	Until Millis `json:"t"` // its hold is over then
}

// Note is something that reached the run and changed nothing else.
type Note struct {
	At   Millis `json:"t"`
	Text string `json:"m"`
}

// Undo is how far the compensation of a run has come. It goes from the node or
// item that ended last to the one that ended first.
type Undo struct {
	Final  drover.Status `json:"s"`           // of the run, had there been nothing to compensate
	End    Millis        `json:"e,omitempty"` // End, Node and Item are those of the one that is compensated now
	Node   int           `json:"n"`
	Item   int           `json:"i"`
	Count  int           `json:"c,omitempty"` // compensations that succeeded
	Failed []string      `json:"f,omitempty"` // sentences about those that did not
	Lost   int           `json:"l,omitempty"` // sentences that there was no room for
}

// derived is what follows from a state and its plan. It is made when a command
// is applied to a state that was just decoded, and kept up to date after.
type derived struct {
	plan     *Plan              // of a program: with the nodes of its body
	unmet    []int32            // of each node: dependencies that are not over
	left     int                // nodes of the output's closure that are not over
	calls    int                // calls and children in flight
	inFlight []int32            // of each node: its items in flight
	open     []int              // fan-outs with items that were not set off, in the order of the plan
	items    map[int]itemsCache // of running fan-outs
	values   map[int]any        // decoded outputs, for expressions
	cached   int                // bytes of JSON behind values
	input    any                // decoded input
	hasInput bool
	mac      hash.Hash // makes tokens
	undo     []undoKey // what is compensated, in order
}

type place struct{ node, item int }

type itemsCache []json.RawMessage

// Terminal reports whether the run is over.
func (s *State) Terminal() bool { return s.Status.Terminal() }
