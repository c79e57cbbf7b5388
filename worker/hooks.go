package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// states reads the states of runs.
type states struct {
	runs       kv.Runs
	partitions int
}

// Load implements hook.Runs.
func (s *states) Load(ctx context.Context, run drover.RunID) (*machine.State, error) {
	rec, err := s.runs.Load(ctx, subjects.RunKey(subjects.Partition(string(run), s.partitions), run))
	if err != nil {
		return nil, err
	}
	return machine.Decode(rec.Data)
}

// sweepHooks mends what crashes leave of claims. One worker of the fleet does it,
// the owner of partition 0.
func (w *Worker) sweepHooks(ctx context.Context) error {
	if !w.owns(0) {
		return nil
	}
	s := &hook.Sweeper{
		Sender:  &hook.Sender{Claims: w.hooks, Reservations: w.hooks, Log: w.dispatcher.Log(), Now: time.Now},
		Scanner: w.hooks,
		Runs:    &states{w.runs, w.settings.Partitions},
	}
	err := s.Sweep(ctx)
	if err == nil {
		return nil
	}
	// Its text would be logged, and may have a token in it, with which anyone may
	// deliver.
	return fmt.Errorf("not all claims of tokens could be mended: %w", drover.CodeOf(err, drover.CodeUnavailable))
}
