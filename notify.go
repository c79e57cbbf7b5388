package drover

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Notify is one subscriber of an outcome. Exactly one of Subject,
// StreamSubject, URL, Function and Session says who is told.
type Notify struct {
	// Subject gets the outcome as a NATS request. Any reply is the receipt, but
	// for one that says that it is an error.
	Subject string `json:"subject,omitempty"`
	// StreamSubject gets it as a message of a JetStream stream, whose
	// acknowledgement is the receipt. Its Nats-Msg-Id is the delivery id, "@" and
	// when the run started, in milliseconds since 1970.
	StreamSubject string `json:"stream_subject,omitempty"`
	// URL gets it as an HTTP POST that is signed as Standard Webhooks says. A
	// status from 200 to 299 is the receipt.
	URL string `json:"url,omitempty"`
	// Function gets it as the input of a call. That it ends well is the receipt.
	Function FunctionName `json:"function,omitempty"`
	// Session gets it as text. It is set by Drover alone, for a start with
	// reply_to, and Seal proves that.
	Session string `json:"session,omitempty"`
	Seal    string `json:"seal,omitempty"`
	// Template is put in front of the text, with Session.
	Template string `json:"template,omitempty"`

	// Secret names the secrets that sign, with URL. The workers know them, and
	// no message has them. "" is the name "default".
	Secret string `json:"secret,omitempty"`
	// Batch has several outcomes go in one request, with Subject.
	Batch *Batch `json:"batch,omitempty"`
	// Inline: nobody is told if somebody who waits for the run took its outcome.
	Inline bool `json:"inline,omitempty"`

	// Timeout of one attempt; 0: DefaultReceiptTime. Not with Function, whose
	// call stays in its queue.
	Timeout Duration `json:"timeout,omitempty"`
	// MaxAge is for how long it is tried; 0: DefaultDeliveryAge.
	MaxAge Duration `json:"max_age,omitempty"`
	// MaxAttempts is how often; 0: as often as there is time for.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// The bounds of a delivery.
const (
	DefaultReceiptTime = 10 * time.Second
	MaxReceiptTime     = 5 * time.Minute
	DefaultDeliveryAge = 24 * time.Hour
	MaxDeliveryAge     = 30 * 24 * time.Hour
	MaxBatch           = 1000
	MaxBatchWait       = time.Minute
	MaxTemplate        = 4 << 10 // bytes
	MaxWaiters         = 16      // that hold one outcome
	MaxHold            = 10 * time.Minute
)

// Batch says how many outcomes may share a request, and how long the first of
// them may wait for others.
type Batch struct {
	Max  int      `json:"max"`            // from 2 to MaxBatch
	Wait Duration `json:"wait,omitempty"` // at most MaxBatchWait; 0: what is there goes
}

// Kind says in one word who is told.
func (n *Notify) Kind() string {
	switch {
	case n.Subject != "":
		return "subject"
	case n.StreamSubject != "":
		return "stream_subject"
	case n.URL != "":
		return "url"
	case n.Function != "":
		return "function"
	case n.Session != "":
		return "session"
	}
	return ""
}

// To says who is told: the subject, URL, function or session. Of a URL it leaves
// out what may be a secret: user, password and query.
func (n *Notify) To() string {
	if n.URL != "" {
		to, _, _ := strings.Cut(n.URL, "?")
		if scheme, rest, ok := strings.Cut(to, "://"); ok {
			host, path, _ := strings.Cut(rest, "/")
			to = scheme + "://" + host[strings.LastIndexByte(host, '@')+1:] + "/" + path
		}
		return to
	}
	return n.Subject + n.StreamSubject + string(n.Function) + n.Session
}

// NotifyList is a list of subscribers; in JSON also a single object.
type NotifyList []Notify

// UnmarshalJSON reads a list, or one object.
func (l *NotifyList) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var one Notify
		if err := json.Unmarshal(data, &one); err != nil {
			return err
		}
		*l = NotifyList{one}
		return nil
	}
	return json.Unmarshal(data, (*[]Notify)(l))
}

