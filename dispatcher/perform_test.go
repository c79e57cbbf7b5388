package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/publish"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func TestEffectsBecomeMessages(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	parent := drover.CallID{Run: "p", Node: "sub", Item: drover.NoItem, Attempt: 1}
	f.values.put("r1.big", `"big"`)
	watched := callEffect("llm.plan", `{"a":1}`)
	watched.Call.Heartbeat = 10 * time.Second
	kept := callEffect("llm.plan", "")
	kept.Value = machine.Value{Key: "r1.big", Size: 5}
	headers := map[string]string{
		"Drover-Call": "r1/n@2", "Drover-Token": "tok", "Drover-Run": "r1", "Drover-Function": "llm.plan",
		"Drover-Attempt": "2", "Drover-Deadline": "2126-03-04T05:06:07.089Z",
	}
	with := func(name, value string) map[string]string {
		h := maps.Clone(headers)
		h[name] = value
		return h
	}
	outcome := `{"delivery_id":"r1:terminal:0","run_id":"r1","workflow":"wf","status":"completed","result":{"ok":true},"error":null,` +
		`"started_at":"1970-01-01T00:00:01Z","ended_at":"1970-01-01T00:00:02Z","tags":{"a":"1","b":"<2>"}}`
	done := deliverEffect("", 0)
	done.Kind, done.Delivery = machine.EffectDone, nil
	for _, tc := range []struct {
		name    string
		effect  machine.Effect
		subject string
		headers map[string]string
		body    string
	}{
		{"call", callEffect("llm.plan", `{"a":1}`), "drover.call.r1.llm.plan", headers, `{"a":1}`},
		{"watched call", watched, "drover.call.r1.llm.plan", with("Drover-Heartbeat", "10s"), `{"a":1}`},
		{"call without input", callEffect("llm.plan", ""), "drover.call.r1.llm.plan", headers, `null`},
		{"call with a kept input", kept, "drover.call.r1.llm.plan", headers, `"big"`},
		{
			"start",
			machine.Effect{
				Owed: machine.Owed{Kind: machine.EffectStart}, Run: "p", To: "c1", Value: machine.Value{JSON: json.RawMessage(`[1]`)},
				Start: &drover.StartRequest{Workflow: "wf", Parent: &drover.Parent{Call: parent, Token: "ct", Depth: 1}},
			},
			stored("c1", "start"), nil, `{"workflow":"wf","input":[1],"parent":{"call":"p/sub@1","token":"ct","depth":1}}`,
		},
		{
			"stop",
			machine.Effect{Owed: machine.Owed{Kind: machine.EffectStop}, Run: "p", To: "c1", Stop: &drover.StopRequest{Reason: "why"}},
			stored("c1", "stop"), nil, `{"reason":"why"}`,
		},
		{
			"tell",
			machine.Effect{
				Owed: machine.Owed{Kind: machine.EffectTell}, Run: "c1", To: "p", Value: machine.Value{Key: "r1.big"},
				Child: &drover.ChildMessage{Call: parent, Token: "ct", Child: "c1", Status: drover.StatusCompleted},
			},
			stored("p", "child"), nil, `{"call":"p/sub@1","token":"ct","child":"c1","status":"completed","result":"big"}`,
		},
		{"done", done, "drover.done.wf.r1", map[string]string{"Drover-Delivery": "r1:terminal:0", "Nats-Msg-Id": "r1:terminal:0@1000"}, outcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stream := f.names.Commands()
			switch {
			case strings.Contains(tc.subject, ".call."):
				stream = f.names.Calls()
			case strings.Contains(tc.subject, ".done."):
				stream = f.names.Outcomes()
			}
			f.perform(d, tc.effect)
			s, err := f.js.Stream(t.Context(), stream)
			if err != nil {
				t.Fatal(err)
			}
			m, err := s.GetLastMsgForSubject(t.Context(), tc.subject)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for name := range m.Header {
				got[name] = m.Header.Get(name)
			}
			for _, name := range []string{"Nats-Sequence", "Nats-Stream", "Nats-Subject", "Nats-Time-Stamp"} {
				delete(got, name) // of the read, not of the message
			}
			if string(m.Data) != tc.body || !maps.Equal(got, tc.headers) {
				t.Errorf("%s\n%v\nwant\n%s\n%v", m.Data, got, tc.body, tc.headers)
			}
		})
	}
}

