package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

const diamond = `{"nodes":{
	"a":{"call":"f"}, "b":{"call":"f","input":{"from":"node:a"}}, "c":{"call":"f","input":{"from":"node:a"}},
	"d":{"call":"f","input":{"from":["node:b","node:c"]}}},"output":{"from":"node:d"}}`

func TestDefinitions06ReadyNodesFireTogether(t *testing.T) {
	w := newWorld(t, diamond)
	w.start(`1`)
	w.wantEffects("call a@1")
	w.ok("a@1", `2`)
	w.wantEffects("call b@1", "call c@1")
	w.ok("c@1", `"c"`)
	w.wantEffects()
	w.ok("b@1", `"b"`)
	w.wantEffects("call d@1")
	if got := string(w.last.Effects[0].Value.JSON); got != `{"b":"b","c":"c"}` {
		t.Fatalf("input %s", got)
	}
	w.ok("b@1", `"again"`)
	w.wantEffects()
	w.ok("d@1", `true`)
	w.wantResult(`true`)
}

func TestDefinitions07FanoutItemsAreFrozen(t *testing.T) {
	text := `{"nodes":{"plan":{"call":"p"},
		"each":{"call":"e","input":{"from":"fanout_item"},"fanout":{"over":"node:plan.result.names","max_parallel":2}},
		"sum":{"call":"s","input":{"from":"node:each"}}},"output":{"from":"node:sum"}}`
	w := newWorld(t, text)
	w.start(`null`)
	w.ok("plan@1", `{"names":["x","y","z"]}`)
	w.wantEffects("call each#0@1", "call each#1@1")
	w.ok("each#1@1", `"Y"`)
	w.wantEffects("call each#2@1")
	if got := string(w.last.Effects[0].Value.JSON); got != `"z"` {
		t.Fatalf("item %s", got)
	}
	w.ok("each#2@1", `"Z"`)
	w.ok("plan@1", `{"names":["other"]}`)
	w.wantEffects()
	w.ok("each#0@1", `null`)
	w.wantEffects("call sum@1")
	if got := string(w.last.Effects[0].Value.JSON); got != `[null,"Y","Z"]` {
		t.Fatalf("group %s", got)
	}
}

func TestDefinitions07ElevenItemsSortAsNumbers(t *testing.T) {
	w := newWorld(t, fanText)
	w.start(list(11))
	for _, i := range []int{10, 1, 9, 0, 3, 2, 8, 4, 7, 5, 6} {
		w.ok(fmt.Sprintf("a#%d@1", i), fmt.Sprint(i*10))
	}
	w.wantResult(`[0,10,20,30,40,50,60,70,80,90,100]`)
}

func TestDefinitions07FanoutOverAGroup(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"set":{"with":{"n":"${{ item }}"}},"fanout":{"over":"run_input"}},
		"b":{"set":{"with":"${{ item.n * 2 + index }}"},"fanout":{"over":"node:a"}}},"output":{"from":"node:b"}}`)
	w.start(`[1,2,3]`)
	w.wantResult(`[2,5,8]`)
	w = newWorld(t, fanText)
	w.start(`[]`)
	w.wantResult(`[]`)
}

func TestDefinitions07WhatCannotBeExpanded(t *testing.T) {
	for _, c := range []struct {
		over, input string
		words       []string
	}{
		{"run_input.names", `{"titles":[1],"n":2}`, []string{"names", "n, titles"}},
		{"run_input", `{"a":1}`, []string{"an object"}},
		{"run_input", `"abc"`, []string{"a string"}},
		{"run_input", list(10001), []string{"10001", "10000"}},
		{"${{ input.x }}", `{"x":5}`, []string{"a number"}},
	} {
		w := newWorld(t, `{"nodes":{"a":{"call":"f","fanout":{"over":"`+c.over+`"}}},"output":{"from":"node:a"}}`)
		w.start(c.input)
		w.wantStatus(drover.StatusFailed)
		n := w.node("a")
		if n.Error.Code != drover.CodeUnexpandable {
			t.Errorf("code %s", n.Error.Code)
		}
		wantWords(t, n.Error.Message, c.words...)
		wantWords(t, w.s.Error.Message, "node a failed")
	}
}

func TestDefinitions07PathsThroughResult(t *testing.T) {
	for _, c := range []struct{ path, output, want string }{
		{"result.s", `{"s":[1]}`, `[1]`},
		{"output.s", `{"s":[1]}`, `[1]`},
		{"s", `{"s":[1]}`, `[1]`},
		{"result.s", `{"result":{"s":[2]},"s":[1]}`, `[2]`},
		{"s.1", `{"s":[1,[7]]}`, `[7]`},
	} {
		w := newWorld(t, `{"nodes":{"p":{"call":"f"},"a":{"set":{"with":"${{ item }}"},"fanout":{"over":"node:p.`+c.path+`"}}},"output":{"from":"node:a"}}`)
		w.start(`null`)
		w.ok("p@1", c.output)
		w.wantResult(c.want)
	}
}

func TestDefinitions08FailFast(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f"},"b":{"call":"g"},"c":{"call":"h","input":{"from":["node:a","node:b"]}}},"output":{"from":"node:c"}}`)
	w.start(`1`)
	w.fail("a@1", drover.Error{Message: "no luck"})
	w.wantStatus(drover.StatusFailed)
	w.wantEffects("withdraw [g]", "done")
	wantWords(t, w.s.Error.Message, "node a failed", "no luck")
	if w.s.Error.Code != drover.CodeNodesFailed || w.node("b").Status != drover.NodeCancelled || w.node("c").Status != drover.NodeSkipped {
		t.Fatalf("%v %v", w.s.Error, w.view().Nodes)
	}
}

