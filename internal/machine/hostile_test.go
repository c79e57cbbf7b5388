package machine

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/droverhq/drover"
)

// hostile are bodies that no client of good will sends.
func hostile() []string {
	return []string{
		"", " ", "\x00", "\xff\xfe", "null", "[]", `"x"`, "1e999", "{", "{}", `{"a":1}{`, "{\"name\":\"\x00\"}",
		`{"name":"x","payload":` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + `}`,
		`{"name":"x","payload":1e999}`, `{"name":"x","payload":123456789012345678901234567890}`, `{"name":"x","payload":"\ud800"}`,
		`{"name":["x"]}`, `{"name":"` + strings.Repeat("n", 200) + `"}`, `{"name":"x","id":"` + strings.Repeat("i", 300) + `"}`,
		`{"reason":7}`, `{"reason":"` + strings.Repeat("r", 100_000) + `"}`, `{"stream":"DROVER","seq":1}`,
		`{"call":"r/n@1","token":7}`, `{"call":"r/n@0"}`, `{"call":"other/n@1"}`, `{"call":"r/n#-1@1"}`, `{"call":"r/n#99999999999@1"}`,
		`{"call":"r/*.>@1","token":"t","output":1}`, `{"call":"r/n@1","output":1,"error":{"code":"x"}}`, `{"call":"r/n@1","error":{"retry_after":"soon"}}`,
		`{"call":"r/n@1","error":{"code":"failed","retry_after":"999999h"}}`, `{"call":"r/n@1","progress":null}`,
		`{"call":"r/n@1","child":"a.b","status":"tired"}`, `{"delivery_id":"r:terminal:0","attempt":-5}`, `{"delivery_id":"` + strings.Repeat("d", 5000) + `"}`,
		`{"workflow":"w","input":"` + strings.Repeat("v", drover.MaxValue) + `"}`, `{"workflow":"a.b"}`, `{"hash":"x"}`, `{"workflow":"w","hash":"x"}`,
		`{"workflow":"w","notify":{"subject":"$JS.API.STREAM.DELETE.DROVER"}}`, `{"workflow":"w","notify":[{"subject":"drover.in.r.stop"}]}`,
		`{"waiter":""}`, `{"waiter":7}`, `{"waiter":"` + strings.Repeat("w", 129) + `"}`, `{"waiter":"a","for":"-1s"}`, `{"waiter":"a","for":"11m"}`, `{"waiter":"a","for":5}`,
		`{"waiter":"a\u0000"}`, `{"waiter":"a","run_id":"other"}`, `{"delivery_id":"r1:terminal:0"}`, `{"delivery_id":"r1:terminal:-1"}`, `{"delivery_id":7}`,
		`{"delivery_id":"r1:terminal:99999999999999999999"}`, `{"delivery_id":"other:terminal:0"}`, `{"delivery_id":"r1:terminal:0","unmade":true}`,
		`{"call":"r1/_outcome#0@1","token":"t","output":1}`, `{"call":"r1/_outcome#9@1","token":"t","output":1}`, `{"call":"r1/_outcome@1","token":"t"}`, `{"call":"r1/_outcome#0/undo@1","token":"t"}`,
		`{"workflow":"w","reply_to":true}`, `{"workflow":"w","hold":{"waiter":""}}`, `{"workflow":"w","notify":{"session":"user.A.B"}}`, `{"workflow":"w","notify":[[]]}`, `{"workflow":"w","notify":7}`,
		`{"workflow":"w","notify":{"url":"https://x","batch":{"max":-1}}}`, `{"workflow":"w","notify":{"url":"https://u:secret@x"}}`, `{"workflow":"w","notify":{"subject":"a","max_age":"-1h"}}`,
		`{"workflow":"w","parent":{"call":"p/n@1","depth":1}}`, `{"workflow":"w","idempotency_key":"k"}`, `{"definition":"\u0000"}`,
	}
}

// FuzzDecodeCommand holds what DecodeCommand promises of any message, with any
// spelling of run and verb: a command or a refusal, the same each time, and a
// refusal that can be sent on.
func FuzzDecodeCommand(f *testing.F) {
	verbs := []string{"start", "stop", "tick", "deliver", "result", "child", "heard", "hold", "consume", "release", "replay", "claimed", "strat", "", "*", ">", strings.Repeat("v", 10_000)}
	for _, body := range hostile() {
		for _, verb := range verbs {
			f.Add("r", verb, []byte(body))
		}
	}
	for _, run := range []string{"", ".", "a.b", "*", ">", "\x00", "\xff", "é", strings.Repeat("r", 129), "_", "-"} {
		f.Add(run, "stop", []byte("{}"))
	}
	f.Fuzz(func(t *testing.T, run, verb string, data []byte) {
		given := string(data)
		c, start, bad := DecodeCommand(7, epoch, run, verb, data, "_INBOX.x")
		again, _, badAgain := DecodeCommand(7, epoch, run, verb, data, "_INBOX.x")
		if !reflect.DeepEqual(c, again) || !reflect.DeepEqual(bad, badAgain) {
			t.Fatalf("once %+v %v, then %+v %v", c, bad, again, badAgain)
		}
		if string(data) != given {
			t.Fatal("the message was changed")
		}
		if (c == nil) == (bad == nil) {
			t.Fatal("a command is either decoded or refused")
		}
		if bad != nil {
			refusal(t, bad)
			return
		}
		if string(c.Run) != run || string(c.Verb) != verb || c.Seq != 7 || !c.At.Equal(epoch) || c.Reply != "_INBOX.x" {
			t.Errorf("command %+v", c)
		}
		if _, err := drover.ParseRunID(run); err != nil {
			t.Errorf("run %q was taken: %v", run, err)
		}
		if (start != nil) != (c.Verb == drover.VerbStart) || start != nil && start != &c.Start.StartRequest {
			t.Error("a start, and nothing else, gives its request")
		}
	})
}

