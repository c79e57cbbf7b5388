package worker_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
)

var (
	races    = flag.Int("races", 200, "how often each race of hooks is run")
	raceSeed = flag.Uint64("race-seed", 1, "decides who is a little ahead in the races")
)

// racing is a fleet in which two things happen at the same time, again and again.
type racing struct {
	*client.Client
	t      *testing.T
	server *natstest.Server
	nc     *nats.Conn
}

// The definitions of the racers. The token is the input.
var racers = map[drover.WorkflowName]string{
	"one": `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: "${{ input }}"}}`,
	"taking": `
output: {from: node:end}
nodes:
  inbox: {wait: {hook: "${{ input }}", hold: true}}
  go: {wait: {name: go}, depends_on: [inbox]}
  end: {release: {hook: inbox, unread: take}, depends_on: [go]}`,
}

func newRacing(t *testing.T) *racing {
	t.Helper()
	s := natstest.New(t)
	begin(t, s, "a")
	begin(t, s, "b")
	r := &racing{t: t, server: s, nc: s.Connect()}
	for name, definition := range racers {
		r.Client = put(t, r.nc, name, definition)
	}
	return r
}

// rounds runs a race many times, several at a time. Each has a token of its own,
// and chance for a head start.
func (r *racing) rounds(race func(token string, rng *rand.Rand) error) {
	r.t.Helper()
	n := *races
	if testing.Short() {
		n /= 10
	}
	var group sync.WaitGroup
	next := make(chan int)
	for range 8 {
		group.Go(func() {
			for i := range next {
				rng := rand.New(rand.NewPCG(*raceSeed, uint64(i)))
				if err := race(fmt.Sprintf("token %d", i), rng); err != nil {
					r.t.Errorf("round %d of -race-seed %d: %v", i, *raceSeed, err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}

// together runs both at the same time, in an order that chance decides.
func together(rng *rand.Rand, racers ...func()) {
	rng.Shuffle(len(racers), func(i, j int) { racers[i], racers[j] = racers[j], racers[i] })
	var group sync.WaitGroup
	for _, racer := range racers {
		group.Go(racer)
	}
	group.Wait()
}

func (r *racing) start(workflow drover.WorkflowName, run drover.RunID, token string) error {
	input, err := json.Marshal(token)
	if err == nil {
		_, err = r.Start(r.t.Context(), drover.StartRequest{Workflow: workflow, RunID: run, Input: input})
	}
	return err
}

// give delivers a number to a token, until it is known what became of it. It is
// false where nobody holds the token.
func (r *racing) give(token, id string, n int) (drover.HookReply, bool, error) {
	reply, err := deliver(r.t.Context(), r.nc, drover.HookRequest{Token: token, ID: id, Payload: json.RawMessage(fmt.Sprint(n))})
	if errors.Is(err, drover.CodeNotFound) {
		return reply, false, nil
	}
	return reply, err == nil, err
}

// taken waits until a token is held by a node of a run; of any where run is "". For
// a moment after its end the one before has it still, as far as can be seen.
func (r *racing) taken(token string, run drover.RunID) error {
	for end := time.Now().Add(patience); ; {
		h, err := r.ShowHook(r.t.Context(), token)
		if err == nil && h.Node != "" && (run == "" || h.RunID == run) || err != nil && !errors.Is(err, drover.CodeNotFound) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("nobody takes %s", token)
		}
	}
}

// ended waits for the outcome of a run.
func (r *racing) ended(run drover.RunID, status drover.Status, result string) (drover.Outcome, error) {
	o, err := r.Wait(r.t.Context(), run)
	if err == nil && (o.Status != status || result != "" && string(o.Result) != result) {
		err = fmt.Errorf("run %s: %s %s, %v; want %s %s", run, o.Status, o.Result, o.Error, status, result)
	}
	return o, err
}

func TestHooks01ClaimRacesClaim(t *testing.T) {
	r := newRacing(t)
	r.rounds(func(token string, rng *rand.Rand) error {
		runs := []drover.RunID{drover.RunID("x" + token[6:]), drover.RunID("y" + token[6:])}
		var errs [2]error
		together(rng, func() { errs[0] = r.start("one", runs[0], token) }, func() { errs[1] = r.start("one", runs[1], token) })
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		if err := r.taken(token, ""); err != nil {
			return err
		}
		h, err := r.ShowHook(t.Context(), token)
		if err != nil {
			return err
		}
		loser := runs[1-slices.Index(runs, h.RunID)]
		o, err := r.ended(loser, drover.StatusFailed, "")
		if err == nil && !strings.Contains(o.Error.Message, string(h.RunID)+" since ") {
			err = fmt.Errorf("the loser is told %v, and %s has the token", o.Error, h.RunID)
		}
		return err
	})
}

func TestHooks11ClaimRacesDelivery(t *testing.T) {
	r := newRacing(t)
	r.rounds(func(token string, rng *rand.Rand) error {
		run := drover.RunID("r" + token[6:])
		var there bool
		var errs [2]error
		together(rng, func() { errs[0] = r.start("one", run, token) }, func() { _, there, errs[1] = r.give(token, "1", 1) })
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		if !there {
			if err := r.taken(token, ""); err != nil {
				return err
			}
			if _, there, err := r.give(token, "2", 1); !there {
				return fmt.Errorf("the token is taken, and a delivery finds nobody: %w", err)
			}
		}
		_, err := r.ended(run, drover.StatusCompleted, "1")
		return err
	})
}

func TestHooks15DeliveryRacesRelease(t *testing.T) {
	r := newRacing(t)
	r.rounds(func(token string, rng *rand.Rand) error {
		run := drover.RunID("r" + token[6:])
		if err := r.start("taking", run, token); err != nil {
			return err
		}
		if err := r.taken(token, ""); err != nil {
			return err
		}
		if _, there, err := r.give(token, "1", 1); !there {
			return fmt.Errorf("the first delivery finds nobody: %w", err)
		}
		var there bool
		var errs [2]error
		together(rng, func() { _, errs[0] = r.Deliver(t.Context(), drover.DeliverRequest{RunID: run, Name: "go"}) },
			func() { _, there, errs[1] = r.give(token, "2", 2) })
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		want := "[]"
		if there {
			want = "[2]"
		}
		_, err := r.ended(run, drover.StatusCompleted, want)
		return err
	})
}

func TestHooks16DeliveryRacesTheEndOfTheRun(t *testing.T) {
	r := newRacing(t)
	r.rounds(func(token string, rng *rand.Rand) error {
		run := drover.RunID("r" + token[6:])
		if err := r.start("one", run, token); err != nil {
			return err
		}
		if err := r.taken(token, ""); err != nil {
			return err
		}
		var there [2]bool
		var errs [2]error
		together(rng, func() { _, there[0], errs[0] = r.give(token, "1", 1) }, func() { _, there[1], errs[1] = r.give(token, "2", 2) })
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		if there[0] == there[1] {
			return fmt.Errorf("a run that reads one delivery accepted: %v", there)
		}
		want := "1"
		if there[1] {
			want = "2"
		}
		_, err := r.ended(run, drover.StatusCompleted, want)
		return err
	})
}

func TestHooks16StopRacesDelivery(t *testing.T) {
	r := newRacing(t)
	r.rounds(func(token string, rng *rand.Rand) error {
		run := drover.RunID("r" + token[6:])
		if err := r.start("one", run, token); err != nil {
			return err
		}
		if err := r.taken(token, ""); err != nil {
			return err
		}
		var there bool
		var errs [2]error
		together(rng, func() { _, errs[0] = r.Stop(t.Context(), run, "") }, func() { _, there, errs[1] = r.give(token, "1", 1) })
		if errs[1] != nil || errs[0] != nil && !errors.Is(errs[0], drover.CodeTerminal) {
			return errors.Join(errs[:]...)
		}
		if there {
			_, err := r.ended(run, drover.StatusCompleted, "1")
			return err
		}
		_, err := r.ended(run, drover.StatusCancelled, "")
		return err
	})
}

// A token is free once the end of its run is visible, and an id is known after.
func TestHooks06And08ReleaseRacesClaim(t *testing.T) {
	r := newRacing(t)
	r.rounds(func(token string, rng *rand.Rand) error {
		var before drover.RunID
		for k := range 4 {
			run := drover.RunID(fmt.Sprintf("r%s-%d", token[6:], k))
			if err := r.start("one", run, token); err != nil {
				return err
			}
			if err := r.taken(token, run); err != nil {
				return err
			}
			reply, there, err := r.give(token, fmt.Sprint(k), k)
			if !there || reply.RunID != run {
				return fmt.Errorf("delivery %d goes to %q, where %s has the token: %w", k, reply.RunID, run, err)
			}
			if _, err := r.ended(run, drover.StatusCompleted, fmt.Sprint(k)); err != nil {
				return err
			}
			again, there, err := r.give(token, fmt.Sprint(k-rng.IntN(min(k, 1)+1)), k)
			switch {
			case errors.Is(err, drover.CodeConflict): // the id of the one before, with another payload
			case !there || !again.Repeat || again.RunID != run && again.RunID != before:
				return fmt.Errorf("a repeat of delivery %d gives %+v, %w", k, again, err)
			}
			before = run
		}
		return nil
	})
}
