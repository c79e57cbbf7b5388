package machine

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// Of a call that timed out a run cannot tell whether anybody had it: it says so, and
// whom to look for.
func TestATimeoutNamesItsFunction(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"ship","timeout":"1m","retry":{"max_attempts":1}}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.pass(time.Minute).tick()
	w.wantStatus(drover.StatusFailed)
	wantWords(t, w.s.Error.Message, "took longer than 1m0s (call r1/a@1): function ship took too long, or nobody serves it")
}
