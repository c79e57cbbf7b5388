package partition

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestABatchHasABoundOfBytes(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(2), nil)
	big := json.RawMessage(`"` + strings.Repeat("x", drover.MaxValue-2) + `"`)
	for range 5 * maxPuts / 2 / len(big) {
		d.send("r", drover.VerbDeliver, drover.DeliverRequest{Name: "go1", Payload: big})
	}
	d.end(OpCommit)
	size := 0
	for _, put := range d.end(OpCommit).Puts {
		size += len(put.JSON)
	}
	if size > maxPuts+len(big) {
		t.Errorf("one commit stores %d bytes of values", size)
	}
	d.end(OpCommit)
	d.want("commit") // of the last batch, whose values have to be kept
	if kept := d.p.runs["r"].size; kept > maxPuts+len(big) {
		t.Errorf("a run keeps %d bytes of values in memory", kept)
	}
	d.settle()
	if commands, bytes := d.p.Queued(); commands != 0 || bytes != 0 {
		t.Errorf("%d commands, %d bytes are queued although all are folded", commands, bytes)
	}
}

func TestValuesAreFetchedOnDemand(t *testing.T) {
	d := newDriver(t, Options{})
	definition := `{"nodes":{"w":{"wait":{"name":"go"}},"x":{"wait":{"name":"more"}},
		"s":{"set":{"with":"${{ input.n }}"},"depends_on":["w"]}},"output":{"with":["${{ nodes.s.output }}","${{ nodes.x.output }}"]}}`
	input := map[string]any{"n": 7, "pad": strings.Repeat("x", 3000)}
	d.start("r", definition, input)
	d.end(OpLoad)
	put := d.end(OpCommit).Puts[0]
	d.settle()
	d.pass(time.Minute)
	if len(d.p.runs) != 0 {
		t.Fatal("the run is in memory")
	}
	d.deliver("r", "more")
	load := d.next(OpLoad)
	d.deliver("r", "go")
	d.p.Complete(load.ID, d.happen(load))
	fetch := d.next(OpFetch)
	if len(fetch.Keys) != 1 || fetch.Keys[0] != put.Key {
		t.Fatalf("fetches %q, put %q", fetch.Keys, put.Key)
	}
	d.p.Complete(fetch.ID, Result{Err: errUnknown})
	d.want("")
	d.pass(time.Second)
	fetch = d.next(OpFetch)
	d.p.Complete(fetch.ID, Result{Values: map[string]json.RawMessage{put.Key: put.JSON}})
	op := d.end(OpCommit)
	if s := d.state(op.Data); s.Applied != 3 || s.Status != drover.StatusCompleted {
		t.Errorf("applied %d, status %s", s.Applied, s.Status)
	}
}

func TestAValueThatIsGoneIsNull(t *testing.T) {
	d := newDriver(t, Options{})
	definition := `{"nodes":{"w":{"wait":{"name":"go"}},"s":{"set":{"with":"${{ input }}"},"depends_on":["w"]}},"output":{"from":"node:s"}}`
	d.start("r", definition, strings.Repeat("x", 3000))
	d.settle()
	d.pass(time.Minute)
	d.deliver("r", "go")
	d.end(OpLoad)
	d.end(OpFetch) // gives none
	if s := d.state(d.end(OpCommit).Data); s.Status != drover.StatusCompleted {
		t.Errorf("status %s", s.Status)
	}
}

// A start of a run that is there must not store values under the keys of that
// run: the first value under a key stays, and the run would take it for its own.
func TestAStartStoresNothingWhereARunIsThere(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", `{"nodes":{"w":{"wait":{"name":"go"}},"x":{"call":"f","depends_on":["w"]}},"output":{"from":"node:x"}}`, nil)
	d.settle()
	d.pass(time.Minute)
	if len(d.p.runs) != 0 {
		t.Fatal("the run is in memory")
	}
	forged := `"` + strings.Repeat("forged", 1000) + `"`
	d.start("r", `{"nodes":{"x":{"set":{"with":`+forged+`}}},"output":{"from":"node:x"}}`, nil)
	for d.under() != "" {
		if op := d.end(d.open[0].Kind); len(op.Puts) > 0 {
			t.Errorf("%s stores a value under %s", op.Kind, op.Puts[0].Key)
		}
	}
}

func TestAStartStoresNothingUnseenForACommandBehindIt(t *testing.T) {
	d := newDriver(t, Options{})
	d.far = true
	d.start("r", waits(2), nil)
	d.send("r", drover.VerbDeliver, drover.DeliverRequest{Name: "go1", Payload: json.RawMessage(`"` + strings.Repeat("x", 3000) + `"`)})
	d.end(OpResolve)
	d.want("load")
	d.end(OpLoad)
	if op := d.end(OpCommit); len(op.Puts) != 1 || d.state(op.Data).Applied != 2 {
		t.Errorf("%d values, applied %d", len(op.Puts), d.state(op.Data).Applied)
	}
}

func TestAStartWithABigInputIsCommittedAfterALook(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(1), strings.Repeat("x", 3000))
	d.send("r", drover.VerbDeliver, drover.DeliverRequest{Name: "go0", Payload: json.RawMessage(`"` + strings.Repeat("y", 3000) + `"`)})
	d.want("load")
	d.end(OpLoad)
	if op := d.end(OpCommit); len(op.Puts) < 2 || d.state(op.Data).Status != drover.StatusCompleted {
		t.Errorf("%d values, status %s", len(op.Puts), d.state(op.Data).Status)
	}
	d.settle()
	d.cursor(3)
}

// What a command brought is in memory until it is committed, and counts as long.
func TestCommandsCountUntilTheyAreCommitted(t *testing.T) {
	d := newDriver(t, Options{})
	d.start("r", waits(1), strings.Repeat("x", 1000))
	d.want("commit")
	if commands, bytes := d.p.Queued(); commands != 1 || bytes < 1000 {
		t.Errorf("%d commands, %d bytes while a start is being committed", commands, bytes)
	}
	d.end(OpCommit)
	d.send("garbage", "no such verb", strings.Repeat("x", 1000))
	d.want("dead load")
	if commands, bytes := d.p.Queued(); commands != 1 || bytes < 1000 {
		t.Errorf("%d commands, %d bytes while a dead letter is being stored", commands, bytes)
	}
	d.settle()
	if commands, bytes := d.p.Queued(); commands != 0 || bytes != 0 {
		t.Errorf("%d commands, %d bytes in the end", commands, bytes)
	}
}

// Runs that wait are let go of early where they have more memory than they may.
func TestRunsThatWaitHaveABoundOfBytes(t *testing.T) {
	const memory = 64 << 10
	d := newDriver(t, Options{Memory: memory})
	big := strings.Repeat("x", 3000) // not in the record
	const runs = 100
	for i := range runs {
		d.start(fmt.Sprint("r", i), waits(1), big)
	}
	d.settle()
	values := 0
	for _, r := range d.p.runs {
		values += r.size
	}
	if values > memory {
		t.Errorf("runs that wait keep %d bytes of values", values)
	}
	d.pass(2 * hurryAfter)
	d.settle()
	if d.p.kept > memory {
		t.Errorf("%d runs that wait have %d bytes", len(d.p.runs), d.p.kept)
	}
	for i := range runs {
		d.deliver(fmt.Sprint("r", i), "go0")
	}
	d.settle()
	d.pass(time.Minute)
	d.settle()
	if len(d.p.runs) != 0 || d.p.kept != 0 {
		t.Errorf("%d runs with %d bytes are in memory in the end", len(d.p.runs), d.p.kept)
	}
}
