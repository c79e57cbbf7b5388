package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
)

// programBreeds are programs that crashes fall upon.
var programBreeds = []breed{
	{name: "p-steps", input: `7`, status: drover.StatusCompleted, result: `17`, definition: "program: p-steps"},
	{name: "p-wait", input: `1`, status: drover.StatusCompleted, result: `{"a":2,"by":"kim"}`, then: deliver, definition: "program: p-wait"},
	{name: "p-saga", input: `1`, status: drover.StatusCompensated, says: "no room", definition: "program: p-saga"},
	{name: "p-stopped", input: `1`, status: drover.StatusCancelled, says: "enough", then: stop, definition: "program: p-stopped"},
	{name: "p-parent", input: `1`, status: drover.StatusCompleted, result: `15`, definition: "program: p-parent"},
	{name: "p-child", input: `7`, status: drover.StatusCompleted, result: `18`, definition: `
nodes:
  child: {run: {definition: {program: p-steps}}, input: {from: run_input}}
  a: {call: add, input: {from: "node:child"}}
output: {from: "node:a"}`},
}

// programsOf are what the breeds start. done is told of each step.
func programsOf(undone, done *tally) []*flow.Def {
	add := func(run *flow.Run, id string, n int) (int, error) {
		key := string(run.Info().ID) + " " + id
		return flow.Step(run, id, func(context.Context) (int, error) { done.add(key, "done"); return n + 1, nil })
	}
	seq, err := drover.ParseDefinition([]byte(sequence))
	if err != nil {
		panic(err)
	}
	return []*flow.Def{
		flow.Program("p-steps", func(run *flow.Run, n int) (_ int, err error) {
			for i := range 10 {
				if n, err = add(run, fmt.Sprint("s", i), n); err != nil {
					return 0, err
				}
				if i == 3 || i == 6 {
					if err := run.Sleep(fmt.Sprint("rest", i), 20*time.Millisecond); err != nil {
						return 0, err
					}
				}
			}
			return n, nil
		}),
		flow.Program("p-wait", func(run *flow.Run, n int) (any, error) {
			a, err := add(run, "a", n)
			if err != nil {
				return nil, err
			}
			said, err := flow.Wait[struct{ By string }](run, "go", "go")
			return map[string]any{"a": a, "by": said.By}, err
		}),
		flow.Program("p-saga", func(run *flow.Run, n int) (any, error) {
			id := string(run.Info().ID)
			_, err := flow.Step(run, "book", func(context.Context) (int, error) { return n, nil },
				flow.Compensate(func(context.Context, int) error { undone.add(id, "undone"); return nil }))
			if err != nil {
				return nil, err
			}
			_, err = flow.Step(run, "pay", func(context.Context) (int, error) { return 0, flow.Fatal(errors.New("no room")) }, flow.Retry{})
			return nil, err
		}),
		flow.Program("p-stopped", func(run *flow.Run, n int) (any, error) {
			if _, err := add(run, "a", n); err != nil {
				return nil, err
			}
			return flow.Wait[json.RawMessage](run, "never", "never")
		}),
		flow.Program("p-parent", func(run *flow.Run, n int) (int, error) {
			a := flow.StartInvoke[int](run, "definition", flow.Definition(seq), n)
			b := flow.StartInvoke[int](run, "program", flow.ProgramNamed("p-steps"), n)
			x, err := a.Get(run)
			if err != nil {
				return 0, err
			}
			y, err := b.Get(run)
			return x + y, err
		}),
	}
}

// newProgrammed is a fleet on which programs, and some definitions, are at work,
// in so many servers of the test's own process.
func newProgrammed(f *fleet, servers int) (w *crashed, done *tally) {
	f.t.Helper()
	w = newCrashed(f)
	w.breeds = append(append([]breed{}, programBreeds...), breeds[0], breeds[5])
	done = newTally()
	for range servers {
		f.programs(flow.Options{DrainTimeout: time.Second}, programsOf(w.undone, done)...)
	}
	return w, done
}

// Workers are killed one after another while programs are driven. Their bodies go
// on, and no step is done twice, as no process of a program was lost.
func TestPrograms03WorkersAreKilled(t *testing.T) {
	t.Parallel()
	inFlight, kills := 100, 4
	if testing.Short() {
		inFlight, kills = 50, 2
	}
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	c := newCrew(f, 3)
	w, done := newProgrammed(f, 2)
	enough := w.beneath(inFlight)
	for range kills {
		w.goesOn(inFlight / 2)
		c.kill(c.oldest())
		c.hire()
		c.settled()
	}
	enough()
	w.allTold()
	w.check()
	for _, step := range done.keys() {
		if n := len(done.of(step)); n != 1 {
			t.Errorf("step %s was done %d times", step, n)
		}
	}
	t.Logf("%d kills, %d runs", kills, len(w.runs))
}

// The server is killed again and again, at any moment, while programs are driven.
func TestPrograms03ServerIsKilled(t *testing.T) {
	t.Parallel()
	inFlight, kills := 50, 8
	if testing.Short() {
		kills = 3
	}
	chance := rand.New(rand.NewPCG(choose(t), 3))
	p := newPlant(t)
	f := connect(t, p.url())
	newCrew(f, 2)
	w, _ := newProgrammed(f, 2)
	enough := w.beneath(inFlight)
	w.goesOn(1)
	for range kills {
		w.live(p.server, ready, chance)
		p.server.kill()
		p.up()
		w.goesOn(1)
	}
	enough()
	w.allTold()
	w.check()
	t.Logf("%d kills, %d runs", kills, len(w.runs))
}
