package drover

import (
	"encoding/json"
	"time"
)

// Status is the state of a run.
type Status string

// The statuses of a run. The last six are terminal: such a run never changes
// again, but for the state of its deliveries.
const (
	StatusRunning            Status = "running"
	StatusWaiting            Status = "waiting" // parked: nothing but timers, waits and children is outstanding
	StatusBlocked            Status = "blocked" // parked until an operator acts (programs only)
	StatusCompleted          Status = "completed"
	StatusFailed             Status = "failed"
	StatusCancelled          Status = "cancelled"
	StatusCompensated        Status = "compensated"         // failed or stopped, and every compensation succeeded
	StatusCompensationFailed Status = "compensation_failed" // failed or stopped, and a compensation failed as well
)

// Terminal reports whether a run in this status is over.
func (s Status) Terminal() bool {
	switch s {
	case StatusCompleted, StatusFailed, StatusCancelled, StatusCompensated, StatusCompensationFailed:
		return true
	case StatusRunning, StatusWaiting, StatusBlocked:
		return false
	}
	return false
}

// NodeStatus is the state of a node, or of one item of its fan-out.
type NodeStatus string

// The statuses of a node. The last four are terminal.
const (
	NodePending   NodeStatus = "pending" // not all that it needs is over, or no slot is free
	NodeRunning   NodeStatus = "running" // a call is outstanding, or its next attempt is due later
	NodeWaiting   NodeStatus = "waiting" // parked on a timer, a delivery or a child
	NodeDone      NodeStatus = "done"
	NodeFailed    NodeStatus = "failed"
	NodeCancelled NodeStatus = "cancelled"
	NodeSkipped   NodeStatus = "skipped"
)

// Terminal reports whether a node in this status is over.
func (s NodeStatus) Terminal() bool {
	switch s {
	case NodeDone, NodeFailed, NodeCancelled, NodeSkipped:
		return true
	case NodePending, NodeRunning, NodeWaiting:
		return false
	}
	return false
}

// Run is what anyone may see of a run: its record, made readable. It carries
// no secret.
type Run struct {
	ID         RunID                      `json:"run_id"`
	Workflow   WorkflowName               `json:"workflow,omitempty"`
	Definition Hash                       `json:"definition"`
	Status     Status                     `json:"status"`
	Input      json.RawMessage            `json:"input,omitempty"`  // as JSON; absent where it is not inline and was not asked for
	Result     json.RawMessage            `json:"result,omitempty"` // of a completed run
	Error      *Error                     `json:"error,omitempty"`  // of every other terminal run
	Tags       map[string]string          `json:"tags,omitempty"`
	Parent     *CallID                    `json:"parent,omitempty"` // the call of the parent run that started it
	CreatedAt  time.Time                  `json:"created_at"`
	StartedAt  *time.Time                 `json:"started_at,omitempty"`
	EndedAt    *time.Time                 `json:"ended_at,omitempty"`
	Deadline   *time.Time                 `json:"deadline,omitempty"` // of the whole run
	Program    *ProgramView               `json:"program,omitempty"`  // of a program: how far its body is; its nodes are what the body waits for
	Nodes      []Node                     `json:"nodes,omitempty"`    // in an order in which each comes after what it needs; absent in a list of runs
	Metadata   map[string]json.RawMessage `json:"metadata,omitempty"` // that programs keep up to date
	Deliveries []Delivery                 `json:"deliveries,omitempty"`
	Unread     int                        `json:"unread,omitempty"`    // deliveries that no wait has read
	Successor  RunID                      `json:"successor,omitempty"` // the run that some of those were handed over to
	Notes      []Note                     `json:"notes,omitempty"`     // what happened and changed nothing
	Applied    uint64                     `json:"applied"`             // sequence of the last command that was folded into it
}

