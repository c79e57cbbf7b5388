package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

// breed is one kind of run that crashes fall upon.
type breed struct {
	name       string
	definition string
	input      string
	then       func(f *fleet, ctx context.Context, run drover.RunID) error // a command after the start
	status     drover.Status
	result     string // "" where there is an error, and it says:
	says       string
}

// breeds go through everything that a run can wait for.
var breeds = []breed{
	{name: "sequence", input: `1`, status: drover.StatusCompleted, result: `4`, definition: sequence},
	{name: "fanout", input: `[1,2,3,4,5,6,7]`, status: drover.StatusCompleted, result: `{"items":[2,3,4,5,6,7,8],"sum":35}`, definition: `
nodes:
  each: {call: flaky, fanout: {over: run_input, max_parallel: 3}, retry: {max_attempts: 3, initial: 20ms}}
output: {with: {items: "${{ nodes.each.output }}", sum: "${{ sum(nodes.each.output) }}"}}`},
	{name: "sleep", input: `1`, status: drover.StatusCompleted, result: `3`, definition: `
nodes:
  a: {call: add}
  pause: {sleep: 300ms, depends_on: [a]}
  b: {call: add, input: {from: "node:a"}, depends_on: [pause]}
output: {from: "node:b"}`},
	{name: "wait", input: `1`, status: drover.StatusCompleted, result: `{"a":2,"by":"kim"}`, then: deliver, definition: `
nodes:
  a: {call: add}
  go: {wait: {name: go}, depends_on: [a]}
output: {with: {a: "${{ nodes.a.output }}", by: "${{ nodes.go.output.by }}"}}`},
	{name: "child", input: `1`, status: drover.StatusCompleted, result: `5`, definition: `
nodes:
  sub:
    run:
      definition: {nodes: {a: {call: add}, p: {sleep: 50ms, depends_on: [a]}, b: {call: add, input: {from: "node:a"}, depends_on: [p]}}, output: {from: "node:b"}}
  a: {call: add, input: {from: "node:sub"}}
  b: {call: add, input: {from: "node:a"}}
output: {from: "node:b"}`},
	{name: "saga", input: `1`, status: drover.StatusCompensated, says: "no room", definition: `
nodes:
  book: {call: add, compensate: {call: undo}}
  pay: {call: refuse, input: {from: "node:book"}}
output: {from: "node:pay"}`},
	{name: "choice", input: `{"n":1,"go":false}`, status: drover.StatusCompleted, result: `{"n":2,"other":"none"}`, definition: `
nodes:
  n: {set: {with: "${{ input.n + 1 }}"}}
  other: {call: add, when: "input.go", input: {from: "node:n"}}
output: {with: {n: "${{ nodes.n.output }}", other: "${{ nodes.other.output ?? 'none' }}"}}`},
	{name: "stopped", input: `1`, status: drover.StatusCancelled, says: "enough", then: stop, definition: `
nodes:
  a: {call: add}
  never: {wait: {name: never}, depends_on: [a]}
output: {from: "node:never"}`},
}

const sequence = `
nodes:
  a: {call: add}
  b: {call: add, input: {from: "node:a"}}
  c: {call: add, input: {from: "node:b"}}
output: {from: "node:c"}`

func deliver(f *fleet, ctx context.Context, run drover.RunID) error {
	return f.tryPublish(ctx, run, drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: json.RawMessage(`{"by":"kim"}`), ID: "once"})
}

func stop(f *fleet, ctx context.Context, run drover.RunID) error {
	return f.tryPublish(ctx, run, drover.VerbStop, drover.StopRequest{Reason: "enough"})
}

// functionsOf perform what the breeds call. Their answers depend on the call
// alone, as those of functions that may be called twice must.
func functionsOf(undone *tally) []*function.Function {
	return []*function.Function{
		function.New("add", func(_ context.Context, n int) (int, error) { return n + 1, nil }),
		function.New("flaky", func(ctx context.Context, n int) (int, error) {
			if function.Info(ctx).ID.Attempt == 1 && n%2 == 1 {
				return 0, errors.New("not at first")
			}
			return n + 1, nil
		}),
		function.New("refuse", func(context.Context, int) (int, error) {
			return 0, function.Permanent(errors.New("no room"))
		}),
		function.New("undo", func(ctx context.Context, _ json.RawMessage) (bool, error) {
			undone.add(string(function.Info(ctx).ID.Run), "undone")
			return true, nil
		}),
	}
}

// tally keeps the texts that were told of each key.
type tally struct {
	mu   sync.Mutex
	told map[string][]string
	more chan struct{} // has an element when something was told
}

func newTally() *tally { return &tally{told: map[string][]string{}, more: make(chan struct{}, 1)} }

func (l *tally) add(key, text string) {
	l.mu.Lock()
	l.told[key] = append(l.told[key], text)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

func (l *tally) of(key string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told[key]
}

func (l *tally) keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.told))
}

func (l *tally) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.told)
}

// same gives the text that was told of a key, however often.
func (l *tally) same(t testing.TB, key string) string {
	t.Helper()
	texts := l.of(key)
	if len(texts) == 0 {
		return ""
	}
	for _, other := range texts[1:] {
		if other != texts[0] {
			t.Errorf("%s was told as\n%s\nand as\n%s", key, texts[0], other)
		}
	}
	return texts[0]
}

