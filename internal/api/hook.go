package api

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/kv"
)

// deliverHook checks a delivery, and a start that comes with it, before
// anything of either is durable; the sender does the rest.
func (s *Service) deliverHook(ctx context.Context, req *drover.HookRequest) (any, error) {
	if err := s.checkDelivery(req); err != nil {
		return nil, err
	}
	if req.Start != nil {
		if err := s.prepareHook(ctx, req); err != nil {
			return nil, err
		}
	}
	return s.sender.Deliver(ctx, req)
}

// checkDelivery refuses what must not become durable, as no run would take it,
// whatever it is like. Where the fold is asked, that is checked again on the way.
func (s *Service) checkDelivery(req *drover.HookRequest) error {
	if err := hook.CheckToken(req.Token); err != nil {
		return err
	}
	if req.Respond != "" {
		if err := s.Names.Foreign(req.Respond); err != nil {
			return err
		}
	}
	if !req.Async && req.Start == nil {
		return nil
	}
	return wellFormed("r", drover.VerbDeliver, drover.DeliverRequest{Hook: req.Token, Payload: req.Payload, ID: req.ID, Respond: req.Respond})
}

// wellFormed refuses a command that no fold would take, whatever its run is like.
func wellFormed(run drover.RunID, verb drover.Verb, body any) error {
	data, err := rawjson.Encode(body)
	if err != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "the request cannot be read: %v", err)
	}
	if _, _, refused := machine.DecodeCommand(0, time.Now(), string(run), string(verb), data, ""); refused != nil {
		return refused
	}
	return nil
}

// prepareHook checks the start that comes with a delivery as start does, and
// that the run would hold the token for something. The run has an id where the
// caller chose it, or a key makes it; else the sender makes one.
func (s *Service) prepareHook(ctx context.Context, req *drover.HookRequest) error {
	start := req.Start
	run, err := runID(start, callerOf(ctx).scope())
	if err != nil {
		return err
	}
	if start.RunID != "" || start.IdempotencyKey != "" || start.ReplyTo != nil { // a session is sealed for one run
		start.RunID, start.IdempotencyKey = run, "" // the id holds the key, and the caller with it
	}
	plan, err := s.prepare(ctx, run, start)
	if err != nil {
		return err
	}
	start.Hash = plan.Hash // whoever starts the run later must start the same
	if err := wellFormed(run, drover.VerbStart, start); err != nil {
		return err
	}
	if err := plan.CheckInput(run, start.Input); err != nil {
		return err
	}
	if err := plan.CheckHook(req.Token, req.Payload); err != nil {
		return err
	}
	return nil
}

// Hooks keeps the claims of tokens, as kv.Hooks does.
type Hooks interface {
	hook.Claims
	hook.Reservations
	hook.Scanner
}

// logs sends commands for the sender.
type logs struct{ s *Service }

func (l logs) Send(ctx context.Context, run drover.RunID, verb drover.Verb, body any) error {
	data, err := rawjson.Encode(body)
	if err != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "the request cannot be read: %v", err)
	}
	m := nats.NewMsg(l.s.Names.In(run, verb))
	m.Data = data
	return l.s.publish(ctx, m)
}

func (l logs) Ask(ctx context.Context, run drover.RunID, verb drover.Verb, body, reply any) error {
	return l.s.send(ctx, run, verb, body, reply)
}

// newSender makes what delivers to whoever holds a token.
func newSender(s *Service) *hook.Sender {
	return &hook.Sender{
		Claims: s.Hooks, Reservations: s.Hooks, Log: logs{s}, Now: time.Now,
		NewRun: func() drover.RunID { return drover.RunID(chance("r_")) },
		NewID:  func() string { return chance("d_") },
		Pause:  pause,
	}
}

