package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
)

// calls is what a process sees of the world.
type calls struct {
	*world
	name  string
	yield func() bool
	wait  func()
}

func (c *calls) clock() time.Time { return c.now }

// call makes one call, which may fail before or after it has happened.
func call[T any](c *calls, what string, do func() (T, error)) (T, error) {
	var none T
	if !c.yield() {
		return none, errKilled
	}
	before, after := c.fail()
	if before {
		return none, drover.Errorf(drover.CodeUnavailable, "it did not happen")
	}
	v, err := do()
	c.trace = append(c.trace, fmt.Sprintf("%s: %s: %v", c.name, what, err))
	if after {
		return none, drover.Errorf(drover.CodeUnavailable, "it may have happened")
	}
	return v, err
}

func (c *calls) Claim(ctx context.Context, token string, claim []byte) (uint64, error) {
	return call(c, "claim "+string(claim), func() (uint64, error) { return c.hooks.Claim(ctx, token, claim) })
}

func (c *calls) Get(ctx context.Context, token string) (kv.Record, error) {
	return call(c, "get", func() (kv.Record, error) { return c.hooks.Get(ctx, token) })
}

func (c *calls) Update(ctx context.Context, token string, revision uint64, claim []byte) (uint64, error) {
	return call(c, "update "+string(claim), func() (uint64, error) { return c.hooks.Update(ctx, token, revision, claim) })
}

func (c *calls) Release(ctx context.Context, token string, revision uint64) error {
	_, err := call(c, "release", func() (struct{}, error) { return struct{}{}, c.hooks.Release(ctx, token, revision) })
	return err
}

func (c *calls) Reserve(ctx context.Context, token, id string, revision uint64, data []byte, ttl time.Duration) (kv.Record, error) {
	type result struct {
		rec kv.Record
		err error
	}
	r, err := call(c, "reserve "+id, func() (result, error) {
		rec, err := c.hooks.Reserve(ctx, token, id, revision, data, ttl)
		return result{rec, err}, err
	})
	return r.rec, err
}

func (c *calls) Reserved(ctx context.Context, token, id string) (kv.Record, error) {
	return call(c, "reserved", func() (kv.Record, error) { return c.hooks.Reserved(ctx, token, id) })
}

func (c *calls) Scan(ctx context.Context, visit func(string, kv.Record) bool) error {
	all, err := call(c, "scan", func() (map[string]kv.Record, error) {
		all := map[string]kv.Record{}
		return all, c.hooks.Scan(ctx, func(token string, rec kv.Record) bool { all[token] = rec; return true })
	})
	for _, token := range slices.Sorted(maps.Keys(all)) {
		if !visit(token, all[token]) {
			break
		}
	}
	return err
}

// Load gives a state as it is committed.
func (c *calls) Load(_ context.Context, id drover.RunID) (*machine.State, error) {
	return call(c, "load "+string(id), func() (*machine.State, error) {
		if r := c.runs[id]; r != nil && r.record != nil {
			return c.state(r), nil
		}
		return nil, drover.Errorf(drover.CodeNotFound, "there is no run %s", id)
	})
}

func (c *calls) Send(_ context.Context, id drover.RunID, verb drover.Verb, body any) error {
	_, err := call(c, fmt.Sprintf("send %s %s", id, verb), func() (struct{}, error) {
		c.store(id, verb, body)
		return struct{}{}, nil
	})
	return err
}

func (c *calls) Ask(_ context.Context, id drover.RunID, verb drover.Verb, body, reply any) error {
	e, err := call(c, fmt.Sprintf("ask %s %s", id, verb), func() (*entry, error) { return c.store(id, verb, body), nil })
	if err != nil {
		return err
	}
	for !e.done {
		if !c.yield() {
			return errKilled
		}
	}
	if e.refused != nil {
		return e.refused
	}
	data, err := json.Marshal(e.answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, reply)
}

func (c *calls) sender() *Sender {
	return &Sender{
		Claims: c, Reservations: c, Log: c, Now: c.clock,
		NewRun: func() drover.RunID { c.made++; return drover.RunID("r" + strconv.Itoa(c.made)) },
		NewID:  func() string { c.made++; return "d" + strconv.Itoa(c.made) },
		Pause: func(_ context.Context, n int) error {
			c.wait()
			if !c.yield() {
				return errKilled
			}
			if n > 20_000 {
				return drover.Errorf(drover.CodeUnavailable, "it takes too long")
			}
			return nil
		},
	}
}
