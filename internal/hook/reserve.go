package hook

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
)

// reservedFor is how long an id of a delivery is known where its token has
// changed hands.
const reservedFor = 48 * time.Hour

// reserve has the reservation of a delivery's id name a run, before that run is
// asked to take it. It gives a reply where a run that was asked before has it.
func (s *Sender) reserve(ctx context.Context, m *drover.DeliverRequest, run drover.RunID) (*drover.DeliverReply, error) {
	want := encode(Reservation{Run: run, Digest: digest(m.Payload)})
	rec, err := s.Reservations.Reserve(ctx, m.Hook, m.ID, 0, want, reservedFor)
	for errors.Is(err, kv.ErrConflict) && ctx.Err() == nil {
		var reply *drover.DeliverReply
		var named drover.RunID
		if named, reply, err = s.recall(ctx, m, rec, run); err != nil || reply != nil || named == run {
			return reply, err
		}
		rec, err = s.Reservations.Reserve(ctx, m.Hook, m.ID, rec.Revision, want, reservedFor)
	}
	return nil, err
}

// recall asks the run that a reservation names, unless that is the one that will
// be asked anyway. It gives no reply where the run does not have the delivery.
func (s *Sender) recall(ctx context.Context, m *drover.DeliverRequest, rec kv.Record, will drover.RunID) (drover.RunID, *drover.DeliverReply, error) {
	if rec.Revision == 0 {
		return "", nil, nil // it has run out meanwhile
	}
	var r Reservation
	if err := json.Unmarshal(rec.Data, &r); err != nil {
		return "", nil, drover.Errorf(drover.CodeInternal, "the reservation of id %q of token %q cannot be read: %v", m.ID, m.Hook, err)
	}
	if r.Digest != digest(m.Payload) {
		return "", nil, drover.Errorf(drover.CodeConflict, "there was a delivery to token %q with the id %q and another payload: use another id", m.Hook, m.ID)
	}
	if r.Run == will {
		return r.Run, nil, nil
	}
	again := *m
	again.Claim = 0
	reply := &drover.DeliverReply{}
	err := s.Log.Ask(ctx, r.Run, drover.VerbDeliver, &again, reply)
	if refuses(err) {
		return r.Run, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	return r.Run, reply, nil
}

// before gives the reply of the run that has the delivery already, if any has.
func (d *delivery) before(ctx context.Context) (*drover.DeliverReply, error) {
	if d.req.ID == "" {
		return nil, nil
	}
	rec, err := d.Reservations.Reserved(ctx, d.req.Token, d.req.ID)
	if errors.Is(err, drover.CodeNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, reply, err := d.recall(ctx, d.message(d.req.ID, 0), rec, "")
	return reply, err
}
