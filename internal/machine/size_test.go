package machine

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
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

var golden = flag.Bool("golden", false, "write the golden record of this schema version")

// readGolden reads a record, which it writes first where that is asked for.
func readGolden(t *testing.T, file string, record func() []byte) *State {
	t.Helper()
	if *golden {
		if err := os.WriteFile(file, record(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGoldenRecord reads a record that the first schema version wrote. It must
// be read for ever.
func TestGoldenRecord(t *testing.T) {
	s := readGolden(t, "testdata/record-v1.json", func() []byte {
		w := newWorld(t, fanText)
		w.startAs(drover.StartRequest{Input: json.RawMessage(list(3)), Notify: drover.NotifyList{{Subject: "a.b"}}, Tags: map[string]string{"k": "v"}})
		w.ok("a#1@1", `{"x":1}`)
		return w.record
	})
	it := s.Nodes[0].Items
	if s.V != 1 || s.Run != "r1" || len(s.Active) != 2 || s.Active[1].Item != 2 || it.Total != 3 || string(it.output(1)) != `{"x":1}` ||
		s.Notify[0].Notify.Subject != "a.b" || s.Tags["k"] != "v" || len(s.Owed) != 0 || s.Input.JSON == nil {
		t.Fatalf("%+v", s)
	}
	hooks := readGolden(t, "testdata/record-v1-hooks.json", func() []byte {
		w := newWorld(t, restarting)
		w.startAs(drover.StartRequest{Hooks: []string{"t", "brought"}})
		w.deliverHook("t", `1`, "a")
		w.hookFrom(drover.DeliverRequest{Hook: "t", Payload: json.RawMessage(`2`), Respond: "inbox.1"})
		return w.record
	})
	h := hooks.Hooks
	if len(h) != 3 || h[0] != (Hook{Token: "t", Node: 1, Mark: HookOwned, Brought: true, Since: h[0].Since, Read: 1}) || h[1].Node != 0 || h[2].Mark != HookClaiming ||
		len(hooks.Unread) != 1 || hooks.Unread[0].Hook != "t" || hooks.Unread[0].Respond != "inbox.1" || len(hooks.Seen) != 1 {
		t.Fatalf("%+v", hooks)
	}
	if _, err := Decode([]byte(`{"V":99,"run":"r","n":[{}]}`)); err == nil {
		t.Fatal("a record of a later version was read")
	}
}
