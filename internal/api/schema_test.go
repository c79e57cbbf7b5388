package api_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/droverhq/drover/internal/schema"
)

// Every reply of every other test is checked against its schema as well.
func TestEndpointsCarryTheirSchemas(t *testing.T) {
	o := newOwner(t).serve(nil)
	requests := map[string]*schema.Schema{}
	for _, e := range o.endpoints() {
		verb := strings.TrimPrefix(e.Subject, o.names.API(""))
		compiled, err := schema.Compile(json.RawMessage(e.Metadata["request_schema"]))
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		requests[verb] = compiled
		var described struct {
			Type       string
			Properties map[string]struct{ Description string }
		}
		if err := json.Unmarshal([]byte(e.Metadata["request_schema"]), &described); err != nil || described.Type != "object" {
			t.Errorf("%s: schema %s, error %v", verb, e.Metadata["request_schema"], err)
		}
		for name, p := range described.Properties {
			if p.Description == "" {
				t.Errorf("%s: nobody says what %s is for", verb, name)
			}
		}
		if e.Metadata["description"] == "" || e.Metadata["reply"] == "" {
			t.Errorf("%s: metadata %v", verb, e.Metadata)
		}
	}
	if len(requests) != 27 {
		t.Errorf("%d verbs", len(requests))
	}
	for _, c := range []struct {
		verb, request string
		fits          bool
	}{
		{"start", `{"workflow":"naming"}`, true},
		{"start", `{"definition":"nodes: {}","input":[1],"notify":{"subject":"a.b"},"tags":{"k":"v"}}`, true},
		{"start", `{"definition":{},"notify":[{"subject":"a.b"}],"extra":1}`, true},
		{"start", `{"run_id":"a.b"}`, false},
		{"start", `{"tags":{"k":1}}`, false},
		{"start", `{"notify":"a.b"}`, false},
		{"start", `[]`, false},
		{"stop", `{"run_id":"r"}`, true},
		{"stop", `{}`, false},
		{"deliver", `{"run_id":"r","name":"n","payload":null}`, true},
		{"deliver", `{"name":"n"}`, false},
		{"deliver", `{"run_id":"r"}`, false},
		{"status", `{"run_id":"r","values":true}`, true},
		{"status", `{"run_id":"r","values":1}`, false},
		{"result", `{"run_id":"r","node":"n","item":0}`, true},
		{"result", `{"run_id":"r","item":"0"}`, false},
		{"list", `{"status":"waiting"}`, true},
		{"list", `{"status":"tired"}`, false},
		{"definition.put", `{}`, false},
		{"definition.get", `{"hash":"` + strings.Repeat("a", 64) + `"}`, true},
		{"definition.get", `{"hash":"a"}`, false},
		{"dead.show", `{"sequence":1}`, true},
		{"dead.requeue", `{"sequence":-1}`, false},
		{"hook.deliver", `{"token":"a b","payload":null,"start":{"workflow":"w"}}`, true},
		{"hook.deliver", `{"payload":1}`, false},
		{"hook.deliver", `{"token":"t","start":{"run_id":"a.b"}}`, false},
		{"hook.deliver.many", `{"tags":{"k":"v"},"prefix":"t","run_id":"r","stream":true}`, true},
		{"hook.deliver.many", `{"tags":{"k":1}}`, false},
		{"hook.list", `{"run_id":"a.b"}`, false},
		{"hook.list", `{}`, true},
		{"hook.show", `{}`, false},
		{"hook.release", `{"token":"t","force":true}`, true},
		{"start", `{"workflow":"w","reply_to":true,"hold":{"waiter":"me","for":"1m"}}`, true},
		{"start", `{"workflow":"w","reply_to":{"template":"hello","inline":true}}`, true},
		{"start", `{"workflow":"w","reply_to":"me"}`, false},
		{"start", `{"workflow":"w","notify":[{"subject":"a","batch":{"max":10,"wait":"1s"}},{"url":"https://a/b","secret":"s"},{"function":"f","max_attempts":3}]}`, true},
		{"start", `{"workflow":"w","notify":{"subject":"a","batch":10}}`, false},
		{"delivery.list", `{"status":"dead","run_id":"r","workflow":"w","to":"a.b","limit":3}`, true},
		{"delivery.list", `{}`, true},
		{"delivery.list", `{"status":"late"}`, false},
		{"delivery.show", `{"delivery_id":"r:terminal:0"}`, true},
		{"delivery.show", `{}`, false},
		{"delivery.replay", `{"to":"a.b"}`, true},
		{"delivery.replay", `{"run_id":"a.b"}`, false},
		{"hold", `{"run_id":"r","waiter":"me","for":"1m"}`, true},
		{"hold", `{"waiter":"me"}`, false},
		{"consume", `{"run_id":"r"}`, false},
		{"release", `{"run_id":"r","waiter":"me"}`, true},
		{"result", `{"run_id":"r","wait":"1m","waiter":"me"}`, true},
		{"fleet", `{}`, true},
	} {
		if err := requests[c.verb].Validate(json.RawMessage(c.request)); (err == nil) != c.fits {
			t.Errorf("%s %s: %v", c.verb, c.request, err)
		}
	}
}

// The table of docs/protocol.md has every verb, and no field that is not there.
func TestTheProtocolListsEveryRequest(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Requests\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z.]+)` \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(section, -1) {
		rows[row[1]] = row[2:]
	}
	quoted := regexp.MustCompile(`"([a-z_]+)"`)
	for _, e := range newOwner(t).serve(nil).endpoints() {
		verb := strings.TrimPrefix(e.Subject, "drover.api.")
		row, ok := rows[verb]
		if !ok {
			t.Errorf("the table has no %s", verb)
			continue
		}
		delete(rows, verb)
		for i, name := range []string{"request_schema", "reply_schema"} {
			var s struct{ Properties map[string]any }
			if err := json.Unmarshal([]byte(e.Metadata[name]), &s); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(row[i], "{}") && len(s.Properties) > 0 {
				t.Errorf("%s: the table says %s where the %s has fields", verb, row[i], name)
			}
			for _, field := range quoted.FindAllStringSubmatch(row[i], -1) {
				if _, ok := s.Properties[field[1]]; !ok {
					t.Errorf("%s: the %s has no %s", verb, name, field[1])
				}
			}
		}
	}
	for verb := range rows {
		t.Errorf("the table has %s, which nobody answers", verb)
	}
}
