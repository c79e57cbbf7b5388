package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
)

// ends drives a body until its only step runs, and then has it stopped.
func ends(t *testing.T, body func(run *flow.Run, slow func(context.Context) (string, error)) error) *drover.DriveEnd {
	t.Helper()
	running := make(chan struct{})
	slow := func(ctx context.Context) (string, error) {
		close(running)
		<-ctx.Done()
		return "", fmt.Errorf("charging: %w", ctx.Err())
	}
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) { return nil, body(run, slow) })
	o := &owner{}
	o.answer = o.keep
	b := def.NewBody(o, flow.BodyOptions{})
	go func() {
		<-running
		o.mu.Lock()
		o.journal.Entries++
		o.journal.Journal = append(o.journal.Journal, drover.Entry{Number: o.journal.Entries, Kind: drover.EntryStop, ID: "customer left"})
		entries := o.journal.Entries
		o.mu.Unlock()
		b.Nudge(entries)
	}()
	end, err := b.Drive(t.Context(), request(1), 1)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// A step that gives up as its run is stopped has the reason of that as its error,
// whatever it makes of the end of its context.
func TestPrograms07AStopDuringAStepKeepsItsReason(t *testing.T) {
	for name, opts := range map[string][]flow.StepOption{"once": nil, "tried again": {flow.Retry{}}} {
		end := ends(t, func(run *flow.Run, slow func(context.Context) (string, error)) error {
			_, err := flow.Step(run, "charge", slow, opts...)
			return err
		})
		if end.Status != drover.DriveCancelled || end.Error.Code != drover.CodeStopped || !strings.Contains(end.Error.Message, "customer left") {
			t.Errorf("%s: it ended %s: %v", name, end.Status, end.Error)
		}
	}
}

// What a step says of itself as its run is stopped is its own.
func TestPrograms07AStepThatFailsDuringAStop(t *testing.T) {
	end := ends(t, func(run *flow.Run, slow func(context.Context) (string, error)) error {
		_, err := flow.Step(run, "charge", func(ctx context.Context) (string, error) {
			_, _ = slow(ctx)
			return "", errors.New("no money")
		})
		return err
	})
	if end.Error.Code != drover.CodeFailed || end.Error.Message != "no money" {
		t.Errorf("it ended %s: %v", end.Status, end.Error)
	}
}

// So has one whose branch was cancelled: its error says what ended it.
func TestProgramsAStepOfACancelledBranchSaysWhy(t *testing.T) {
	running := make(chan struct{})
	var loser error
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		return nil, flow.Parallel(run, flow.ParallelOptions{}, func(run *flow.Run) error {
			_, loser = flow.Step(run, "slow", func(ctx context.Context) (any, error) {
				close(running)
				<-ctx.Done()
				return nil, ctx.Err()
			})
			return loser
		}, func(run *flow.Run) error {
			_, err := flow.Step(run, "fails", func(context.Context) (any, error) {
				<-running
				return nil, errors.New("no seat")
			})
			return err
		})
	})
	o := &owner{}
	o.answer = o.keep
	end, err := def.NewBody(o, flow.BodyOptions{}).Drive(t.Context(), request(1), 1)
	if err != nil || end.Error.Message != "no seat" {
		t.Fatalf("%+v %v", end, err)
	}
	if !errors.Is(loser, drover.CodeStopped) || !strings.Contains(loser.Error(), "another branch failed: no seat") {
		t.Errorf("the other one got %v", loser)
	}
}