func TestBatchMayBeRepeated(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	done := deliverEffect("", 0)
	done.Kind, done.Delivery = machine.EffectDone, nil
	for range 3 {
		f.perform(d, callEffect("f", "1"), done)
	}
	if n := f.count(f.names.Outcomes(), ">"); n != 1 {
		t.Errorf("%d outcomes, want 1", n)
	}
	if n := f.count(f.names.Calls(), ">"); n != 3 {
		t.Errorf("%d calls, want one for each time: the attempt fences them", n)
	}
}

func TestWithdrawEmptiesTheQueueButForDeliveries(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	cancels, err := f.nc.SubscribeSync(f.names.CancelsTo("a.b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	other := callEffect("a.b", "1")
	other.Run, other.Call.ID.Run = "r2", "r2"
	f.perform(d, callEffect("a.b", "1"), callEffect("a.b", "2"), callEffect("c", "3"), tellEffect("app.told"), other)
	withdraw := machine.Effect{
		Owed: machine.Owed{Kind: machine.EffectWithdraw}, Run: run, Functions: []drover.FunctionName{"a.b", "c"},
	}
	for range 2 { // nothing is there the second time
		f.perform(d, withdraw)
		m, err := cancels.NextMsg(patience)
		if err != nil || m.Subject != "drover.cancel.r1.a.b" || len(m.Data) != 0 {
			t.Fatalf("cancel %v, error %v", m, err)
		}
	}
	left := []int{
		f.count(f.names.Calls(), "drover.call.r1.a.b"), f.count(f.names.Calls(), "drover.call.r1.c"),
		f.count(f.names.Calls(), "drover.call.r1.app.told"), f.count(f.names.Calls(), "drover.call.r2.>"),
	}
	if !slices.Equal(left, []int{0, 0, 1, 1}) {
		t.Errorf("left in the queue: %v", left)
	}
	one := callEffect("a.b", "")
	one.Kind = machine.EffectCancel
	f.perform(d, one)
	if m, err := cancels.NextMsg(patience); err != nil || string(m.Data) != "r1/n@2" {
		t.Errorf("cancel of one call: %v, error %v", m, err)
	}
}

// small is a server that takes no message of more than 32 KiB.
func small() natstest.Option {
	return natstest.With(func(o *server.Options) { o.MaxPayload = 32 << 10 })
}

func TestWhatCannotBeSentFailsItsNode(t *testing.T) {
	huge := machine.Value{JSON: json.RawMessage(`"` + strings.Repeat("x", 40<<10) + `"`)}
	missing := machine.Value{Key: "r1.missing", Size: 3000}
	parent := drover.CallID{Run: run, Node: "sub", Item: drover.NoItem, Attempt: 1}
	for _, tc := range []struct {
		name  string
		value machine.Value
		code  drover.Code
		says  string
	}{
		{"too large", huge, drover.CodeTooLarge, "bytes and does not fit"},
		{"gone", missing, drover.CodeInternal, "r1.missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(t, small())
			d, _ := f.dispatcher()
			check := func(what string, e *drover.Error) {
				t.Helper()
				if e == nil || e.Code != tc.code || !e.Permanent || !strings.Contains(e.Message, tc.says) {
					t.Errorf("%s: error %+v", what, e)
				}
			}
			call := callEffect("f", "")
			call.Value = tc.value
			f.perform(d, call)
			result := decode[drover.ResultMessage](t, f.commands(run, drover.VerbResult).next())
			check("call", result.Error)
			if result.Call != callOf("n") || result.Token != "tok" || !strings.Contains(result.Error.Message, "node n") {
				t.Errorf("call: %+v", result)
			}

			children := f.commands(run, drover.VerbChild)
			f.perform(d, machine.Effect{
				Owed: machine.Owed{Kind: machine.EffectStart}, Run: run, To: "c1", Value: tc.value,
				Start: &drover.StartRequest{Parent: &drover.Parent{Call: parent, Token: "ct"}},
			})
			child := decode[drover.ChildMessage](t, children.next())
			check("start", child.Error)
			if child.Status != drover.StatusFailed || child.Call != parent || child.Token != "ct" || child.Child != "c1" {
				t.Errorf("start: %+v", child)
			}
			f.perform(d, machine.Effect{
				Owed: machine.Owed{Kind: machine.EffectStart}, Run: run, To: "c1", Value: tc.value, Start: &drover.StartRequest{},
			})

			f.perform(d, machine.Effect{
				Owed: machine.Owed{Kind: machine.EffectTell}, Run: "c1", To: run, Value: tc.value,
				Child: &drover.ChildMessage{Call: parent, Token: "ct", Child: "c1", Status: drover.StatusCompleted},
			})
			child = decode[drover.ChildMessage](t, children.next())
			check("tell", child.Error)
			if child.Status != drover.StatusFailed || child.Result != nil {
				t.Errorf("tell: %+v", child)
			}

			done := deliverEffect("", 0)
			done.Kind, done.Delivery, done.Value = machine.EffectDone, nil, tc.value
			f.perform(d, done)
			outcome := decode[drover.Outcome](t, f.log(f.names.Outcomes(), f.names.DoneAll()).next())
			check("done", outcome.Error)
			if outcome.Status != drover.StatusCompleted || string(outcome.Result) != "null" {
				t.Errorf("done: %+v", outcome)
			}
		})
	}
}

func TestLargeBatchesAreLoadedInParts(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	var sizes []int
	f.values.hook = func(keys []string) { sizes = append(sizes, len(keys)) }
	var effects []machine.Effect
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		f.values.put(key, `"`+key+`"`)
		e := callEffect("f", "")
		e.Value = machine.Value{Key: key, Size: loadBytes / 2}
		effects = append(effects, e)
	}
	effects[4].Value.Size = 3 * loadBytes
	f.perform(d, effects...)
	if !slices.Equal(sizes, []int{2, 2, 1}) {
		t.Errorf("loaded %v at a time", sizes)
	}
	if n := f.count(f.names.Calls(), ">"); n != 5 {
		t.Errorf("%d calls, want 5", n)
	}
	f.values.fail = errors.New("no values")
	done := make(chan error, 1)
	d.Perform(effects[:1], func(err error) { done <- err })
	if err := await(t, done, "the end"); err == nil || err.Error() != "no values" {
		t.Errorf("error %v", err)
	}
}

