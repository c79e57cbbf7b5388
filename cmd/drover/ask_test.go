package main

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// fleet answers requests with what a test says, and keeps what was asked.
type fleet struct {
	url string
	nc  *nats.Conn
	t   *testing.T

	mu    sync.Mutex
	asked map[string]string // the last request of each verb
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	s := natstest.New(t, natstest.Listen())
	return &fleet{url: s.URL(), nc: s.Connect(), asked: map[string]string{}, t: t}
}

// answers lets a verb be answered with a reply or a *drover.Error.
func (f *fleet) answers(verb string, reply any) {
	f.t.Helper()
	data, err := json.Marshal(reply)
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = f.nc.Subscribe(subjects.Default().API(verb), func(m *nats.Msg) {
		f.mu.Lock()
		f.asked[verb] = string(m.Data)
		f.mu.Unlock()
		answer := nats.NewMsg(m.Reply)
		answer.Data = data
		if e, ok := reply.(*drover.Error); ok {
			answer.Header.Set(subjects.HeaderCode, string(e.Code))
		}
		if err := m.RespondMsg(answer); err != nil {
			f.t.Error(err)
		}
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		f.t.Fatal(err)
	}
}

// got is the last request of a verb.
func (f *fleet) got(verb string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[verb]
}

func (f *fleet) cli(stdin string, args ...string) (status int, stdout, stderr string) {
	f.t.Helper()
	f.t.Setenv(envName("nats"), f.url)
	return cli(f.t, stdin, args...)
}

func TestCommandsAskTheFleet(t *testing.T) {
	item := 3
	now := time.Now()
	run := drover.Run{ID: "r_1", Workflow: "naming", Status: drover.StatusRunning, CreatedAt: now, Nodes: []drover.Node{{ID: "plan", Kind: drover.KindCall, Status: drover.NodePending}}}
	for _, c := range []struct {
		name        string
		args        []string
		stdin, verb string
		reply       any
		asked       string // as JSON
		status      int
		out         string // standard output, or its beginning where it ends with ...
		err         string // within standard error
	}{
		{
			name: "start by name", args: []string{"start", "--workflow", "naming", "--run", "r_1", "--input", `{"a": 1}`, "--tag", "k=v", "--notify", "x.done"}, verb: "start",
			reply: drover.StartReply{RunID: "r_1", Created: true, Status: drover.StatusRunning, Warnings: []drover.Problem{{Place: "inptu", Message: "is no key"}}},
			asked: `{"run_id":"r_1","workflow":"naming","input":{"a":1},"notify":[{"subject":"x.done"}],"tags":{"k":"v"}}`,
			out:   "r_1\n", err: "warning: inptu: is no key",
		},
		{
			name: "start with a key and an input from standard input", args: []string{"start", "--hash", strings.Repeat("a", 64), "--key", "order-1", "--input", "-", "--json"}, stdin: "[1]", verb: "start",
			reply: drover.StartReply{RunID: "k_1", Status: drover.StatusCompleted},
			asked: `{"hash":"` + strings.Repeat("a", 64) + `","input":[1],"idempotency_key":"order-1"}`,
			out:   `{"run_id":"k_1","created":false,"status":"completed"}` + "\n",
		},
		{
			name: "an error of the fleet", args: []string{"start", "--workflow", "nmaing", "--run", "r_1"}, verb: "start",
			reply: drover.Errorf(drover.CodeNotFound, "no workflow is called nmaing"), asked: `{"run_id":"r_1","workflow":"nmaing"}`,
			status: exitFailed, err: "drover: no workflow is called nmaing",
		},
		{
			name: "an input that does not fit", args: []string{"start", "--workflow", "naming", "--run", "r_1"}, verb: "start",
			reply: drover.Errorf(drover.CodeInvalidInput, "topic is missing"), asked: `{"run_id":"r_1","workflow":"naming"}`,
			status: exitUsage, err: "topic is missing",
		},
		{
			name: "stop", args: []string{"stop", "r_1", "--reason", "a mistake"}, verb: "stop",
			reply: drover.StopReply{RunID: "r_1", Status: drover.StatusCancelled},
			asked: `{"run_id":"r_1","reason":"a mistake"}`, out: "r_1 cancelled\n",
		},
		{
			name: "deliver", args: []string{"deliver", "r_1", "approved", `{"by": "kim"}`, "--id", "m1"}, verb: "deliver",
			reply: drover.DeliverReply{RunID: "r_1", Repeat: true},
			asked: `{"run_id":"r_1","name":"approved","payload":{"by":"kim"},"id":"m1"}`, out: "delivered before, nothing changed\n",
		},
		{
			name: "status", args: []string{"status", "r_1", "--values"}, verb: "status", reply: drover.StatusReply{Run: run},
			asked: `{"run_id":"r_1","values":true}`, out: "naming r_1  running  ...",
		},
		{
			name: "result", args: []string{"result", "r_1"}, verb: "result",
			reply: drover.ResultReply{RunID: "r_1", Status: drover.StatusCompleted, Output: json.RawMessage(`{"a":"b"}`)},
			asked: `{"run_id":"r_1"}`, out: "{\n  \"a\": \"b\"\n}\n",
		},
		{
			name: "result of an item that has none", args: []string{"result", "r_1", "--node", "draft", "--item", "3"}, verb: "result",
			reply:  drover.ResultReply{RunID: "r_1", Node: &drover.Node{ID: "draft", Status: drover.NodeRunning}},
			asked:  `{"run_id":"r_1","node":"draft","item":3}`,
			status: exitFailed, err: "node draft is running and has no output",
		},
		{
			// Its code would be a usage error where it was about the command.
			name: "result of a node that failed", args: []string{"result", "r_1", "--node", "draft"}, verb: "result",
			reply:  drover.ResultReply{RunID: "r_1", Node: &drover.Node{ID: "draft", Status: drover.NodeFailed}, Error: drover.Errorf(drover.CodeInvalidInput, "no such page")},
			asked:  `{"run_id":"r_1","node":"draft"}`,
			status: exitFailed, err: "drover: node draft of run r_1 is failed: no such page",
		},
		{
			name: "result of a run that failed, as JSON", args: []string{"result", "r_1", "--json", "--timeout", "5s"}, verb: "result",
			reply: drover.ResultReply{RunID: "r_1", Status: drover.StatusFailed, Error: drover.Errorf(drover.CodeTooLarge, "too much")},
			asked: `{"run_id":"r_1"}`, status: exitFailed, out: `{"run_id":"r_1","status":"failed","error":...`, err: "drover: run r_1 is failed: too much",
		},
		{
			name: "why", args: []string{"why", "r_1"}, verb: "why",
			reply: drover.WhyReply{RunID: "r_1", Status: drover.StatusRunning, Reasons: []drover.Reason{
				{Node: "draft", Item: &item, Waiting: "call", Text: "item 3 of node draft waits"},
				{Node: "gate", Waiting: "delivery", On: "ship it", Text: "node gate waits for a delivery"},
			}},
			asked: `{"run_id":"r_1"}`, out: "run r_1 is running\n  item 3 of node draft waits\n  node gate waits for a delivery\n" +
				"    drover deliver r_1 'ship it' '{\"any\": \"JSON\"}'\n",
		},
		{
			name: "list", args: []string{"list", "--status", "running", "--tag", "k=v", "--limit", "5"}, verb: "list",
			reply: drover.ListReply{Runs: []drover.Run{run}, More: true}, asked: `{"status":"running","tags":{"k":"v"},"limit":5}`,
			out: "RUN  WORKFLOW  STATUS   CREATED ...",
		},
		{
			name: "list as JSON, without a limit of time", args: []string{"list", "--json", "--timeout", "0"}, verb: "list",
			reply: drover.ListReply{Runs: []drover.Run{{ID: "r_1", Status: drover.StatusFailed}}}, asked: `{"limit":100}`,
			out: `{"runs":[{"run_id":"r_1","definition":"","status":"failed","created_at":"0001-01-01T00:00:00Z","applied":0}]}` + "\n",
		},
		{
			name: "definition get by name", args: []string{"definition", "get", "naming"}, verb: "definition.get",
			reply: drover.DefinitionReply{Name: "naming", Definition: json.RawMessage(`{"version":1}`)}, asked: `{"name":"naming"}`,
			out: "{\n  \"version\": 1\n}\n",
		},
		{
			name: "definition get by hash", args: []string{"definition", "get", strings.Repeat("a", 64)}, verb: "definition.get",
			reply: drover.Errorf(drover.CodeNotFound, "no definition has this hash"), asked: `{"hash":"` + strings.Repeat("a", 64) + `"}`,
			status: exitFailed, err: "no definition has this hash",
		},
		{
			name: "definition list", args: []string{"definition", "list"}, verb: "definition.list",
			reply: drover.DefinitionList{Definitions: []drover.DefinitionReply{{Name: "naming", Hash: "abc"}}}, asked: `{}`,
			out: "NAME    HASH\nnaming  abc\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(t)
			f.answers(c.verb, c.reply)
			status, out, err := f.cli(c.stdin, c.args...)
			if status != c.status || !strings.Contains(err, c.err) || c.err == "" && err != "" {
				t.Errorf("exit status %d, and on standard error %q; want %d and %q", status, err, c.status, c.err)
			}
			if want, begins := strings.CutSuffix(c.out, "..."); out != c.out && (!begins || !strings.HasPrefix(out, want)) {
				t.Errorf("printed %q, want %q", out, c.out)
			}
			if got := f.got(c.verb); got != c.asked {
				t.Errorf("asked %s, want %s", got, c.asked)
			}
		})
	}
}

