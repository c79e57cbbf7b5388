package dispatcher

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/seal"
	"github.com/droverhq/drover/subjects"
)

const (
	claimWorkers = 64               // runs that claim or release at the same time
	claimTime    = 15 * time.Second // for the claims and releases of a batch
	handOverTime = 2 * time.Minute  // for a hand-over with all of its deliveries
)

// ofHook reports effects that change who has a token. Those of a batch are
// performed one after the other, in their order.
func ofHook(kind machine.EffectKind) bool {
	return kind == machine.EffectClaim || kind == machine.EffectRelease || kind == machine.EffectHandOver
}

// actOnHooks performs the effects of a batch that change who has a token, on
// workers that nothing else makes wait.
func (d *Dispatcher) actOnHooks(effects []*machine.Effect, done func(error)) {
	queue, limit := d.claims, claimTime
	for _, e := range effects {
		if e.Kind == machine.EffectHandOver {
			queue, limit = d.slow, handOverTime
		}
	}
	queue.push(func() {
		ctx, cancel := context.WithTimeout(d.ends, limit)
		defer cancel()
		for _, e := range effects {
			if err := d.actOnHook(ctx, e); err != nil {
				done(err)
				return
			}
		}
		done(nil)
	})
}

func (d *Dispatcher) actOnHook(ctx context.Context, e *machine.Effect) error {
	if d.claimant == nil {
		return drover.Errorf(drover.CodeInternal, "run %s has the effect %q, and the dispatcher has no Claims: set them", e.Run, e.Kind)
	}
	switch e.Kind {
	case machine.EffectClaim:
		return d.claimant.Claim(ctx, e.Claim)
	case machine.EffectRelease:
		var until time.Time
		if e.Until > 0 {
			until = e.Until.Time()
		}
		return d.claimant.Release(ctx, e.Token, e.ClaimID, until)
	case machine.EffectHandOver:
		return d.handOver(ctx, e)
	default:
		return drover.Errorf(drover.CodeInternal, "the effect %q of run %s is none of a hook", e.Kind, e.Run)
	}
}

// handOver gives what nothing has read to the successor of a run. Without its
// input there is none, and the tokens become free.
func (d *Dispatcher) handOver(ctx context.Context, e *machine.Effect) error {
	input, there, err := d.value(ctx, e.Value)
	if err != nil {
		return err
	}
	if !there {
		d.undelivered(e.Run, len(e.Deliveries))
		for i, token := range e.Start.Hooks {
			if err := d.claimant.Release(ctx, token, e.ClaimIDs[i], time.Time{}); err != nil {
				return err
			}
		}
		return nil
	}
	start := *e.Start
	start.Input = input
	return d.claimant.HandOver(ctx, &hook.HandOver{
		From: e.Run, To: e.To, Start: &start, Deliveries: e.Deliveries, Payload: d.value, Told: d.sealed,
	})
}

// sealed gives those who are told with the seals of another run: a session that a
// run had it may leave to its successor.
func (d *Dispatcher) sealed(run drover.RunID, told drover.NotifyList) drover.NotifyList {
	return seal.Again(d.opts.Seal, run, told)
}

// pause waits for the nth time, from 0: 2 ms, 4 ms, and so on, half a second in
// all until it is given up.
func pause(ctx context.Context, n int) error {
	timer := time.NewTimer(2 * time.Millisecond << min(n, 10))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return unavailable(context.Cause(ctx))
	}
}

// value gives a value, or false where it is gone.
func (d *Dispatcher) value(ctx context.Context, v machine.Value) (json.RawMessage, bool, error) {
	if v.Key == "" {
		return v.JSON, true, nil
	}
	values, err := d.opts.Values.Get(ctx, []string{v.Key})
	if err != nil {
		return nil, false, err
	}
	raw, ok := values[v.Key]
	return raw, ok, nil
}

// undelivered says that a run keeps what it should have handed over. It does not
// say the token, with which anyone may deliver.
func (d *Dispatcher) undelivered(run drover.RunID, left int) {
	d.opts.Logger.Error().Str("run", string(run)).Int("deliveries", left).
		Msg("no successor takes what the run has not read, it stays with the run")
}

// respond answers whoever sent a delivery, if a worker may publish there.
func (d *Dispatcher) respond(e *machine.Effect, in input) {
	if err := d.opts.Names.Foreign(e.Inbox); err != nil {
		d.quiet.Warn().Err(err).Str("run", string(e.Run)).Msg("a run answers a delivery where no answer may go")
		return
	}
	msg := &nats.Msg{Subject: e.Inbox, Data: orNull(in.json), Header: nats.Header{subjects.HeaderAnswered: {strconv.Itoa(e.Status)}}}
	if in.gone != "" {
		why := gone(in.gone, "the answer of run "+string(e.Run))
		msg.Data = encode(why)
		msg.Header = nats.Header{subjects.HeaderAnswered: {"500"}, subjects.HeaderCode: {string(why.Code)}}
	}
	if err := d.opts.Conn.PublishMsg(msg); err != nil {
		d.opts.Logger.Debug().Err(err).Str("run", string(e.Run)).Msg("the answer of a run was not sent")
	}
}
