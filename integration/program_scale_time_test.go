package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
)

// Steps whose times are compared: those of a run that has done so many, and as many
// of one that begins.
const stepsBefore, stepsTimed = 900, 100

// pace has two bodies do steps in turn, so that whatever else the machine does
// meets both alike.
type pace struct {
	turns [2]chan struct{}
	took  [2]chan []time.Duration
}

func newPace() *pace {
	p := &pace{}
	for i := range 2 {
		p.turns[i], p.took[i] = make(chan struct{}, 1), make(chan []time.Duration, 1)
	}
	p.turns[0] <- struct{}{}
	return p
}

// steps does steps from a number on, one each time that it is this body's turn, and
// tells how long each took.
func (p *pace) steps(run *flow.Run, body, from int) error {
	var took []time.Duration
	for i := range stepsTimed {
		<-p.turns[body]
		begun := time.Now()
		_, err := flow.Step(run, fmt.Sprint("step", from+i), func(context.Context) (string, error) { return "some output", nil })
		took = append(took, time.Since(begun))
		p.turns[1-body] <- struct{}{}
		if err != nil {
			return err
		}
	}
	p.took[body] <- took
	return nil
}

// median is what half of them take at most.
func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}

// The last steps of a thousand take as long as the first of another run, which are
// done between them. As others use the machine as well, what counts is the best of
// some rounds: a cost that grows with the journal is there in all of them.
func TestPrograms16TimeOfAStep(t *testing.T) {
	t.Parallel()
	const rounds, most = 8, 1.3
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	paces := make(chan *pace, 2)
	serve := func(name string, body, before int) *flow.Def {
		return flow.Program(name, func(run *flow.Run, _ any) (any, error) {
			for i := range before {
				if _, err := flow.Step(run, fmt.Sprint("step", i), func(context.Context) (string, error) { return "some output", nil }); err != nil {
					return nil, err
				}
			}
			return nil, (<-paces).steps(run, body, before)
		})
	}
	f.programs(flow.Options{}, serve("young", 0, 0), serve("old", 1, stepsBefore))
	best := 0.0
	for round := range rounds {
		p := newPace()
		paces <- p
		paces <- p
		for _, program := range []string{"old", "young"} {
			f.begins(drover.RunID(fmt.Sprint(program, round)), program, "null")
		}
		first, last := median(await(t, p.took[0], "the first steps")), median(await(t, p.took[1], "the last steps"))
		ratio := float64(last) / float64(first)
		t.Logf("the first %d steps take %s each, those from %d on %s: %.2f", stepsTimed, first, stepsBefore, last, ratio)
		if best == 0 || ratio < best {
			best = ratio
		}
		if best <= most {
			return
		}
	}
	t.Errorf("the last steps take %.2f of the time of the first ones in the best of %d rounds", best, rounds)
}
