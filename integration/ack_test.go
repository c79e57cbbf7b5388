package integration_test

import (
	"fmt"
	"testing"

	"github.com/droverhq/drover"
)

// A start that is acknowledged is there for whoever asks next, although its
// owner may not have come to it yet.
func TestAcknowledgedStartIsThere(t *testing.T) {
	t.Parallel()
	f, _ := dev(t)
	definition := text("nodes: {a: {set: {with: \"${{ input }}\"}}}\noutput: {from: \"node:a\"}\n")
	for n := range 200 {
		run := drover.RunID(fmt.Sprintf("at-once-%d", n))
		f.publish(run, drover.VerbStart, drover.StartRequest{Definition: definition, Input: number(n)})
		if got, err := f.Status(t.Context(), drover.RunRequest{RunID: run}); err != nil || got.Run.ID != run {
			t.Fatalf("the status of run %s is %+v, %v", run, got.Run, err)
		}
	}
}
