package kv

import (
	"context"
	"encoding/json"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/publish"
)

// How a write is refused. Nothing was written then.
var (
	// ErrConflict: the key has another revision.
	ErrConflict = publish.ErrConflict
	// ErrBusy: another write to the key is under way, or seems to be.
	ErrBusy = publish.ErrBusy
)

// Store is everything that a fleet remembers.
type Store struct {
	Runs        Runs
	Values      Values
	Definitions Definitions
	Hooks       Hooks
	Deliveries  Deliveries
	Fleet       Fleet
}

// Record is the data of a key and its revision, which grows with every write to
// the bucket.
type Record struct {
	Data     []byte
	Revision uint64
	Retired  bool // of a run that is being removed: Data is what Runs.Retire was given
}

// Commit is one write of a record.
type Commit struct {
	Key      string // subjects.RunKey
	Revision uint64 // that the key has; 0: it must not be there
	Data     []byte // not to be changed before Done is called
	// Done gets the new revision, or ErrConflict, ErrBusy, drover.CodeTooLarge
	// or drover.CodeUnavailable.
	Done func(revision uint64, err error)
}

// Runs keeps the records of runs.
type Runs interface {
	Removal
	// Load reads a record, from the leader. The error is drover.CodeNotFound
	// where there is none. One that is retired is none, and is given with the error.
	Load(ctx context.Context, key string) (Record, error)
	// Commit writes records, each by itself: some may succeed where others fail.
	// It does not wait for them, but may wait for room where very many writes
	// are under way, so that it must not be called in a callback.
	Commit(batch []Commit)
	// Scan visits all records in the order of their last writes, retired ones as
	// well, until visit gives false. One that is written meanwhile may be visited
	// twice, the later time with the later revision. Data is the visitor's to keep.
	Scan(ctx context.Context, visit func(key string, rec Record) bool) error
}

// Removal takes records out, in two steps: what belongs to a run has to go after
// its record, which decides, and before there can be another one.
type Removal interface {
	// Retire writes over a record that has this revision, and gives the new one.
	// From then on there is no record for whoever reads, and none can be made: a
	// commit of a new one ends in ErrConflict until the purge. ErrConflict: the
	// record is gone, or has another revision.
	Retire(ctx context.Context, key string, revision uint64, left []byte) (uint64, error)
	// Purge removes a record that has this revision, retired or not, and leaves no
	// trace of it: the key may be used anew. ErrConflict: the record is gone, or has
	// another revision. A commit that is under way at the same time may win.
	Purge(ctx context.Context, key string, revision uint64) error
}

// Values keeps values that are too big for their record. They never change, and
// their keys say all that went into them.
type Values interface {
	Past
	// Put stores a value unless the key is there already, which is as good: the
	// first value stays. It may wait for room, like Runs.Commit. value must not
	// be changed before done is called.
	Put(key string, value json.RawMessage, done func(error))
	// Get reads values. The result lacks those that are not there.
	Get(ctx context.Context, keys []string) (map[string]json.RawMessage, error)
	// Sweep removes values of a run that are there now and whose keys are dead. It may
	// leave some to the next one, where they are very many, or stand among others.
	Sweep(ctx context.Context, run drover.RunID, dead func(key string) bool) error
	// PurgeRun removes the values of a run, as far as they were stored up to a
	// sequence that Last gave.
	PurgeRun(ctx context.Context, run drover.RunID, last uint64) error
}

// Past tells what is in a bucket from what comes later, so that a purge that is
// late, or repeated, takes nothing of a new run with the id of an old one.
type Past interface {
	// Last gives the sequence of the latest write, 0 for none.
	Last(ctx context.Context) (uint64, error)
}

// Definitions keeps definitions, and the names that point to them.
type Definitions interface {
	Contents
	Registry
}

// Contents keeps definitions under their hashes.
type Contents interface {
	// Put stores a definition. It is no error if it is there.
	Put(ctx context.Context, hash drover.Hash, canonical []byte) error
	// Get reads a definition. The error is drover.CodeNotFound where there is none.
	Get(ctx context.Context, hash drover.Hash) ([]byte, error)
}

