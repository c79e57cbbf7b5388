package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/function/functiontest"
)

// newFleet makes a functiontest.Fleet with streams.
func newFleet(t testing.TB) *functiontest.Fleet {
	t.Helper()
	return functiontest.New(t).SetUp()
}

func raw(name string, h func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)) *function.Function {
	return function.Raw(name, h)
}

// echo gives its input.
func echo(name string) *function.Function {
	return raw(name, func(_ context.Context, input json.RawMessage) (json.RawMessage, error) { return input, nil })
}

// held makes a function whose calls say that they began, and end when they are
// let go or their contexts end.
func held(name string) (fn *function.Function, began chan context.Context, letGo chan struct{}) {
	began, letGo = make(chan context.Context, 100), make(chan struct{})
	return raw(name, func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
		began <- ctx
		select {
		case <-letGo:
			return input, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}), began, letGo
}

var errBoom = errors.New("boom")
