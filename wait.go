package drover

import "encoding/json"

// Wait is a wait for deliveries. Exactly one of Name, Hook, From and Approve
// says which: those to the run by name, those to a token that the node claims,
// those to the hook that another node claimed and holds, or a person's yes or no.
type Wait struct {
	Name    string          `json:"name,omitempty"`
	Hook    *HookToken      `json:"hook,omitempty"`
	From    NodeID          `json:"from,omitempty"`    // a node with hook, hold and not approve
	Approve json.RawMessage `json:"approve,omitempty"` // what is asked: any JSON, with ${{ expressions }}; it becomes the Metadata of a public hook whose token nobody can guess
	Timeout Duration        `json:"timeout,omitempty"` // 0: none
	Schema  json.RawMessage `json:"schema,omitempty"`  // of each payload

	// Of all but Approve. The node is done with one delivery, and gives its
	// payload; or, where one of these is set, with so many, or once the
	// expression is true of payload, the latest, and payloads, all of them, and
	// gives the list of payloads. With both, whichever comes first.

	Count int    `json:"count,omitempty"` // 1 to MaxUnread
	Until string `json:"until,omitempty"`

	// Of Hook, and some of Approve.

	Tags     map[string]string `json:"tags,omitempty"`      // values may hold ${{ expressions }}; Approve too
	Metadata json.RawMessage   `json:"metadata,omitempty"`  // any JSON, with ${{ expressions }}
	Hold     bool              `json:"hold,omitempty"`      // the run keeps the token when the wait is over, until a release or its end
	OnUnread OnUnread          `json:"on_unread,omitempty"` // what becomes of deliveries that nothing has read when the run ends
	Retain   Duration          `json:"retain,omitempty"`    // how long the token stays taken after its release: readable, not deliverable
	Takeover bool              `json:"takeover,omitempty"`  // takes the token from a run that holds it
	Public   bool              `json:"public,omitempty"`    // may be delivered to by HTTP; only where Drover makes the token
	Respond  *Answer           `json:"respond,omitempty"`   // what HTTP answers; nil: 202 and an empty body
}

// HookToken is the token that a hook claims: any UTF-8 text of 1 to MaxToken
// bytes. In JSON a string, which may hold ${{ expressions }}, or true: Drover
// makes a token that nobody can guess.
type HookToken struct {
	Text string // with expressions; "" where Made is true
	Made bool
}

// MarshalJSON gives a string, or true.
func (t HookToken) MarshalJSON() ([]byte, error) {
	if t.Made {
		return []byte("true"), nil
	}
	return json.Marshal(t.Text)
}

// UnmarshalJSON reads a string, or true.
func (t *HookToken) UnmarshalJSON(data []byte) error {
	if string(data) == "true" {
		*t = HookToken{Made: true}
		return nil
	}
	t.Made = false
	return json.Unmarshal(data, &t.Text)
}

// OnUnread says what becomes of accepted deliveries that nothing has read when
// the run that holds their hook ends.
type OnUnread string

// What may become of them. They are counted in the outcome in any case.
const (
	// OnUnreadCount is the default: they stay with the run, and can be seen there.
	OnUnreadCount OnUnread = "count"
	// OnUnreadRestart starts a successor: the same definition and input, which
	// holds the token from its first moment, and whose first deliveries they
	// are. The hook is held (Hold) till the end of the run. A run that has read
	// no delivery of the hook has no successor.
	OnUnreadRestart OnUnread = "restart"
)

// Answer is what HTTP answers to a delivery. Exactly one of With and Run is set.
type Answer struct {
	Status int             `json:"status,omitempty"` // of HTTP, 200 to 599; 0: 200
	With   json.RawMessage `json:"with,omitempty"`   // the body: any JSON, with ${{ expressions }} that are evaluated when the hook is claimed
	// Run: the run answers, by a respond node, while the caller waits; without
	// an answer in time it is 202 and an empty body.
	Run     bool     `json:"run,omitempty"`
	Timeout Duration `json:"timeout,omitempty"` // of Run; 0: 30 s, at most 5 min
}

// Release ends a hook that the run holds. The token is free once the release is
// committed; waits on the hook that are not over fail with CodeReleased.
type Release struct {
	Hook   NodeID `json:"hook"`             // the node that claimed it
	Unread Unread `json:"unread,omitempty"` // "": UnreadDrain
}

// Unread says what a release does with deliveries that nothing has read.
type Unread string

// The ways.
const (
	UnreadDrain   Unread = "drain"   // there must be none: else the node fails with CodeUnread, and nothing is released
	UnreadTake    Unread = "take"    // the node gives the list of their payloads, oldest first
	UnreadDiscard Unread = "discard" // the node gives {"discarded": <how many>}, and the run keeps a note of it
)

// Respond answers the HTTP request that brought a delivery. It is done at once,
// and gives null; where nobody waits for the answer any more it is dropped.
type Respond struct {
	To     NodeID          `json:"to"`               // the wait that read the delivery; of several the latest
	Status int             `json:"status,omitempty"` // 0: 200
	With   json.RawMessage `json:"with,omitempty"`   // the body: any JSON, with ${{ expressions }}; absent: null
}
