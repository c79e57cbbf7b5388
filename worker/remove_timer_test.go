package worker

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/subjects"
)

// left says how many timers and calls there are of a run.
func (g *ground) left(run drover.RunID) (n int) {
	g.t.Helper()
	for stream, filter := range map[string]string{g.names.Commands(): g.names.TimersOf(run), g.names.Calls(): g.names.CallsOf(run)} {
		s, err := g.js.Stream(g.t.Context(), stream)
		if err != nil {
			g.t.Fatal(err)
		}
		info, err := s.Info(g.t.Context(), jetstream.WithSubjectFilter(filter))
		if err != nil {
			g.t.Fatal(err)
		}
		for _, count := range info.State.Subjects {
			n += int(count)
		}
	}
	return n
}

// forlorn stores a timer that is due in a month, and a call that nobody takes.
func (g *ground) forlorn(run drover.RunID, applied uint64) {
	g.t.Helper()
	timer := nats.NewMsg(g.names.Timer(run, applied))
	timer.Header.Set(subjects.HeaderSchedule, "@at 2199-01-01T00:00:00Z")
	timer.Header.Set(subjects.HeaderScheduleTarget, g.names.In(run, drover.VerbTick))
	for _, m := range []*nats.Msg{timer, nats.NewMsg(g.names.Call(run, "nobody.there"))} {
		if _, err := g.js.PublishMsg(g.t.Context(), m); err != nil {
			g.t.Fatal(err)
		}
	}
}

// What a run left in the queue, and for the server to wake it, goes with it: and
// nothing of another one, also where that has its id.
func TestTimersAndCallsOfARunGoWithIt(t *testing.T) {
	g := newGround(t)
	for _, run := range []drover.RunID{"r", "rr"} {
		g.forlorn(run, 1)
	}
	s := g.old("r")
	s.Timer = machine.Millis(later.UnixMilli())
	if _, err := g.commit(s, 0); err != nil {
		t.Fatal(err)
	}
	f := whole()
	again := false
	f.before = func(write string) {
		if write == "values" && !again {
			again = true
			g.forlorn("r", 2) // of a new run: this removal is late
		}
	}
	if err := g.worker(f).cleanRuns(t.Context(), soon); err != nil {
		t.Fatal(err)
	}
	if r, other := g.left("r"), g.left("rr"); r != 2 || other != 2 {
		t.Errorf("%d timers and calls are left of the run, %d of the other one, want 2 of each", r, other)
	}
}

// A run that was folded while the clock of the server was ahead stands in front of
// all others, and keeps none of them.
func TestARunOfTheFutureKeepsNoOther(t *testing.T) {
	g := newGround(t)
	ahead := g.old("ahead")
	ahead.Now = machine.Millis(later.AddDate(0, 1, 0).UnixMilli())
	ahead.Ended = ahead.Now
	for _, s := range []*machine.State{ahead, g.old("r")} {
		if _, err := g.commit(s, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.worker(whole()).cleanRuns(t.Context(), soon); err != nil {
		t.Fatal(err)
	}
	if g.there("r") || !g.there("ahead") {
		t.Errorf("there is the old run: %t, the one of the future: %t", g.there("r"), g.there("ahead"))
	}
}
