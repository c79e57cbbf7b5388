package hook

import (
	"context"
	"errors"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
)

// complete brings about what a claim says of its start: the run lives, and was
// asked to take its first delivery. Anyone may, and several at a time.
//
// The reply is for the first delivery. It may come from another run, which had
// the delivery before; then the claim was in vain, and is gone. With
// CodeUnavailable it is not known how far things went. With any other error the
// first delivery was not accepted, nor will be; and where the run does not hold
// the token, the claim is gone.
func (s *Sender) complete(ctx context.Context, held *Held) (*drover.DeliverReply, error) {
	first := held.Starting.First
	first.Claim = held.Revision
	if held.Starting.Keep {
		reply, err := s.reserve(ctx, &first, held.Run)
		if reply != nil || errors.Is(err, drover.CodeConflict) {
			if err := free(ctx, s.Log, s.Claims, held); err != nil {
				return nil, err
			}
		}
		if reply != nil || err != nil {
			return reply, err
		}
	}
	if err := s.Log.Send(ctx, held.Run, drover.VerbStart, &held.Starting.Start); err != nil {
		return nil, err
	}
	reply := &drover.DeliverReply{}
	err := s.Log.Ask(ctx, held.Run, drover.VerbDeliver, &first, reply)
	switch {
	case refuses(err):
		return nil, s.vain(ctx, held)
	case errors.Is(err, drover.CodeUnavailable):
		return nil, err
	}
	s.begun(ctx, held)
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// begun drops the start from a claim, as it is done. Where that fails, whoever
// reads the claim next does all of it again, which changes nothing.
func (s *Sender) begun(ctx context.Context, held *Held) {
	now := *held
	for {
		now.Starting = nil
		err := now.update(ctx, s.Claims)
		if !errors.Is(err, kv.ErrConflict) || ctx.Err() != nil {
			return
		}
		next, err := Read(ctx, s.Claims, held.Token)
		if err != nil || next == nil || next.Run != held.Run || next.Starting == nil || next.Starting.First.ID != held.Starting.First.ID {
			return
		}
		now = *next
	}
}

// vain ends a claim whose run does not hold the token, and says why that is.
func (s *Sender) vain(ctx context.Context, held *Held) error {
	var reply drover.StartReply
	why := s.Log.Ask(ctx, held.Run, drover.VerbStart, &held.Starting.Start, &reply)
	if errors.Is(why, drover.CodeUnavailable) {
		return why
	}
	if err := free(ctx, s.Log, s.Claims, held); err != nil {
		return err
	}
	if why != nil {
		return why
	}
	return drover.Errorf(drover.CodeTerminal,
		"run %s, which was to be started, is %s and does not hold the token %q: drover why %s tells more; another run_id or idempotency_key starts another run",
		held.Run, reply.Status, held.Token, held.Run)
}