// chance makes an id that nobody else makes.
func chance(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// pause waits before something is looked at for the nth time.
func pause(ctx context.Context, n int) error {
	timer := time.NewTimer(min(pauseFirst<<min(n, 10), pauseMost))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Between two looks at a token that is changing hands.
const (
	pauseFirst = 2 * time.Millisecond
	pauseMost  = 250 * time.Millisecond
)

// claim reads who holds a token.
func (s *Service) claim(ctx context.Context, token string) (*hook.Held, error) {
	if err := hook.CheckToken(token); err != nil {
		return nil, err
	}
	held, err := hook.Read(ctx, s.Hooks, token)
	if err == nil && held == nil {
		err = drover.Errorf(drover.CodeNotFound, "nobody holds the token %q", token)
	}
	return held, err
}

// showHook shows a claim, and what the record of its run says of it.
func (s *Service) showHook(ctx context.Context, req *drover.HookTokenRequest) (any, error) {
	c, err := s.claim(ctx, req.Token)
	if err != nil {
		return nil, err
	}
	h := c.Shown()
	if h.Starting {
		return h, nil // there may be no run yet
	}
	plan, state, err := s.load(ctx, c.Run)
	if errors.Is(err, drover.CodeNotFound) {
		return h, nil // it is gone, and the key will be
	}
	if err != nil {
		return nil, err
	}
	if unread, until, ok := machine.Held(plan, state, c.Token); ok {
		h.Unread = &unread
		if until != 0 {
			at := until.Time()
			h.Until = &at
		}
	}
	return h, nil
}

// releaseHook frees a token. A run that holds it is told first, with force, so
// that no delivery finds it free before the run has let go.
func (s *Service) releaseHook(ctx context.Context, req *drover.HookTokenRequest) (any, error) {
	c, err := s.claim(ctx, req.Token)
	if errors.Is(err, drover.CodeInternal) {
		return s.clearHook(ctx, req.Token)
	}
	if err != nil {
		return nil, err
	}
	if err := s.letGo(ctx, &c.Claim, req.Force); err != nil {
		return nil, err
	}
	switch err := s.Hooks.Release(ctx, c.Token, c.Revision); {
	case errors.Is(err, kv.ErrConflict):
		return nil, drover.Errorf(drover.CodeConflict, "the token %q has changed hands meanwhile: look at it with hook.show", c.Token)
	case err != nil:
		return nil, err
	}
	return c.Shown(), nil
}

// clearHook removes a key that holds no claim, so that runs can claim the token.
func (s *Service) clearHook(ctx context.Context, token string) (any, error) {
	rec, err := s.Hooks.Get(ctx, token)
	if err != nil {
		return nil, err
	}
	if c, err := hook.Decode(token, rec); err == nil {
		return nil, drover.Errorf(drover.CodeConflict, "run %s has claimed the token %q meanwhile: look at it with hook.show", c.Run, token)
	}
	if err := s.Hooks.Release(ctx, token, rec.Revision); err != nil && !errors.Is(err, kv.ErrConflict) {
		return nil, err
	}
	return drover.Hook{Token: token}, nil
}

// letGo says why a token may not be freed, or makes its run let go of it.
func (s *Service) letGo(ctx context.Context, c *hook.Claim, force bool) error {
	switch {
	case c.Starting != nil:
		return drover.Errorf(drover.CodeConflict, "run %s is being started, and holds the token %q: ask again in a moment", c.Run, c.Token)
	case len(c.Heirs) > 0:
		return drover.Errorf(drover.CodeConflict, "run %s is handing the token %q over to run %s: ask again in a moment", c.Run, c.Token, c.Heirs[0].Run)
	case c.Over(time.Now()):
		return nil
	case !c.Retained.IsZero() && !force:
		return drover.Errorf(drover.CodeConflict, "the token %q is retained until %s: wait, or free it nevertheless with force", c.Token, c.Retained.Format(time.RFC3339))
	case !c.Retained.IsZero():
		return nil
	}
	holds, err := s.holds(ctx, c)
	switch {
	case err != nil || !holds:
		return err
	case !force:
		return drover.Errorf(drover.CodeConflict, "run %s holds the token %q since %s: stop the run, or free the token nevertheless with force",
			c.Run, c.Token, c.Since.Format(time.RFC3339))
	}
	return s.deprive(ctx, c)
}

// deprive has a run lose a token. A claimed command has no answer, so that a tick
// behind it tells when it is folded.
func (s *Service) deprive(ctx context.Context, c *hook.Claim) error {
	lost := drover.ClaimedMessage{Hook: c.Token, Claim: c.ID, Proof: c.Proof, Lost: true}
	if err := (logs{s}).Send(ctx, c.Run, drover.VerbClaimed, lost); err != nil {
		return err
	}
	err := s.send(ctx, c.Run, drover.VerbTick, struct{}{}, &struct{}{})
	if errors.Is(err, drover.CodeTerminal) || errors.Is(err, drover.CodeNotFound) {
		return nil // it has ended meanwhile
	}
	if err != nil {
		return err
	}
	if holds, err := s.holds(ctx, c); err != nil || !holds {
		return err
	}
	return drover.Errorf(drover.CodeUnavailable, "run %s holds the token %q still: look at it with hook.show, and ask again", c.Run, c.Token)
}

// holds reports whether the run of a claim has the token, as its record says.
func (s *Service) holds(ctx context.Context, c *hook.Claim) (bool, error) {
	rec, err := s.record(ctx, c.Run)
	if errors.Is(err, drover.CodeNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	state, err := machine.Decode(rec.Data)
	if err != nil {
		return false, err
	}
	return state.Holds(c.Token), nil
}