// Node is what anyone may see of a node.
type Node struct {
	ID        NodeID          `json:"id"`
	Kind      Kind            `json:"kind"`
	Status    NodeStatus      `json:"status"`
	StartedAt *time.Time      `json:"started_at,omitempty"`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"` // absent where it is not inline and was not asked for
	Error     *Error          `json:"error,omitempty"`
	Attempts  []Attempt       `json:"attempts,omitempty"` // of a node without fan-out, oldest first
	Items     *Items          `json:"items,omitempty"`    // of a fan-out
	Child     RunID           `json:"child,omitempty"`    // of a `run` node
	Hook      string          `json:"hook,omitempty"`     // the token that it claims, or has claimed and the run holds

	Compensation *Compensation `json:"compensation,omitempty"` // of a node that is compensated, since the run compensates
}

// CompensationStatus is the state of the compensation of a node or an item.
type CompensationStatus string

// The states of a compensation. Those of a run come one at a time, that of what
// ended last first; one that failed does not keep the others from being made.
const (
	CompensationPending CompensationStatus = "pending" // others come first
	CompensationRunning CompensationStatus = "running" // a call is outstanding, or its next attempt is due later
	CompensationDone    CompensationStatus = "done"
	CompensationFailed  CompensationStatus = "failed" // for good
)

// Compensation is how far what a node or an item did has been undone. That of a
// fan-out sums up its items: it runs while not all of them are over, and failed
// where one of them did. Of more than 50 that failed the later ones are known by
// their attempts, as far as those were kept.
type Compensation struct {
	Status    CompensationStatus         `json:"status"`
	Counts    map[CompensationStatus]int `json:"counts,omitempty"`     // of a fan-out: its items
	Attempts  int                        `json:"attempts,omitempty"`   // that were begun; of a fan-out: absent
	Error     *Error                     `json:"error,omitempty"`      // of the last attempt that failed; absent once it is done
	StartedAt *time.Time                 `json:"started_at,omitempty"` // as far as it is known
	EndedAt   *time.Time                 `json:"ended_at,omitempty"`
}

// Attempt is one call of a node.
type Attempt struct {
	Attempt   int        `json:"attempt"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	Instance  string     `json:"instance,omitempty"` // the function instance that did it
	Error     *Error     `json:"error,omitempty"`
}

// Items sums up a fan-out: how many of its items are in which status, and the
// single ones where they are few or were asked for.
type Items struct {
	Total  int                `json:"total"`
	Counts map[NodeStatus]int `json:"counts"`
	List   []Item             `json:"list,omitempty"`
}

// Item is one item of a fan-out.
type Item struct {
	Index     int             `json:"index"`
	Status    NodeStatus      `json:"status"`
	Attempts  int             `json:"attempts"`
	StartedAt *time.Time      `json:"started_at,omitempty"`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
	Instance  string          `json:"instance,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Errors    []Attempt       `json:"errors,omitempty"` // its failed attempts

	Compensation *Compensation `json:"compensation,omitempty"`
}

// Note is something that reached a run and changed nothing, such as the late
// result of an earlier attempt.
type Note struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Outcome is what is told of a terminal run. All deliveries of one outcome to
// one subscriber carry the same bytes. Of a run that completed with a result that
// is too large to be told, or gone, the result is null, and the error says so: look
// at the error first.
type Outcome struct {
	DeliveryID DeliveryID        `json:"delivery_id"`
	RunID      RunID             `json:"run_id"`
	Workflow   WorkflowName      `json:"workflow,omitempty"`
	Status     Status            `json:"status"`
	Result     json.RawMessage   `json:"result"` // null unless the run completed
	Error      *Error            `json:"error"`  // null if the run completed, unless its result cannot be told; never null otherwise
	StartedAt  time.Time         `json:"started_at"`
	EndedAt    time.Time         `json:"ended_at"`
	Tags       map[string]string `json:"tags,omitempty"`
	Unread     int               `json:"unread,omitempty"`    // deliveries that were accepted and that nothing has read
	Successor  RunID             `json:"successor,omitempty"` // the run that has them now
}
