package machine

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

func TestHeadlinesRunUnchanged(t *testing.T) {
	text, err := os.ReadFile("testdata/headlines.json")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, string(text))
	w.start(`{"topic":"<b>rivers</b>"}`)
	w.wantEffects("call outline@1")
	e := w.last.Effects[0]
	if e.Call.Function != subjects.FunctionAgent {
		t.Fatalf("function %s", e.Call.Function)
	}
	var turn map[string]any
	if err := json.Unmarshal(e.Value.JSON, &turn); err != nil {
		t.Fatal(err)
	}
	message := turn["message"].(string)
	wantWords(t, message, "List the sections.\n\n", `{"topic":"\u003cb\u003erivers\u003c/b\u003e"}`)
	if strings.Count(message, "<") != 2 || turn["session_id"] != "wf_r1_outline@r1" || turn["model"] != "small-1" {
		t.Fatalf("%v", turn)
	}
	if got := show(turn["functions"]); got != `{"deny":["workflow::*","mail::*"]}` {
		t.Fatalf("functions %s", got)
	}
	w.ok("outline@1", `"{\"sections\": [\"one\", \"two\"]}"`)
	w.wantEffects("call draft#0@1", "call draft#1@1")
	wantWords(t, string(w.last.Effects[1].Value.JSON), "wf_r1_draft#1@r1", `"allow":["docs::*"]`, "mail::*", "Write this section.")
	w.ok("draft#1@1", `{"t":2}`)
	w.ok("draft#0@1", `{"t":1}`)
	w.wantEffects("call critique@1")
	w.ok("critique@1", `{}`)
	w.wantEffects("call final@1")
	w.ok("final@1", `"all of it"`)
	w.wantResult(`"all of it"`)
}

func TestBigValuesAreLoadedOnlyWhereTheyAreRead(t *testing.T) {
	big := `{"names":["a"],"text":"` + strings.Repeat("x", 3000) + `"}`
	w := newWorld(t, `{"nodes":{"a":{"call":"f"},"pass":{"call":"g","input":{"from":"node:a"}},"read":{"call":"h","input":{"from":"node:pass.names"}}},"output":{"from":"node:read"}}`)
	w.start(big)
	if e := w.last.Effects[0]; e.Value.Key != "r1.input" || e.Value.Size != len(big) || len(w.last.Puts) != 1 {
		t.Fatalf("%+v", e)
	}
	w.ok("a@1", big)
	if e := w.last.Effects[0]; e.Value.Key != "r1.node.a.1" {
		t.Fatalf("%+v", e)
	}
	w.ok("pass@1", big)
	if e := w.last.Effects[0]; string(e.Value.JSON) != `["a"]` {
		t.Fatalf("%+v", e)
	}
	effects, err := Effects(w.p, w.decode(w.record), Compact(w.last.Effects), nil)
	need, ok := errors.AsType[*NeedError](err)
	if !ok || !slices.Equal(need.Keys, []string{"r1.node.pass.1"}) {
		t.Fatalf("%v %v", effects, err)
	}
}

func TestGroupsOfStoredItems(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","fanout":{"over":"${{ input.n }}"}},"b":{"call":"g","input":{"from":"node:a"}}},"output":{"from":"node:b"}}`)
	w.start(`{"n":[1,2,3]}`)
	item := `"` + strings.Repeat("y", 2100) + `"`
	for _, call := range []string{"a#2@1", "a#0@1", "a#1@1"} {
		w.ok(call, item)
	}
	w.wantEffects("call b@1")
	if e := w.last.Effects[0]; e.Value.Key != "r1.node.a.1" || string(w.stored[e.Value.Key]) != "["+item+","+item+","+item+"]" {
		t.Fatalf("%+v", e)
	}
	one := 1
	if _, raw, err := Output(w.p, w.s, func(k string) (json.RawMessage, bool) { raw, ok := w.stored[k]; return raw, ok }, "a", &one); err != nil || string(raw) != item {
		t.Fatal(err)
	}
	if keys := ViewKeys(w.p, w.s); len(keys) != 4 {
		t.Fatalf("%v", keys)
	}
}

