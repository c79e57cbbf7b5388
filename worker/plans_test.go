package worker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv/kvtest"
)

// TestAStoredDefinitionOutlivesNewRules: a run goes on with a definition that
// the validation of its time let pass.
func TestAStoredDefinitionOutlivesNewRules(t *testing.T) {
	old := []byte(`{"nodes":{"a":{"set":{"with":"{{ input.x }}"}}},"output":{"from":"node:a"}}`)
	if _, err := drover.ParseDefinition(old); err == nil {
		t.Fatal("the definition is valid today: take one that is not")
	}
	store := kvtest.NewMemory()
	hash := drover.Hash("0000000000000000000000000000000000000000000000000000000000000000")
	if err := store.Definitions.Put(t.Context(), hash, old); err != nil {
		t.Fatal(err)
	}
	plan, err := newPlans(store.Definitions).resolve(t.Context(), nil, hash)
	if err != nil || plan == nil {
		t.Errorf("the plan is %v, %v", plan, err)
	}
}

// Whoever starts a definition that came with the start is told what it may not
// mean, also the next time.
func TestAPlanOfAStartHasWarnings(t *testing.T) {
	c := newPlans(kvtest.NewMemory().Definitions)
	req := &drover.StartRequest{Definition: json.RawMessage(`{"nodes":{"a":{"sleep":"1s"},"b":{"sleep":"1s"}},"output":{"from":"node:a"}}`)}
	for range 2 {
		plan, err := c.resolve(t.Context(), req, "")
		if err != nil || len(plan.Warnings) != 1 || plan.Warnings[0].Place != "nodes.b" {
			t.Fatalf("the plan is %+v, %v", plan, err)
		}
	}
}

// Plans are forgotten where their definitions have too many bytes together.
func TestPlansHaveABoundOfBytes(t *testing.T) {
	c := newPlans(kvtest.NewMemory().Definitions)
	pad := strings.Repeat("x", 200<<10)
	const definitions = 2 * maxPlansText / (200 << 10)
	for i := range definitions {
		text := json.RawMessage(fmt.Sprintf(`{"nodes":{"a":{"set":{"with":"%d %s"}}},"output":{"from":"node:a"}}`, i, pad))
		plan, err := c.resolve(t.Context(), &drover.StartRequest{Definition: text}, "")
		if err != nil || plan == nil {
			t.Fatal(err)
		}
		if c.at(nil, plan.Hash) != plan {
			t.Fatal("the plan that was made last is forgotten")
		}
	}
	if len(c.byHash) > maxPlansText/(200<<10) || c.size > maxPlansText {
		t.Errorf("%d plans of %d bytes are kept", len(c.byHash), c.size)
	}
}
