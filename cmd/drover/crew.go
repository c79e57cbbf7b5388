package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// crew runs the parts of a process that depend on each other in the order of
// their start. They are asked to end in the opposite order, each only when the
// one that was started after it has ended.
type crew struct {
	parts  []*part
	failed chan error // the first part that ended without having been asked to
}

type part struct {
	stop  context.CancelFunc
	ended chan struct{}
	err   error // once ended is closed, unless failed tells it
}

func newCrew() *crew { return &crew{failed: make(chan error, 1)} }

// start runs a part until it is stopped, or until ctx ends.
func (c *crew) start(ctx context.Context, name string, run func(context.Context) error) {
	ctx, stop := context.WithCancel(ctx)
	p := &part{stop: stop, ended: make(chan struct{})}
	c.parts = append(c.parts, p)
	go func() { // stop waits for it
		defer close(p.ended)
		p.err = run(ctx)
		if ctx.Err() != nil {
			return
		}
		if p.err == nil {
			p.err = errUnasked
		}
		select {
		case c.failed <- fmt.Errorf("%s ended: %w", name, p.err):
			p.err = nil // it is told
		default:
		}
	}()
}

var errUnasked = errors.New("nobody had asked it to")

// onStop adds something to do when everything that is started later has ended.
func (c *crew) onStop(do func() error) {
	p := &part{ended: make(chan struct{})}
	p.stop = func() {
		p.err = do()
		close(p.ended)
	}
	c.parts = append(c.parts, p)
}

// stop ends all parts and waits for them. It gives their errors, but not the
// one that failed tells. It may be called again.
func (c *crew) stop() error {
	var errs []error
	for len(c.parts) > 0 {
		p := c.parts[len(c.parts)-1]
		c.parts = c.parts[:len(c.parts)-1]
		p.stop()
		<-p.ended
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

// exitKilled is the exit status after a second signal.
const exitKilled = 130

// interrupts tells the signals that ask the process to end apart: the first is
// a request, the second an order.
type interrupts struct {
	first, second chan struct{}
	signals       chan os.Signal
	quit          chan struct{}
	watching      sync.WaitGroup
}

// catchInterrupts takes SIGINT and SIGTERM from the process until release. A
// third signal ends the process at once.
func catchInterrupts() *interrupts {
	i := &interrupts{
		first: make(chan struct{}), second: make(chan struct{}),
		signals: make(chan os.Signal, 3), quit: make(chan struct{}),
	}
	signal.Notify(i.signals, os.Interrupt, syscall.SIGTERM)
	i.watching.Go(func() {
		for _, told := range []chan struct{}{i.first, i.second} {
			select {
			case <-i.signals:
				close(told)
			case <-i.quit:
				return
			}
		}
		signal.Stop(i.signals)
	})
	return i
}

// release gives the signals back.
func (i *interrupts) release() {
	signal.Stop(i.signals)
	close(i.quit)
	i.watching.Wait()
}
