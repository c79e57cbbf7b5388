package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

func TestCrewEndsInTheOppositeOrder(t *testing.T) {
	var ended []string
	part := func(name string, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			ended = append(ended, name) // the crew lets no two parts end at the same time
			return err
		}
	}
	boom := errors.New("boom")
	c := newCrew()
	c.start(t.Context(), "a", part("a", nil))
	c.onStop(func() error { ended = append(ended, "b"); return boom })
	c.start(t.Context(), "c", part("c", nil))
	if err := c.stop(); !errors.Is(err, boom) {
		t.Errorf("stop gave %v, want the error of b", err)
	}
	if want := []string{"c", "b", "a"}; !slices.Equal(ended, want) {
		t.Errorf("ended %v, want %v", ended, want)
	}
	if err := c.stop(); err != nil || len(ended) != 3 {
		t.Errorf("a second stop gave %v and ended %v", err, ended)
	}
}

func TestCrewTellsOfAPartThatEndsByItself(t *testing.T) {
	c := newCrew()
	boom := errors.New("boom")
	c.start(t.Context(), "the worker", func(context.Context) error { return boom })
	err := <-c.failed
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "the worker") {
		t.Errorf("told %v, want the name and the error", err)
	}
	c.start(t.Context(), "another", func(context.Context) error { return nil })
	if err := <-c.failed; !errors.Is(err, errUnasked) {
		t.Errorf("a part that ended without an error was told as %v", err)
	}
	if err := c.stop(); err != nil {
		t.Errorf("stop gave %v, which was told already", err)
	}
}

func TestUntilInterruptedEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	go func() { <-started; cancel() }()
	ended := false
	err := untilInterrupted(ctx, "part", func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		ended = true
		return nil
	}, zerolog.Nop())
	if err != nil || !ended {
		t.Errorf("gave %v, and the part has ended: %v", err, ended)
	}
}
