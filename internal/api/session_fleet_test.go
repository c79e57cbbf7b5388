package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/subjects"
)

// serve performs the calls of a function until the test ends.
func (f *fleet) serve(fn *function.Function) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- function.Serve(ctx, f.nc, fn) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("end of function %s: %v", fn.Name, err)
		}
	})
}

// sessions hears what all calls are told, and gives receipts.
func (f *fleet) sessions() <-chan drover.SessionReply {
	f.t.Helper()
	told := make(chan drover.SessionReply, 100)
	_, err := f.nc.Subscribe(subjects.Default().Session("call.>"), func(m *nats.Msg) {
		var reply drover.SessionReply
		if err := json.Unmarshal(m.Data, &reply); err != nil || m.Subject != subjects.Default().Session(reply.Session) {
			f.t.Errorf("%s got %s, %v", m.Subject, m.Data, err)
		}
		_ = m.Respond(nil)
		told <- reply
	})
	if err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return told
}

func reply(t *testing.T, told <-chan drover.SessionReply) drover.SessionReply {
	t.Helper()
	select {
	case r := <-told:
		return r
	case <-time.After(patience):
		t.Fatal("no session was told")
		panic("unreachable")
	}
}

func TestDelivery02AFunctionHearsOfTheRunThatItStarted(t *testing.T) {
	f, _, _ := newGated(t)
	f.put("parent", "nodes: {a: {call: agent}}\noutput: {from: node:a}\n")
	f.serve(function.New("agent", func(ctx context.Context, _ any) (drover.SessionReply, error) {
		var reply drover.SessionReply
		told, err := f.nc.SubscribeSync(function.Info(ctx).Session)
		if err != nil {
			return reply, err
		}
		defer func() { _ = told.Unsubscribe() }()
		start := drover.StartRequest{Workflow: "gated", RunID: "child", ReplyTo: &drover.ReplyTo{Template: "What you asked for:"}}
		if _, err := f.Start(ctx, start); err != nil {
			return reply, err
		}
		if _, err := f.Deliver(ctx, drover.DeliverRequest{RunID: "child", Name: "go", Payload: raw("done")}); err != nil {
			return reply, err
		}
		m, err := told.NextMsgWithContext(ctx)
		if err != nil {
			return reply, err
		}
		return reply, json.Unmarshal(m.Data, &reply)
	}))
	f.begin("parent", "r", nil)
	var got drover.SessionReply
	if o := f.over("r", drover.StatusCompleted); json.Unmarshal(o.Result, &got) != nil {
		t.Fatalf("outcome %+v", o)
	}
	if got.ID != "wfreply_child" || got.RunID != "child" || got.Status != drover.StatusCompleted ||
		!strings.HasPrefix(got.Text, "What you asked for:\n\n") || !strings.Contains(got.Text, "done") {
		t.Errorf("the session was told %+v", got)
	}
}