// held is a Publisher that acknowledges when it is told to.
type held struct {
	came chan heldMsg
}

type heldMsg struct {
	msg  *nats.Msg
	done func(publish.Ack, error)
}

func (h *held) Publish(m *nats.Msg, done func(publish.Ack, error)) { h.came <- heldMsg{m, done} }

func TestBatchesOfARunAreInOrderAndRunsDoNotWait(t *testing.T) {
	f := newFleet(t)
	h := &held{came: make(chan heldMsg, 100)}
	d, _ := f.dispatcher(func(o *Options) { o.Publisher = h })
	var mu sync.Mutex
	var ends []string
	ended := make(chan struct{}, 10)
	perform := func(name string, effects ...machine.Effect) {
		d.Perform(effects, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			text := name
			if err != nil {
				text += ": " + err.Error()
			}
			ends = append(ends, text)
			ended <- struct{}{}
		})
	}
	other := callEffect("f", "9")
	other.Run = "r2"
	perform("first", callEffect("f", "1"), callEffect("f", "2"))
	perform("second", callEffect("f", "3"))
	perform("third", callEffect("f", "4"))
	perform("other", other)
	var bodies []string
	var got []heldMsg
	take := func(n int) {
		for range n {
			m := await(t, h.came, "a message")
			got, bodies = append(got, m), append(bodies, string(m.msg.Data))
		}
	}
	take(3)
	got[2].done(publish.Ack{}, nil)
	await(t, ended, "the end of the other run")
	got[0].done(publish.Ack{}, errors.New("broken"))
	got[1].done(publish.Ack{}, errors.New("broken as well"))
	take(1)
	got[3].done(publish.Ack{}, nil)
	take(1)
	got[4].done(publish.Ack{}, nil)
	for range 3 {
		await(t, ended, "the end of a batch")
	}
	if !slices.Equal(bodies, []string{"1", "2", "9", "3", "4"}) {
		t.Errorf("published %v", bodies)
	}
	if want := []string{"other", "first: broken", "second", "third"}; !slices.Equal(ends, want) {
		t.Errorf("ends %q, want %q", ends, want)
	}
	if len(d.runs) != 0 {
		t.Errorf("runs are left: %v", d.runs)
	}
}

