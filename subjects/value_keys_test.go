package subjects

import (
	"testing"

	"github.com/droverhq/drover"
)

// The keys of values say what they are of, to whoever has to know which may go.
func TestKeysOfValuesAreReadBack(t *testing.T) {
	output := func(node drover.NodeID, item int, undo bool) string {
		return OutputKey(drover.CallID{Run: "r", Node: node, Item: item, Undo: undo, Attempt: 1})
	}
	for _, tt := range []struct {
		key, is string
		number  uint64
	}{
		{InputKey("r"), "", 0},
		{ResultKey("r"), "", 0},
		{ItemsKey("r", "n"), "", 0},
		{JournalKey("r", 0, "line", 7), "journal", 0},
		{JournalKey("r", 12, "segment", 7), "journal", 12},
		{JournalKey("rr", 12, "segment", 7), "", 0},
		{"r.journal.12", "", 0},
		{"r.journal.x.line.1", "", 0},
		{"r.journal.-1.line.1", "", 0},
		{DeliveredKey("r", 1<<63), "delivered", 1 << 63},
		{DeliveredKey("rr", 1), "", 0},
		{"r.delivered.", "", 0},
		{"r.delivered.1.2", "", 0},
		{output("n~2", drover.NoItem, false), "node n~2", 0},
		{output("n.o", 3, true), "node n.o", 0},
		{output("journal", drover.NoItem, false), "node journal", 0},
		{"rr.node.n.1", "", 0},
		{"r.node.n", "", 0},
		{"", "", 0},
	} {
		got, number := "", uint64(0)
		if n, ok := GenerationOfKey("r", tt.key); ok {
			got, number = "journal", uint64(n)
		}
		if n, ok := DeliveredOfKey("r", tt.key); ok {
			got, number = got+"delivered", n
		}
		if n, ok := NodeOfKey("r", tt.key); ok {
			got += "node " + string(n)
		}
		if got != tt.is || number != tt.number {
			t.Errorf("%q is %q %d, want %q %d", tt.key, got, number, tt.is, tt.number)
		}
	}
}