// crashed is a fleet whose server crashes, with what was started in it, and what
// was told of that.
type crashed struct {
	*fleet
	breeds  []breed // that are begun in turn
	start   func(context.Context, drover.StartRequest) error
	runs    map[drover.RunID]*breed // acknowledged
	told    *tally                  // payloads of deliveries, by run
	undone  *tally
	changed chan struct{} // an element for each event that was heard
}

const told = "crash.told"

func newCrashed(f *fleet) *crashed {
	t := f.t
	t.Helper()
	w := &crashed{
		fleet: f, breeds: breeds, runs: map[drover.RunID]*breed{},
		told: newTally(), undone: newTally(), changed: make(chan struct{}, kept),
	}
	w.start = func(ctx context.Context, req drover.StartRequest) error {
		run := req.RunID
		req.RunID = ""
		return w.tryPublish(ctx, run, drover.VerbStart, req)
	}
	w.serve(functionsOf(w.undone)...)
	_, err := w.nc.Subscribe(told, func(m *nats.Msg) {
		var o drover.Outcome
		if err := json.Unmarshal(m.Data, &o); err != nil {
			t.Errorf("a delivery is %q: %v", m.Data, err)
		}
		w.told.add(string(o.RunID), string(m.Data))
		_ = m.Respond([]byte("thanks")) // where that is lost it comes again
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.nc.Subscribe(names.EventAll(), func(*nats.Msg) {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// begin starts runs, one after another, until ctx ends. Each is published again
// until its start is acknowledged, which is when it counts. No more than so many
// are on their way to their end at once.
func (w *crashed) begin(ctx context.Context, atOnce int) {
	for n := 0; ctx.Err() == nil; n++ {
		b := &w.breeds[n%len(w.breeds)]
		run := drover.RunID(fmt.Sprintf("%s-%d", b.name, n))
		if !w.acknowledged(ctx, func(ctx context.Context) error {
			return w.start(ctx, drover.StartRequest{
				RunID: run, Definition: text(b.definition), Input: json.RawMessage(b.input),
				Notify: drover.NotifyList{{Subject: told}}, Tags: map[string]string{"breed": b.name},
			})
		}) {
			return
		}
		w.runs[run] = b
		if b.then != nil {
			w.follow(ctx, run, b)
		}
		for len(w.runs)-w.told.len() >= atOnce {
			select {
			case <-w.told.more:
			case <-ctx.Done():
				return
			}
		}
	}
}

// follow sends the command that comes after the start of a run.
func (w *crashed) follow(ctx context.Context, run drover.RunID, b *breed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if !w.acknowledged(ctx, func(ctx context.Context) error { return b.then(w.fleet, ctx, run) }) {
		w.t.Errorf("nobody acknowledged the command that run %s is to get", run)
	}
}

// acknowledged does something that a crash may answer, until nothing does or
// ctx ends.
func (w *crashed) acknowledged(ctx context.Context, do func(context.Context) error) bool {
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, answer)
		err := do(try)
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// settle waits until every acknowledged start is over and told, and nothing is
// waited for any more.
func (w *crashed) settle() {
	w.t.Helper()
	for run := range w.runs {
		w.outcome(run)
	}
	for run := range w.runs {
		var why []drover.Reason
		until(w.t, "an end of all reasons of run "+string(run), func() bool {
			why = w.reasons(run)
			return len(why) == 0
		})
	}
}

// check compares what was promised with what came.
func (w *crashed) check() {
	w.t.Helper()
	var done *tally
	// Who listens has an outcome a moment before its stream.
	until(w.t, "every outcome in its stream", func() bool {
		done = newTally()
		for _, m := range w.all(names.Outcomes()) {
			done.add(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:], string(m.Data()))
		}
		for run := range w.runs {
			if len(done.of(string(run))) == 0 {
				return false
			}
		}
		return true
	})
	for run, b := range w.runs {
		published, delivered := done.same(w.t, string(run)), w.told.same(w.t, string(run))
		for _, data := range []string{published, delivered} {
			var o drover.Outcome
			if err := json.Unmarshal([]byte(data), &o); err != nil {
				w.t.Errorf("run %s: outcome %q: %v", run, data, err)
				continue
			}
			b.check(w.t, run, &o)
		}
		if a, b := body(published), body(delivered); a != b {
			w.t.Errorf("run %s is published as\n%s\nand delivered as\n%s", run, a, b)
		}
		if b.status == drover.StatusCompensated && len(w.undone.of(string(run))) == 0 {
			w.t.Errorf("run %s is compensated, and nothing was undone", run)
		}
	}
	for _, l := range w.letters() {
		w.t.Errorf("command %d, a %s of run %s, became a dead letter: %v: %s", l.Sequence, l.Verb, l.RunID, l.Error, l.Payload)
	}
}

func (b *breed) check(t testing.TB, run drover.RunID, o *drover.Outcome) {
	t.Helper()
	bad := o.Status != b.status || o.RunID != run || o.Tags["breed"] != b.name
	if b.result != "" {
		bad = bad || compact(o.Result) != b.result || o.Error != nil
	} else {
		bad = bad || o.Error == nil || !strings.Contains(o.Error.Error(), b.says)
	}
	if bad {
		t.Errorf("run %s is %s with the result %s and the error %v; want %s, %s%s", run, o.Status, o.Result, o.Error, b.status, b.result, b.says)
	}
}

// body is an outcome without the id of its delivery.
func body(outcome string) string {
	_, rest, _ := strings.Cut(outcome, ",")
	return rest
}
