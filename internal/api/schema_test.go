package api_test

import (
	"encoding/json"
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
	if len(requests) != 15 {
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
		{"fleet", `{}`, true},
	} {
		if err := requests[c.verb].Validate(json.RawMessage(c.request)); (err == nil) != c.fits {
			t.Errorf("%s %s: %v", c.verb, c.request, err)
		}
	}
}
