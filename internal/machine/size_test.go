package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// TestRecordOf50000Calls holds the record of the biggest run there may be to a
// size that a store takes: while it runs, and after.
func TestRecordOf50000Calls(t *testing.T) {
	text := `{"max_parallel":1000,"nodes":{`
	for i := range 5 {
		over := "run_input"
		if i == 4 {
			over = "${{ input[1:] }}" // leaves one call for z
		}
		text += fmt.Sprintf(`"n%d":{"call":"f","fanout":{"over":"%s"}},`, i, over)
	}
	text += `"z":{"set":{"with":1},"depends_on":["n0","n1","n2","n3","n4"]}},"output":{"from":"node:z"}}`
	p := compileText(t, text)
	input := json.RawMessage(list(drover.MaxFanout))
	rng := rand.New(rand.NewPCG(5, 6))
	now, seq, puts, biggest := epoch, uint64(0), 0, 0
	var s *State
	send := func(c *Command) {
		seq++
		c.Seq, c.At, c.Run = seq, now, "r1"
		step, err := Apply(p, s, c, func(string) (json.RawMessage, bool) { return input, true })
		if err != nil || step.Refused != nil {
			t.Fatal(err, step.Refused)
		}
		s = step.State
		puts += len(step.Puts)
	}
	send(&Command{Verb: drover.VerbStart, Start: &Start{StartRequest: drover.StartRequest{Input: input}, Hash: p.Hash, Secret: "s"}})
	for ended := 0; !s.Terminal(); ended++ {
		now = now.Add(time.Duration(rng.IntN(8)) * time.Millisecond)
		a := s.Active[rng.IntN(len(s.Active))]
		id := drover.CallID{Run: "r1", Node: p.nodes[a.Node].id, Item: a.Item, Attempt: 1}
		send(&Command{Verb: drover.VerbResult, Result: &drover.ResultMessage{
			Call: id, Token: Token("s", id.String()), Output: json.RawMessage(`{"answer":"so many bytes"}`), Instance: fmt.Sprintf("host-%d", rng.IntN(16)),
		}})
		if ended%5000 == 0 || s.Terminal() {
			data, err := Encode(s)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if err := back.Check(p); err != nil {
				t.Fatal(err)
			}
			biggest = max(biggest, len(data))
		}
	}
	t.Logf("biggest record %d bytes, %d values behind keys", biggest, puts)
	if s.Status != drover.StatusCompleted || puts < 40_000 || biggest > 256<<10 {
		t.Fatalf("%s, %d puts, biggest record %d bytes", s.Status, puts, biggest)
	}
}
