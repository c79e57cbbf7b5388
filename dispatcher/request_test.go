package dispatcher

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// builtin performs calls of a built-in function, the way a run would, and gives
// the results.
func (f *fleet) builtin(d *Dispatcher, function drover.FunctionName) func(input string) drover.ResultMessage {
	results := f.commands(run, drover.VerbResult)
	attempt := 0
	return func(input string) drover.ResultMessage {
		f.t.Helper()
		attempt++
		call := callEffect(function, input)
		call.Call.ID.Attempt = attempt
		f.perform(d, call)
		result := decode[drover.ResultMessage](f.t, results.next())
		if result.Call != call.Call.ID || result.Token != "tok" || result.Instance != "w1" {
			f.t.Errorf("result %+v", result)
		}
		return result
	}
}

// outcome spells a result for a table.
func spell(r drover.ResultMessage) string {
	if r.Error == nil {
		return string(r.Output)
	}
	kind := "again"
	if r.Error.Permanent {
		kind = "final"
	}
	return fmt.Sprintf("%s %s: %s", r.Error.Code, kind, r.Error.Message)
}

func TestRequest(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	serve := func(subject string, reply func(m *nats.Msg) *nats.Msg) {
		t.Helper()
		if _, err := f.nc.Subscribe(subject, func(m *nats.Msg) { _ = m.RespondMsg(reply(m)) }); err != nil {
			t.Fatal(err)
		}
	}
	data := func(text string) func(*nats.Msg) *nats.Msg {
		return func(*nats.Msg) *nats.Msg { return &nats.Msg{Data: []byte(text)} }
	}
	serve("svc.echo", func(m *nats.Msg) *nats.Msg {
		out, _ := json.Marshal(map[string]string{
			"data": string(m.Data), "call": m.Header.Get("Drover-Call"), "token": m.Header.Get("Drover-Token"),
		})
		return &nats.Msg{Data: out}
	})
	serve("svc.text", data("plain <text>"))
	serve("svc.nothing", data(""))
	serve("svc.micro", func(*nats.Msg) *nats.Msg {
		return &nats.Msg{Header: nats.Header{"Nats-Service-Error": {"no such thing"}, "Nats-Service-Error-Code": {"404"}}}
	})
	serve("drover.api.status", func(*nats.Msg) *nats.Msg {
		return &nats.Msg{Header: nats.Header{"Drover-Error": {"not_found"}}, Data: []byte(`{"code":"not_found","message":"no run x","permanent":true}`)}
	})
	serve("svc.odd", func(*nats.Msg) *nats.Msg {
		return &nats.Msg{Header: nats.Header{"Drover-Error": {"full"}}, Data: []byte(`no room`)}
	})
	serve("drover.api.list", data(`{"runs":[]}`))
	if _, err := f.nc.Subscribe("svc.silent", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	call := f.builtin(d, subjects.FunctionRequest)
	for _, tc := range []struct{ input, want string }{
		{`{"subject":"svc.echo","payload":{"a": 1}}`, `{"call":"r1/n@1","data":"{\"a\": 1}","token":""}`},
		{`{"subject":"svc.text"}`, `"plain <text>"`},
		{`{"subject":"svc.nothing","payload":null}`, `null`},
		{`{"subject":"svc.micro"}`, `failed again: subject "svc.micro" answered with error 404: no such thing`},
		{`{"subject":"svc.odd"}`, `full again: no room`},
		{`{"subject":"svc.absent"}`, `unavailable again: nobody serves subject "svc.absent": start its service, or correct the subject`},
		{`{"subject":"svc.silent","timeout":"10ms"}`, `timeout again: subject "svc.silent" did not reply in time`},
		{`{"subject":"drover.api.status"}`, `not_found final: no run x`},
		{`{"subject":"drover.api.list"}`, `{"runs":[]}`},
		{`{"subject":"drover.api."}`, `forbidden final: subject "drover.api."`},
		{`{"subject":"drover.api.*"}`, `forbidden final: subject "drover.api.*"`},
		{`{"subject":"drover.in.r2.stop"}`, `forbidden final: subject "drover.in.r2.stop" belongs to Drover`},
		{`{"subject":"$JS.API.STREAM.DELETE.DROVER"}`, `forbidden final: subject "$JS.API.STREAM.DELETE.DROVER" belongs to the server`},
		{`{"subject":"a b"}`, `forbidden final: subject "a b"`},
		{`{}`, `forbidden final: subject ""`},
		{`[1]`, `invalid_input final: `},
	} {
		if got := spell(call(tc.input)); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tc.input, got, tc.want)
		}
	}
}

func TestRequestLargerThanAMessageIsFinal(t *testing.T) {
	f := newFleet(t, small())
	d, _ := f.dispatcher()
	call := f.builtin(d, subjects.FunctionRequest)
	// The call fits, as its headers are smaller than those of the request.
	for size := 32<<10 - 300; ; size += 8 {
		got := spell(call(`{"subject":"s","payload":"` + strings.Repeat("x", size) + `"}`))
		if strings.HasPrefix(got, "unavailable") {
			continue // nobody serves it, so it was sent
		}
		if !strings.HasPrefix(got, "too_large final: ") {
			t.Errorf("%d bytes: %s", size, got)
		}
		return
	}
}

type panicker struct{}

func (panicker) RoundTrip(*http.Request) (*http.Response, error) { panic("ouch") }

func TestPanicOfABuiltinFailsItsAttempt(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	d.http = &http.Client{Transport: panicker{}}
	call := f.builtin(d, subjects.FunctionHTTP)
	for range maxHTTP + 1 { // more than there are slots
		if got := call(`{"url":"http://127.0.0.1:1/"}`); got.Error == nil || got.Error.Code != drover.CodePanic || got.Error.Stack == "" {
			t.Errorf("result %s", spell(got))
		}
	}
}

func TestForgedCallsAreThrownAway(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	hit := make(chan *nats.Msg, 10)
	if _, err := f.nc.ChanSubscribe("app.*", hit); err != nil {
		t.Fatal(err)
	}
	call := nats.Header{"Drover-Call": {"r1/n@1"}, "Drover-Token": {"x"}}
	for _, m := range []nats.Msg{
		{Subject: "drover.call.r1._request", Data: []byte(`{"subject":"app.x"}`)},
		{Subject: "drover.call.r1._request", Data: []byte(`{"subject":"app.x"}`), Header: nats.Header{"Drover-Call": {"r1/n@1"}}},
		{Subject: "drover.call.r1._request", Data: []byte(`{"subject":"app.x"}`), Header: nats.Header{"Drover-Call": {"x"}, "Drover-Token": {"x"}}},
		{Subject: "drover.call.r2._request", Data: []byte(`{"subject":"app.x"}`), Header: call},
		{Subject: "drover.call.r1._http", Data: []byte(`garbage`)},
	} {
		if _, err := f.js.PublishMsg(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
	}
	f.settled()
	if len(hit) > 0 || f.count(f.names.Commands(), ">") > 0 {
		t.Errorf("%d forged messages did something", len(hit))
	}
	if n := strings.Count(f.logs.String(), "thrown away"); n != 5 {
		t.Errorf("%d of 5 are logged:\n%s", n, f.logs.String())
	}
	again := f.builtin(d, subjects.FunctionRequest)
	if got := spell(again(`{"subject":"svc.absent"}`)); !strings.HasPrefix(got, "unavailable") {
		t.Errorf("after it: %s", got)
	}
}
