package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
)

// What the protocol of hooks asks for, in the simulated world.
var (
	_ hook.Keys    = (*calls)(nil)
	_ hook.Scanner = (*calls)(nil)
	_ hook.Log     = (*calls)(nil)
	_ hook.Runs    = (*calls)(nil)
)

// Claim implements hook.Claims.
func (c *calls) Claim(_ context.Context, token string, claim []byte) (uint64, error) {
	return call(c, func() (uint64, error) { return c.w.tokens.put(token, 0, claim) })
}

// Get implements hook.Claims.
func (c *calls) Get(_ context.Context, token string) (kv.Record, error) {
	return call(c, func() (kv.Record, error) { return c.w.tokens.get(token) })
}

// Update implements hook.Claims.
func (c *calls) Update(_ context.Context, token string, revision uint64, claim []byte) (uint64, error) {
	return call(c, func() (uint64, error) { return c.w.tokens.put(token, revision, claim) })
}

// Release implements hook.Claims.
func (c *calls) Release(_ context.Context, token string, revision uint64) error {
	_, err := call(c, func() (struct{}, error) {
		held, _ := hook.Decode(token, c.w.tokens.claims[token])
		err := c.w.tokens.release(token, revision)
		if err == nil && c.p.name == sweeper && held.Retained.IsZero() {
			c.w.hooked.swept = true
		}
		return struct{}{}, err
	})
	return err
}

// Reserve implements hook.Reservations.
func (c *calls) Reserve(_ context.Context, token, id string, revision uint64, data []byte, ttl time.Duration) (kv.Record, error) {
	var there kv.Record // the call gives it with a conflict
	_, err := call(c, func() (struct{}, error) {
		var err error
		there, err = c.w.tokens.reserve(c.w.now, token, id, revision, data, ttl)
		return struct{}{}, err
	})
	return there, err
}

// Reserved implements hook.Reservations.
func (c *calls) Reserved(_ context.Context, token, id string) (kv.Record, error) {
	return call(c, func() (kv.Record, error) { return c.w.tokens.reserved(c.w.now, token, id) })
}

// Scan implements hook.Scanner. Each claim is as it is when it is visited.
func (c *calls) Scan(_ context.Context, visit func(string, kv.Record) bool) error {
	tokens, err := call(c, func() ([]string, error) { return c.w.tokens.tokens(), nil })
	if err != nil {
		return err
	}
	for _, token := range tokens {
		if rec, ok := c.w.tokens.claims[token]; ok && !visit(token, rec) {
			return nil
		}
	}
	return nil
}

// Load implements hook.Runs.
func (c *calls) Load(_ context.Context, run drover.RunID) (*machine.State, error) {
	return call(c, func() (*machine.State, error) {
		rec := c.w.records[run]
		if rec.data == nil {
			return nil, drover.Errorf(drover.CodeNotFound, "there is no run %s", run)
		}
		return machine.Decode(rec.data)
	})
}

// Send implements hook.Log.
func (c *calls) Send(_ context.Context, run drover.RunID, verb drover.Verb, body any) error {
	_, err := call(c, func() (struct{}, error) {
		c.w.commanded(run, verb, body)
		c.w.store(run, verb, body, false)
		return struct{}{}, nil
	})
	return err
}

// commanded notes that a run has to come to an end.
func (w *World) commanded(run drover.RunID, verb drover.Verb, body any) {
	if req, ok := body.(*drover.StartRequest); ok && verb == drover.VerbStart && w.starts[run] == nil {
		w.starts[run] = req
	}
}

// answerTime is how long a sender waits for the answer of a fold.
const answerTime = 5 * time.Second

// Ask implements hook.Log.
func (c *calls) Ask(_ context.Context, run drover.RunID, verb drover.Verb, body, reply any) error {
	seq, err := call(c, func() (uint64, error) {
		c.w.commanded(run, verb, body)
		return c.w.store(run, verb, body, true), nil
	})
	if err != nil {
		return err
	}
	var answer any
	err = drover.Errorf(drover.CodeUnavailable, "the owner of run %s did not answer", run)
	resume := func() {
		delete(c.w.asked, seq)
		c.p.step()
	}
	c.w.asked[seq] = func(a any, refused *drover.Error) {
		if c.w.asked[seq] == nil {
			return // it came too late, or comes again
		}
		answer, err = a, nil
		if refused != nil {
			err = refused
		}
		resume()
	}
	c.w.at(c.w.now.Add(answerTime), func() {
		if c.w.asked[seq] != nil {
			resume()
		}
	})
	if !c.yield() {
		return errKilled
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	return json.Unmarshal(data, reply)
}

// sender delivers as the service does.
func (c *calls) sender() *hook.Sender {
	made := func(prefix string) string {
		c.w.hooked.made++
		return fmt.Sprintf("%s%d", prefix, c.w.hooked.made)
	}
	return &hook.Sender{
		Claims: c, Reservations: c, Log: c, Now: c.clock,
		NewRun: func() drover.RunID { return drover.RunID(made("r")) },
		NewID:  func() string { return made("d") },
		Pause: func(ctx context.Context, n int) error {
			if n > 60 {
				return drover.Errorf(drover.CodeUnavailable, "it takes too long")
			}
			return c.wait(ctx, n)
		},
	}
}

// wait waits before something is looked at for the nth time.
func (c *calls) wait(_ context.Context, n int) error {
	if !c.pause(min(2*time.Millisecond<<min(n, 10), 250*time.Millisecond)) {
		return errKilled
	}
	return nil
}