func TestDefinitions08OrphansNeitherFailNorDelay(t *testing.T) {
	text := `{"nodes":{"a":{"call":"f"},"b":{"call":"g"},"c":{"call":"h","input":{"from":"node:b"}}},"output":{"from":"node:a"}}`
	w := newWorld(t, text)
	w.start(`1`)
	w.fail("b@1", drover.Error{Message: "x"})
	w.wantStatus(drover.StatusRunning)
	w.ok("a@1", `7`)
	w.wantResult(`7`)
	w = newWorld(t, text)
	w.start(`1`)
	w.ok("a@1", `7`)
	w.wantEffects("withdraw [g]", "done")
	if w.node("b").Status != drover.NodeCancelled || w.node("c").Status != drover.NodeSkipped {
		t.Fatalf("%v", w.view().Nodes)
	}
}

func TestDefinitions08EveryFailedNodeIsNamed(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f"},"o":{"call":"f"},"z":{"call":"f","input":{"from":"node:a"}}},"output":{"from":"node:z"}}`)
	w.start(`1`)
	w.fail("o@1", drover.Error{Message: "orphan down"})
	w.fail("a@1", drover.Error{Message: "main down"})
	wantWords(t, w.s.Error.Message, "node a failed: main down", "node o failed: orphan down")
}

