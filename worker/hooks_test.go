package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/worker"
)

const patience = time.Minute // for what happens at once

// leading is a definition of runs that read one delivery each.
const leading = `
output: {from: node:work}
nodes:
  inbox: {wait: {hook: leader, on_unread: restart}}
  work: {sleep: 1ms, depends_on: [inbox]}`

// put registers a definition, and gives a client.
func put(t *testing.T, nc *nats.Conn, name drover.WorkflowName, definition string) *client.Client {
	t.Helper()
	c, err := client.New(nc, client.Options{Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(definition)
	if err == nil {
		_, err = c.PutDefinition(t.Context(), drover.DefinitionRequest{Name: name, Definition: text})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Leaders come and go while eight senders deliver to whoever leads, and two
// workers share the runs: each delivery is read by one run.
func TestHooks19EveryDeliveryIsReadByOneLeader(t *testing.T) {
	const senders, each = 8, 25
	s := natstest.New(t)
	begin(t, s, "a")
	begin(t, s, "b")
	nc := s.Connect()
	c := put(t, nc, "leading", leading)
	seen := make(chan drover.Event, 100_000)
	sub, err := nc.Subscribe("drover.done.>", func(m *nats.Msg) {
		var o drover.Outcome
		if err := json.Unmarshal(m.Data, &o); err != nil {
			t.Error(err)
		}
		seen <- drover.Event{RunID: o.RunID, Status: o.Status}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	var sending sync.WaitGroup
	for i := range senders {
		sending.Go(func() {
			for k := range each {
				n := i*each + k
				_, err := deliver(t.Context(), nc, drover.HookRequest{
					Token: "leader", Payload: json.RawMessage(fmt.Sprint(n)), ID: fmt.Sprint("id", n), Start: &drover.StartRequest{Workflow: "leading"},
				})
				if err != nil {
					t.Errorf("delivery %d: %v", n, err)
				}
			}
		})
	}
	read, over := map[string]drover.RunID{}, map[drover.RunID]bool{}
	for len(read) < senders*each && !t.Failed() {
		var e drover.Event
		select {
		case e = <-seen:
		case <-time.After(patience):
			t.Fatalf("%d deliveries were read, and then none any more", len(read))
		}
		if over[e.RunID] {
			continue // an outcome may come twice
		}
		over[e.RunID] = true
		result, err := c.Result(t.Context(), drover.RunRequest{RunID: e.RunID, Node: "inbox"})
		if err != nil || e.Status != drover.StatusCompleted {
			t.Fatalf("run %s is %s: %v", e.RunID, e.Status, err)
		}
		if other, twice := read[string(result.Output)]; twice {
			t.Fatalf("%s was read by run %s and by run %s", result.Output, other, e.RunID)
		}
		read[string(result.Output)] = e.RunID
	}
	sending.Wait()
}

// deliver asks until it is known what became of the delivery.
func deliver(ctx context.Context, nc *nats.Conn, req drover.HookRequest) (drover.HookReply, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return drover.HookReply{}, err
	}
	for {
		ctx, cancel := context.WithTimeout(ctx, patience)
		m, err := nc.RequestWithContext(ctx, "drover.api.hook.deliver", body)
		cancel()
		if err != nil {
			return drover.HookReply{}, err
		}
		var reply drover.HookReply
		e := drover.ErrorOf(m.Header.Get("Drover-Error"), m.Data)
		switch {
		case e == nil:
		case e.Code == drover.CodeUnavailable:
			continue
		default:
			return reply, e
		}
		return reply, json.Unmarshal(m.Data, &reply)
	}
}

// A sender claimed the token for a run, and died before it could start it. The
// run is started, and reads the delivery.
func TestHooks18ASweepFinishesWhatASenderBegan(t *testing.T) {
	s := natstest.New(t)
	beginOn(t, s.Connect(), worker.Options{Name: "a", SweepEvery: 20 * time.Millisecond})
	nc := s.Connect()
	c := put(t, nc, "leading", leading)
	d, err := c.GetDefinition(t.Context(), drover.DefinitionRequest{Name: "leading"})
	if err != nil {
		t.Fatal(err)
	}
	done, err := nc.SubscribeSync("drover.done.*.r1")
	if err != nil || nc.Flush() != nil {
		t.Fatal("no subscription")
	}
	claim := fmt.Sprintf(`{"token":"leader","run":"r1","id":"r1/","since":%q,"starting":{"start":{"hash":%q,"hooks":["leader"]},"first":{"hook":"leader","payload":7,"id":"a"},"keep":true}}`,
		time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), d.Hash)
	if _, err := store(t, s).Hooks.Claim(t.Context(), "leader", []byte(claim)); err != nil {
		t.Fatal(err)
	}
	if _, err := done.NextMsg(patience); err != nil {
		t.Fatalf("the run did not come to its end: %v", err)
	}
	result, err := c.Result(t.Context(), drover.RunRequest{RunID: "r1", Node: "inbox"})
	if err != nil || string(result.Output) != "7" {
		t.Fatalf("the run read %s: %v", result.Output, err)
	}
	reply, err := deliver(t.Context(), nc, drover.HookRequest{Token: "leader", Payload: json.RawMessage(`7`), ID: "a"})
	if err != nil || !reply.Repeat || reply.RunID != "r1" {
		t.Fatalf("the same delivery again gives %+v, error %v", reply, err)
	}
}
