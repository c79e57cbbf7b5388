package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
)

// TestServe: workers come and go while runs are on their way.
func TestServe(t *testing.T) {
	t.Parallel()
	s := natstest.New(t, natstest.Listen())
	f := connect(t, s.URL())
	load := newLoad(t, f)
	serve := func(name string) *process { // the lease outlasts a machine that is busy: what runs out repeats calls
		return launch(t, "serve", "--nats", s.URL(), "--name", name, "--lease", "5s", "--partitions", fmt.Sprint(parts))
	}
	a, b := serve("a"), serve("b")
	f.shared(2)

	t.Run("one that is asked to end repeats nothing", func(t *testing.T) {
		load.begin("asked", 200)
		load.await(50)
		a.signal(syscall.SIGTERM)
		if status, _, stderr := a.wait(); status != 0 {
			t.Errorf("exit status %d\n%s", status, stderr)
		}
		load.await(200)
		for _, id := range load.calls.keys() {
			if n := len(load.calls.of(id)); n != 1 {
				t.Errorf("call %s came %d times, although nothing crashed", id, n)
			}
		}
	})

	t.Run("one that is killed loses nothing", func(t *testing.T) {
		serve("c")
		f.shared(2)
		load.begin("killed", 200)
		load.await(250)
		b.kill()
		load.await(400)
	})
	t.Run("definitions 14: racing starts with one key are one run", func(t *testing.T) { f.in(t).race(t) })
	load.check()
	for _, l := range f.letters() {
		t.Errorf("%s of run %s became a dead letter: %v", l.Verb, l.RunID, l.Error)
	}
}

// race starts the same run many times at once, with one key, and then another.
func (f *fleet) race(t *testing.T) {
	const racers = 20
	definition := text("nodes: {a: {set: {with: \"${{ input }}\"}}}\noutput: {from: \"node:a\"}\n")
	req := drover.StartRequest{Definition: definition, Input: number(7), IdempotencyKey: "order 17"}
	replies := make(chan drover.StartReply, racers)
	var racing sync.WaitGroup
	for range racers {
		racing.Go(func() {
			reply, err := f.Start(t.Context(), req)
			if err != nil {
				t.Error(err)
			}
			replies <- reply
		})
	}
	racing.Wait()
	close(replies)
	created := 0
	for reply := range replies {
		if reply.Created {
			created++
		}
		if reply.RunID != drover.KeyRunID("", "order 17") {
			t.Errorf("a start was answered with run %s", reply.RunID)
		}
	}
	if created != 1 {
		t.Errorf("%d starts made the run", created)
	}
	f.completes(drover.KeyRunID("", "order 17"), "7")
	req.Input = number(8)
	if _, err := f.Start(t.Context(), req); !errors.Is(err, drover.CodeConflict) {
		t.Errorf("another input with the same key: %v", err)
	}
}

// load is many runs, and who was told what of them.
type load struct {
	*fleet
	runs     map[drover.RunID]bool
	calls    *tally // by call id
	outcomes *tally // by run
}

const fanned = `
nodes:
  a: {call: load}
  each: {call: load, fanout: {over: node:a}}
  sum: {set: {with: "${{ len(nodes.each.output) }}"}}
output: {from: node:sum}`

func newLoad(t *testing.T, f *fleet) *load {
	t.Helper()
	l := &load{fleet: f, runs: map[drover.RunID]bool{}, calls: newTally(), outcomes: newTally()}
	f.serve(function.Raw("load", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		l.calls.add(function.Info(ctx).ID.String(), "called")
		return json.RawMessage(`[1,2,3]`), nil
	}))
	if _, err := f.nc.Subscribe(names.DoneAll(), func(m *nats.Msg) {
		var o drover.Outcome
		if err := json.Unmarshal(m.Data, &o); err != nil {
			t.Error(err)
		}
		l.outcomes.add(string(o.RunID), string(m.Data))
	}); err != nil {
		t.Fatal(err)
	}
	return l
}

// begin starts so many runs, and returns when all starts are durable.
func (l *load) begin(prefix string, n int) {
	l.t.Helper()
	for i := range n {
		run := drover.RunID(fmt.Sprintf("%s-%d", prefix, i))
		l.publish(run, drover.VerbStart, drover.StartRequest{Definition: text(fanned), Input: number(i)})
		l.runs[run] = true
	}
}

// await waits until so many runs are over.
func (l *load) await(n int) {
	l.t.Helper()
	for l.outcomes.len() < n {
		await(l.t, l.outcomes.more, fmt.Sprintf("outcome %d of %d", l.outcomes.len()+1, n))
	}
}

func (l *load) check() {
	l.t.Helper()
	for run := range l.runs {
		var o drover.Outcome
		if err := json.Unmarshal([]byte(l.outcomes.same(l.t, string(run))), &o); err != nil || o.Status != drover.StatusCompleted || compact(o.Result) != "3" {
			l.t.Errorf("run %s: %+v, %v", run, o, err)
		}
	}
}