// refusal holds what is promised of every refusal: of a message by itself, or
// because of what the run is like.
func refusal(t *testing.T, bad *drover.Error, because ...drover.Code) {
	t.Helper()
	codes := append(because, drover.CodeInvalidID, drover.CodeInvalidRequest, drover.CodeUnknownVerb,
		drover.CodeTooLarge, drover.CodeConflict, drover.CodeForbidden)
	if !slices.Contains(codes, bad.Code) {
		t.Errorf("code %s says nothing of the message: %v", bad.Code, bad)
	}
	if bad.Message == "" || len(bad.Message) > 2000 || !utf8.ValidString(bad.Message) {
		t.Errorf("refused with %d bytes: %.200q", len(bad.Message), bad.Message)
	}
	if _, err := json.Marshal(bad); err != nil {
		t.Error(err)
	}
}

// FuzzStates sends any command to runs in every state that matters: one that
// calls, one that waits, one that is over.
func FuzzStates(f *testing.F) {
	for state := range 3 {
		for _, verb := range []string{"start", "stop", "tick", "deliver", "result", "child", "heard", "hold", "consume", "release", "replay", "claimed"} {
			for _, body := range hostile() {
				if len(body) < 10_000 {
					f.Add(uint8(state), verb, []byte(body))
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, state uint8, verb string, data []byte) {
		w := newWorld(t, `{"nodes":{"n":{"call":"f","heartbeat":"5s"},"x":{"wait":{"name":"x"},"depends_on":["n"]}},"output":{"from":"node:x"}}`)
		w.startAs(drover.StartRequest{Input: json.RawMessage(`null`), Notify: subscribers(), Hold: &drover.HoldRequest{Waiter: "a"}})
		if state%3 > 0 {
			w.ok("n@1", `1`)
		}
		if state%3 > 1 {
			w.deliver("x", `2`, "")
		}
		before := string(w.record)
		c, _, bad := DecodeCommand(w.seq+1, w.now, string(w.run), verb, data, "")
		if bad != nil {
			return
		}
		if c.Start != nil {
			c.Start.Hash = w.p.Hash
		}
		stored := func(key string) (json.RawMessage, bool) { raw, ok := w.stored[key]; return raw, ok }
		step, err := Apply(w.p, w.s, c, stored)
		if err != nil {
			t.Fatal(err)
		}
		if err := step.State.Check(w.p); err != nil {
			t.Fatal(err)
		}
		if step.Refused != nil {
			refusal(t, step.Refused, drover.CodeNotFound, drover.CodeTerminal, drover.CodeFull, drover.CodeInvalidInput)
			if after, err := Encode(step.State); err != nil || string(after) != before {
				t.Errorf("a command that was refused changed the run: %v", err)
			}
		}
	})
}

func TestProgressOfNothingIsAHeartbeat(t *testing.T) {
	for body, want := range map[string]string{
		`{"call":"r/n@1","progress":null}`:                          `progress null`,
		`{"call":"r/n@1","progress":false}`:                         `progress false`,
		`{"call":"r/n@1","output":null,"progress":null}`:            `output null`,
		`{"call":"r/n@1","output":1,"error":null,"progress":null}`:  `output 1`,
		`{"call":"r/n@1","error":{"message":"no"},"progress":null}`: `error no`,
		`{"call":"r/n@1"}`:                                            `output null`,
		`{"call":"r/n@1","output":1,"progress":2}`:                    `refused`,
		`{"call":"r/n@1","output":null,"error":{"message":"no"}}`:     `refused`,
		`{"call":"r/n@1","output":null,"error":null,"progress":true}`: `refused`,
	} {
		c, _, bad := DecodeCommand(1, epoch, "r", "result", []byte(body), "")
		got := "refused"
		switch {
		case bad != nil:
		case c.Result.Progress != nil:
			got = "progress " + string(c.Result.Progress)
		case c.Result.Error != nil:
			got = "error " + c.Result.Error.Message
		default:
			got = "output " + string(orNull(c.Result.Output))
		}
		if got != want {
			t.Errorf("%s is %s, want %s", body, got, want)
		}
	}
}