func TestPerformNeverBlocksAndEndsWithRun(t *testing.T) {
	f := newFleet(t)
	h := &held{came: make(chan heldMsg)} // Publish blocks until it is read
	d, stop := f.dispatcher(func(o *Options) { o.Publisher = h })
	ends := make(chan error, 10)
	d.Perform([]machine.Effect{callEffect("f", "1")}, func(err error) { ends <- err })
	d.Tick("r3", func(err error) { ends <- err })
	d.Tick("r3", nil)
	d.Perform(nil, func(err error) { ends <- err })
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	for range 3 {
		m := await(t, h.came, "a message")
		m.done(publish.Ack{}, nil)
	}
	await(t, stopped, "the end of Run")
	if len(ends) != 3 { // all of them before Run returned
		t.Errorf("%d ends, want 3", len(ends))
	}
	late := make(chan error, 2)
	d.Perform([]machine.Effect{callEffect("f", "1")}, func(err error) { late <- err })
	d.Tick(run, func(err error) { late <- err })
	for range 2 {
		if err := await(t, late, "the end"); !errors.Is(err, drover.CodeUnavailable) {
			t.Errorf("after Run: error %v", err)
		}
	}
}

func TestUnknownEffectIsAnError(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	done := make(chan error, 1)
	d.Perform([]machine.Effect{{Owed: machine.Owed{Kind: "dance"}, Run: run}}, func(err error) { done <- err })
	if err := await(t, done, "the end"); err == nil || !strings.Contains(err.Error(), "dance") {
		t.Errorf("error %v", err)
	}
}

// Errors of effects are logged by whoever gives them again, and a token in the
// log would be a right to deliver.
func TestErrorsOfHooksKeepTheTokenSecret(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher(func(o *Options) { o.Claims, o.Runs = brokenClaims{}, holders{} })
	done := make(chan error, 1)
	d.Perform([]machine.Effect{claimEffect("r1")}, func(err error) { done <- err })
	err := await(t, done, "the end of a claim")
	if !errors.Is(err, drover.CodeFull) || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	d.claimant.Undelivered("r1", "secret", 2)
	if got := f.logs.String(); !strings.Contains(got, `"deliveries":2`) || strings.Contains(got, "secret") {
		t.Errorf("logged: %s", got)
	}
}

type brokenClaims struct{ hook.Keys }

func (brokenClaims) Claim(context.Context, string, []byte) (uint64, error) {
	return 0, fmt.Errorf("token %q: %w", "secret", drover.CodeFull)
}
