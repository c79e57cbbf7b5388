package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/api"
	"github.com/droverhq/drover/kv"

	"github.com/droverhq/drover/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func parts(subject string) (run, verb string) {
	p := strings.Split(subject, ".")
	return p[len(p)-2], p[len(p)-1]
}

// plan calls f, then waits for a delivery.
const plan = `{"name":"naming","nodes":{"plan":{"call":"f"},"ok":{"wait":{"name":"approved"},"depends_on":["plan"]}},"output":{"from":"node:plan"}}`

func (o *owner) start(request string) drover.StartReply {
	o.t.Helper()
	var reply drover.StartReply
	if err := o.ask("start", request, &reply); err != nil {
		o.t.Fatal(err)
	}
	return reply
}

// until asks until it is so.
func (o *owner) until(what string, so func() bool) {
	o.t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			o.t.Fatalf("gave up waiting for %s", what)
		}
	}
}

func (o *owner) status(run string) drover.StatusReply {
	o.t.Helper()
	var reply drover.StatusReply
	if err := o.ask("status", `{"run_id":"`+run+`"}`, &reply); err != nil {
		o.t.Fatal(err)
	}
	return reply
}

func TestLifeOfARun(t *testing.T) {
	o := newOwner(t).serve(nil)
	reply := o.start(`{"run_id":"run1","definition":` + plan + `,"input":{"a":1},"tagz":{}}`)
	if !reply.Created || reply.RunID != "run1" || reply.Status != drover.StatusRunning || len(reply.Warnings) != 2 ||
		reply.Warnings[0].Place != "tagz" || reply.Warnings[1].Place != "nodes.ok" {
		t.Errorf("reply %+v", reply)
	}
	status := o.status("run1")
	if status.Run.Workflow != "naming" || len(status.Run.Nodes) != 2 || len(status.Definition) == 0 || string(status.Run.Input) != `{"a":1}` {
		t.Errorf("status %+v", status)
	}
	var brief drover.StatusReply
	if err := o.ask("status", `{"run_id":"run1","brief":true}`, &brief); err != nil || brief.Definition != nil {
		t.Errorf("status %+v, error %v", brief, err)
	}
	if err := o.ask("tick", `{"run_id":"run1"}`, &struct{}{}); err != nil {
		t.Error(err)
	}
	var delivered drover.DeliverReply
	if err := o.ask("deliver", `{"run_id":"run1","name":"approved","payload":true,"id":"x"}`, &delivered); err != nil || delivered.Unread != 1 {
		t.Errorf("reply %+v, error %v", delivered, err)
	}
	var result drover.ResultReply
	if err := o.ask("result", `{"run_id":"run1"}`, &result); err != nil || result.Status.Terminal() || result.Output != nil {
		t.Errorf("result %+v, error %v", result, err)
	}
	big := `"` + strings.Repeat("<b>&", drover.MaxInlineValue) + `"` // nothing of it is escaped
	o.call("run1/plan@1", big)
	o.until("the end", func() bool { return o.status("run1").Run.Status == drover.StatusCompleted })
	for _, request := range []string{`{"run_id":"run1"}`, `{"run_id":"run1","node":"plan"}`} {
		if err := o.ask("result", request, &result); err != nil || string(result.Output) != big {
			t.Errorf("result %+v, error %v", result, err)
		}
	}
	if result.Node == nil || result.Node.Status != drover.NodeDone {
		t.Errorf("result %+v", result)
	}
	var all drover.StatusReply
	if err := o.ask("status", `{"run_id":"run1","values":true}`, &all); err != nil || string(all.Run.Result) != big {
		t.Errorf("status %+v, error %v", all, err)
	}
	var stop drover.StopReply
	if err := o.ask("stop", `{"run_id":"run1"}`, &stop); err != nil || stop.Status != drover.StatusCompleted {
		t.Errorf("stop of a run that is over: %+v, error %v", stop, err)
	}
}