// Who names an approval in place of its token is told which that is.
func TestDeliverToANodeNamesItsToken(t *testing.T) {
	f := newFleet(t)
	f.answers("deliver", drover.DeliverReply{RunID: "r_1", Kept: true})
	f.answers("why", drover.WhyReply{RunID: "r_1", Reasons: []drover.Reason{
		{Node: "other", Waiting: "hook", On: "h_1"}, {Node: "ok", Waiting: "hook", On: "h_2"},
	}})
	const kept = "delivered: no wait named ok is open now, and it is kept for the next one\n"
	if _, out, err := f.cli("", "deliver", "r_1", "ok", "true"); out != kept+"node ok waits for a token, and not for that: drover hook deliver h_2 PAYLOAD\n" {
		t.Errorf("printed %q, %s", out, err)
	}
}

func TestWaitPrintsTheOutcomeAndExitsWithIt(t *testing.T) {
	for status, exit := range map[drover.Status]int{
		drover.StatusCompleted: 0, drover.StatusFailed: 1, drover.StatusCancelled: 3,
		drover.StatusCompensated: 4, drover.StatusCompensationFailed: 5,
	} {
		t.Run(string(status), func(t *testing.T) {
			f := newFleet(t)
			run := drover.Run{ID: "r_1", Status: status, Result: json.RawMessage("7")}
			f.answers("status", drover.StatusReply{Run: run})
			got, out, err := f.cli("", "wait", "r_1", "--json")
			if got != exit || err != "" {
				t.Errorf("exit status %d, standard error %q; want %d and nothing", got, err, exit)
			}
			var outcome drover.Outcome
			if err := json.Unmarshal([]byte(out), &outcome); err != nil || outcome.RunID != "r_1" || outcome.Status != status {
				t.Errorf("printed %q (%v), want the outcome", out, err)
			}
		})
	}
}

