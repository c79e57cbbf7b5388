package drover

import (
	"encoding/json"
	"time"
)

// HookRequest delivers to the run that holds a token, and with Start to one
// that it starts where nobody holds it.
type HookRequest struct {
	Token   string          `json:"token"`
	Payload json.RawMessage `json:"payload,omitempty"` // any JSON, at most MaxValue bytes; absent: null
	// ID makes a repeat harmless, for a day at least, also where the token has
	// changed hands meanwhile, as long as the run has taken no more than 2,000 other
	// deliveries with ids since: it knows no more. The same id with another payload is
	// a conflict. At most 256 bytes.
	ID string `json:"id,omitempty"`
	// Start says what to run where nobody holds the token. The run holds it from
	// its first moment, and the payload is its first delivery. It needs a wait
	// whose hook is this token, which is checked as far as it can be.
	Start *StartRequest `json:"start,omitempty"`
	// Async has the answer come as soon as the delivery is durable in the log of
	// the run, before the run has taken it. What the run then refuses is a dead
	// letter.
	Async bool `json:"async,omitempty"`
	// Public: only to a hook that is public; to any other it is not found.
	Public bool `json:"public,omitempty"`
	// Respond is an inbox that gets what the run answers to the delivery, as a
	// message with the JSON as its body and the status of HTTP in the header
	// Drover-Status.
	Respond string `json:"respond,omitempty"`
}

// HookReply answers a delivery to a token.
type HookReply struct {
	Token   string  `json:"token"`
	RunID   RunID   `json:"run_id"`            // that has it
	Started bool    `json:"started,omitempty"` // the run was started by this request
	Async   bool    `json:"async,omitempty"`   // it is durable, and the run has not answered yet
	Repeat  bool    `json:"repeat,omitempty"`  // the id had been accepted before
	Unread  int     `json:"unread"`            // deliveries of the run that no wait has read; unknown with Async
	Answer  *Answer `json:"answer,omitempty"`  // what HTTP answers, where the hook says so
}

// HookFilter chooses hooks. All that is set must hold; at least one must be.
type HookFilter struct {
	Tags   map[string]string `json:"tags,omitempty"`   // all must be equal
	Prefix string            `json:"prefix,omitempty"` // of the token
	RunID  RunID             `json:"run_id,omitempty"`
}

// HookManyRequest delivers to every hook that a filter chooses.
type HookManyRequest struct {
	HookFilter
	Payload json.RawMessage `json:"payload,omitempty"`
	ID      string          `json:"id,omitempty"` // as of HookRequest, for each of them
	// Stream has the reply come as several messages to the same inbox: for each
	// hook that was tried a HookResult with the header Drover-More: 1, and then
	// the HookManyReply without results.
	Stream bool `json:"stream,omitempty"`
}

// HookManyReply sums up a delivery to many hooks. The error of a hook that was
// released meanwhile is not_found.
type HookManyReply struct {
	Matched  int          `json:"matched"`
	Accepted int          `json:"accepted"`
	Failed   int          `json:"failed"`
	Results  []HookResult `json:"results,omitempty"` // sorted by token; at most 1000 of them, failed ones first, absent with Stream
}

// HookResult is how a delivery to one of many hooks went.
type HookResult struct {
	Token  string `json:"token"`
	RunID  RunID  `json:"run_id"`
	Repeat bool   `json:"repeat,omitempty"`
	Error  *Error `json:"error,omitempty"` // it was not accepted
}

// HookListRequest asks for hooks. An empty filter chooses all.
type HookListRequest struct {
	HookFilter
	Limit int `json:"limit,omitempty"` // default 100, at most 1000
}

// HookList is the list, by token.
type HookList struct {
	Hooks []Hook `json:"hooks"`
	More  bool   `json:"more,omitempty"`
}

// HookTokenRequest names one hook.
type HookTokenRequest struct {
	Token string `json:"token"`
	// Force, of hook.release: free the token although a run that lives holds it.
	// Its waits on the hook fail with CodeReleased.
	Force bool `json:"force,omitempty"`
}

// Hook is a token that is taken.
type Hook struct {
	Token    string            `json:"token"`
	RunID    RunID             `json:"run_id"`         // that holds it
	Node     NodeID            `json:"node,omitempty"` // that claimed it; absent: a start brought it, and no node has asked for it yet
	Since    time.Time         `json:"since"`
	Tags     map[string]string `json:"tags,omitempty"`
	Metadata json.RawMessage   `json:"metadata,omitempty"`
	Schema   json.RawMessage   `json:"schema,omitempty"`
	Public   bool              `json:"public,omitempty"`
	Starting bool              `json:"starting,omitempty"` // the run is being started
	Retained *time.Time        `json:"retained,omitempty"` // it was released, takes no deliveries, and is free then
	Unread   *int              `json:"unread,omitempty"`   // of hook.show: deliveries that nothing has read
	Until    *time.Time        `json:"until,omitempty"`    // of hook.show: when the wait of the node ends by itself
}

// ClaimedMessage tells a run what became of a claim.
type ClaimedMessage struct {
	Hook     string `json:"hook"`               // the token
	Claim    string `json:"claim"`              // id of the claim: <run>/<node>
	Proof    string `json:"proof"`              // the claim carries it
	Revision uint64 `json:"revision,omitempty"` // it is owned
	Owner    RunID  `json:"owner,omitempty"`    // it is not, or not any more: this run has it
	Since    string `json:"since,omitempty"`    // RFC 3339: since when the owner has it
	Lost     bool   `json:"lost,omitempty"`     // it was owned, and the owner took it, or an operator released it
}
