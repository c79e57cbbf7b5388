package worker

import (
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
