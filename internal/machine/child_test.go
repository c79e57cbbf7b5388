package machine

import (
	"encoding/json"
	"testing"

	"github.com/droverhq/drover"
)

// A run that is started anew after it was removed may find a child of the old one
// under the id of its own. That child tells the old one, which the new one would wait
// for ever for: so it is told that it has none.
func TestAChildOfARunThatHadTheSameIDBefore(t *testing.T) {
	up := drover.CallID{Run: "up", Node: "n", Item: drover.NoItem, Attempt: 1}
	started := func(token string, detached bool) drover.StartRequest {
		return drover.StartRequest{Input: json.RawMessage(`1`), Parent: &drover.Parent{Call: up, Token: token, Depth: 1, Detached: detached}}
	}
	for name, first := range map[string]drover.StartRequest{
		"of another parent": started("old", false), "detached": started("old", true), "a client's": {Input: json.RawMessage(`1`)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, `{"nodes":{"n":{"call":"f"}},"output":{"from":"node:n"}}`)
			w.run = drover.ChildRunID(up)
			w.startAs(first)
			step := w.startAs(started("new", false))
			w.wantRefused(drover.CodeConflict, "up", "before")
			if len(step.Effects) != 1 || step.Effects[0].To != "up" || step.Effects[0].Child.Token != "new" || step.Effects[0].Child.Status != drover.StatusFailed {
				t.Errorf("the parent is told by %+v", step.Effects)
			}
			for what, again := range map[string]drover.StartRequest{"the same": first, "a client's": {Input: json.RawMessage(`1`)}, "detached": started("new", true)} {
				if step := w.startAs(again); step.Refused != nil || step.Changed || len(step.Effects) > 0 {
					t.Errorf("%s start again: %+v", what, step)
				}
			}
		})
	}
}