func TestFailedItemStopsItsFanout(t *testing.T) {
	text := `{"nodes":{"a":{"call":"f","fanout":{"over":"run_input","max_parallel":2}%s},"b":{"call":"g"}},"output":{"with":["${{ nodes.b.output }}"%s]}}`
	w := newWorld(t, strings.Replace(strings.Replace(text, "%s", "", 1), "%s", "", 1))
	w.start(`[1,2,3,4]`)
	w.fail("a#1@1", drover.Error{Message: "bad item"})
	w.wantStatus(drover.StatusRunning) // nothing needs it
	w.wantEffects("cancel a#0@1")
	n := w.node("a")
	wantWords(t, n.Error.Message, "item 1", "bad item")
	if n.Items.Counts[drover.NodeSkipped] != 2 || n.Items.Counts[drover.NodeCancelled] != 1 {
		t.Fatalf("%v", n.Items.Counts)
	}
	w = newWorld(t, strings.Replace(strings.Replace(text, "%s", `,"on_error":"continue"`, 1), "%s", `,"${{ nodes.a.output }}"`, 1))
	w.start(`[1,2]`)
	w.ok("a#0@1", `5`)
	w.fail("a#1@1", drover.Error{Message: "bad item"})
	w.ok("b@1", `6`)
	w.wantResult(`[6,[5,null]]`)
	if item := w.node("a").Items.List[1]; item.Status != drover.NodeFailed || item.Errors[0].Error.Message != "bad item" {
		t.Fatalf("%+v", item)
	}
}

func TestRunTimeout(t *testing.T) {
	w := newWorld(t, `{"timeout":"1m","nodes":{"a":{"call":"f","compensate":{"call":"u","timeout":"1h"}},"b":{"wait":{"name":"x"},"depends_on":["a"]},"c":{"call":"g","depends_on":["a"]}},"output":{"from":"node:b"}}`)
	w.start(`1`)
	w.ok("a@1", `2`)
	w.pass(time.Minute).tick()
	w.wantEffects("withdraw [g]", "call a/undo@1")
	w.pass(30 * time.Minute).tick() // the run's deadline does not bind its compensation
	w.wantStatus(drover.StatusRunning)
	w.ok("a/undo@1", `null`)
	w.wantStatus(drover.StatusCompensated)
	if w.s.Error.Code != drover.CodeTimeout {
		t.Fatalf("%v", w.s.Error)
	}
}

func TestOutputThatCannotBeMade(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f"}},"output":{"from":"node:a.x.y"}}`)
	w.start(`1`)
	w.ok("a@1", `{"x":{"z":1}}`)
	w.wantStatus(drover.StatusFailed)
	wantWords(t, w.s.Error.Message, "output of the run", "y", "z")
}

func TestInputThatCannotBeMade(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","input":{"with":{"n":"${{ input.a.b.c }}"}}}},"output":{"from":"node:a"}}`)
	w.start(`{"a":7}`)
	w.wantStatus(drover.StatusFailed)
	w.wantEffects("done")
	if n := w.node("a"); n.Error.Code != drover.CodeExpression {
		t.Fatalf("%+v", n.Error)
	}
}

