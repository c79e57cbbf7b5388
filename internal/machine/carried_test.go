package machine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestFailedContractFailsNodeAndRun(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","output":{"type":"json","schema":{"type":"object","required":["n"]}}}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.ok("a@1", `{"m":1}`)
	w.wantStatus(drover.StatusFailed)
	if n := w.node("a"); n.Error.Code != drover.CodeContract {
		t.Fatalf("%+v", n.Error)
	}
}

func TestContracts(t *testing.T) {
	for _, c := range []struct{ contract, output, want string }{
		{`{"type":"text"}`, `"x"`, `"x"`},
		{`{"type":"text"}`, `{"x":1}`, ""},
		{`{"type":"json","schema":{"type":"object"}}`, `"{\"x\": 1}"`, `{"x":1}`},
		{`{"type":"json","schema":{"type":"string"}}`, `"{\"x\":1}"`, `"{\"x\":1}"`},
		{`{"type":"json","schema":{"type":"object"}}`, `"[1]"`, ""},
		{`{"type":"json","schema":{"type":"array"}}`, `"nothing"`, ""},
	} {
		w := newWorld(t, `{"nodes":{"a":{"call":"f","output":`+c.contract+`}},"output":{"from":"node:a"}}`)
		w.start(`1`)
		w.ok("a@1", c.output)
		if c.want == "" {
			w.wantStatus(drover.StatusFailed)
			continue
		}
		w.wantResult(c.want)
	}
}

func TestTerminalIgnoresEveryLaterCommand(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f"},"w":{"wait":{"name":"go"}}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.ok("a@1", `2`)
	record := string(w.record)
	w.ok("a@1", `3`)
	w.fail("a@1", drover.Error{Message: "x"})
	w.answer("a@1", drover.ResultMessage{Token: "forged"})
	w.beat("a@1")
	w.pass(time.Hour).tick()
	w.stop("")
	w.start(`1`)
	w.start(`2`)
	w.deliver("go", `1`, "")
	w.wantRefused(drover.CodeTerminal, "r1")
	if string(w.record) != record {
		t.Fatal("the record changed")
	}
}

// Definitions 4: a limit with an error of its own.
func TestBigResultIsRefusedByName(t *testing.T) {
	w := newWorld(t, `{"nodes":{"a":{"call":"f","retry":{"max_attempts":5}}},"output":{"from":"node:a"}}`)
	w.start(`1`)
	w.ok("a@1", `"`+strings.Repeat("x", drover.MaxValue)+`"`)
	w.wantStatus(drover.StatusFailed)
	n := w.node("a")
	if n.Error.Code != drover.CodeTooLarge {
		t.Fatalf("%v", n.Error)
	}
	wantWords(t, n.Error.Message, "node a", "reference")
}

func TestForgedResultsAreRefused(t *testing.T) {
	w := newWorld(t, diamond)
	w.start(`1`)
	record := string(w.record)
	w.answer("a@1", drover.ResultMessage{Token: strings.Repeat("0", 64), Output: json.RawMessage(`1`)})
	w.wantRefused(drover.CodeForbidden, "r1/a@1")
	if string(w.record) != record || slices.Contains(effectNames(w.last.Effects), "call b@1") {
		t.Fatal("a forged result counted")
	}
}
