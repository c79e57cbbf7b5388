package dispatcher

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/subjects"
)

// forgetEffect is of a run whose body has begun anew.
func forgetEffect() machine.Effect {
	return machine.Effect{
		Owed: machine.Owed{Kind: machine.EffectForget, Attempt: 1}, Run: "r1",
		Forget: &machine.Forgotten{Run: "r1", Generation: 1, Began: 9},
	}
}

// What an earlier journal had in the bucket goes, and nothing else; once more is
// harmless.
func TestPrograms16WhatABodyLeftBehindIsRemoved(t *testing.T) {
	f := newFleet(t)
	f.values.swept = make(chan struct{}, 1)
	d, stop := f.dispatcher()
	defer stop()
	old, current := subjects.JournalKey("r1", 0, "line", 1), subjects.JournalKey("r1", 1, "line", 1)
	others := []string{current, subjects.DeliveredKey("r1", 9), subjects.JournalKey("r2", 0, "line", 1)}
	for _, key := range append(others, old, subjects.DeliveredKey("r1", 8)) {
		f.values.put(key, "1")
	}
	for range 2 {
		f.perform(d, forgetEffect())
		await(t, f.values.swept, "the sweep")
		for _, key := range others {
			if f.values.kept[key] == nil {
				t.Errorf("value %s is gone", key)
			}
		}
		if len(f.values.kept) != len(others) {
			t.Errorf("values %v are left", f.values.kept)
		}
	}
}

// A run does not wait for what it has left behind: its next effects are performed
// while the server is slow, or refuses.
func TestPrograms16CleaningUpHoldsUpNothing(t *testing.T) {
	f := newFleet(t)
	f.values.swept = make(chan struct{}, maxSweeping+1)
	f.values.sweep = func(ctx context.Context) error { // until the dispatcher ends
		<-ctx.Done()
		return ctx.Err()
	}
	d, stop := f.dispatcher()
	for range maxSweeping + 10 {
		f.perform(d, forgetEffect(), callEffect("f", `1`))
	}
	if n := f.count(f.names.Calls(), f.names.Call("r1", "f")); n != maxSweeping+10 {
		t.Errorf("%d calls are queued", n)
	}
	if n := d.sweeping.Load(); n != maxSweeping {
		t.Errorf("%d sweeps are under way, may be %d", n, maxSweeping)
	}
	stop()
	if n := len(f.values.swept); n != maxSweeping {
		t.Errorf("%d sweeps have ended with the dispatcher, not %d", n, maxSweeping)
	}
	if log := f.logs.String(); strings.Contains(log, "left behind") {
		t.Errorf("the end of the dispatcher is reported: %s", log)
	}
}

// What cannot be removed is said, once, and is no failure of the run.
func TestPrograms16WhatCannotBeRemovedIsSaid(t *testing.T) {
	f := newFleet(t)
	f.values.swept = make(chan struct{}, 1)
	f.values.sweep = func(context.Context) error { return errors.New("no right to purge") }
	d, stop := f.dispatcher()
	f.perform(d, forgetEffect())
	await(t, f.values.swept, "the sweep")
	stop()
	if log := f.logs.String(); strings.Count(log, "no right to purge") != 1 || !strings.Contains(log, `"run":"r1"`) {
		t.Errorf("the log has %s", log)
	}
}

// When very many runs wake at once, not all of their processes are asked whether
// they have the body: the others go to the queue at once.
func TestPrograms17NotAllAreAskedAtOnce(t *testing.T) {
	f := newFleet(t)
	asked := make(chan *nats.Msg, 2)
	if _, err := f.nc.ChanSubscribe("kept.inbox", asked); err != nil {
		t.Fatal(err)
	}
	d, stop := f.dispatcher()
	defer stop()
	drive := func(run drover.RunID) machine.Effect {
		id := drover.CallID{Run: run, Node: "_drive", Item: drover.NoItem, Attempt: 1}
		return machine.Effect{
			Owed: machine.Owed{Kind: machine.EffectDrive, Attempt: 1}, Run: run, Inbox: "kept.inbox",
			Call:  &machine.Call{ID: id, Function: "program.p", Token: "tok"},
			Drive: &drover.DriveRequest{RunID: run, Program: "p", Drive: 1, Token: "tok"},
		}
	}
	d.asking.Store(maxAsking)
	f.perform(d, drive("r1"))
	d.asking.Store(maxAsking - 1)
	f.perform(d, drive("r2")) // nobody answers
	if m := await(t, asked, "a process that is asked"); !strings.Contains(string(m.Data), `"r2"`) {
		t.Errorf("asked %s", m.Data)
	}
	if n := d.asking.Load(); n != maxAsking-1 {
		t.Errorf("%d of %d places are taken", n, maxAsking)
	}
	for _, run := range []drover.RunID{"r1", "r2"} {
		if n := f.count(f.names.Calls(), f.names.Call(run, "program.p")); n != 1 {
			t.Errorf("%d drives of run %s are queued", n, run)
		}
	}
}
