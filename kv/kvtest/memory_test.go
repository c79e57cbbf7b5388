package kvtest

import (
	"testing"

	"github.com/droverhq/drover/kv"
)

func TestMemory(t *testing.T) {
	RunSuite(t, func(*testing.T) *kv.Store { return NewMemory() })
}
