package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// loader makes the load of one row.
type loader interface {
	// run starts runs, and returns when all of them have ended.
	run(ctx context.Context) error
	// fill writes what was measured.
	fill(row *Row)
}

// workload is one kind of runs.
type workload struct {
	name       string
	load       func(f *fleet, w workload, inFlight int) loader
	definition string // YAML
	steps      int    // of a run
	inFlight   []int
	fixed      bool // it has its own number in flight, whatever was asked for
	input      json.RawMessage
	calls      bool // each step is a call of the no-op function, or does it in a program
	program    bool // runs are of the program that does the no-op as often as its input says
	notify     bool // the run ends with its notification, not with its outcome
	deliver    bool // a run that is parked gets a delivery, from which its time is taken
	backlog    bool // those who are told come when all runs are over
	timers     bool // all runs start at once, with the time that each is due
}

// noop is the function that does nothing.
const noop = "noop"

// delivered is the name of the wait of W5.
const delivered = "go"

const (
	sequenceSteps  = 10
	fanoutItems    = 100
	hookDeliveries = 100 // to one run of W7
)

// tag and tagged are what all hooks of W9 have.
const tag, tagged = "of", "bench"

// spread is the time in which the timers of W6 are due.
const spread = time.Second

func workloads(opts Options) []workload {
	return []workload{
		{
			name: SetRun, steps: 1, inFlight: []int{1, 256}, load: ofRuns, notify: true,
			definition: "nodes: {a: {set: {with: {ok: true}}}}\noutput: {from: node:a}\n",
		},
		{name: Sequence, steps: sequenceSteps, inFlight: []int{1, 256}, load: ofRuns, calls: true, input: json.RawMessage("1"), definition: sequence()},
		{
			name: Fanout, steps: fanoutItems, inFlight: []int{1, 16}, load: ofRuns, calls: true, input: items(),
			definition: "nodes: {a: {call: " + noop + ", fanout: {over: run_input}, input: {from: fanout_item}}}\noutput: {from: node:a}\n",
		},
		{
			name: Receipt, steps: 1, inFlight: []int{1, 256}, load: ofReceipts,
			definition: "nodes: {a: {set: {with: {ok: true}}}}\noutput: {from: node:a}\n",
		},
		{
			name: Deliver, steps: 1, inFlight: []int{1}, load: ofRuns, deliver: true,
			definition: "nodes: {a: {wait: {name: " + delivered + ", timeout: 1h}}}\noutput: {from: node:a}\n",
		},
		{
			name: Timers, steps: 1, inFlight: []int{opts.Timers}, fixed: true, load: ofRuns, timers: true,
			definition: "nodes: {a: {sleep: {until: input}}}\noutput: {from: node:a}\n",
		},
		{name: Hook, steps: hookDeliveries, inFlight: []int{1, 256}, load: ofDeliveries, definition: inbox("until: payload")},
		{name: Begin, steps: 1, inFlight: []int{1}, load: ofDeliveries, definition: inbox("count: 1")},
		{
			name: Many, steps: 1, inFlight: []int{opts.Hooks}, fixed: true, load: ofMany,
			definition: inbox("tags: {" + tag + ": " + tagged + "}"),
		},
		{
			name: Backlog, steps: 1, inFlight: []int{opts.Outcomes}, fixed: true, load: ofReceipts, backlog: true,
			definition: "nodes: {a: {set: {with: {ok: true}}}}\noutput: {from: node:a}\n",
		},
		{
			name: Program, steps: sequenceSteps, inFlight: []int{1, 256}, load: ofRuns, calls: true, program: true,
			input: number(sequenceSteps), definition: "program: " + noop + "\n",
		},
		{
			name: Long, steps: opts.Steps, inFlight: []int{1}, load: ofRuns, calls: true, program: true,
			input: number(opts.Steps), definition: "program: " + noop + "\n",
		},
	}
}

func number(n int) json.RawMessage { return json.RawMessage(strconv.Itoa(n)) }

// inbox is the definition of a run that has the token that its input says.
func inbox(with string) string {
	return "nodes: {a: {wait: {hook: \"${{ input }}\", " + with + "}}}\noutput: {from: node:a}\n"
}

// sequence is the definition of calls of which each gets the output of the one
// before.
func sequence() string {
	var b strings.Builder
	b.WriteString("nodes:\n")
	from := "run_input"
	for i := range sequenceSteps {
		id := fmt.Sprintf("s%d", i)
		fmt.Fprintf(&b, "  %s: {call: %s, input: {from: %q}}\n", id, noop, from)
		from = "node:" + id
	}
	fmt.Fprintf(&b, "output: {from: %q}\n", from)
	return b.String()
}

func items() json.RawMessage {
	list := make([]int, fanoutItems)
	for i := range list {
		list[i] = i
	}
	data, _ := json.Marshal(list)
	return data
}

// start makes the command that starts a run; due is when its timer is due.
func (w *workload) start(hash drover.Hash, told string, due time.Time) []byte {
	req := drover.StartRequest{Hash: hash, Input: w.input}
	if w.notify {
		req.Notify = drover.NotifyList{{Subject: told}}
	}
	if w.timers {
		req.Input, _ = json.Marshal(due.UTC().Format(time.RFC3339Nano))
	}
	data, _ := json.Marshal(req)
	return data
}
