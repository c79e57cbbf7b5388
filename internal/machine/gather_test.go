package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// Outputs that cannot fit in one value are not loaded to find that out: all workers,
// one after the other, would need the memory for it.
func TestWhatCannotFitIsNotLoaded(t *testing.T) {
	big := `"` + strings.Repeat("x", 300<<10) + `"`
	list := "[1" + strings.Repeat(",1", 199) + "]"
	calls := func(n int) (nodes, refs string) {
		for i := range n {
			nodes += fmt.Sprintf(`,"n%d":{"call":"f"}`, i)
			refs += fmt.Sprintf(`,"node:n%d"`, i)
		}
		return nodes[1:], refs[1:]
	}
	nodes, refs := calls(50)
	for _, tc := range []struct {
		name, definition string
		calls            func(i int) string
		count            int
		says             string
	}{
		{"items", `{"nodes":{"a":{"call":"f","fanout":{"over":"run_input"}}},"output":{"from":"node:a"}}`, func(i int) string { return fmt.Sprintf("a#%d@1", i) }, 200, "outputs of all 200 items"},
		{"nodes", `{"nodes":{` + nodes + `,"z":{"call":"g","input":{"from":[` + refs + `]}}},"output":{"from":"node:z"}}`, func(i int) string { return fmt.Sprintf("n%d@1", i) }, 50, "50 parts"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.definition)
			w.start(list)
			for i := range tc.count - 1 {
				w.ok(tc.calls(i), big)
			}
			w.asked = 0
			w.ok(tc.calls(tc.count-1), big)
			if w.asked > 40 {
				t.Errorf("%d values were loaded", w.asked)
			}
			w.wantStatus(drover.StatusFailed)
			wantWords(t, w.s.Error.Message, tc.says)
		})
	}
}