// Definitions 4: a limit with an error of its own.
func TestStartsThatAreRefused(t *testing.T) {
	w := newWorld(t, `{"input_schema":{"type":"object"},"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.wantRefused(drover.CodeInvalidInput, "r1", "input_schema")
	if w.s != nil || len(w.last.Effects) != 0 {
		t.Fatal("a refused start left something")
	}
	parent := drover.CallID{Run: "up", Node: "n", Item: drover.NoItem, Attempt: 1}
	w.startAs(drover.StartRequest{Input: json.RawMessage(`{}`), Parent: &drover.Parent{Call: parent, Token: "t", Depth: drover.MaxDepth + 1}})
	w.wantRefused(drover.CodeTooLarge, "nested 9 deep")
	w.wantEffects("tell")
	if m := w.last.Effects[0].Child; w.last.Effects[0].To != "up" || m.Status != drover.StatusFailed || m.Token != "t" {
		t.Fatalf("%+v", m)
	}
	w.startAs(drover.StartRequest{Input: json.RawMessage(`{}`), Parent: &drover.Parent{Call: parent, Token: "t", Depth: 2}})
	w.ok("a@1", `5`)
	w.wantEffects("tell", "done")
}

func TestStartByANameThatMoved(t *testing.T) {
	w := newWorld(t, diamond)
	w.startAs(drover.StartRequest{Workflow: "w"})
	w.send(&Command{Verb: drover.VerbStart, Start: &Start{StartRequest: drover.StartRequest{Workflow: "w"}, Hash: "another"}})
	if w.last.Refused != nil || w.last.Answer.(drover.StartReply).Created {
		t.Fatalf("%+v", w.last)
	}
}

// Definitions 4: a limit with an error of its own.
func TestCallsOfARunAreLimited(t *testing.T) {
	text := `{"nodes":{`
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		text += `"` + id + `":{"set":{"with":1},"fanout":{"over":"run_input"}},`
	}
	w := newWorld(t, text+`"z":{"set":{"with":1},"depends_on":["a","b","c","d","e"]}},"output":{"from":"node:z"}}`)
	w.sparing = true
	w.start(list(drover.MaxFanout))
	w.wantStatus(drover.StatusFailed)
	wantWords(t, w.s.Error.Message, "node z", "50001", "50000")
}

func TestDeliveriesAreBounded(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f"},"w":{"wait":{"name":"x"},"depends_on":["a"]}},"output":{"from":"node:w"}}`)
	w.sparing = true
	w.start(`1`)
	for range drover.MaxUnread {
		w.deliver("x", `1`, "")
	}
	w.deliver("x", `1`, "")
	w.wantRefused(drover.CodeFull, "1000")
	w.ok("a@1", `1`) // the wait reads the oldest
	w.wantResult(`1`)
}

func TestDeliveryOfTheOutcome(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`)
	w.startAs(drover.StartRequest{Notify: drover.NotifyList{{Subject: "a"}, {Subject: "b"}}})
	w.ok("a@1", `1`)
	w.wantEffects("done", "deliver 0@1", "deliver 1@1")
	outcome := show(w.last.Effects[2].Outcome)
	w.hear(0, 1, strings.Repeat("r", 400), nil)
	if d := w.view().Deliveries[0]; d.Status != drover.DeliveryDelivered || len(d.Receipt) > 260 || d.Attempts != 1 {
		t.Fatalf("%+v", d)
	}
	pause := time.Duration(0)
	for attempt := 1; attempt <= 12; attempt++ {
		w.hear(1, attempt, "", drover.Errorf("x", "away"))
		w.hear(1, attempt, "", drover.Errorf("x", "away")) // said twice
		if w.last.Changed {
			t.Fatal("an attempt was counted twice")
		}
		pause = w.s.Deadline().Time().Sub(w.now)
		w.now = w.s.Deadline().Time()
		w.tick()
		if got := w.last.Effects[0]; got.Delivery.Attempt != attempt+1 || show(got.Outcome) != outcome {
			t.Fatalf("%s", show(got))
		}
	}
	if pause < 270*time.Second || pause > 331*time.Second {
		t.Fatalf("pause %s", pause)
	}
	w.hear(1, 3, "", nil) // the receipt of an early attempt counts as well
	if d := w.view().Deliveries[1]; d.Status != drover.DeliveryDelivered || len(Why(w.p, w.s)) != 0 {
		t.Fatalf("%+v", d)
	}
	id := w.s.deliveryID(1)
	w.send(&Command{Verb: drover.VerbHeard, Heard: &drover.HeardMessage{DeliveryID: id, Token: "forged"}})
	w.wantRefused(drover.CodeForbidden)
}

func TestCompactMakesRanges(t *testing.T) {
	w := newWorld(t, fanText)
	w.start(list(1000))
	owed := Compact(w.last.Effects)
	if len(owed) != 1 || owed[0].Item != 1 || owed[0].Last != 1000 {
		t.Fatalf("%+v", owed)
	}
}

func TestLongChainsOfSetsCascade(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"nodes":{"n00000":{"set":{"with":0}}`)
	for i := 1; i < 5000; i++ {
		b.WriteString(`,"` + nodeName(i) + `":{"set":{"with":1},"depends_on":["` + nodeName(i-1) + `"]}`)
	}
	b.WriteString(`},"output":{"from":"node:` + nodeName(4999) + `"}}`)
	w := newWorld(t, b.String())
	w.start(`1`)
	w.wantResult(`1`)
}

