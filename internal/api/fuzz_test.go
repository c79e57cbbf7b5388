package api_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/droverhq/drover"
)

// Whatever is asked: there is an answer, which is a reply that fits its schema
// or an error with a code and a sentence, and it is never Drover's own fault.
func FuzzAPI(f *testing.F) {
	verbs := []string{
		"start", "stop", "tick", "deliver", "status", "result", "why", "list", "definition.put", "definition.get", "definition.list",
		"dead.list", "dead.show", "dead.requeue", "fleet",
		"hook.deliver", "hook.deliver.many", "hook.list", "hook.show", "hook.release",
	}
	o := newOwner(f).serve(nil)
	o.start(`{"run_id":"run1","definition":` + plan + `,"tags":{"k":"v"}}`)
	o.bury(drover.DeadLetter{Sequence: 1, RunID: "run1", Verb: "tick", Error: drover.Errorf(drover.CodeNotFound, "x")})
	bodies := []string{
		"", "{}", "null", "[]", "\x00", "\xff", `{"run_id":"run1"}`, `{"run_id":"none"}`, `{"run_id":"a.*.>"}`, `{"run_id":null}`,
		`{"run_id":"\u0000"}`, `{"run_id":"run1","run_id":7}`, `{"run_id":"run1","node":"plan","item":-1}`, `{"run_id":"run1","node":"plan","item":99999999999999999999}`,
		`{"run_id":"run1","name":"approved","payload":1e999,"id":"x"}`, `{"run_id":"run1","name":"approved","payload":"\ud800"}`,
		`{"run_id":"run2","definition":` + plan + `,"input":{"a":1}}`, `{"run_id":"run3","definition":"nodes: {a: {sleep: 1s}}"}`,
		`{"workflow":"naming","idempotency_key":"` + strings.Repeat("k", 2000) + `"}`, `{"workflow":"naming","notify":{"subject":"drover.in.run1.stop"}}`,
		`{"workflow":"naming","notify":[{"subject":">"}],"tags":{"":"v"}}`, `{"name":"x","definition":` + plan + `}`, `{"hash":"` + strings.Repeat("0", 64) + `"}`,
		`{"limit":1001}`, `{"limit":-9223372036854775808}`, `{"status":"waiting","tags":{"k":"v"}}`, `{"sequence":1}`, `{"sequence":-1}`,
		`{"token":"a b","payload":1,"id":"x"}`, `{"token":""}`, `{"token":"t","start":{"definition":` + plan + `}}`, `{"prefix":"t","stream":true}`,
		`{"token":"t","start":{"definition":{"nodes":{"a":{"wait":{"hook":"t"}}},"output":{"from":"node:a"}}}}`, `{"tags":{"k":"v"},"respond":"drover.in.r.stop"}`,
		`{"token":"` + strings.Repeat("t", 600) + `","force":true}`, `{"token":"t","respond":"drover.in.run1.stop"}`, `{"token":"\u0000\ud800"}`,
		`{"sequence":18446744073709551615}`, `{"code":"not_found","verb":"*"}`, `{"definition":` + strings.Repeat(`{"a":`, 20_000) + strings.Repeat("}", 20_000) + `}`,
	}
	for i := range verbs {
		for _, body := range bodies {
			f.Add(uint8(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, verb uint8, body []byte) {
		var reply json.RawMessage
		err := o.askIn(t, verbs[int(verb)%len(verbs)], string(body), &reply)
		if err == nil {
			return
		}
		var e *drover.Error
		if !errors.As(err, &e) || e.Code == "" || e.Code == drover.CodeInternal || e.Message == "" || !utf8.ValidString(e.Message) || len(e.Message) > 4096 {
			t.Errorf("%s %.200q: %#v", verbs[int(verb)%len(verbs)], body, err)
		}
	})
}
