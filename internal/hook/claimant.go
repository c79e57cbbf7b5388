package hook

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
)

// Claimant claims, releases and hands over for runs, as their folds decided.
// Each call may be repeated until it gives nil.
type Claimant struct {
	Claims Keys
	Runs   Runs
	Log    Log
	Now    func() time.Time
	// Pause waits before a hand-over looks for the nth time, from 0, whether the
	// one that it waits for is done. nil: it fails at once, as unavailable.
	Pause func(ctx context.Context, n int) error
	// Undelivered is called where a run could hand over no further: so many of
	// its deliveries to a token, which stay with it as unread. nil: nobody is told.
	Undelivered func(run drover.RunID, token string, left int)
}

// Claim claims a token for a run, and tells the run what became of it.
func (c *Claimant) Claim(ctx context.Context, claim *machine.Claim) error {
	revision, err := c.Claims.Claim(ctx, claim.Token, encode(&Claim{Claim: *claim}))
	if err == nil {
		return c.owned(ctx, claim, revision)
	}
	for errors.Is(err, kv.ErrConflict) && ctx.Err() == nil {
		err = c.contest(ctx, claim)
	}
	return err
}

// contest claims a token that somebody has, or had a moment ago. kv.ErrConflict:
// the key has changed meanwhile, try again.
func (c *Claimant) contest(ctx context.Context, claim *machine.Claim) error {
	held, err := Read(ctx, c.Claims, claim.Token)
	switch {
	case err != nil:
		return err
	case held == nil:
		revision, err := c.Claims.Claim(ctx, claim.Token, encode(&Claim{Claim: *claim}))
		if err != nil {
			return err
		}
		return c.owned(ctx, claim, revision)
	case held.Run == claim.Run:
		return c.renew(ctx, held, claim)
	case held.heir(claim.Run) != nil:
		return c.inherit(ctx, held, claim)
	case slices.Contains(held.Lost, claim.ID):
		return c.refused(ctx, held, claim)
	case held.Over(c.Now()):
		return c.replace(ctx, held, &Claim{Claim: *claim})
	case !held.Retained.IsZero() || len(held.Heirs) > 0:
		return c.refused(ctx, held, claim)
	}
	fate, err := fateOf(ctx, c.Runs, held)
	switch {
	case err != nil:
		return err
	case fate == gone:
		if err := c.tell(ctx, held); err != nil {
			return err
		}
		return c.replace(ctx, held, &Claim{Claim: *claim})
	case claim.Takeover && fate == alive:
		return c.displace(ctx, held, claim)
	}
	return c.refused(ctx, held, claim)
}

// renew is for a claim of the same run: the same one, or one of a node that asks
// for what a start brought, or one that is left from before a release.
func (c *Claimant) renew(ctx context.Context, held *Held, claim *machine.Claim) error {
	if held.ID == claim.ID && !held.Retained.IsZero() || older(claim, &held.Claim.Claim) {
		return nil // it was overtaken: the run knows better by now
	}
	if !held.Retained.IsZero() && !held.Over(c.Now()) {
		return c.refused(ctx, held, claim)
	}
	if held.ID != claim.ID || held.Proof == "" || held.Took != nil {
		if err := c.tell(ctx, held); err != nil {
			return err
		}
		held.Claim.Claim, held.Took, held.Retained = *claim, nil, time.Time{}
		if err := held.update(ctx, c.Claims); err != nil {
			return err
		}
	}
	return c.owned(ctx, claim, held.Revision)
}

// older reports whether a claim of a run was decided before another of it.
func older(a, b *machine.Claim) bool {
	return a.Proof != "" && b.Proof != "" && (a.Since.Before(b.Since) || a.Since.Equal(b.Since) && a.Node == "" && b.Node != "")
}

// inherit is for the claim of a run that is given what another has not read, and
// will be given the token.
func (c *Claimant) inherit(ctx context.Context, held *Held, claim *machine.Claim) error {
	h := held.heir(claim.Run)
	if h.Claim == nil || h.Claim.ID != claim.ID && !older(claim, h.Claim) {
		h.Claim = claim
		if err := held.update(ctx, c.Claims); err != nil {
			return err
		}
	}
	return c.owned(ctx, claim, held.Revision)
}

// replace writes a claim over one that counts no more.
func (c *Claimant) replace(ctx context.Context, held *Held, by *Claim) error {
	held.Claim = *by
	if err := held.update(ctx, c.Claims); err != nil {
		return err
	}
	return c.owned(ctx, &by.Claim, held.Revision)
}