func TestDefinitions09CancelledChildLeavesAnError(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"run":{"workflow":"sub"}}},"output":{"from":"node:a"}}`)
	w.start(`{"x":1}`)
	w.wantEffects("start a@1")
	w.child("a@1", drover.StatusCancelled, "", drover.Errorf(drover.CodeStopped, "by hand"))
	w.wantStatus(drover.StatusFailed)
	wantWords(t, w.s.Error.Message, "node a was cancelled", "by hand")
	if w.node("a").Status != drover.NodeCancelled {
		t.Fatalf("%v", w.node("a"))
	}
}

func TestDefinitions10StopWins(t *testing.T) {
	w := newWorld(t, diamond)
	w.start(`1`)
	w.ok("a@1", `{"kept":true}`)
	w.stop("enough")
	w.wantStatus(drover.StatusCancelled)
	w.wantEffects("withdraw [f]", "done")
	if got := w.last.Answer.(drover.StopReply); got.Status != drover.StatusCancelled {
		t.Fatalf("%v", got)
	}
	wantWords(t, w.s.Error.Message, "enough")
	w.ok("b@1", `1`) // ends after the stop
	if w.last.Changed || w.last.Refused != nil {
		t.Fatalf("%+v", w.last)
	}
	if got := string(w.node("a").Output); got != `{"kept":true}` {
		t.Fatalf("output of a: %s", got)
	}
	w.stop("again")
	if got := w.last.Answer.(drover.StopReply); got.Status != drover.StatusCancelled || w.last.Changed {
		t.Fatalf("%v", got)
	}
	none := newWorld(t, diamond)
	none.stop("")
	none.wantRefused(drover.CodeNotFound, "r1")
}

func TestDefinitions11Timeouts(t *testing.T) {
	text := `{"nodes":{"a":{"call":"f","timeout":"30s"}},"output":{"from":"node:a"}}`
	w := newWorld(t, text)
	w.start(`1`)
	w.pass(29 * time.Second).tick()
	if w.last.Changed {
		t.Fatal("timed out early")
	}
	w.pass(-time.Hour).tick()
	if w.last.Changed {
		t.Fatal("a clock that steps back expired a call")
	}
	w.now = epoch.Add(30 * time.Second)
	w.tick()
	w.wantEffects("cancel a@1", "call a@2")
	w.ok("a@1", `"late"`)
	w.wantStatus(drover.StatusRunning)
	if notes := w.view().Notes; len(notes) != 1 || !strings.Contains(notes[0].Text, "r1/a@1") {
		t.Fatalf("%v", notes)
	}
	w.pass(30 * time.Second).tick() // a timeout is refired once, then it is final
	w.wantStatus(drover.StatusFailed)
	n := w.node("a")
	if n.Error.Code != drover.CodeTimeout || len(n.Attempts) != 2 {
		t.Fatalf("%+v", n)
	}
}

func TestDefinitions11ResultAfterTheDeadlineIsLate(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","timeout":"30s"}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.pass(31*time.Second).ok("a@1", `1`)
	w.wantStatus(drover.StatusRunning)
	w.wantEffects("cancel a@1", "call a@2")
	w.ok("a@2", `2`)
	w.wantResult(`2`)
}

func TestDefinitions12Retry(t *testing.T) {
	text := `{"nodes":{"a":{"call":"f","retry":{"max_attempts":3,"initial":"10s","factor":3,"max":"20s"}}},"output":{"from":"node:a"}}`
	w := newWorld(t, text)
	w.start(`1`)
	pause := func(want time.Duration) {
		t.Helper()
		got := w.s.Deadline().Time().Sub(w.now)
		if got < want*9/10 || got > want*11/10+time.Millisecond {
			t.Fatalf("pause %s, want about %s", got, want)
		}
		w.now = w.s.Deadline().Time()
	}
	w.fail("a@1", drover.Error{Message: "1"})
	w.wantEffects()
	pause(10 * time.Second)
	w.tick()
	w.wantEffects("call a@2")
	w.fail("a@2", drover.Error{Message: "2", RetryAfter: drover.Duration(time.Second)})
	if got := w.s.Deadline().Time().Sub(w.now); got != time.Second {
		t.Fatalf("retry after %s", got)
	}
	w.pass(time.Second).tick()
	w.wantEffects("call a@3")
	w.fail("a@3", drover.Error{Message: "3", RetryAfter: drover.Duration(time.Second)})
	w.wantStatus(drover.StatusFailed)
	if n := w.node("a"); len(n.Attempts) != 3 || n.Attempts[1].Error.Message != "2" || n.Attempts[0].Instance != "i1" {
		t.Fatalf("%+v", n)
	}
	w = newWorld(t, text)
	w.start(`1`)
	w.fail("a@1", drover.Error{Message: "never", Permanent: true})
	w.wantStatus(drover.StatusFailed)
}

func TestDefinitions12LostCallsDoNotUseTheBudget(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","heartbeat":"5s","timeout":"1h"}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.pass(time.Minute).tick() // the watch begins with the first heartbeat
	w.wantEffects()
	for i := 1; i < 5; i++ {
		w.beat(fmt.Sprintf("a@%d", i))
		w.pass(4 * time.Second).beat(fmt.Sprintf("a@%d", i))
		w.pass(5 * time.Second).tick()
		w.wantEffects(fmt.Sprintf("cancel a@%d", i), fmt.Sprintf("call a@%d", i+1))
	}
	w.beat("a@5")
	w.pass(6*time.Second).ok("a@5", `"at last"`) // silent, but here it is
	w.wantResult(`"at last"`)
}

func TestDefinitions13UnservedCallsAreTold(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"nobody","timeout":"1m"}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	why := Why(w.p, w.s)
	if len(why) != 1 || why[0].Waiting != "call" || why[0].On != "nobody" || why[0].Until == "" {
		t.Fatalf("%+v", why)
	}
	w.pass(time.Minute).tick()
	w.pass(time.Minute).tick()
	w.wantStatus(drover.StatusFailed)
}

func TestDefinitions14SameStartTwice(t *testing.T) {
	w := newWorld(t, diamond)
	w.start(`{"a": 1}`)
	if r := w.last.Answer.(drover.StartReply); !r.Created || r.Status != drover.StatusRunning {
		t.Fatalf("%+v", r)
	}
	w.start(`{"a":1}`)
	if r := w.last.Answer.(drover.StartReply); r.Created || w.last.Changed {
		t.Fatalf("%+v", r)
	}
	w.start(`{"a":2}`)
	w.wantRefused(drover.CodeConflict, "r1", "input")
	other := &Command{Verb: drover.VerbStart, Start: &Start{Hash: "feed"}}
	w.send(other)
	w.wantRefused(drover.CodeConflict, "feed", string(w.p.Hash))
}

func TestDefinitions15OutputsStayReadable(t *testing.T) {
	big := `"` + strings.Repeat("x", 5000) + `"`
	w := newWorld(t, diamond)
	w.start(`1`)
	w.ok("a@1", big)
	w.fail("b@1", drover.Error{Message: "no"})
	values := func(k string) (json.RawMessage, bool) { raw, ok := w.stored[k]; return raw, ok }
	if _, raw, err := Output(w.p, w.s, values, "a", nil); err != nil || string(raw) != big {
		t.Fatalf("%v", err)
	}
	var need *NeedError
	if _, _, err := Output(w.p, w.s, nil, "a", nil); !errors.As(err, &need) || len(need.Keys) != 1 {
		t.Fatalf("%v", err)
	}
	for _, want := range View(w.p, w.s, values, true).Nodes {
		if got, ok := ViewNode(w.p, w.s, values, want.ID, true); !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, the whole view has %+v", got, want)
		}
	}
	if _, ok := ViewNode(w.p, w.s, values, "q", true); ok {
		t.Fatal("a node that is not there is shown")
	}
	if _, _, err := Output(w.p, w.s, values, "b", nil); err == nil || !strings.Contains(err.Error(), "no") {
		t.Fatalf("%v", err)
	}
	if _, _, err := Output(w.p, w.s, values, "q", nil); err == nil || !strings.Contains(err.Error(), "a, b, c, d") {
		t.Fatalf("%v", err)
	}
}

func TestDefinitions16EveryAttemptIsShown(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","retry":{"initial":"1s"}}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.pass(time.Second)
	w.answer("a@1", drover.ResultMessage{Error: &drover.Error{Message: "first"}, Instance: "host-1"})
	w.now = w.s.Deadline().Time()
	w.tick()
	started := w.now
	w.pass(time.Second)
	w.answer("a@2", drover.ResultMessage{Output: json.RawMessage(`1`), Instance: "host-2"})
	r := w.view()
	n := r.Nodes[0]
	if r.StartedAt == nil || r.EndedAt == nil || !r.CreatedAt.Equal(epoch) || !r.EndedAt.Equal(w.now) {
		t.Fatalf("%+v", r)
	}
	if len(n.Attempts) != 2 || n.Attempts[0].Instance != "host-1" || n.Attempts[1].Instance != "host-2" ||
		!n.Attempts[1].StartedAt.Equal(started) || n.Attempts[0].Error.Message != "first" || n.Attempts[1].Error != nil {
		t.Fatalf("%+v", n.Attempts)
	}
	if strings.Contains(show(r), "s3cret") {
		t.Fatal("the view shows the secret")
	}
}

func TestDefinitions05SourceReadsTheRunsInput(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f"},"b":{"call":"g","depends_on":["a"]}},"output":{"from":"node:b"}}`)
	w.start(`{"x":1}`)
	if got := string(w.last.Effects[0].Value.JSON); got != `{"x":1}` {
		t.Fatalf("the source gets %s", got)
	}
	w.ok("a@1", `2`)
	if v := w.last.Effects[0].Value; v.Key != "" || len(v.JSON) > 0 && string(v.JSON) != `null` {
		t.Fatalf("a node that needs another gets %s", v.JSON)
	}
}
