package hook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/kv"
)

// Claim is the value of the key of a token.
type Claim struct {
	machine.Claim
	// Starting is set until it is known that the run lives and was asked to take
	// its first delivery.
	Starting *Starting `json:"starting,omitempty"`
	// Retained: the hook was released, takes no deliveries, and is free then.
	Retained time.Time `json:"retained,omitzero"`
	// Took is the claim that this one displaced, until its run has been told.
	Took *Victim `json:"took,omitempty"`
	// Lost are the ids of claims that were displaced, latest last, at most
	// maxLost: their claimants do not take the token back.
	Lost []string `json:"lost,omitempty"`
	// Heirs are the runs that the run of the claim is handing over to, and those
	// that they hand over to meanwhile, in the order in which they are started.
	// While there are some, the token is nobody else's to take.
	Heirs []Heir `json:"heirs,omitempty"`
	// Trail are runs that have handed the token over, latest last, at most
	// maxTrail: they need not do it again.
	Trail []drover.RunID `json:"trail,omitempty"`
}

const (
	maxLost  = 16
	maxTrail = 32
)

// Starting is what makes the run of a claim live.
type Starting struct {
	Start drover.StartRequest   `json:"start"`
	First drover.DeliverRequest `json:"first"`
	// Keep: the id of First is that of the sender, and is reserved; see Reservation.
	Keep bool `json:"keep,omitempty"`
}

// Victim is a claim that was displaced.
type Victim struct {
	Run   drover.RunID `json:"run"`
	ID    string       `json:"id"`
	Proof string       `json:"proof,omitempty"`
}

// Heir is a run that is given deliveries before it is given the token.
type Heir struct {
	Run drover.RunID `json:"run"`
	// Claim is what the heir says of the token, once it has said it.
	Claim *machine.Claim `json:"claim,omitempty"`
	// Next is who has what the heir had, where the heir is over, and has handed
	// over all of it.
	Next drover.RunID `json:"next,omitempty"`
}

// Reservation says which run may have accepted a delivery with an id.
type Reservation struct {
	Run    drover.RunID `json:"run"`
	Digest string       `json:"digest"` // of the payload
}

// Claims keeps the keys of tokens, as kv.Hooks does.
type Claims interface {
	// Claim writes a key that must not be there; kv.ErrConflict: it is.
	Claim(ctx context.Context, token string, claim []byte) (revision uint64, err error)
	// Get reads a key; drover.CodeNotFound: it is not there.
	Get(ctx context.Context, token string) (kv.Record, error)
	// Update writes a key that has a revision; kv.ErrConflict: it has another.
	Update(ctx context.Context, token string, revision uint64, claim []byte) (uint64, error)
	// Release removes a key that has a revision; kv.ErrConflict: it has another.
	Release(ctx context.Context, token string, revision uint64) error
}

// Reservations keeps which run may have accepted a delivery, as kv.Hooks does.
type Reservations interface {
	// Reserve writes the reservation of an id of a token, if it has a revision, 0
	// for none, and forgets it after ttl. With kv.ErrConflict it gives the one
	// that is there.
	Reserve(ctx context.Context, token, id string, revision uint64, data []byte, ttl time.Duration) (kv.Record, error)
	// Reserved reads a reservation; drover.CodeNotFound: there is none.
	Reserved(ctx context.Context, token, id string) (kv.Record, error)
}

// Keys is all that is kept for tokens.
type Keys interface {
	Claims
	Reservations
}

// Scanner visits all claims, as kv.Hooks does.
type Scanner interface {
	// Scan goes on until visit gives false. A claim that is written meanwhile may
	// be visited twice.
	Scan(ctx context.Context, visit func(token string, rec kv.Record) bool) error
}

// Log is the logs of the runs.
type Log interface {
	// Send makes a command durable, and returns then. body is encoded as JSON.
	Send(ctx context.Context, run drover.RunID, verb drover.Verb, body any) error
	// Ask sends a command and reads the answer of its fold into reply. Its error
	// is that of the fold, a *drover.Error, or drover.CodeUnavailable where it is
	// unknown whether the command was stored or folded.
	Ask(ctx context.Context, run drover.RunID, verb drover.Verb, body, reply any) error
}

// Runs reads the states of runs; the error is drover.CodeNotFound where there is
// none. A state may be an older one.
type Runs interface {
	// Load gives a state that the caller may keep.
	Load(ctx context.Context, run drover.RunID) (*machine.State, error)
}

// Held is a claim as it was read.
type Held struct {
	Claim
	Revision uint64
}

// Read reads the claim of a token. It is nil where nobody has one.
func Read(ctx context.Context, claims Claims, token string) (*Held, error) {
	rec, err := claims.Get(ctx, token)
	if errors.Is(err, drover.CodeNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return Decode(token, rec)
}

// Decode reads the claim in a record. What is none, as somebody else has written
// it, is drover.CodeInternal: nobody has the token, and nobody gets it.
func Decode(token string, rec kv.Record) (*Held, error) {
	h := &Held{Revision: rec.Revision}
	err := json.Unmarshal(rec.Data, &h.Claim)
	if err == nil {
		_, err = drover.ParseRunID(string(h.Run))
	}
	if err != nil || h.Token != token { // the revision would be asked of another key
		return nil, drover.Errorf(drover.CodeInternal, "the key of token %q does not hold a claim of it: release it with drover hook release", token)
	}
	return h, nil
}

// Shown gives the claim as it is shown to people. Unread and Until are in the
// record of its run.
func (c *Claim) Shown() drover.Hook {
	h := drover.Hook{
		Token: c.Token, RunID: c.Run, Node: c.Node, Since: c.Since, Tags: c.Tags, Metadata: c.Metadata,
		Schema: c.Schema, Public: c.Public, Starting: c.Starting != nil,
	}
	if !c.Retained.IsZero() {
		h.Retained = &c.Retained
	}
	return h
}

// Over reports whether the claim was released, and no longer retained at a time.
func (c *Claim) Over(now time.Time) bool { return !c.Retained.IsZero() && !now.Before(c.Retained) }

// heir finds an heir of the claim.
func (c *Claim) heir(run drover.RunID) *Heir {
	i := slices.IndexFunc(c.Heirs, func(h Heir) bool { return h.Run == run })
	if i < 0 {
		return nil
	}
	return &c.Heirs[i]
}

// update writes what h holds over what it was read as.
func (h *Held) update(ctx context.Context, claims Claims) error {
	revision, err := claims.Update(ctx, h.Token, h.Revision, encode(&h.Claim))
	if err == nil {
		h.Revision = revision
	}
	return err
}

// encode keeps raw parts to the letter, so that a delivery that is read back is
// still the same one.
func encode(v any) []byte {
	data, err := rawjson.Encode(v)
	if err != nil { // a raw part is no JSON; whoever made it has checked it
		return nil
	}
	return data
}