// displace takes a token from a run that holds it. The run is told before its
// taker is. One that is just being started gets its first delivery before.
func (c *Claimant) displace(ctx context.Context, held *Held, claim *machine.Claim) error {
	if held.Starting != nil {
		s := Sender{Claims: c.Claims, Reservations: c.Claims, Log: c.Log, Now: c.Now}
		if _, err := s.complete(ctx, held); errors.Is(err, drover.CodeUnavailable) {
			return err
		}
		return c.contest(ctx, claim)
	}
	if held.Proof == "" { // the run has not said its claim itself, and would not believe us
		return drover.Errorf(drover.CodeUnavailable, "token %q is held by run %s, which has just begun: it is taken over in a moment", claim.Token, held.Run)
	}
	if err := c.tell(ctx, held); err != nil {
		return err
	}
	next := &Held{Revision: held.Revision, Claim: Claim{
		Claim: *claim,
		Took:  &Victim{Run: held.Run, ID: held.ID, Proof: held.Proof},
		Lost:  last(append(slices.Clone(held.Lost), held.ID), maxLost),
	}}
	if err := next.update(ctx, c.Claims); err != nil {
		return err
	}
	return c.renew(ctx, next, claim)
}

// tell tells the run whose claim was displaced, where it may not know.
func (c *Claimant) tell(ctx context.Context, held *Held) error {
	v := held.Took
	if v == nil {
		return nil
	}
	return c.Log.Send(ctx, v.Run, drover.VerbClaimed, &drover.ClaimedMessage{
		Hook: held.Token, Claim: v.ID, Proof: v.Proof, Owner: held.Run, Since: stamp(held.Since), Lost: true,
	})
}

// owned tells a run that it has the token.
func (c *Claimant) owned(ctx context.Context, claim *machine.Claim, revision uint64) error {
	return c.Log.Send(ctx, claim.Run, drover.VerbClaimed, &drover.ClaimedMessage{
		Hook: claim.Token, Claim: claim.ID, Proof: claim.Proof, Revision: revision,
	})
}

// refused tells a run who has the token. What it only wanted it does not get, and
// what it thought to have, as by a start, it has lost.
func (c *Claimant) refused(ctx context.Context, held *Held, claim *machine.Claim) error {
	m := drover.ClaimedMessage{Hook: claim.Token, Claim: claim.ID, Proof: claim.Proof, Owner: held.Run, Since: stamp(held.Since)}
	if n := len(held.Heirs); n > 0 {
		m.Owner = held.Heirs[n-1].Run
	}
	if err := c.Log.Send(ctx, claim.Run, drover.VerbClaimed, &m); err != nil {
		return err
	}
	m.Lost = true
	return c.Log.Send(ctx, claim.Run, drover.VerbClaimed, &m)
}

// Release frees the token of a claim, or with a time retains it until then. A
// token that has another claim stays as it is.
func (c *Claimant) Release(ctx context.Context, token, id string, until time.Time) error {
	for {
		held, err := Read(ctx, c.Claims, token)
		if err != nil || held == nil || !held.is(id) || !held.Retained.IsZero() {
			return err
		}
		if err := c.tell(ctx, held); err != nil {
			return err
		}
		if until.After(c.Now()) {
			held.Retained, held.Starting, held.Took = until, nil, nil
			err = held.update(ctx, c.Claims)
		} else {
			err = c.Claims.Release(ctx, token, held.Revision)
		}
		if !errors.Is(err, kv.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}

// is reports whether a claim is the one with an id, or that of a start whose
// token the node with this id took over and gave back before it had said so.
func (c *Claim) is(id string) bool {
	run, _, _ := strings.Cut(id, "/")
	return c.ID == id || c.Node == "" && string(c.Run) == run
}

// fate is what has become of the run of a claim.
type fate int

const (
	alive  fate = iota // it holds the token, as far as can be known
	handed             // it is over, and its successor has the token or will have it
	gone               // it does not hold the token, and never will by this claim
)

// fateOf asks the state of a run, which may be an older one, about its claim.
func fateOf(ctx context.Context, runs Runs, held *Held) (fate, error) {
	s, err := runs.Load(ctx, held.Run)
	if errors.Is(err, drover.CodeNotFound) {
		if held.Starting != nil {
			return alive, nil
		}
		return gone, nil
	}
	if err != nil {
		return alive, err
	}
	for i := range s.Hooks {
		switch h := &s.Hooks[i]; {
		case h.Token != held.Token:
		case h.Mark == machine.HookHanded:
			return handed, nil
		default:
			return alive, nil
		}
	}
	// A claim without proof is that of a start: every state of its run is later.
	if held.Proof == "" || !s.Now.Time().Before(held.Since) {
		return gone, nil
	}
	return alive, nil
}

// last gives the last n of a list.
func last[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
