package function_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

// The queues of versions that nobody serves any more do not add up, one with each
// deployment. All other queues stay.
func TestQueuesOfOldVersionsAreForgotten(t *testing.T) {
	f := newFleet(t)
	var fns []*function.Function
	want := map[drover.FunctionName]bool{"f": false, "a.b.c": false, "program.p": false, "program.p.v7": true}
	for name := range want {
		fns = append(fns, function.Message(string(name), func(context.Context, *nats.Msg) error { return nil }))
	}
	_ = f.Serve(function.Options{}, fns...)
	for name, forgotten := range want {
		c, err := f.JS.Consumer(t.Context(), f.Names.Calls(), f.Names.Consumer(name))
		if err != nil {
			t.Fatal(err)
		}
		if after := c.CachedInfo().Config.InactiveThreshold; (after > 0) != forgotten {
			t.Errorf("the queue of %s is forgotten after %v", name, after)
		}
	}
}
