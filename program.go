package drover

import (
	"encoding/json"
	"time"
)

// EntryKind says what an entry of the journal of a program is.
type EntryKind string

// The kinds of entries. Those of the body come as records of a process.
const (
	EntryStep    EntryKind = "step"    // the body did a step, and this is what it gave
	EntryAttempt EntryKind = "attempt" // an attempt of a step failed; the next one comes after a pause
	EntryNode    EntryKind = "node"    // the body asked for something outside of its process
	EntryEnded   EntryKind = "ended"   // and this is how that ended, or a pause is over
	EntryCancel  EntryKind = "cancel"  // the body does not want that any more
	EntryValue   EntryKind = "value"   // the body fixed a value
	EntryUndo    EntryKind = "undo"    // the body has undone a step
	EntryMeta    EntryKind = "meta"    // the body changed metadata: of self, parent or root, as the id says
	EntryPanic   EntryKind = "panic"   // the body broke in the last drive that it has, and is to undo what it did
	EntryStop    EntryKind = "stop"    // somebody asked the run to stop
)

// Entry is one line of the journal of a program.
type Entry struct {
	Number  int             `json:"n,omitempty"` // from 1; absent in what a process sends
	Kind    EntryKind       `json:"kind"`
	ID      string          `json:"id,omitempty"`      // the author's, of the step or node: a NodeID of at most 100 bytes without ~ and @; of a stop: its reason
	Attempt int             `json:"attempt,omitempty"` // step, attempt, undo; ended: of the pause that is over
	Step    json.RawMessage `json:"step,omitempty"`    // node: a Step as in a definition
	Input   json.RawMessage `json:"input,omitempty"`   // node
	Output  json.RawMessage `json:"output,omitempty"`  // step, ended, value, undo; node: the token, where the run makes one
	Error   *Error          `json:"error,omitempty"`   // attempt, and of what failed
	Pause   Duration        `json:"pause,omitempty"`   // attempt: until the next one
	Started *time.Time      `json:"started_at,omitempty"`
	At      *time.Time      `json:"at,omitempty"` // when it was folded; absent in what a process sends
}

// RecordRequest is what the process that drives a program has to say.
type RecordRequest struct {
	Drive    int       `json:"drive"`
	Fence    int       `json:"fence"`             // how often the drive was handed out: the highest one counts
	Token    string    `json:"token"`             // of the drive
	Instance string    `json:"instance"`          // of the process, in 1 to 128 bytes that a subject may have; of two with one fence only the first is heard
	Keep     string    `json:"keep,omitempty"`    // inbox where it takes the next drive, as it keeps the body in memory
	Version  string    `json:"version,omitempty"` // of the program that it serves
	At       int       `json:"at"`                // records of the body before these
	Have     int       `json:"have"`              // entries that it knows
	Records  []Entry   `json:"records,omitempty"`
	End      *DriveEnd `json:"end,omitempty"`
}

// DriveEnd is how a drive ends.
type DriveEnd struct {
	Status DriveStatus     `json:"status"`
	Result json.RawMessage `json:"result,omitempty"` // completed
	Input  json.RawMessage `json:"input,omitempty"`  // again
	Error  *Error          `json:"error,omitempty"`  // of every other that is not waiting
}

// DriveStatus is how a drive ends.
type DriveStatus string

// The ends of a drive.
const (
	DriveWaiting            DriveStatus = "waiting"   // the body waits for what the journal does not have yet
	DriveCompleted          DriveStatus = "completed" //
	DriveFailed             DriveStatus = "failed"
	DriveCancelled          DriveStatus = "cancelled"           // it was stopped, and had nothing to undo
	DriveCompensated        DriveStatus = "compensated"         // it failed or was stopped, and all was undone
	DriveCompensationFailed DriveStatus = "compensation_failed" // not all could be undone
	DrivePanicked           DriveStatus = "panicked"            // it is driven again, as often as the run's retry says
	DriveBlocked            DriveStatus = "blocked"             // the body does not fit the journal; a tick drives it again
	DriveAgain              DriveStatus = "again"               // it begins anew with another input and an empty journal
)

// RecordReply answers a record.
type RecordReply struct {
	RunID   RunID   `json:"run_id"`
	Status  Status  `json:"status"`
	Records int     `json:"records"`           // of the body, so far
	Entries int     `json:"entries"`           // of the journal, so far
	New     []Entry `json:"new,omitempty"`     // after those that the process has
	Partial bool    `json:"partial,omitempty"` // New did not fit: read the journal
	Driving bool    `json:"driving"`           // the drive goes on, also where it asked to park
	Stop    *string `json:"stop,omitempty"`    // somebody asked the run to stop, for this reason
	Last    bool    `json:"last,omitempty"`    // if the body breaks now, it is not driven again
}

// DriveRequest asks a process to drive a program.
type DriveRequest struct {
	RunID      RunID             `json:"run_id"`
	Program    string            `json:"program"`
	Version    string            `json:"version,omitempty"`
	Drive      int               `json:"drive"`
	Generation int               `json:"generation,omitempty"` // how often the body began anew
	Token      string            `json:"token,omitempty"`      // of a drive that is asked for directly; else in the header of the call
	Seed       string            `json:"seed"`                 // of all that is random in the body
	Input      json.RawMessage   `json:"input,omitempty"`
	Records    int               `json:"records"`
	Entries    int               `json:"entries"`
	Journal    []Entry           `json:"journal,omitempty"`
	From       int               `json:"from,omitempty"`    // the first number of Journal; 0: 1
	Partial    bool              `json:"partial,omitempty"` // read input and journal: they did not fit, or somebody else may have been asked
	Stop       *string           `json:"stop,omitempty"`
	Last       bool              `json:"last,omitempty"` // if the body breaks in this drive, it is not driven again
	Parent     *CallID           `json:"parent,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Started    time.Time         `json:"started_at"`
	Look       bool              `json:"look,omitempty"` // this asks only whether the process drives Drive: it is not to begin
}

// LookedMessage says that no process was found that a drive is waiting for.
type LookedMessage struct {
	Drive int    `json:"drive"`
	Look  int    `json:"look"` // which one it was, of this drive
	Token string `json:"token"`
}

// JournalRequest asks for the journal of a program, from an entry on.
type JournalRequest struct {
	RunID RunID `json:"run_id"`
	From  int   `json:"from,omitempty"` // 0: 1
}

// JournalReply is one part of the answer; the first part has the input.
type JournalReply struct {
	RunID   RunID           `json:"run_id"`
	Input   json.RawMessage `json:"input,omitempty"`
	Records int             `json:"records"` // of the body, in the whole journal
	Entries int             `json:"entries"` // in the whole journal
	Journal []Entry         `json:"journal"`
}

// ProgramView is how far the body of a program is.
type ProgramView struct {
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`    // that the run keeps while somebody serves it
	Generation int        `json:"generation,omitempty"` // how often it began anew
	Drive      int        `json:"drive"`                // the latest
	State      string     `json:"state"`                // queued, driving, parked, pausing, blocked, over
	Since      *time.Time `json:"since,omitempty"`
	Records    int        `json:"records"`            // entries that the body made
	Entries    int        `json:"entries"`            // of the journal
	Instance   string     `json:"instance,omitempty"` // that drives, or drove last
	Stop       *string    `json:"stop,omitempty"`     // why it was asked to stop
}