// ReplyTo has the outcome come back to the session of whoever starts the run.
// Who that is, the connection or the call tells, and never the request.
type ReplyTo struct {
	// Template is put in front of the text, with a blank line between.
	Template string `json:"template,omitempty"`
	// Inline is Notify.Inline.
	Inline bool `json:"inline,omitempty"`
}

// UnmarshalJSON reads an object, or true.
func (r *ReplyTo) UnmarshalJSON(data []byte) error {
	if string(data) == "true" {
		*r = ReplyTo{}
		return nil
	}
	type plain ReplyTo
	return json.Unmarshal(data, (*plain)(r))
}

// SessionReply is what a session gets: the outcome of a run as text.
type SessionReply struct {
	ID      string `json:"id"` // "wfreply_<run>"
	Session string `json:"session"`
	RunID   RunID  `json:"run_id"`
	Status  Status `json:"status"`
	Text    string `json:"text"`
}

// OutcomeBatch is a request with several outcomes, each with its delivery id.
type OutcomeBatch struct {
	Outcomes []json.RawMessage `json:"outcomes"`
}

// BatchReceipts answers a batch. An outcome whose id is missing was not
// delivered, and comes again.
type BatchReceipts struct {
	Receipts []BatchReceipt `json:"receipts"`
}

// BatchReceipt is the receipt of one outcome of a batch; with Error it is none.
type BatchReceipt struct {
	DeliveryID DeliveryID `json:"delivery_id"`
	Receipt    string     `json:"receipt,omitempty"`
	Error      *Error     `json:"error,omitempty"`
}

// DeliveryIDOf is the id of the delivery of a run's outcome to one subscriber.
func DeliveryIDOf(run RunID, subscriber int) DeliveryID {
	return DeliveryID(string(run) + ":terminal:" + strconv.Itoa(subscriber))
}

// ParseDeliveryID reads which subscriber of which run a delivery is for.
func ParseDeliveryID(s string) (RunID, int, error) {
	run, index, ok := strings.Cut(s, ":terminal:")
	n, err := parseIndex(index)
	if !ok || err != nil {
		return "", 0, Errorf(CodeInvalidID, "delivery id %s is not <run>:terminal:<subscriber>", quote(s))
	}
	id, err := ParseRunID(run)
	if err != nil {
		return "", 0, fmt.Errorf("delivery id %s: %w", quote(s), err)
	}
	return id, n, nil
}

// DeliveryStatus is the state of one delivery of an outcome.
type DeliveryStatus string

// The states of a delivery. Of a run that is not over all are none.
const (
	DeliveryNone      DeliveryStatus = ""
	DeliveryHeld      DeliveryStatus = "held"      // somebody who waits for the run may take it
	DeliveryConsumed  DeliveryStatus = "consumed"  // who waited has it; nobody else is told
	DeliveryPending   DeliveryStatus = "pending"   // no receipt yet; it is tried again
	DeliveryDelivered DeliveryStatus = "delivered" // there is a receipt
	DeliveryDead      DeliveryStatus = "dead"      // given up; it can be replayed
)

// Over reports whether nothing more happens to a delivery by itself.
func (s DeliveryStatus) Over() bool {
	return s == DeliveryConsumed || s == DeliveryDelivered || s == DeliveryDead
}

// Delivery is the state of one subscriber of a run's outcome.
type Delivery struct {
	ID        DeliveryID     `json:"delivery_id"`
	Notify    Notify         `json:"notify"`
	Status    DeliveryStatus `json:"status"`
	Attempts  int            `json:"attempts"` // that were made: one that found nobody is none
	Since     *time.Time     `json:"since,omitempty"`
	LastError *Error         `json:"last_error,omitempty"`
	// LastFailure is the error of the last attempt that was made, where LastError is
	// of one that found nobody.
	LastFailure *Error `json:"last_failure,omitempty"`

	GaveUp  GaveUp     `json:"gave_up,omitempty"` // of one that is dead: why
	NextAt  *time.Time `json:"next_at,omitempty"` // the next attempt, unless the one under way succeeds
	EndedAt *time.Time `json:"ended_at,omitempty"`
	Receipt string     `json:"receipt,omitempty"` // what the subscriber answered, cut to 256 bytes
}