// The way of the documents: sessions of an account are imported from it alone.
func TestDelivery02AUserOfAnotherAccountHearsOfItsRun(t *testing.T) {
	s := tenants(t)
	f := fleetOn(t, func() *nats.Conn { return s.Connect(nats.UserInfo("worker", "p")) })
	f.put("gated", gated)
	fleet, err := s.Raw().LookupAccount("FLEET")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"NORTH", "SOUTH"} {
		guest, err := s.Raw().LookupAccount(name)
		if err == nil {
			err = guest.AddServiceExport("drover.session.user."+name+".>", nil)
		}
		if err == nil {
			err = fleet.AddServiceImport(guest, "drover.session.user."+name+".>", "drover.session.user."+name+".>")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ann := asker{t, s.Connect(nats.UserInfo("ann", "p"))}
	told, err := ann.nc.SubscribeSync("drover.session.user.NORTH.ann")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ann.ask("start", `{"run_id":"r","workflow":"gated","reply_to":{"template":"Dear Ann,"}}`, nil); err != nil {
		t.Fatal(err)
	}
	f.goOn("r")
	m, err := told.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	var got drover.SessionReply
	if err := json.Unmarshal(m.Data, &got); err != nil || got.ID != "wfreply_r" || got.Session != "user.NORTH.ann" || !strings.HasPrefix(got.Text, "Dear Ann,\n\n") {
		t.Errorf("told %s, %v", m.Data, err)
	}
	if err := m.Respond(nil); err != nil {
		t.Error(err)
	}
	if d := f.settled("r"); d[0].Status != drover.DeliveryDelivered {
		t.Errorf("deliveries %+v", d)
	}
}

// A waiter and the session: whoever waits has it, and the session is told where
// nobody does.
func TestDelivery04ASessionIsToldInlineOnlyIfTheWaiterLeft(t *testing.T) {
	f, _, _ := newGated(t)
	told := f.sessions()
	f.put("parent", "nodes: {a: {call: agent, input: {from: run_input}}}\noutput: {from: node:a}\n")
	f.serve(function.New("agent", func(ctx context.Context, run drover.RunID) (any, error) {
		_, err := f.Start(ctx, drover.StartRequest{
			Workflow: "gated", RunID: run, ReplyTo: &drover.ReplyTo{Inline: true}, Hold: &drover.HoldRequest{Waiter: "w"},
		})
		return nil, err
	}))
	for parent, child := range map[drover.RunID]drover.RunID{"p1": "waits", "p2": "leaves"} {
		f.begin("parent", parent, child)
		f.over(parent, drover.StatusCompleted)
	}
	f.goOn("waits")
	if o, err := f.Take(t.Context(), "waits", "w"); err != nil || o.Status != drover.StatusCompleted {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := f.Release(t.Context(), "leaves", "w"); err != nil {
		t.Error(err)
	}
	f.goOn("leaves")
	if r := reply(t, told); r.RunID != "leaves" {
		t.Errorf("told %+v", r)
	}
	if d := f.settled("waits"); d[0].Status != drover.DeliveryConsumed {
		t.Errorf("deliveries %+v", d)
	}
}

// A run that hands over what it has not read leaves its session to its successor.
func TestDelivery13TheSuccessorAnswersToTheSameSession(t *testing.T) {
	f, _, _ := newGated(t)
	told := f.sessions()
	f.put("leading", `
nodes:
  inbox: {wait: {hook: leader, on_unread: restart}}
  gate: {wait: {name: go}, depends_on: [inbox]}
output: {from: node:gate}
`)
	f.put("parent", "nodes: {a: {call: agent}}\noutput: {from: node:a}\n")
	f.serve(function.New("agent", func(ctx context.Context, _ any) (any, error) {
		return f.Start(ctx, drover.StartRequest{Workflow: "leading", RunID: "first", ReplyTo: &drover.ReplyTo{}})
	}))
	f.begin("parent", "r", nil)
	f.over("r", drover.StatusCompleted)
	f.held("leader")
	f.give("leader", "1", 1)
	f.give("leader", "2", 2)
	f.goOn("first")
	first := reply(t, told)
	next := drover.SuccessorID("first")
	f.until("the successor", func() bool {
		_, err := f.Status(t.Context(), drover.RunRequest{RunID: next})
		return err == nil
	})
	f.goOn(next)
	second := reply(t, told)
	if first.RunID != "first" || second.RunID != next || first.Session != second.Session {
		t.Errorf("told %+v and %+v", first, second)
	}
}

// A start in the log says nothing of its sender, and so names no session.
func TestDelivery02AForgedSessionStartsNothing(t *testing.T) {
	f, _, _ := newGated(t)
	names := subjects.Default()
	session := subjects.SessionOfUser("NORTH", "ann")
	told, err := f.nc.SubscribeSync(names.Session(session))
	if err != nil {
		t.Fatal(err)
	}
	start := drover.StartRequest{Workflow: "gated", Notify: drover.NotifyList{{Session: session, Seal: "00"}}}
	for run, payload := range map[drover.RunID][]byte{
		"forged":   raw(start),
		"unsealed": raw(drover.StartRequest{Workflow: "gated", Notify: drover.NotifyList{{Session: session}}}),
		"asked":    raw(drover.StartRequest{Workflow: "gated", ReplyTo: &drover.ReplyTo{}}),
	} {
		m, err := f.nc.Request(names.In(run, drover.VerbStart), payload, patience)
		if err != nil || len(m.Data) == 0 {
			t.Fatalf("%s: %v", run, err)
		}
		var letters drover.DeadList
		f.until("a dead letter", func() bool {
			letters, err = f.ListDead(t.Context(), drover.DeadListRequest{RunID: string(run)})
			return err != nil || len(letters.Letters) > 0
		})
		if err != nil || run == "forged" && letters.Letters[0].Error.Code != drover.CodeForbidden {
			t.Errorf("%s: %+v, %v", run, letters, err)
		}
		if _, err := f.Status(t.Context(), drover.RunRequest{RunID: run}); !errors.Is(err, drover.CodeNotFound) {
			t.Errorf("%s: there is a run, %v", run, err)
		}
	}
	if n, _, err := told.Pending(); err != nil || n != 0 {
		t.Errorf("the session was told %d times, %v", n, err)
	}
}
