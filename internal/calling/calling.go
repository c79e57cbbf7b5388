// Package calling keeps in a context on behalf of which call the code in it runs:
// the SDK for functions puts it there, and the client says it to the fleet when it
// starts a run.
package calling

import (
	"context"

	"github.com/droverhq/drover"
)

type key struct{}

// Call is a call, and the token that came with it and proves it.
type Call struct {
	ID    drover.CallID
	Token string
}

// With gives a context that belongs to a call.
func With(ctx context.Context, call Call) context.Context {
	return context.WithValue(ctx, key{}, call)
}

// From gives the call that a context belongs to; false: to none.
func From(ctx context.Context) (Call, bool) {
	call, ok := ctx.Value(key{}).(Call)
	return call, ok
}
