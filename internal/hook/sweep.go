package hook

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
)

// Sweeper mends what crashes leave behind. One worker of a fleet does it.
type Sweeper struct {
	Sender  *Sender
	Scanner Scanner
	Runs    Runs
	// Grace is how long a claim stands before it is looked at; 0: 10 s. One that
	// is handed over has six times as long.
	Grace time.Duration
}

const defaultGrace = 10 * time.Second

// Sweep goes once through all claims: it starts the runs whose sender is gone,
// and frees tokens that no run holds any more. It goes on after an error of one
// claim, and gives the first.
func (s *Sweeper) Sweep(ctx context.Context) error {
	var first error
	err := s.Scanner.Scan(ctx, func(token string, rec kv.Record) bool {
		held, err := Decode(token, rec)
		if err == nil {
			err = s.look(ctx, held)
		}
		if err != nil && first == nil {
			first = err
		}
		return ctx.Err() == nil
	})
	return errors.Join(err, first)
}

// look mends one claim.
func (s *Sweeper) look(ctx context.Context, held *Held) error {
	grace := s.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	now := s.Sender.Now()
	switch {
	case held.Over(now):
		return free(ctx, s.Sender.Log, s.Sender.Claims, held)
	case !held.Retained.IsZero() || now.Sub(held.Since) < grace:
		return nil
	case held.Starting != nil:
		_, err := s.Sender.complete(ctx, held)
		if errors.Is(err, drover.CodeUnavailable) {
			return err
		}
		return nil // the sender will hear of it when it asks again
	}
	fate, err := fateOf(ctx, s.Runs, held)
	switch {
	case err != nil:
		return err
	case fate == gone:
		return free(ctx, s.Sender.Log, s.Sender.Claims, held)
	case fate == handed:
		run, err := s.Runs.Load(ctx, held.Run)
		if err != nil || now.Sub(run.Now.Time()) < 6*grace {
			return err
		}
		return s.settle(ctx, held)
	}
	return nil
}

// settle ends a hand-over that takes too long. The token goes to the last heir
// that has been told it has the token; the others claim it themselves.
func (s *Sweeper) settle(ctx context.Context, held *Held) error {
	for _, h := range slices.Backward(held.Heirs) {
		if h.Claim == nil {
			continue
		}
		fate, err := fateOf(ctx, s.Runs, &Held{Claim: Claim{Claim: *h.Claim}})
		if err != nil {
			return err
		}
		if fate == gone {
			continue
		}
		c := Claimant{Log: s.Sender.Log}
		if err := c.tell(ctx, held); err != nil {
			return err
		}
		trail := held.Trail // the run may have more to give: it must not think that it is done
		held.settle(h.Run, s.Sender.Now())
		held.Trail = trail
		if err = held.update(ctx, s.Sender.Claims); errors.Is(err, kv.ErrConflict) {
			return nil
		}
		return err
	}
	return free(ctx, s.Sender.Log, s.Sender.Claims, held)
}
