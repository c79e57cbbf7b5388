package partition

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// What runs are taken to have in memory is about what they have, whatever they are:
// else the bounds would mean nothing.
func TestPrograms17ARunWeighsWhatItHasInMemory(t *testing.T) {
	const runs = 300
	for _, tc := range []struct {
		name, definition string
		slots            int
	}{
		{"one call", `{"nodes":{"a":{"call":"f","timeout":"1h"}},"output":{"from":"node:a"}}`, 0},
		{"ten waits", waits(10), 0},
		{"a hundred waits", waits(100), 0},
		{"a program", program, 0},
		{"a program with a wait", program, 1},
		{"a program with twenty waits", program, 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDriver(t, Options{Memory: 1 << 40, CoverAfter: time.Hour, IdleAfter: time.Hour})
			hash := d.plan(tc.definition).Hash // runs share it
			before := inUse()
			for i := range runs {
				run := fmt.Sprint("r", i)
				d.send(run, drover.VerbStart, drover.StartRequest{Hash: hash, Input: json.RawMessage(`"x"`)})
				d.settle()
				if tc.slots > 0 {
					d.parks(run, tc.slots)
					d.settle()
				}
				d.sent = nil
			}
			has, weight := inUse()-before, d.p.kept
			t.Logf("a run has %d bytes in memory, and counts as %d", has/runs, weight/runs)
			if len(d.p.runs) != runs || weight < has*2/3 || weight > has*3/2 {
				t.Errorf("%d runs have %d bytes in memory, and count as %d", len(d.p.runs), has, weight)
			}
			runtime.KeepAlive(d)
		})
	}
}

// inUse is how many bytes are in use.
func inUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

const program = `{"program":"p"}`

// parks has the body of a program wait for so many deliveries.
func (d *driver) parks(run string, waits int) {
	d.t.Helper()
	id := drover.CallID{Run: drover.RunID(run), Node: "_drive", Item: drover.NoItem, Attempt: 1}
	m := drover.RecordRequest{
		Drive: 1, Fence: 2, Token: machine.Token("secret", id.String()), Instance: "i",
		End: &drover.DriveEnd{Status: drover.DriveWaiting},
	}
	for i := range waits {
		name := fmt.Sprint("w", i)
		step := fmt.Appendf(nil, `{"wait":{"name":%q}}`, name)
		m.Records = append(m.Records, drover.Entry{Kind: drover.EntryNode, ID: name, Step: step})
	}
	d.send(run, drover.VerbRecord, m)
}

// However many parked runs are woken at once, a bounded number of them is in memory
// at a time: a driver that asks for room waits until others were let go, whether
// their effects take long or their wake-ups are in memory only. All are woken in the
// end.
func TestPrograms17ManyRunsThatWakeAtOnceHaveABoundOfBytes(t *testing.T) {
	const memory = 1 << 20
	wakes := `{"nodes":{"w0":{"wait":{"name":"w0"}},"a":{"call":"f","timeout":"1h","depends_on":["w0"]}},"output":{"from":"node:a"}}`
	for name, definition := range map[string]string{"programs": program, "definitions": wakes} {
		t.Run(name, func(t *testing.T) {
			c := &crowd{driver: newDriver(t, Options{Memory: memory}), acted: map[drover.RunID]bool{}}
			hash := c.plan(definition).Hash
			c.each(func(run string) {
				c.send(run, drover.VerbStart, drover.StartRequest{Hash: hash, Input: json.RawMessage(`"x"`)})
				if definition == program {
					c.perform(true)
					c.parks(run, 1)
				}
			})
			if len(c.p.runs) > 0 || c.p.kept != 0 || c.p.pressing != 0 {
				t.Errorf("%d runs that are parked have %d bytes in memory, %d of which press", len(c.p.runs), c.p.kept, c.p.pressing)
			}
			clear(c.acted)
			c.each(func(run string) { c.deliver(run, "w0") })
			if len(c.acted) != crowdRuns {
				t.Errorf("%d of %d runs were woken", len(c.acted), crowdRuns)
			}
			if c.most > memory*9/8 || c.most < memory/2 {
				t.Errorf("up to %d bytes of runs were in memory, of %d", c.most, memory)
			}
		})
	}
}

const crowdRuns = 2000

// crowd is very many runs, whose effects take a while.
type crowd struct {
	*driver
	acted map[drover.RunID]bool
	most  int // bytes of runs in memory
}

// each gives commands for all runs, as there is room, and parks them.
func (c *crowd) each(give func(run string)) {
	c.t.Helper()
	for i := range crowdRuns {
		for waited := time.Duration(0); c.p.Room() == 0; waited += 100 * time.Millisecond {
			if waited > 3*hurryAfter {
				c.t.Fatalf("no run is let go, of %d with %d bytes", len(c.p.runs), c.p.kept)
			}
			c.pass(100 * time.Millisecond)
			c.perform(true)
		}
		give(fmt.Sprint("r", i))
		c.perform(false)
	}
	for range 20 {
		c.perform(true)
		c.pass(time.Second)
	}
}

// perform ends what is under way; effects, too, or not.
func (c *crowd) perform(effects bool) {
	var later []*Op
	for c.take(); len(c.open) > 0; c.take() {
		if op := c.open[0]; op.Kind == OpAct && !effects {
			later, c.open = append(later, op), c.open[1:]
			continue
		} else if op.Kind == OpAct {
			c.acted[op.Run] = true
		}
		c.end(c.open[0].Kind)
		c.most = max(c.most, c.p.kept)
	}
	c.open, c.sent = later, nil
}
