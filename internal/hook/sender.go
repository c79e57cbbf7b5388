package hook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/schema"
	"github.com/droverhq/drover/kv"
)

// Sender delivers to whichever run holds a token.
type Sender struct {
	Claims       Claims
	Reservations Reservations
	Log          Log
	Now          func() time.Time
	// NewRun makes the id of a run, NewID that of a delivery: nobody can guess
	// them, and none comes twice.
	NewRun func() drover.RunID
	NewID  func() string
	// Pause waits before a claim that is changing hands is read again for the
	// nth time, from 0. Its error, such as the end of ctx, ends the delivery.
	Pause func(ctx context.Context, n int) error
}

// maxRounds is how often a claim is read for one delivery. A token may change
// hands meanwhile, but hardly that often.
const maxRounds = 1000

// Deliver delivers to the run that holds a token, or with req.Start to one that
// it starts. req.Start has to name a definition that is stored; its RunID, if
// any, is the run that is started, and its IdempotencyKey is not looked at.
//
// The errors CodeInvalidRequest, CodeTooLarge, CodeNotFound, CodeConflict,
// CodeFull, CodeInvalidInput and CodeTerminal mean that nothing was stored;
// CodeUnavailable that it is not known, and that the same request may be sent
// again if it has an ID.
func (s *Sender) Deliver(ctx context.Context, req *drover.HookRequest) (*drover.HookReply, error) {
	held, err := Read(ctx, s.Claims, req.Token)
	if err != nil {
		return nil, err
	}
	return s.DeliverTo(ctx, held, req)
}

// DeliverTo is Deliver for a claim that was just read; nil: there was none.
func (s *Sender) DeliverTo(ctx context.Context, held *Held, req *drover.HookRequest) (*drover.HookReply, error) {
	d, err := s.prepare(req)
	if err != nil {
		return nil, err
	}
	for range maxRounds {
		reply, err := d.try(ctx, held)
		if reply != nil || err != nil {
			return reply, err
		}
		if held, err = Read(ctx, s.Claims, req.Token); err != nil {
			return nil, err
		}
	}
	return nil, drover.Errorf(drover.CodeUnavailable, "token %q changes hands all the time: send the delivery again", req.Token)
}

// delivery is one request under way.
type delivery struct {
	*Sender
	req     *drover.HookRequest
	payload json.RawMessage
	first   string       // id of the delivery, where it is the first of a run
	started drover.RunID // a run for which the token was claimed
	pauses  int
}

const maxID = 256 // bytes of the id of a delivery

func (s *Sender) prepare(req *drover.HookRequest) (*delivery, error) {
	if err := CheckToken(req.Token); err != nil {
		return nil, err
	}
	if len(req.ID) > maxID {
		return nil, drover.Errorf(drover.CodeTooLarge, "the id of a delivery has %d bytes, more than %d: use a digest of it", len(req.ID), maxID)
	}
	payload, err := compact(req.Payload)
	if err != nil {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "the payload for token %q is no JSON: %v", req.Token, err)
	}
	if len(payload) > drover.MaxValue {
		return nil, drover.Errorf(drover.CodeTooLarge, "the payload for token %q has %d bytes, more than %d: pass a reference to it", req.Token, len(payload), drover.MaxValue)
	}
	d := &delivery{Sender: s, req: req, payload: payload, first: req.ID}
	if req.Start == nil {
		return d, nil
	}
	if d.first == "" {
		d.first = s.NewID()
	}
	// A run must not be started for what it would refuse.
	if _, _, bad := machine.DecodeCommand(0, time.Time{}, "r", string(drover.VerbDeliver), encode(d.message(d.first, 0)), ""); bad != nil {
		return nil, bad
	}
	return d, nil
}

// message is the command of the delivery, with the id that the sender gave it.
func (d *delivery) message(id string, claim uint64) *drover.DeliverRequest {
	return &drover.DeliverRequest{Hook: d.req.Token, Claim: claim, Payload: d.payload, ID: id, Respond: d.req.Respond}
}

// try delivers by a claim as it was read. It gives neither a reply nor an error
// where the claim has to be read again.
func (d *delivery) try(ctx context.Context, held *Held) (*drover.HookReply, error) {
	if held == nil || !held.Retained.IsZero() || d.req.Public && !held.Public {
		return d.unheld(ctx, held)
	}
	if held.Starting != nil {
		first, err := d.complete(ctx, held)
		if d.begins(held) {
			return d.reply(held, first, err)
		}
		if errors.Is(err, drover.CodeUnavailable) {
			return nil, err
		}
		if err != nil || first.RunID != held.Run {
			return nil, nil // that claim is gone
		}
	}
	if why := fits(held, d.payload); why != nil {
		// The id goes first: it may have been accepted by one with another schema.
		if reply, err := d.before(ctx); reply != nil || err != nil {
			return d.reply(held, reply, err)
		}
		return nil, why
	}
	m := d.message(d.req.ID, held.Revision)
	if d.req.ID != "" {
		if reply, err := d.reserve(ctx, m, held.Run); reply != nil || err != nil {
			return d.reply(held, reply, err)
		}
	}
	if d.req.Async {
		if err := d.Log.Send(ctx, held.Run, drover.VerbDeliver, m); err != nil {
			return nil, err
		}
		return &drover.HookReply{Token: d.req.Token, RunID: held.Run, Async: true, Answer: held.Answer}, nil
	}
	reply := &drover.DeliverReply{}
	err := d.Log.Ask(ctx, held.Run, drover.VerbDeliver, m, reply)
	if refuses(err) {
		return nil, d.refused(ctx, held, err)
	}
	return d.reply(held, reply, err)
}