func TestDefinitions10StopSaysWhatItStopped(t *testing.T) {
	o := newOwner(t).serve(nil)
	if err := o.ask("stop", `{"run_id":"run1"}`, &struct{}{}); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("stop of no run: %v", err)
	}
	o.start(`{"run_id":"run1","definition":` + plan + `}`)
	var reply drover.StopReply
	if err := o.ask("stop", `{"run_id":"run1","reason":"a mistake"}`, &reply); err != nil || reply.RunID != "run1" {
		t.Errorf("reply %+v, error %v", reply, err)
	}
	if run := o.status("run1").Run; run.Status != drover.StatusCancelled || !strings.Contains(run.Error.Message, "a mistake") {
		t.Errorf("status %+v", run)
	}
}

func TestDefinitions14KeysMakeOneRun(t *testing.T) {
	o := newOwner(t).serve(nil)
	var put drover.DefinitionReply
	if err := o.ask("definition.put", `{"definition":`+plan+`}`, &put); err != nil {
		t.Fatal(err)
	}
	first := o.start(`{"workflow":"naming","idempotency_key":"order 17","input":1}`)
	if first.Warnings != nil {
		t.Errorf("whoever starts what is registered is told %v", first.Warnings)
	}
	again := o.start(fmt.Sprintf(`{"hash":%q,"idempotency_key":"order 17","input":1}`, put.Hash))
	if !first.Created || again.Created || first.RunID != again.RunID || first.RunID != drover.KeyRunID("", "order 17") {
		t.Errorf("replies %+v %+v", first, again)
	}
	if err := o.ask("start", `{"workflow":"naming","idempotency_key":"order 17","input":2}`, nil); !errors.Is(err, drover.CodeConflict) {
		t.Errorf("another input: %v", err)
	}
	if err := o.ask("start", `{"workflow":"naming","idempotency_key":"order 17","run_id":"mine"}`, nil); !errors.Is(err, drover.CodeConflict) {
		t.Errorf("another id: %v", err)
	}
	if a, b := o.start(`{"workflow":"naming"}`), o.start(`{"workflow":"naming"}`); a.RunID == b.RunID || !strings.HasPrefix(string(a.RunID), "r_") {
		t.Errorf("ids %s %s", a.RunID, b.RunID)
	}
}

