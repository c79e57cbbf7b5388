package sim

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
)

// ofHook reports effects that change who has a token.
func ofHook(e machine.Effect) bool {
	return e.Kind == machine.EffectClaim || e.Kind == machine.EffectRelease || e.Kind == machine.EffectHandOver
}

// hooks performs effects of which some change who has a token, or that come
// after such ones of the same run. It is false where there are none.
func (o *owner) hooks(op *partition.Op) bool {
	waiting, busy := o.acting[op.Run]
	if busy {
		o.acting[op.Run] = append(waiting, op)
		return true
	}
	if !slices.ContainsFunc(op.Effects, ofHook) {
		return false
	}
	o.acting[op.Run] = nil
	o.claims(op)
	return true
}

// claims performs the effects of one operation, and then of those that wait.
func (o *owner) claims(op *partition.Op) {
	var err error
	o.w.spawn("owner of "+string(op.Run), o, func(c *calls) { err = c.perform(op.Effects) }, func(killed bool) {
		if killed {
			return
		}
		o.complete(op, partition.Result{Err: err})
		waiting := o.acting[op.Run]
		if len(waiting) == 0 {
			delete(o.acting, op.Run)
			return
		}
		o.acting[op.Run] = waiting[1:]
		o.claims(waiting[0])
	})
}

func (c *calls) perform(effects []machine.Effect) error {
	claimant := &hook.Claimant{Claims: c, Runs: c, Log: c, Now: c.clock, Pause: c.wait, Undelivered: c.w.hooked.undelivered}
	for i := range effects {
		e := &effects[i]
		if !ofHook(*e) {
			if _, err := call(c, func() (struct{}, error) { c.w.act(c.p.host, e); return struct{}{}, nil }); err != nil {
				return err
			}
			continue
		}
		if err := c.claim(claimant, e); err != nil {
			return err
		}
	}
	return nil
}

func (c *calls) claim(by *hook.Claimant, e *machine.Effect) error {
	ctx := context.Background()
	switch e.Kind {
	case machine.EffectClaim:
		return by.Claim(ctx, e.Claim)
	case machine.EffectRelease:
		var until time.Time
		if e.Until > 0 {
			until = e.Until.Time()
		}
		return by.Release(ctx, e.Token, e.ClaimID, until)
	default:
		start := *e.Start
		start.Input = c.w.value(e.Value)
		c.w.hooked.handovers++
		return by.HandOver(ctx, &hook.HandOver{
			From: e.Run, To: e.To, Start: &start, Deliveries: e.Deliveries,
			Payload: func(_ context.Context, v machine.Value) (json.RawMessage, bool, error) {
				return c.w.value(v), true, nil
			},
			Told: func(heir drover.RunID, told drover.NotifyList) drover.NotifyList {
				return c.w.inherited(e.Run, heir, told)
			},
		})
	}
}

// undelivered hears of deliveries that no successor takes.
func (h *hooked) undelivered(run drover.RunID, token string, left int) { h.kept[run] += left }

const sweeper = "sweeper"

// sweep has the owner of the lease look after claims from time to time.
func (w *World) sweep() {
	w.at(w.now.Add(10*time.Second), w.sweep)
	for _, o := range w.owners {
		if o.epoch != w.lease.epoch || o.dead || w.hooked.sweeping {
			continue
		}
		w.hooked.sweeping = true
		w.spawn(sweeper, o, func(c *calls) {
			s := &hook.Sweeper{Sender: &hook.Sender{Claims: c, Reservations: c, Log: c, Now: c.clock}, Scanner: c, Runs: c}
			_ = s.Sweep(context.Background()) // it comes again
		}, func(bool) { w.hooked.sweeping = false })
	}
}