// GaveUp says why a delivery is dead.
type GaveUp string

// Why a delivery is dead.
const (
	GaveUpPermanent GaveUp = "permanent"    // its subscriber said that no attempt will do, or none can be made
	GaveUpAttempts  GaveUp = "max_attempts" // they were used up
	GaveUpAge       GaveUp = "max_age"      // it was used up
)

// RunDelivery is a delivery with what it tells of its run.
type RunDelivery struct {
	Delivery
	RunID    RunID        `json:"run_id"`
	Workflow WorkflowName `json:"workflow,omitempty"`
	Outcome  Status       `json:"outcome"` // status of the run
	RunEnded time.Time    `json:"run_ended_at"`
}

// DeliveryFilter chooses deliveries. What is empty chooses all.
type DeliveryFilter struct {
	Status   DeliveryStatus `json:"status,omitempty"` // pending or dead
	RunID    RunID          `json:"run_id,omitempty"`
	Workflow WorkflowName   `json:"workflow,omitempty"` // or program:NAME, or program:NAME@VERSION, for the runs of a program
	To       string         `json:"to,omitempty"`       // exactly what Notify.To gives
}

// DeliveryListRequest asks for deliveries that did not succeed at once, and are
// pending or dead.
type DeliveryListRequest struct {
	DeliveryFilter
	Limit int `json:"limit,omitempty"` // default 100, at most 1000
}

// DeliveryList is the list, by run.
type DeliveryList struct {
	Deliveries []RunDelivery `json:"deliveries"`
	More       bool          `json:"more,omitempty"`
}

// DeliveryRequest names one delivery.
type DeliveryRequest struct {
	DeliveryID DeliveryID `json:"delivery_id"`
}

// ReplayRequest has deliveries tried again at once: that one, or all that the
// filter chooses, of which one field must be set. Dead ones get a new life.
type ReplayRequest struct {
	DeliveryID DeliveryID `json:"delivery_id,omitempty"`
	DeliveryFilter
}

// ReplayReply says how many deliveries were chosen, and how many of those are
// tried again. The errors are the first few.
type ReplayReply struct {
	Matched  int      `json:"matched"`
	Replayed int      `json:"replayed"`
	Errors   []*Error `json:"errors,omitempty"`
}

// HoldRequest keeps the outcome of a run for someone who waits for it: whoever
// is told only inline is not told before the hold is over.
type HoldRequest struct {
	RunID  RunID    `json:"run_id,omitempty"` // of requests to the API only
	Waiter string   `json:"waiter"`           // a name that nobody else uses: 1 to 128 bytes
	For    Duration `json:"for,omitempty"`    // default 30 s, at most MaxHold; another hold of the waiter makes it longer
}

// WaiterRequest says that a waiter has the outcome, or gives it up.
type WaiterRequest struct {
	RunID  RunID  `json:"run_id,omitempty"` // of requests to the API only
	Waiter string `json:"waiter"`
}

// HoldReply answers hold, consume and release.
type HoldReply struct {
	RunID     RunID      `json:"run_id"`
	Status    Status     `json:"status"`
	HeldUntil *time.Time `json:"held_until,omitempty"` // absent: nothing is held for this waiter
}

// ReplayMessage has the deliveries of a run tried again at once.
type ReplayMessage struct {
	DeliveryID DeliveryID `json:"delivery_id,omitempty"` // "": all
}

// ReplayedReply answers it.
type ReplayedReply struct {
	RunID    RunID `json:"run_id"`
	Replayed int   `json:"replayed"`
}

// HeardMessage tells a run how one attempt to deliver its outcome went.
type HeardMessage struct {
	DeliveryID DeliveryID `json:"delivery_id"`
	Token      string     `json:"token"`
	Attempt    int        `json:"attempt"`
	Receipt    string     `json:"receipt,omitempty"`
	Error      *Error     `json:"error,omitempty"`
	Unmade     bool       `json:"unmade,omitempty"` // with Error: nobody was there, and nothing was sent
}
