package machine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/droverhq/drover"
)

// Millis is a point in time, in milliseconds since 1970. 0 is none.
type Millis int64

// Time gives the time, in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// Command is one message to a run, in the order of its log. The field of its
// verb is set, and no other.
type Command struct {
	Seq   uint64    // in the command stream; grows from command to command
	At    time.Time // when the log stored it
	Run   drover.RunID
	Verb  drover.Verb
	Reply string // inbox that wants the answer, or ""

	Start   *Start
	Stop    *drover.StopRequest
	Deliver *drover.DeliverRequest
	Result  *drover.ResultMessage
	Child   *drover.ChildMessage
	Heard   *drover.HeardMessage
	Claimed *drover.ClaimedMessage
	Record  *drover.RecordRequest
	Looked  *drover.LookedMessage
	Meta    *drover.MetaMessage
	Hold    *drover.HoldRequest
	Waiter  *drover.WaiterRequest // consume, release
	Replay  *drover.ReplayMessage
}

// Start is a start whose definition was found.
type Start struct {
	drover.StartRequest
	Hash   drover.Hash // of the plan that Apply gets with it
	Secret string      // entropy for the tokens of the run; the record keeps what the fold that was committed brought
}

// Step is what one command did.
type Step struct {
	State   *State        // after the command; nil where there is no run
	Changed bool          // the state has to be committed
	Puts    []Put         // durable before the commit
	Effects []Effect      // performed after the commit
	Answer  any           // for Command.Reply: drover.StartReply, StopReply, DeliverReply, {} for a tick; nil for other verbs
	Refused *drover.Error // the command could not be folded, and nothing changed
}

// Value is a JSON value: in the record, or in the values bucket. The zero
// value is null.
type Value struct {
	JSON json.RawMessage `json:"v,omitempty"`
	Key  string          `json:"k,omitempty"` // in the values bucket
	Size int             `json:"s,omitempty"` // bytes, of a value behind a key
}

// Put is a value to store, create-only, under a key of the values bucket.
type Put struct {
	Key  string
	JSON json.RawMessage
}

// Values gives the values behind keys, as far as they were loaded. The puts of
// earlier steps belong to them as soon as those steps are there, durable or not.
type Values func(key string) (json.RawMessage, bool)

// NeedError says that values must be loaded before the command can be folded.
type NeedError struct{ Keys []string }

func (e *NeedError) Error() string { return fmt.Sprintf("values must be loaded: %q", e.Keys) }
