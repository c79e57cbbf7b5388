package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
)

const (
	// lookTime is how long a process that was asked directly may take to answer a
	// look. One that does not is there, and hangs: its lease is for that.
	lookTime = time.Second
	// sightTime is how long it may take to find out whether anybody serves a function,
	// and sightLasts how long that is known then, for all runs. A run looks again later
	// than both.
	sightTime  = 1500 * time.Millisecond
	sightLasts = time.Second
)

// nobodysRun is in the subject of a cancel that is for no run at all.
const nobodysRun drover.RunID = "_look"

// look finds out whether the process is there that a drive is waiting for, and
// tells the run where it is not. It holds up nothing, and where it cannot be known, or
// too many look already, it says nothing: the run looks again.
func (d *Dispatcher) look(e *machine.Effect) {
	by := looker{e.Run, *e.Look}
	if e.Inbox == "" {
		d.lookForAny(e.Call.Function, by)
		return
	}
	data, err := rawjson.Encode(e.Drive)
	if err != nil || !d.mayAsk(&d.looking) {
		return
	}
	inbox := e.Inbox
	go func() {
		defer d.leave(&d.looking)
		if !d.drives(inbox, data) {
			d.nobody(by)
		}
	}()
}

// looker is a run that looks for a process.
type looker struct {
	run  drover.RunID
	look drover.LookedMessage
}

// nobody tells a run that nobody was found.
func (d *Dispatcher) nobody(by looker) {
	data, _ := json.Marshal(&by.look) // numbers and text
	d.later(&nats.Msg{Subject: d.opts.Names.In(by.run, drover.VerbLooked), Data: data}, nil)
}

// drives asks a process whether it has a drive that it was asked for directly.
func (d *Dispatcher) drives(inbox string, data []byte) bool {
	if d.opts.Names.Foreign(inbox) != nil {
		return false // it was never asked
	}
	ctx, cancel := context.WithTimeout(d.ends, lookTime)
	defer cancel()
	m, err := d.opts.Conn.RequestWithContext(ctx, inbox, data)
	if err != nil {
		return !errors.Is(err, nats.ErrNoResponders)
	}
	return taken(m)
}

// sighting is what was found out of who serves a function.
type sighting struct {
	began   time.Time
	over    bool
	missing bool     // nobody does
	waiting []looker // to hear of it
}

// sightings are the latest, by function.
type sightings struct {
	mu sync.Mutex
	of map[drover.FunctionName]*sighting
}

// lookForAny finds out whether anybody serves a function, once for all runs that
// ask at the same time.
func (d *Dispatcher) lookForAny(function drover.FunctionName, by looker) {
	d.sights.mu.Lock()
	defer d.sights.mu.Unlock()
	old := func(_ drover.FunctionName, s *sighting) bool { return s.over && time.Since(s.began) >= sightLasts }
	switch s := d.sights.of[function]; {
	case s != nil && !s.over:
		s.waiting = append(s.waiting, by)
		return
	case s != nil && !old(function, s):
		if s.missing {
			d.nobody(by)
		}
		return
	}
	if !d.mayAsk(&d.looking) {
		return
	}
	maps.DeleteFunc(d.sights.of, old)
	s := &sighting{began: time.Now(), waiting: []looker{by}}
	d.sights.of[function] = s
	go func() {
		defer d.leave(&d.looking)
		d.sight(function, s)
	}()
}

// sight finds out whether anybody serves a function, and tells those who wait.
func (d *Dispatcher) sight(function drover.FunctionName, s *sighting) {
	found, err := d.served(function)
	if err != nil {
		d.quiet.Warn().Err(err).Str("function", string(function)).Msg("whether anybody is there who drives a program is not known")
	}
	d.sights.mu.Lock()
	s.over, s.missing = true, err == nil && !found
	waiting := s.waiting
	s.waiting = nil
	d.sights.mu.Unlock()
	if !s.missing {
		return
	}
	for _, by := range waiting {
		d.nobody(by)
	}
}

// served reports whether any process serves a function: one that asks for calls, or
// one that has some and answers. (What a dead one has not acknowledged counts as its
// own until another one asks; and whoever only listens to all cancels does not
// answer.)
func (d *Dispatcher) served(function drover.FunctionName) (bool, error) {
	ctx, cancel := context.WithTimeout(d.ends, sightTime)
	defer cancel()
	stream, err := d.callStream(ctx)
	if err != nil {
		return false, err
	}
	c, err := stream.Consumer(ctx, d.opts.Names.Consumer(function))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	info := c.CachedInfo()
	if info.NumWaiting > 0 || info.NumAckPending == 0 {
		return info.NumWaiting > 0, nil
	}
	_, err = d.opts.Conn.RequestWithContext(ctx, d.opts.Names.Cancel(nobodysRun, function), []byte(nobodysRun))
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// letter keeps a dead letter of a run.
func (d *Dispatcher) letter(e *machine.Effect, done func(error)) {
	data, err := rawjson.Encode(e.Letter)
	if err != nil {
		done(err)
		return
	}
	d.publish(&nats.Msg{Subject: d.opts.Names.Dead(d.partition(e.Run), e.Letter.Sequence), Data: data}, done)
}