// Registry keeps names of definitions.
type Registry interface {
	// SetName makes a name point to a definition, whatever it pointed to. The
	// definition must be there already.
	SetName(ctx context.Context, name drover.WorkflowName, hash drover.Hash) error
	// Lookup gives what a name points to. The error is drover.CodeNotFound where
	// the name is not registered.
	Lookup(ctx context.Context, name drover.WorkflowName) (drover.Hash, error)
	// List gives all names, sorted. It may lack what was registered just now.
	List(ctx context.Context) ([]Registered, error)
}

// Registered is a name and what it points to.
type Registered struct {
	Name drover.WorkflowName
	Hash drover.Hash
}

// Hooks keeps exclusive claims on tokens, which may be any text, and the ids of
// what was sent to them.
type Hooks interface {
	Claims
	Reservations
}

// Claims keeps claims on tokens.
type Claims interface {
	// Claim takes a token, and gives the revision of the claim. ErrConflict:
	// it is taken, perhaps by an earlier call of this one whose answer was
	// missing; Get tells.
	Claim(ctx context.Context, token string, claim []byte) (revision uint64, err error)
	// Get reads a claim, from the leader. The error is drover.CodeNotFound where
	// the token is free.
	Get(ctx context.Context, token string) (Record, error)
	// Update writes a claim that has this revision, and gives its new one.
	// ErrConflict: the token is free, or its claim has another revision.
	Update(ctx context.Context, token string, revision uint64, claim []byte) (uint64, error)
	// Release frees a token whose claim has this revision. ErrConflict: it is
	// free, or its claim has another revision.
	Release(ctx context.Context, token string, revision uint64) error
	// Scan visits all claims in the order of their last writes, until visit
	// gives false. One that is written meanwhile may be visited twice, the later
	// time with the later revision. The claim is the visitor's to keep.
	Scan(ctx context.Context, visit func(token string, rec Record) bool) error
}

// Reservations keeps something for each id that was sent to a token, for a time.
type Reservations interface {
	// Reserve writes the reservation of an id, if it has this revision, 0 for
	// none, and lets it expire after ttl, whole seconds of at least one. With
	// ErrConflict it gives the one that is there, or nothing.
	Reserve(ctx context.Context, token, id string, revision uint64, data []byte, ttl time.Duration) (Record, error)
	// Reserved reads a reservation, from the leader. The error is
	// drover.CodeNotFound where there is none.
	Reserved(ctx context.Context, token, id string) (Record, error)
}

// Deliveries lists deliveries of outcomes that did not succeed at once. It is a
// list of hints: the record of a run decides, and a key whose delivery is neither
// pending nor dead may be removed by whoever meets it.
type Deliveries interface {
	Listing
	Past
	// Purge removes keys of one run, as far as they were listed up to a sequence
	// that Last gave.
	Purge(ctx context.Context, keys []string, last uint64) error
}

// Hint is what the list says of a delivery.
type Hint string

// The hints. They save whoever looks for deliveries that wait the record of one
// that does not; any other text, or none, says nothing, and its record is read.
//
// HintDead and HintQueued are believed, and may be wrong where an owner that stood
// still writes late, or a delivery is replayed while somebody corrects its hint. Such
// a delivery is not found when its subscriber comes back: it is tried at the time
// that its record has, as any other, and that is all that comes of it. Whoever lists
// deliveries for people reads all records, and mends it. HintWaits is not believed:
// who reads the record of one that does not wait writes what it is.
const (
	HintWaits  Hint = "waits"  // it is tried as soon as its subscriber is there
	HintQueued Hint = "queued" // it is a call in a queue
	HintDead   Hint = "dead"
)

// Waits reports whether a delivery may wait for its subscriber.
func (h Hint) Waits() bool { return h != HintDead && h != HintQueued }

