package flow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// author writes bodies by chance: what each does follows from its seed alone.
type author struct {
	r    *rand.Rand
	next int
	mu   sync.Mutex
	done map[string]int // how often each step was done
}

// did counts: steps run at the same time.
func (a *author) did(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done[id]++
	return a.done[id]
}

func (a *author) id(kind string) string {
	a.next++
	return fmt.Sprintf("%s%d", kind, a.next)
}

type action func(run *flow.Run) (string, error)

// step fails now and then, and can be undone.
func (a *author) step() action {
	id, bad := a.id("step"), a.r.IntN(4)
	return func(run *flow.Run) (string, error) {
		return flow.Step(run, id, func(context.Context) (string, error) {
			switch n := a.did(id); {
			case bad == 0 && n < 3:
				return "", errors.New("not yet")
			case bad == 1:
				return "", flow.Fatal(errors.New("never"))
			}
			return id, nil
		}, flow.Retry{}, flow.Compensate(func(context.Context, string) error { return nil }))
	}
}

func (a *author) pause() action {
	id, d := a.id("sleep"), time.Duration(a.r.IntN(100))*time.Minute
	return func(run *flow.Run) (string, error) { return id, run.Sleep(id, d) }
}

func (a *author) wait() action {
	id, name := a.id("wait"), fmt.Sprint("n", a.r.IntN(2))
	return func(run *flow.Run) (string, error) {
		got, err := flow.Wait[int](run, id, name, flow.Timeout(3*time.Hour))
		return fmt.Sprint(id, "=", got), err
	}
}

func (a *author) call() action {
	id := a.id("call")
	return func(run *flow.Run) (string, error) { return flow.Call[string](run, id, "echo", id, flow.Retry{}) }
}

// group is several actions beside each other, or in a row.
func (a *author) group(depth int) action {
	var list []action
	for range 1 + a.r.IntN(4) {
		list = append(list, a.some(depth-1))
	}
	how, settle, limit := a.r.IntN(4), a.r.IntN(2) == 0, a.r.IntN(3)
	return func(run *flow.Run) (string, error) {
		out := make([]string, len(list))
		switch how {
		case 0:
			var branches []func(*flow.Run) error
			for i, act := range list {
				branches = append(branches, func(run *flow.Run) (err error) { out[i], err = act(run); return err })
			}
			err := flow.Parallel(run, flow.ParallelOptions{Settle: settle, Limit: limit}, branches...)
			return fmt.Sprint(out), err
		case 1:
			var futures []flow.Awaitable
			var all []*flow.Future[string]
			for _, act := range list {
				f := flow.Go(run, act)
				futures, all = append(futures, f), append(all, f)
			}
			first, err := flow.Select(run, futures...)
			if err != nil {
				return "", err
			}
			return all[first].Get(run)
		case 2:
			err := run.Group("g", func(run *flow.Run) error { return inRow(run, list, out) })
			return fmt.Sprint(out), err
		}
		return fmt.Sprint(out), inRow(run, list, out)
	}
}

func inRow(run *flow.Run, list []action, out []string) (err error) {
	for i, act := range list {
		if out[i], err = act(run); err != nil {
			return err
		}
	}
	return nil
}

func (a *author) some(depth int) action {
	if depth > 0 && a.r.IntN(2) == 0 {
		return a.group(depth)
	}
	return []func() action{a.step, a.pause, a.wait, a.call}[a.r.IntN(4)]()
}

// random runs a body in several worlds, some of which are full of death. Steps at
// the same time end in any order, so that worlds need not agree; but each body must
// agree with its own journal.
func random(t *testing.T, seed uint64) {
	a := &author{r: rand.New(rand.NewPCG(seed, 7)), done: map[string]int{}}
	act := a.group(3)
	stop := a.r.IntN(4) == 0
	stopAt := time.Duration(a.r.IntN(200)) * time.Minute
	def := flow.Program("random", func(run *flow.Run, _ any) (string, error) {
		out, err := act(run)
		return out, err
	})
	for world := range 4 {
		flowtest.Run(t, def, nil, func(e *flowtest.Env) {
			a.reset()
			if world&1 != 0 {
				e.Dies()
			}
			if world&2 != 0 {
				e.Eager()
			}
			e.Function("echo", func(in raw) (any, error) { return in, nil })
			for i := range 4 {
				e.After(time.Duration(i*i)*30*time.Minute, func() { e.Deliver(fmt.Sprint("n", i%2), i) })
			}
			if stop {
				e.After(stopAt, func() { e.Stop("by chance") })
			}
		})
	}
}

func (a *author) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.done)
}

func TestProgramsOfChance(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { random(t, seed) })
	}
}

func FuzzProgram(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(random)
}