func TestDefinitions01AllProblemsComeInOneAnswer(t *testing.T) {
	o := newOwner(t).serve(nil)
	broken := `{"nodes":{"a":{"call":"f","timeout":"soon"},"b":{"cal":"f"}}}`
	for verb, request := range map[string]string{"start": `{"run_id":"run1","definition":` + broken + `}`, "definition.put": `{"definition":` + broken + `}`} {
		err := o.ask(verb, request, nil)
		var e *drover.Error
		if !errors.As(err, &e) || e.Code != drover.CodeInvalidDefinition || len(e.Problems) < 3 {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := o.ask("status", `{"run_id":"run1"}`, nil); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("a run was made: %v", err)
	}
}

func TestInputIsChecked(t *testing.T) {
	o := newOwner(t).serve(nil)
	def := `{"input_schema":{"type":"object"},"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`
	if err := o.ask("start", `{"run_id":"run1","input":1,"definition":`+def+`}`, nil); !errors.Is(err, drover.CodeInvalidInput) {
		t.Errorf("error %v", err)
	}
}

func TestGarbage(t *testing.T) {
	o := newOwner(t).serve(nil)
	bodies := []string{
		"", "{", "[]", "null", "1", `"x"`, "\xff\x00", `{"run_id":1}`, `{"run_id":"a.b"}`, `{"run_id":"run1","node":1}`,
		`{"definition":1}`, `{"definition":"\u0000"}`, `{"definition":{},"hash":"x"}`, `{"hash":"x"}`, `{"workflow":"a b"}`,
		`{"name":"a.b"}`, `{"limit":-1}`, `{"status":"tired"}`, `{"item":1}`, `{"parent":{"call":"r/n@1"}}`, strings.Repeat("[", 100_000),
	}
	lists := []string{"list", "definition.list", "dead.list", "fleet", "hook.list"} // an empty object is enough
	for _, verb := range append(slices.Clone(lists), "start", "stop", "tick", "deliver", "status", "result", "why", "definition.put", "definition.get", "dead.show", "dead.requeue", "hook.deliver", "hook.deliver.many", "hook.show", "hook.release") {
		for _, body := range bodies {
			err := o.ask(verb, body, &struct{}{})
			if err == nil && verb == "hook.deliver.many" && strings.HasPrefix(body, `{"run_id":"run1"`) {
				continue // to each hook of a run that has none
			}
			if err == nil && slices.Contains(lists, verb) && (body == "" || strings.HasPrefix(body, "{")) {
				continue
			}
			var e *drover.Error
			if !errors.As(err, &e) || e.Code == drover.CodeInternal || e.Message == "" {
				t.Errorf("%s %.40q: %v", verb, body, err)
			}
		}
	}
}

func TestDefinitionsByName(t *testing.T) {
	o := newOwner(t).serve(nil)
	var put, got drover.DefinitionReply
	if err := o.ask("definition.put", `{"name":"other","definition":`+plan+`}`, &put); err != nil || put.Name != "other" {
		t.Fatalf("reply %+v, error %v", put, err)
	}
	yaml, _ := json.Marshal("name: second\nnodes:\n  a: {call: f}\noutput: {from: node:a}\n")
	if err := o.ask("definition.put", `{"definition":`+string(yaml)+`}`, &got); err != nil || got.Name != "second" {
		t.Fatalf("reply %+v, error %v", got, err)
	}
	for _, request := range []string{`{"name":"other"}`, fmt.Sprintf(`{"hash":%q}`, put.Hash)} {
		if err := o.ask("definition.get", request, &got); err != nil || got.Hash != put.Hash || !strings.Contains(string(got.Definition), "approved") {
			t.Errorf("definition %+v, error %v", got, err)
		}
	}
	var list drover.DefinitionList
	if err := o.ask("definition.list", "", &list); err != nil || len(list.Definitions) != 2 || list.Definitions[0].Name != "other" {
		t.Errorf("list %+v, error %v", list, err)
	}
	for verb, request := range map[string]string{"definition.get": `{"name":"none"}`, "start": `{"workflow":"none"}`} {
		if err := o.ask(verb, request, nil); !errors.Is(err, drover.CodeNotFound) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

func TestList(t *testing.T) {
	o := newOwner(t).serve(nil)
	for i := range 12 {
		o.start(fmt.Sprintf(`{"run_id":"run%d","tags":{"half":"%d"},"definition":%s}`, i, i%2, plan))
	}
	if err := o.ask("stop", `{"run_id":"run3"}`, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]struct {
		n    int
		more bool
	}{
		"":                        {12, false},
		`{"limit":5}`:             {5, true},
		`{"tags":{"half":"1"}}`:   {6, false},
		`{"tags":{"whole":"1"}}`:  {0, false},
		`{"status":"cancelled"}`:  {1, false},
		`{"workflow":"naming"}`:   {12, false},
		`{"workflow":"nameless"}`: {0, false},
	} {
		var list drover.ListReply
		if err := o.ask("list", request, &list); err != nil || len(list.Runs) != want.n || list.More != want.more {
			t.Errorf("%s: %d runs, more %v, error %v", request, len(list.Runs), list.More, err)
		}
		for i := 1; i < len(list.Runs); i++ {
			if list.Runs[i-1].CreatedAt.Before(list.Runs[i].CreatedAt) {
				t.Errorf("%s: run %d is older than the one after it", request, i-1)
			}
		}
	}
}

func TestDefinitions13WhySaysWhoServesACall(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.start(`{"run_id":"run1","definition":` + plan + `}`)
	why := func() string {
		t.Helper()
		var reply drover.WhyReply
		if err := o.ask("why", `{"run_id":"run1"}`, &reply); err != nil || len(reply.Reasons) != 1 || reply.Reasons[0].On != "f" {
			t.Fatalf("reply %+v, error %v", reply, err)
		}
		return reply.Reasons[0].Text
	}
	// What a consumer tells of itself is a moment behind what has happened.
	says := func(what, text string) {
		t.Helper()
		last := ""
		defer func() {
			if t.Failed() {
				t.Logf("%s: %s", what, last)
			}
		}()
		o.until(what, func() bool {
			last = why()
			return strings.Contains(last, text)
		})
	}
	says("without a consumer", "no function named f has ever connected")
	if _, err := o.js.Publish(t.Context(), o.names.Call("run1", "f"), nil); err != nil {
		t.Fatal(err)
	}
	c, err := o.js.CreateConsumer(t.Context(), o.names.Calls(), jetstream.ConsumerConfig{
		Durable: o.names.Consumer("f"), FilterSubject: o.names.CallsTo("f"), AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	says("without an instance", "nobody is connected who performs f: start one (1 call of it waits in the queue, 0 are being performed)")
	if _, err := c.Next(); err != nil {
		t.Fatal(err)
	}
	says("with a busy instance", "its instances are busy: 0 calls of it wait in the queue, 1 is being performed")
}

func TestStartThatDoesNotSayWhatToRun(t *testing.T) {
	o := newOwner(t).serve(nil)
	for request, says := range map[string]string{
		`{}`: "does not say what to run",
		`{"workflow":"naming","definition":` + plan + `}`: "in 2 ways",
	} {
		if err := o.ask("start", request, nil); !errors.Is(err, drover.CodeInvalidRequest) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40s: %v", request, err)
		}
	}
}

func TestOwnerThatDoesNotAnswer(t *testing.T) {
	o := newOwner(t).serve(func(c *api.Config) { c.AnswerTime = 10 * time.Millisecond })
	o.mu.Lock()
	o.deaf = true
	o.mu.Unlock()
	err := o.ask("start", `{"run_id":"run1","definition":`+plan+`}`, nil)
	if !errors.Is(err, drover.CodeUnavailable) || !strings.Contains(err.Error(), "the start of run run1 is durable") {
		t.Errorf("error %v", err)
	}
}

// stuck is a store that answers when it is let go.
type stuck struct {
	kv.Runs
	asked, letGo chan struct{}
}

func (s stuck) Load(ctx context.Context, key string) (kv.Record, error) {
	s.asked <- struct{}{}
	<-s.letGo
	return s.Runs.Load(ctx, key)
}

type panics struct{ kv.Definitions }

func (panics) List(context.Context) ([]kv.Registered, error) { panic("no list") }

func TestRequestsDoNotWaitForEachOther(t *testing.T) {
	o := newOwner(t)
	s := stuck{Runs: o.store.Runs, asked: make(chan struct{}, 10), letGo: make(chan struct{})}
	o.serve(func(c *api.Config) {
		c.Records, c.Concurrency = s, 2
		c.Definitions = panics{o.store.Definitions}
	})
	inbox, err := o.nc.SubscribeSync(o.nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := o.nc.PublishRequest(o.names.API("status"), inbox.Subject, []byte(`{"run_id":"run1"}`)); err != nil {
			t.Fatal(err)
		}
		<-s.asked
	}
	if err := o.ask("why", `{"run_id":"run1"}`, nil); !errors.Is(err, drover.CodeUnavailable) || !strings.Contains(err.Error(), "2 requests") {
		t.Errorf("a third one: %v", err)
	}
	o.start(`{"run_id":"run2","definition":` + plan + `}`) // commands have room
	close(s.letGo)
	for range 2 {
		if m, err := inbox.NextMsg(patience); err != nil || !strings.Contains(string(m.Data), "there is no run run1") {
			t.Errorf("answer %v, error %v", m, err)
		}
	}
	if err := o.ask("definition.list", "", nil); !errors.Is(err, drover.CodeInternal) {
		t.Errorf("a panic: %v", err)
	}
	stats, err := o.nc.Request("$SRV.STATS."+o.names.Service(), nil, patience)
	if err != nil || !strings.Contains(string(stats.Data), `"last_error":"the request for definition.list failed`) {
		t.Errorf("stats %s, error %v", stats.Data, err)
	}
}
