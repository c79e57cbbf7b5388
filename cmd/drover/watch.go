package main

import (
	"context"
	"errors"
	"sync"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// watched is a run that is looked at until it is over.
type watched struct {
	client  *client.Client
	id      drover.RunID
	runs    chan *drover.Run // as it is now; not every state of it comes
	end     chan ending      // one, in the end
	running sync.WaitGroup
}

// ending is how a watch ended: with the outcome, or with an error.
type ending struct {
	outcome *drover.Outcome
	err     error
}

// watch looks at a run until it is over or ctx ends.
func watch(ctx context.Context, c *client.Client, id drover.RunID) *watched {
	w := &watched{client: c, id: id, runs: make(chan *drover.Run), end: make(chan ending, 2)}
	w.running.Go(func() {
		w.changes(ctx)
		// The outcome comes after all that leads to it was shown.
		outcome, err := c.Wait(ctx, id)
		w.end <- ending{&outcome, err}
	})
	return w
}

// changes hands on every change that it sees. What keeps it from seeing is no
// error: the outcome comes all the same.
func (w *watched) changes(ctx context.Context) {
	for run, err := range w.client.Watch(ctx, w.id) {
		if err != nil {
			return
		}
		select {
		case w.runs <- &run:
		case <-ctx.Done():
			return
		}
	}
}

// stop asks for the end of the run, and does not wait for the answer.
func (w *watched) stop(ctx context.Context) {
	w.running.Go(func() {
		_, err := w.client.Stop(ctx, w.id, "interrupted at the terminal")
		if err != nil && !errors.Is(err, drover.CodeTerminal) {
			w.end <- ending{err: err}
		}
	})
}

// wait returns when everything that the watch started has ended.
func (w *watched) wait() { w.running.Wait() }
