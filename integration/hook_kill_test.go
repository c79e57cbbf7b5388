package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// Twelve processes start runs that claim one token. One of the runs has it, and
// eleven processes are told by whom it is held.
func TestHooks01TwelveProcessesClaimOneToken(t *testing.T) {
	t.Parallel()
	const racers = 12
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 2, patient...)
	f.define("claim", `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: the one}}`)
	ended := make(chan *process, racers)
	for i := range racers {
		p := launch(t, "start", "--nats", f.url, "--workflow", "claim", "--run", fmt.Sprintf("racer-%d", i), "--wait", "--json")
		go func() { <-p.ended; ended <- p }() // ends with the process
	}
	var lost []drover.Outcome
	for range racers - 1 {
		p := await(t, ended, "the end of a racer")
		status, stdout, stderr := p.wait()
		var o drover.Outcome
		if err := json.Unmarshal([]byte(stdout), &o); err != nil || status != 1 {
			t.Fatalf("exit status %d, %v\n%s%s", status, err, stdout, stderr)
		}
		lost = append(lost, o)
	}
	h, err := f.ShowHook(t.Context(), "the one")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range lost {
		if o.Error == nil || !strings.Contains(o.Error.Message, "is held by run "+string(h.RunID)+" since ") {
			t.Errorf("run %s: %v, and run %s has the token", o.RunID, o.Error, h.RunID)
		}
	}
	if _, err := f.DeliverHook(t.Context(), drover.HookRequest{Token: "the one", Payload: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	p := await(t, ended, "the end of the winner")
	if status, stdout, _ := p.wait(); status != 0 || !strings.Contains(stdout, string(h.RunID)) {
		t.Errorf("the winner: exit status %d\n%s", status, stdout)
	}
}

// define registers a definition.
func (f *fleet) define(name drover.WorkflowName, definition string) {
	f.t.Helper()
	text, err := json.Marshal(definition)
	if err == nil {
		_, err = f.PutDefinition(f.t.Context(), drover.DefinitionRequest{Name: name, Definition: text})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// Workers are killed at any time, while leaders follow each other and eight
// senders deliver to whoever leads: each delivery is read by one run, and no run
// leads in vain.
func TestHooks19OwnersAreKilled(t *testing.T) {
	t.Parallel()
	n, kills := 250, 4
	if testing.Short() {
		n, kills = 100, 2
	}
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	c := newCrew(f, 3)
	f.define("leader", `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: leader, on_unread: restart}}
  work: {sleep: 1ms, depends_on: [inbox]}`)
	all := make(chan drover.Outcome, 10*n)
	sub, err := f.nc.Subscribe(names.DoneAll(), func(m *nats.Msg) {
		var o drover.Outcome
		if err := json.Unmarshal(m.Data, &o); err != nil {
			t.Error(err)
		}
		all <- o
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	wait := f.toLeaders(n)
	read, over := map[int]drover.RunID{}, map[drover.RunID]bool{}
	next := n / (kills + 1)
	for len(read) < n && !t.Failed() {
		o := await(t, all, fmt.Sprintf("more than %d deliveries that were read", len(read)))
		if over[o.RunID] {
			continue
		}
		over[o.RunID] = true
		var k *int
		if err := json.Unmarshal(o.Result, &k); err != nil || k == nil {
			t.Fatalf("run %s is %s with the result %s (%v)", o.RunID, o.Status, o.Result, o.Error)
		}
		if other, twice := read[*k]; twice {
			t.Fatalf("%d was read by run %s and by run %s", *k, other, o.RunID)
		}
		if read[*k] = o.RunID; len(read) == next {
			next += n / (kills + 1)
			c.kill(c.oldest())
			c.hire()
		}
	}
	wait()
}

// toLeaders has eight senders deliver the numbers below n. Each asks again, with
// the same id, until it knows what became of a delivery.
func (f *fleet) toLeaders(n int) (wait func()) {
	var sending sync.WaitGroup
	next := make(chan int, n)
	for k := range n {
		next <- k
	}
	close(next)
	for range 8 {
		sending.Go(func() {
			for k := range next {
				if err := f.toLeader(k); err != nil {
					f.t.Errorf("delivery %d: %v", k, err)
					return
				}
			}
		})
	}
	return sending.Wait
}

func (f *fleet) toLeader(k int) error {
	req := drover.HookRequest{
		Token: "leader", Payload: json.RawMessage(fmt.Sprint(k)), ID: fmt.Sprint("id", k),
		Start: &drover.StartRequest{Workflow: "leader"},
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, time.Second+rand.N(time.Second)) // whoever answers may be dead
		_, err := f.DeliverHook(try, req)
		stop()
		unknown := errors.Is(err, drover.CodeUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders)
		if !unknown || ctx.Err() != nil {
			return err
		}
	}
}