// Listing reads and writes the list.
type Listing interface {
	// List writes a key of subjects.DeliveryKey, whether it is there or not, and
	// Unlist removes it. Of calls for the same key that one goroutine makes the
	// last one stands, if none fails. They may wait for room, like Runs.Commit.
	// done gets nil or drover.CodeUnavailable, on any goroutine, and must not
	// block.
	List(key string, hint Hint, done func(error))
	Unlist(key string, done func(error))
	// Scan visits the keys that a filter of package subjects fits, the one that
	// was listed first, or listed anew first, at the beginning, until visit gives
	// false. One that is listed anew meanwhile may be visited twice, one that is
	// removed may be visited still. The filter "" fits all.
	Scan(ctx context.Context, filter string, visit func(key string, hint Hint) bool) error
}

// Fleet keeps who lives and who owns what.
type Fleet interface {
	Members
	Partitions
	Secrets
}

// Secrets keeps what only the workers of a fleet know.
type Secrets interface {
	// Secret gives the secret of the fleet, 32 random bytes that are the same for
	// every worker and never change. Whoever asks first makes it. It is read from
	// the leader.
	Secret(ctx context.Context) ([]byte, error)
}

// Member is a worker that lives.
type Member struct {
	ID       string // letters, digits, "-" or "_"
	Info     []byte
	Revision uint64
	Stored   []byte // the Info of the last write that was answered; Members sets it
}

// Members keeps the leases of workers.
type Members interface {
	// Join takes a lease for ttl, whole seconds of at least one. info must tell
	// this start of the worker from all others. ErrConflict: a worker with this
	// id lives, or one that is gone has not been missed yet.
	Join(ctx context.Context, id string, info []byte, ttl time.Duration) (Member, error)
	// Renew prolongs a lease by ttl from now, and may change its Info. ErrConflict: it has run out, or
	// another worker with this id has one.
	Renew(ctx context.Context, m Member, ttl time.Duration) (Member, error)
	// Leave ends a lease, which watchers see at once. A lease that has run out
	// is no error.
	Leave(ctx context.Context, m Member) error
	// WatchMembers calls changed with all members, sorted by id: soon after the
	// call, and whenever some came, went or renewed. Changes that come fast are
	// told at once. It returns when ctx ends, with its cause, and calls nobody
	// after that. While the server is away changed is not called.
	WatchMembers(ctx context.Context, changed func([]Member)) error
}

// Partition is who owns a slice of the runs, and how far it has come.
type Partition struct {
	Number   int    `json:"-"`
	Worker   string `json:"worker,omitempty"` // "": nobody
	Epoch    uint64 `json:"epoch"`            // grows with every change of owner
	Cursor   uint64 `json:"cursor"`           // everything before this sequence of the log is done
	Last     uint64 `json:"last,omitempty"`   // the latest sequence that was read; 0: it is not known
	Stored   int64  `json:"stored,omitempty"` // when the log stored it, in nanoseconds
	Revision uint64 `json:"-"`                // 0: not there
}

// Partitions keeps owners and cursors. It outlives every owner.
type Partitions interface {
	// Partition reads one, from the leader. One that is not there has revision,
	// epoch and cursor 0.
	Partition(ctx context.Context, number int) (Partition, error)
	// Save writes a partition that still has the revision of p, and gives it
	// with the new one. Where the revision is another, but the worker and the
	// epoch are those of p, it was a write of the same owner whose answer was
	// missing, and p is written over it; so is a p without a worker where only
	// the epoch is the same. ErrConflict: somebody else has the partition. Only
	// one call for a partition may be under way in a worker.
	Save(ctx context.Context, p Partition) (Partition, error)
	// WatchPartitions calls changed with all partitions that are there, by
	// number, and else does as WatchMembers.
	WatchPartitions(ctx context.Context, changed func([]Partition)) error
}

// Ours reports whether a partition that is stored was written by the owner who
// wants to write p: an earlier write of it, whose answer was missing.
func (p Partition) Ours(stored Partition) bool {
	return stored.Revision > 0 && stored.Epoch == p.Epoch && (stored.Worker == p.Worker || p.Worker == "")
}