func TestWaitGivesUp(t *testing.T) {
	f := newFleet(t)
	f.answers("status", drover.StatusReply{Run: drover.Run{ID: "r_1", Status: drover.StatusRunning}})
	status, out, err := f.cli("", "wait", "r_1", "--timeout", "50ms")
	if status != exitFailed || out != "" || !strings.Contains(err, "run r_1 is not over after 50ms") {
		t.Errorf("exit status %d, %q, %q", status, out, err)
	}
}

func TestStartWaitsNoLongerThanItsTimeout(t *testing.T) {
	f := newFleet(t)
	f.answers("start", drover.StartReply{RunID: "r_1", Created: true, Status: drover.StatusRunning})
	f.answers("status", drover.StatusReply{Run: drover.Run{ID: "r_1", Status: drover.StatusRunning}})
	status, out, err := f.cli("", "start", "--workflow", "w", "--run", "r_1", "--wait", "--timeout", "300ms")
	if status != exitFailed || out != "" || !strings.Contains(err, "run r_1 is not over after 300ms") {
		t.Errorf("exit status %d, %q, %q", status, out, err)
	}
}

func TestNoWorkerAnswers(t *testing.T) {
	f := newFleet(t)
	status, out, err := f.cli("", "list", "--timeout", "1s")
	if status != exitFailed || out != "" || !strings.Contains(err, "no worker answers") {
		t.Errorf("exit status %d, %q, %q", status, out, err)
	}
}
