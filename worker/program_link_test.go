package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// cut ends the connections through a proxy, and lets nothing through until it is
// thawed: those who reconnect hear nothing.
func (p *proxy) cut() {
	p.freeze(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// newFarStage is newStage on a server that can be reached from afar.
func newFarStage(t *testing.T) *stage {
	t.Helper()
	s := natstest.New(t, natstest.Listen())
	begin(t, s, "a")
	c, err := client.New(s.Connect(), client.Options{Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{Client: c, t: t, s: s}
}

// serveThrough serves programs behind a proxy.
func (p *stage) serveThrough(link *proxy, opts flow.Options, programs ...*flow.Def) {
	p.t.Helper()
	nc, err := nats.Connect(link.url(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0), nats.Timeout(500*time.Millisecond))
	if err != nil {
		p.t.Fatal(err)
	}
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := flow.NewServer(nc, opts, programs...)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			p.t.Errorf("end of the programs: %v", err)
		}
		nc.Close()
	})
	next(p.t, s.Ready())
}

// A process loses its connection in a step, and lives: its body goes on computing.
// Another one drives the run on, and when the first one is back, nothing of it
// counts. Neither the run nor a body sees an error, and no attempt is counted.
func TestPrograms03AProcessLosesItsConnection(t *testing.T) {
	both(t, func(t *testing.T, opts flow.Options) {
		p := newFarStage(t)
		link := newProxy(t, p.s)
		inStep, compute, past := make(chan string, 10), make(chan bool), make(chan string, 10)
		left := make(chan string, 10)
		program := func(by string) *flow.Def {
			return flow.Program("linked", func(run *flow.Run, _ any) (string, error) {
				defer func() { left <- by }()
				if _, err := flow.Wait[any](run, "go", "go"); err != nil {
					return "", err
				}
				who, err := flow.Step(run, "compute", func(context.Context) (string, error) {
					inStep <- by
					if by == "old" {
						<-compute
					}
					return by, nil
				})
				past <- fmt.Sprint(by, " ", err)
				if err != nil {
					return "", err
				}
				_, err = flow.Wait[any](run, "end", "end")
				return who, err
			})
		}
		opts.Instance = "old"
		p.serveThrough(link, opts, program("old"))
		p.launch("r1", "program: linked\nretry: {max_attempts: 1}\nmax_drives: 2", "null")
		p.parks("r1")
		if opts.KeepBodies < 0 {
			next(t, left)
		}
		p.deliver("r1", "go", "null")
		if by := next(t, inStep); by != "old" {
			t.Fatalf("%s has it", by)
		}
		p.until("r1", func(r drover.Run) bool { return r.Program.State == "driving" }) // it has said so
		link.cut()
		opts.Instance = "new"
		p.serve(opts, program("new"))
		if by := next(t, inStep); by != "new" {
			t.Fatalf("%s has it", by)
		}
		if got := next(t, past); got != "new <nil>" {
			t.Error(got)
		}
		p.parks("r1")
		refused := p.refusals()
		close(compute) // the body of the old process is done with its step, and has nobody to tell
		link.freeze(false)
		for next(t, left) != "old" { // its record was refused
		}
		if code := next(t, refused); code != drover.CodeFenced {
			t.Errorf("the old record was refused as %s", code)
		}
		if r := p.status("r1"); r.Program.State != "parked" || r.Program.Instance != "new" {
			t.Errorf("%+v", r.Program)
		}
		p.deliver("r1", "end", "null")
		p.completes("r1", `"new"`)
		for close(past); ; {
			got, more := <-past
			if !more {
				break
			}
			if got != "new <nil>" { // once more, where the body was dropped
				t.Errorf("the step gave %s", got)
			}
		}
		for _, e := range p.history("r1") {
			if e.Kind == drover.EntryAttempt || e.Error != nil || e.Kind == drover.EntryStep && (e.Attempt != 1 || string(e.Output) != `"new"`) {
				t.Errorf("the journal has %+v", e)
			}
		}
	})
}

// refusals gives the codes with which records are refused from now on.
func (p *stage) refusals() <-chan drover.Code {
	p.t.Helper()
	got := make(chan drover.Code, 1000)
	nc := p.s.Connect()
	_, err := nc.Subscribe("_INBOX.>", func(m *nats.Msg) {
		if code := m.Header.Get(subjects.HeaderCode); code != "" {
			got <- drover.Code(code)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// A process that is fed by hand.
type hand struct {
	p  *stage
	c  jetstream.Consumer
	nc *nats.Conn
	js jetstream.JetStream
}

// newHand takes drives of a program from its queue.
func newHand(p *stage, program string) *hand {
	p.t.Helper()
	h := &hand{p: p, nc: p.s.Connect()}
	var err error
	if h.js, err = jetstream.New(h.nc); err == nil {
		names := subjects.Default()
		function := drover.FunctionName("program." + program)
		h.c, err = h.js.CreateConsumer(p.t.Context(), names.Calls(), jetstream.ConsumerConfig{
			Durable: names.Consumer(function), FilterSubject: names.CallsTo(function), AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: 10 * time.Second, MaxDeliver: -1, MaxAckPending: 1000, MaxWaiting: 1000,
		})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// until waits until the queue is so.
func (h *hand) until(so func(*jetstream.ConsumerInfo) bool) {
	h.p.t.Helper()
	for end := time.Now().Add(patience); ; {
		info, err := h.c.Info(h.p.t.Context())
		if err != nil {
			h.p.t.Fatal(err)
		}
		if so(info) {
			return
		}
		if time.Now().After(end) {
			h.p.t.Fatalf("the queue is %+v", info)
		}
	}
}

// take gives the next drive.
func (h *hand) take() (jetstream.Msg, drover.DriveRequest) {
	h.p.t.Helper()
	m, err := h.c.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		h.p.t.Fatal(err)
	}
	var req drover.DriveRequest
	if err := json.Unmarshal(m.Data(), &req); err != nil {
		h.p.t.Fatal(err)
	}
	req.Token = m.Headers().Get(subjects.HeaderToken)
	return m, req
}

// say records, and gives the answer.
func (h *hand) say(run drover.RunID, m *drover.RecordRequest) *nats.Msg {
	h.p.t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		h.p.t.Fatal(err)
	}
	inbox := h.nc.NewInbox()
	sub, err := h.nc.SubscribeSync(inbox)
	if err != nil {
		h.p.t.Fatal(err)
	}
	msg := &nats.Msg{Subject: subjects.Default().In(run, drover.VerbRecord), Header: nats.Header{subjects.HeaderReply: {inbox}}, Data: data}
	if _, err := h.js.PublishMsg(h.p.t.Context(), msg); err != nil {
		h.p.t.Fatal(err)
	}
	answer, err := sub.NextMsg(patience)
	if err != nil {
		h.p.t.Fatal(err)
	}
	return answer
}

// A process parks a run, and its acknowledgement is lost. The queue hands the old
// drive out again: nothing comes of it, whatever the run is doing by then.
func TestPrograms03ALostAcknowledgementIsHarmless(t *testing.T) {
	p := newStage(t)
	h := newHand(p, "acked")
	for _, run := range []drover.RunID{"parked", "driven", "over"} {
		p.launch(run, "program: acked", "null")
		m, req := h.take()
		answer := h.say(run, &drover.RecordRequest{
			Drive: 1, Fence: 2, Token: req.Token, Instance: "hand",
			Records: []drover.Entry{{Kind: drover.EntryNode, ID: "go", Step: json.RawMessage(`{"wait":{"name":"go"}}`)}}, End: &drover.DriveEnd{Status: drover.DriveWaiting},
		})
		if code := answer.Header.Get(subjects.HeaderCode); code != "" {
			t.Fatalf("run %s: %s", run, answer.Data)
		}
		if err := m.NakWithDelay(time.Second); err != nil { // as if it were silent
			t.Fatal(err)
		}
	}
	var bodies, steps atomic.Int64
	inStep, leave := make(chan bool, 1), make(chan bool)
	stale := p.refusals()
	p.serve(flow.Options{}, flow.Program("acked", func(run *flow.Run, _ any) (string, error) {
		bodies.Add(1)
		kind, err := flow.Wait[string](run, "go", "go")
		if err != nil {
			return "", err
		}
		return flow.Step(run, "step", func(ctx context.Context) (string, error) {
			if steps.Add(1); kind == "driven" {
				inStep <- true
				select {
				case <-leave:
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
			return kind, nil
		})
	}))
	p.deliver("driven", "go", `"driven"`)
	p.deliver("over", "go", `"over"`)
	p.completes("over", `"over"`)
	next(t, inStep)
	for range 2 { // of the third the process knows by itself that it is over
		if code := next(t, stale); code != drover.CodeFenced {
			t.Errorf("an old drive was refused as %s", code)
		}
	}
	h.until(func(i *jetstream.ConsumerInfo) bool { return i.NumPending == 0 && i.NumAckPending == 1 })
	close(leave)
	p.completes("driven", `"driven"`)
	p.deliver("parked", "go", `"parked"`)
	p.completes("parked", `"parked"`)
	if b, s := bodies.Load(), steps.Load(); b != 3 || s != 3 {
		t.Errorf("%d bodies and %d steps, want 3 and 3", b, s)
	}
	for _, run := range []drover.RunID{"parked", "driven", "over"} {
		if r := p.status(run); r.Program.Drive != 2 || r.Program.Entries != 3 {
			t.Errorf("run %s: %+v", run, r.Program)
		}
	}
}

// A body that breaks each time, where it cannot undo what it did, and is found without
// knowing its run.
func TestPrograms15WhatBreaksForEverIsADeadLetter(t *testing.T) {
	p := newStage(t)
	var drives atomic.Int32
	p.serve(flow.Options{Version: "v7", Instance: "host"},
		flow.Program("shaky", func(run *flow.Run, _ any) (int, error) {
			if drives.Add(1) == 1 { // later it does not come so far
				if _, err := flow.Step(run, "one", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return 0, err
				}
			}
			panic("it fell over")
		}),
		flow.Program("fails", func(*flow.Run, any) (int, error) { return 0, errors.New("no") }))
	p.launch("r1", "program: shaky\nretry: {max_attempts: 2, initial: 1ms}", "null")
	p.launch("r2", "program: fails", "null")
	o := p.ends("r1")
	if o.Status != drover.StatusFailed || o.Error.Code != drover.CodePanic || o.Error.Stack == "" {
		t.Fatalf("it is %s, error %+v", o.Status, o.Error)
	}
	p.ends("r2")
	letters, err := p.ListDead(t.Context(), drover.DeadListRequest{Verb: drover.LetterDrive})
	if err != nil || len(letters.Letters) != 1 || letters.Letters[0].RunID != "r1" || letters.Letters[0].Error.Stack != o.Error.Stack {
		t.Fatalf("the letters are %+v, error %v", letters, err)
	}
	l, err := p.ShowDead(t.Context(), letters.Letters[0].Sequence)
	var d drover.DeadDrive
	if err == nil {
		err = json.Unmarshal(l.Payload, &d)
	}
	if want := (drover.DeadDrive{Program: "shaky", Version: "v7", Drive: 2, Instance: "host", Records: 1, Entries: 1}); err != nil || d != want {
		t.Errorf("the letter has %+v, error %v; want %+v", d, err, want)
	}
	if _, err := p.RequeueDead(t.Context(), l.Sequence); !errors.Is(err, drover.CodeConflict) {
		t.Errorf("requeued: %v", err)
	}
}
