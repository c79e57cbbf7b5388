package partition

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// Message is one command as it stands in the log.
type Message struct {
	Seq   uint64
	At    time.Time // when the log stored it
	Run   string    // as it is spelled in the subject: anything
	Verb  string    // likewise
	Data  []byte
	Reply string // inbox that wants the answer
}

// OpKind says what an operation is.
type OpKind int

// The operations. Result tells what each gives back.
const (
	OpLoad       OpKind = iota // read the record of Run, from the leader; gives Data and Revision, or CodeNotFound
	OpResolve                  // find, check and store the definition that Start or Hash names; gives Plan
	OpTrace                    // look for a command of Run at Seq of the log, stored by At; gives nothing, or CodeNotFound
	OpFetch                    // read the values behind Keys; gives Values, without those that are gone
	OpCommit                   // store Puts, then write Data where the revision is Revision; gives Revision
	OpAct                      // perform Effects
	OpDead                     // store Message with Err as a dead letter
	OpTick                     // publish a tick for Run
	OpSchedule                 // have the server publish a tick for Run at At; Seq makes its name
	OpUnschedule               // forget the tick that Seq names, which Run does not need any more; its end does not matter
	OpAnswer                   // send Answer, or Err, to Reply; its end does not matter
	OpEvent                    // hint that Run is in Status since Seq; its end does not matter
)

// String names the kind.
func (k OpKind) String() string {
	return [...]string{"load", "resolve", "trace", "fetch", "commit", "act", "dead", "tick", "schedule", "unschedule", "answer", "event"}[k]
}

// Op is one operation to perform. The fields that its kind names are set.
type Op struct {
	ID       uint64
	Kind     OpKind
	Run      drover.RunID
	Start    *drover.StartRequest
	Hash     drover.Hash
	Keys     []string
	Puts     []machine.Put
	Data     []byte
	Revision uint64 // 0: there must be no record
	Effects  []machine.Effect
	Message  Message
	Err      *drover.Error
	At       time.Time
	Seq      uint64
	Reply    string
	Answer   any
	Status   drover.Status
}

// Awaited reports whether the end of the operation must be told.
func (o *Op) Awaited() bool { return o.Kind != OpUnschedule && o.Kind != OpAnswer && o.Kind != OpEvent }

// Result is how an operation ended.
type Result struct {
	Err      error
	Data     []byte
	Revision uint64
	Plan     *machine.Plan
	Values   map[string]json.RawMessage
}

// How a commit may fail, but for an unknown end. Errors are compared with
// errors.Is.
var (
	// ErrConflict: the record has another revision.
	ErrConflict = errors.New("the record has another revision")
	// ErrBusy: nothing was written; the same write may be tried again.
	ErrBusy = errors.New("the store is busy")
	// ErrImpossible: this write can never succeed, such as one that is too large.
	ErrImpossible = errors.New("the write can never succeed")
)