func nodeName(i int) string {
	s := "0000" + json.Number(show(i)).String()
	return "n" + s[len(s)-5:]
}

// Definitions 4: a limit with an error of its own.
func TestCommandsThatAreRefused(t *testing.T) {
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for _, c := range []struct {
		verb, body string
		code       drover.Code
	}{
		{"start", ``, drover.CodeInvalidRequest},
		{"start", `[]`, drover.CodeInvalidRequest},
		{"start", `{"workflow":5}`, drover.CodeInvalidRequest},
		{"start", `{}`, drover.CodeInvalidRequest},
		{"start", `{"workflow":"a","definition":{}}`, drover.CodeInvalidRequest},
		{"start", `{"workflow":"a.b"}`, drover.CodeInvalidID},
		{"start", `{"workflow":"a","input":` + deep + `}`, drover.CodeInvalidRequest},
		{"start", "{\"workflow\":\"a\",\"input\":\"\xff\"}", drover.CodeInvalidRequest},
		{"start", `{"workflow":"a","idempotency_key":"k"}`, drover.CodeConflict},
		{"start", `{"workflow":"a","idempotency_key":"` + strings.Repeat("k", 1025) + `"}`, drover.CodeTooLarge},
		{"start", `{"workflow":"a","tags":{"":"x"}}`, drover.CodeInvalidRequest},
		{"start", `{"workflow":"a","notify":{"subject":"a.*"}}`, drover.CodeInvalidRequest},
		{"start", `{"workflow":"a","notify":{"subject":"$JS.API.x"}}`, drover.CodeInvalidRequest},
		{"start", `{"workflow":"a","notify":{"subject":"drover.in.r.stop"}}`, drover.CodeInvalidRequest},
		{"start", `{"workflow":"a","notify":{}}`, drover.CodeInvalidRequest},
		{"start", `{"workflow":"a","input":"` + strings.Repeat("x", drover.MaxValue) + `"}`, drover.CodeTooLarge},
		{"stop", `x`, drover.CodeInvalidRequest},
		{"deliver", `{}`, drover.CodeInvalidRequest},
		{"result", `{"call":"r/n"}`, drover.CodeInvalidID},
		{"result", `{"call":"other/n@1"}`, drover.CodeInvalidRequest},
		{"result", `{"call":"r/n@1","output":1,"error":{}}`, drover.CodeInvalidRequest},
		{"jump", `{}`, drover.CodeUnknownVerb},
	} {
		_, _, bad := DecodeCommand(1, epoch, "r", c.verb, []byte(c.body), "")
		if bad == nil || bad.Code != c.code {
			t.Errorf("%s %.60s: %v, want %s", c.verb, c.body, bad, c.code)
		}
	}
	for verb, body := range map[string]string{"tick": "\x00", "stop": " ", "start": `{"workflow":"w","zzz":1}`} {
		if _, _, bad := DecodeCommand(1, epoch, "r", verb, []byte(body), ""); bad != nil {
			t.Errorf("%s: %v", verb, bad)
		}
	}
	key := drover.KeyRunID("", "k")
	if _, _, bad := DecodeCommand(1, epoch, string(key), "start", []byte(`{"workflow":"a","idempotency_key":"k"}`), ""); bad != nil {
		t.Error(bad)
	}
}

func TestAppliedCommandsAreNotAppliedAgain(t *testing.T) {
	w := newWorld(t, diamond)
	w.start(`1`)
	record := string(w.record)
	step, err := Apply(w.p, w.s, &Command{Seq: w.seq, At: w.now.Add(time.Hour), Run: "r1", Verb: drover.VerbStop, Stop: &drover.StopRequest{}}, nil)
	if err != nil || step.Changed || string(w.encode(step.State)) != record {
		t.Fatalf("%+v %v", step, err)
	}
}