// begins reports whether the delivery is the one that a claim starts a run with.
func (d *delivery) begins(held *Held) bool {
	first := &held.Starting.First
	return d.first != "" && d.first == first.ID && digest(d.payload) == digest(first.Payload)
}

// reply is the end of a delivery.
func (d *delivery) reply(held *Held, r *drover.DeliverReply, err error) (*drover.HookReply, error) {
	if err != nil {
		return nil, err
	}
	reply := &drover.HookReply{Token: d.req.Token, RunID: r.RunID, Repeat: r.Repeat, Unread: r.Unread}
	if held != nil && held.Run == r.RunID {
		reply.Answer = held.Answer
	}
	if r.RunID == d.started {
		reply.Started, reply.Repeat = true, false
	}
	return reply, nil
}

// unheld is for a token that nobody holds, or not for us.
func (d *delivery) unheld(ctx context.Context, held *Held) (*drover.HookReply, error) {
	if reply, err := d.before(ctx); reply != nil || err != nil {
		return d.reply(nil, reply, err)
	}
	if d.req.Start != nil && (held == nil || held.Over(d.Now())) {
		return d.claim(ctx, held)
	}
	return nil, drover.Errorf(drover.CodeNotFound, "nobody holds the token %q: nothing was delivered", d.req.Token)
}

// claim claims the token for a run that is started by it. Whoever reads the claim
// then can start the run, and may have done so before we do: what became of the
// first delivery is asked by this claim, whatever the key says by now.
func (d *delivery) claim(ctx context.Context, held *Held) (*drover.HookReply, error) {
	run := d.req.Start.RunID
	if run == "" {
		run = d.NewRun()
	}
	start := *d.req.Start
	start.RunID, start.IdempotencyKey, start.Hooks = "", "", []string{d.req.Token}
	next := &Held{Claim: Claim{
		Claim:    machine.Claim{Token: d.req.Token, Run: run, ID: machine.ClaimID(run, ""), Since: d.Now()},
		Starting: &Starting{Start: start, First: *d.message(d.first, 0), Keep: d.req.ID != ""},
	}}
	var err error
	if held == nil {
		next.Revision, err = d.Claims.Claim(ctx, d.req.Token, encode(&next.Claim))
	} else {
		next.Revision, err = d.Claims.Update(ctx, d.req.Token, held.Revision, encode(&next.Claim))
	}
	if errors.Is(err, kv.ErrConflict) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d.started = run
	first, err := d.complete(ctx, next)
	return d.reply(next, first, err)
}

// refused is for a run that says that it does not hold the token. Where the claim
// still says it does, the token is being handed over, or the claim is dead.
func (d *delivery) refused(ctx context.Context, held *Held, why error) error {
	now, err := Read(ctx, d.Claims, d.req.Token)
	if err != nil || now == nil || now.Revision != held.Revision {
		return err
	}
	if successorOf(why) == "" {
		return free(ctx, d.Log, d.Claims, held)
	}
	d.pauses++
	return d.Pause(ctx, d.pauses-1)
}

// free removes a dead claim, if it is still there. The run that it took the token
// from is told before: nothing else says any more that it lost it.
func free(ctx context.Context, log Log, claims Claims, held *Held) error {
	c := Claimant{Log: log}
	if err := c.tell(ctx, held); err != nil {
		return err
	}
	err := claims.Release(ctx, held.Token, held.Revision)
	if errors.Is(err, kv.ErrConflict) {
		return nil
	}
	return err
}

// CheckToken says what keeps a text from being a token.
func CheckToken(token string) error {
	if token == "" || len(token) > drover.MaxToken || !utf8.ValidString(token) {
		return drover.Errorf(drover.CodeInvalidRequest, "token %.80q must be 1 to %d bytes of UTF-8", token, drover.MaxToken)
	}
	return nil
}

// fits checks a payload against the schema of a hook.
func fits(held *Held, payload json.RawMessage) error {
	if len(held.Schema) == 0 {
		return nil
	}
	compiled, err := schema.Compile(held.Schema)
	if err != nil {
		return nil // the run has the last word
	}
	if err := compiled.Validate(payload); err != nil {
		return drover.Errorf(drover.CodeInvalidInput, "the payload for token %q does not fit the schema of its hook: %v", held.Token, err)
	}
	return nil
}

// compact gives JSON without white space; nothing is null.
func compact(value json.RawMessage) (json.RawMessage, error) {
	if len(value) == 0 {
		return json.RawMessage("null"), nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func digest(payload json.RawMessage) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:16])
}
