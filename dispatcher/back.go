package dispatcher

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/subjects"
)

// takesBack reports whether an effect takes back what another one has sent.
func takesBack(e machine.Effect) bool {
	return e.Kind == machine.EffectCancel || e.Kind == machine.EffectWithdraw || e.Kind == machine.EffectStop
}

// inLine reports whether an effect has to keep its place in a batch that takes
// something back: it does that, or it sends what may be taken back.
func inLine(e *machine.Effect) bool {
	switch e.Kind {
	case machine.EffectCall, machine.EffectStart, machine.EffectDrive:
		return true
	case machine.EffectDeliver:
		return e.Call != nil
	default:
		return takesBack(*e)
	}
}

// actInLine performs effects in their order, as far as it matters: a call that is
// still on its way would survive, a child that is not there yet cannot be stopped,
// and what is sent again must not go with what was there before.
func (d *Dispatcher) actInLine(line []*machine.Effect) error {
	for len(line) > 0 {
		n, back := 1, takesBack(*line[0])
		for n < len(line) && takesBack(*line[n]) == back {
			n++
		}
		act := d.actSlowly
		if back {
			act = d.takeBack
		}
		if err := act(line[:n]); err != nil {
			return err
		}
		line = line[n:]
	}
	return nil
}

// takeBack performs effects that take something back. Those of the calls of one
// function need only one look at its queue.
func (d *Dispatcher) takeBack(effects []*machine.Effect) error {
	var functions []drover.FunctionName
	unwanted := map[drover.FunctionName][]*machine.Call{}
	stops, ends := 0, make(chan error, len(effects))
	for _, e := range effects {
		switch {
		case e.Kind == machine.EffectStop:
			stops++
			d.send(e.To, drover.VerbStop, e.Stop, func(err error) { ends <- err })
		case e.Call == nil:
			if err := d.withdraw(e.Run, e.Functions); err != nil {
				return err
			}
		default:
			if unwanted[e.Call.Function] == nil {
				functions = append(functions, e.Call.Function)
			}
			unwanted[e.Call.Function] = append(unwanted[e.Call.Function], e.Call)
		}
	}
	for _, function := range functions {
		if err := d.cancelCalls(function, unwanted[function]); err != nil {
			return err
		}
	}
	var first error
	for range stops {
		if err := <-ends; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// tellUnwanted tells the instances of a function that a call, or for "" every call,
// of a run is not wanted any more. Nobody may be there to hear it.
func (d *Dispatcher) tellUnwanted(run drover.RunID, function drover.FunctionName, call string) error {
	return d.opts.Conn.Publish(d.opts.Names.Cancel(run, function), []byte(call))
}

// withdraw takes all calls of a run to some functions out of the queue, and tells who
// has taken some already. It goes function by function: compensations, and deliveries
// of the run's outcome to functions, are queued under the same run, and must stay.
func (d *Dispatcher) withdraw(run drover.RunID, functions []drover.FunctionName) error {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	stream, err := d.callStream(ctx)
	if err != nil {
		return unavailable(err)
	}
	for _, function := range functions {
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(d.opts.Names.Call(run, function))); err != nil {
			return unavailable(err)
		}
		if err := d.tellUnwanted(run, function, ""); err != nil {
			return err
		}
	}
	return nil
}

// cancelCalls takes some calls of a run to one function out of the queue, each by its
// id and its token, and tells who has taken one already: others of the run are in the
// same queue, and wanted. Where the calls are not there it costs one read.
//
// Each request has a time of its own: a run may have many calls in a queue, and a
// walk that is cut off would begin anew for ever.
func (d *Dispatcher) cancelCalls(function drover.FunctionName, calls []*machine.Call) error {
	ctx := context.Background()
	var stream jetstream.Stream
	err := within(ctx, func(ctx context.Context) (err error) {
		stream, err = d.callStream(ctx)
		return err
	})
	if err != nil {
		return unavailable(err)
	}
	run, tokens := calls[0].ID.Run, map[string]string{}
	for _, c := range calls {
		tokens[c.ID.String()] = c.Token
	}
	subject := d.opts.Names.Call(run, function)
	found, before, err := search(ctx, stream, subject, tokens)
	if err == nil {
		err = takeOut(ctx, stream, subject, found, before)
	}
	if err != nil {
		return unavailable(err)
	}
	for _, c := range calls { // last: nobody can take it any more
		if err := d.tellUnwanted(run, function, c.ID.String()); err != nil {
			return err
		}
	}
	return nil
}

// within gives one request a time of its own.
func within(ctx context.Context, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	return request(ctx)
}

// search finds queued calls by their ids and tokens: a call may be there twice. Up to
// before there are no others on the subject.
func search(ctx context.Context, stream jetstream.Stream, subject string, tokens map[string]string) (found []uint64, before uint64, err error) {
	for next := uint64(1); ; {
		var m *jetstream.RawStreamMsg
		err := within(ctx, func(ctx context.Context) (err error) {
			m, err = stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if before == 0 {
				before = next
			}
			return found, before, nil
		}
		if err != nil {
			return nil, 0, err
		}
		next = m.Sequence + 1
		token, ok := tokens[m.Header.Get(subjects.HeaderCall)]
		switch {
		case ok && token == m.Header.Get(subjects.HeaderToken):
			found = append(found, m.Sequence)
		case before == 0:
			before = m.Sequence
		}
	}
}

// isQueued reports whether a call is in the queue, or under way.
func (d *Dispatcher) isQueued(c *machine.Call) (bool, error) {
	ctx, cancel := context.WithTimeout(d.ends, loadTimeout)
	defer cancel()
	stream, err := d.callStream(ctx)
	if err != nil {
		return false, unavailable(err)
	}
	found, _, err := search(ctx, stream, d.opts.Names.Call(c.ID.Run, c.Function), map[string]string{c.ID.String(): c.Token})
	if err != nil {
		return false, unavailable(err)
	}
	return len(found) > 0, nil
}

// takeOut takes messages out of a stream: those before a sequence at once, as there
// are no others on their subject, the rest one by one.
func takeOut(ctx context.Context, stream jetstream.Stream, subject string, found []uint64, before uint64) error {
	at, _ := slices.BinarySearch(found, before)
	if at > 1 {
		err := within(ctx, func(ctx context.Context) error {
			return stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(before))
		})
		if err != nil {
			return err
		}
		found = found[at:]
	}
	for _, seq := range found {
		err := within(ctx, func(ctx context.Context) error { return stream.DeleteMsg(ctx, seq) })
		if err == nil {
			continue
		}
		if _, gone := stream.GetMsg(ctx, seq); !errors.Is(gone, jetstream.ErrMsgNotFound) { // else it was done meanwhile
			return err
		}
	}
	return nil
}
