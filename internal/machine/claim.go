package machine

import (
	"encoding/json"
	"time"

	"github.com/droverhq/drover"
)

// Claim is what a run says of a token that it claims: the value of the token's
// key, as far as the run decides it.
//
// A run that a start gave a token to says it too: once with the node empty,
// where no node asks for the token at once, and when a node does. So a claim
// over one of the same run is no conflict, and replaces what the key says of
// it, but for what whoever starts the run has put there.
type Claim struct {
	Token    string            `json:"token"`
	Run      drover.RunID      `json:"run"`
	ID       string            `json:"id"`             // see ClaimID
	Node     drover.NodeID     `json:"node,omitempty"` // empty: a start brought it, and no node has asked for it yet
	Since    time.Time         `json:"since"`
	Proof    string            `json:"proof,omitempty"` // what drover.ClaimedMessage has to show
	Tags     map[string]string `json:"tags,omitempty"`
	Metadata json.RawMessage   `json:"metadata,omitempty"`
	Schema   json.RawMessage   `json:"schema,omitempty"`
	Public   bool              `json:"public,omitempty"`
	Answer   *drover.Answer    `json:"answer,omitempty"` // With is evaluated
	Takeover bool              `json:"-"`                // take the token from another run that holds it
}

// ClaimID is the id of the claim by a node of a run; with no node, that of a
// start which brought the token. Two claims of one token with one id are the
// same claim.
func ClaimID(run drover.RunID, node drover.NodeID) string { return string(run) + "/" + string(node) }

// Handed is a delivery that a run hands over to its successor.
type Handed struct {
	ID      string // of the delivery to the successor: <run>/<number>
	Token   string
	Payload Value
	Respond string // inbox that gets what the successor answers, or ""
}
