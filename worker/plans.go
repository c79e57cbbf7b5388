package worker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// definitions is where plans are made from.
type definitions interface {
	Put(ctx context.Context, hash drover.Hash, canonical []byte) error
	Get(ctx context.Context, hash drover.Hash) ([]byte, error)
	Lookup(ctx context.Context, name drover.WorkflowName) (drover.Hash, error)
}

// How many plans are kept, and of how many bytes of text: a plan has several
// times as many. When there are more, all go, and those in use come back.
const (
	maxPlans     = 4096
	maxPlansText = 16 << 20
)

// plans keeps the compiled definitions of a worker. What it holds is stored,
// so a run may refer to it.
type plans struct {
	store definitions

	mu     sync.Mutex
	byHash map[drover.Hash]*machine.Plan
	byText map[[sha256.Size]byte]*machine.Plan // inline definitions, as they were spelled
	size   int                                 // bytes of their texts, more or less
}

func newPlans(store definitions) *plans {
	return &plans{
		store:  store,
		byHash: map[drover.Hash]*machine.Plan{},
		byText: map[[sha256.Size]byte]*machine.Plan{},
	}
}

// at gives the plan that a hash or a start names, where it is at hand.
func (c *plans) at(req *drover.StartRequest, hash drover.Hash) *machine.Plan {
	var sum [sha256.Size]byte
	inline := hash == "" && req != nil && len(req.Definition) > 0
	if inline {
		sum = sha256.Sum256(req.Definition)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if inline {
		return c.byText[sum]
	}
	return c.byHash[hash]
}

// keep remembers a plan, with the text of its definition where it came with a
// start. size is how many bytes the definition has.
func (c *plans) keep(plan *machine.Plan, text json.RawMessage, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byHash) >= maxPlans || len(c.byText) >= maxPlans || c.size+size > maxPlansText {
		clear(c.byHash)
		clear(c.byText)
		c.size = 0
	}
	c.size += size
	c.byHash[plan.Hash] = plan
	if text != nil {
		c.byText[sha256.Sum256(text)] = plan
	}
}

// resolve finds the definition that a start or a hash names, checks it, and
// stores it where it came with the start. It gives CodeNotFound or
// CodeInvalidDefinition where the start is to blame.
func (c *plans) resolve(ctx context.Context, req *drover.StartRequest, hash drover.Hash) (*machine.Plan, error) {
	if req != nil {
		switch {
		case len(req.Definition) > 0:
			return c.inline(ctx, req.Definition)
		case req.Hash != "":
			hash = req.Hash
		case req.Workflow != "":
			var err error
			if hash, err = c.store.Lookup(ctx, req.Workflow); err != nil {
				return nil, err
			}
		}
	}
	if plan := c.at(nil, hash); plan != nil {
		return plan, nil
	}
	data, err := c.store.Get(ctx, hash)
	if err != nil {
		return nil, err
	}
	plan, err := recompile(data)
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", hash, err)
	}
	c.keep(plan, nil, len(data))
	return plan, nil
}

func (c *plans) inline(ctx context.Context, text json.RawMessage) (*machine.Plan, error) {
	data, err := drover.DefinitionText(text)
	if err != nil {
		return nil, err
	}
	plan, canonical, err := compile(data)
	if err != nil {
		return nil, err
	}
	if err := c.store.Put(ctx, plan.Hash, canonical); err != nil {
		return nil, err
	}
	c.keep(plan, text, len(text))
	return plan, nil
}

// recompile makes the plan of a definition that is stored. It was checked when
// it came; rules that are newer than it must not stop runs that have it.
func recompile(data []byte) (*machine.Plan, error) {
	var def drover.Definition
	if err := json.Unmarshal(data, &def); err != nil {
		return nil, drover.Errorf(drover.CodeInvalidDefinition, "what is stored is no definition that this worker can read: %v", err)
	}
	return machine.Compile(&def)
}

// compile checks a definition that came with a start.
func compile(data []byte) (*machine.Plan, []byte, error) {
	def, err := drover.ParseDefinition(data)
	if err != nil {
		return nil, nil, err
	}
	canonical, _, err := def.Canonical()
	if err != nil {
		return nil, nil, err
	}
	plan, err := machine.Compile(def)
	if err != nil {
		return nil, nil, err
	}
	plan.Warnings = def.Warnings() // once: they cost as much as the checks
	return plan, canonical, nil
}
