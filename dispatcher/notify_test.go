package dispatcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

func TestSubscriberThatComesLateIsHeardOfOnce(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	heard := f.commands(run, drover.VerbHeard)
	f.perform(d, deliverEffect("app.done", 1))
	m := decode[drover.HeardMessage](t, heard.next())
	if m.DeliveryID != "r1:terminal:0" || m.Token != "dtok" || m.Attempt != 1 || m.Receipt != "" ||
		m.Error == nil || m.Error.Code != drover.CodeUnavailable || !strings.Contains(m.Error.Message, "app.done") {
		t.Errorf("nobody is there: %+v", m)
	}
	f.settled()

	got := make(chan *nats.Msg, 10)
	if _, err := f.nc.Subscribe("app.done", func(m *nats.Msg) {
		got <- m
		_ = m.Respond([]byte(strings.Repeat("ü", 200)))
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	var bodies [][]byte
	for attempt := 2; attempt < 4; attempt++ {
		f.perform(d, deliverEffect("app.done", attempt))
		m = decode[drover.HeardMessage](t, heard.next())
		if m.Error != nil || m.Attempt != attempt || m.Receipt != strings.Repeat("ü", 128) {
			t.Errorf("somebody is there: %+v", m)
		}
		msg := await(t, got, "the outcome")
		if msg.Header.Get("Drover-Delivery") != "r1:terminal:0" || msg.Header.Get("Drover-Token") != "" {
			t.Errorf("headers %v", msg.Header)
		}
		bodies = append(bodies, msg.Data)
	}
	want := Encode(outcomeOf(drover.StatusCompleted), json.RawMessage(`{"ok":true}`))
	if !bytes.Equal(bodies[0], want) || !bytes.Equal(bodies[1], want) {
		t.Errorf("two deliveries differ:\n%s\n%s\n%s", bodies[0], bodies[1], want)
	}
}

func TestReceiptThatIsAnErrorIsNone(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	if _, err := f.nc.Subscribe("app.done", func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error": {"database is down"}}})
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	heard := f.commands(run, drover.VerbHeard)
	for subject, says := range map[string]string{
		"app.done": "database is down", "drover.in.r2.stop": "belongs to Drover", "$SYS.x": "belongs to the server",
	} {
		f.perform(d, deliverEffect(subject, 1))
		if m := decode[drover.HeardMessage](t, heard.next()); m.Error == nil || !strings.Contains(m.Error.Message, says) || m.Receipt != "" {
			t.Errorf("%s: %+v", subject, m)
		}
	}
}

func TestSlowSubscribersDelayNobody(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher(func(o *Options) { o.DrainTimeout = time.Millisecond })
	const slow = 500
	held := make(chan *nats.Msg, slow)
	if _, err := f.nc.ChanSubscribe("app.slow", held); err != nil {
		t.Fatal(err)
	}
	if _, err := f.nc.Subscribe("app.fast", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	heard := f.commands(run, drover.VerbHeard)
	for i := range slow {
		f.perform(d, deliverEffect("app.slow", i+1))
	}
	f.perform(d, deliverEffect("app.fast", 1000))
	if m := decode[drover.HeardMessage](t, heard.next()); m.Attempt != 1000 || m.Error != nil {
		t.Fatalf("heard first: %+v", m)
	}
	for range slow {
		_ = await(t, held, "a slow delivery").Respond(nil)
	}
	for range slow {
		heard.next()
	}
	f.settled()
}

func TestForgedMessagesAreThrownAway(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	hit := make(chan *nats.Msg, 10)
	if _, err := f.nc.ChanSubscribe("app.*", hit); err != nil {
		t.Fatal(err)
	}
	call := nats.Header{"Drover-Call": {"r1/n@1"}, "Drover-Token": {"x"}}
	delivery := func(name, value string) nats.Header {
		h := nats.Header{
			"Drover-Delivery": {"d"}, "Drover-Token": {"t"}, "Drover-Run": {"r1"}, "Drover-Attempt": {"1"},
			"Drover-Notify": {`{"subject":"app.x"}`},
		}
		h.Set(name, value)
		return h
	}
	for _, m := range []nats.Msg{
		{Subject: "drover.call.r1._request", Data: []byte(`{"subject":"app.x"}`)},
		{Subject: "drover.call.r1._request", Data: []byte(`{"subject":"app.x"}`), Header: nats.Header{"Drover-Call": {"r1/n@1"}}},
		{Subject: "drover.call.r1._request", Data: []byte(`{"subject":"app.x"}`), Header: nats.Header{"Drover-Call": {"x"}, "Drover-Token": {"x"}}},
		{Subject: "drover.call.r2._request", Data: []byte(`{"subject":"app.x"}`), Header: call},
		{Subject: "drover.call.r1._http", Data: []byte(`garbage`)},
		{Subject: "drover.call.r1._notify", Data: []byte(`garbage`)},
		{Subject: "drover.call.r1._notify", Header: delivery("Drover-Run", "a.b")},
		{Subject: "drover.call.r1._notify", Header: delivery("Drover-Attempt", "0")},
		{Subject: "drover.call.r1._notify", Header: delivery("Drover-Notify", "{")},
		{Subject: "drover.call.r1._notify", Header: delivery("Drover-Notify", "{}")},
		{Subject: "drover.call.r1._notify", Header: delivery("Drover-Token", "")},
		{Subject: "drover.call.r1._notify", Header: delivery("Drover-Delivery", "")},
	} {
		if _, err := f.js.PublishMsg(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
	}
	f.settled()
	if len(hit) > 0 || f.count(f.names.Commands(), ">") > 0 {
		t.Errorf("%d forged messages did something", len(hit))
	}
	if n := strings.Count(f.logs.String(), "thrown away"); n != 12 {
		t.Errorf("%d of 12 are logged:\n%s", n, f.logs.String())
	}
	call2 := f.builtin(d, subjects.FunctionRequest)
	if got := spell(call2(`{"subject":"svc.absent"}`)); !strings.HasPrefix(got, "unavailable") {
		t.Errorf("after it: %s", got)
	}
}

func TestForgedDeliveriesDoNotFillTheLog(t *testing.T) {
	f := newFleet(t)
	f.dispatcher()
	for i := range 2000 {
		if _, err := f.js.PublishAsync("drover.call.r1._notify", []byte("garbage")); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			<-f.js.PublishAsyncComplete()
		}
	}
	<-f.js.PublishAsyncComplete()
	f.settled()
	if n := strings.Count(f.logs.String(), "thrown away"); n == 0 || n > 400 {
		t.Errorf("%d lines are logged about 2000 messages", n)
	}
}

func TestShutdownInTheMiddleLosesNothing(t *testing.T) {
	f := newFleet(t)
	impatient := func(o *Options) { o.DrainTimeout = time.Millisecond }
	d, stop := f.dispatcher(impatient)
	asked := make(chan *nats.Msg, 100)
	if _, err := f.nc.ChanSubscribe("app.*", asked); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	const n = 20
	for i := range n {
		call := callEffect(subjects.FunctionRequest, `{"subject":"app.svc"}`)
		call.Call.ID.Attempt = i + 1
		f.perform(d, deliverEffect(fmt.Sprintf("app.%d", i), i+1), call)
	}
	for range 2 * n {
		await(t, asked, "a request")
	}
	stop() // nobody has answered
	if in := f.count(f.names.Commands(), ">"); in != 0 {
		t.Errorf("%d commands, although nobody has answered", in)
	}
	if left := f.count(f.names.Calls(), ">"); left != 2*n {
		t.Errorf("%d calls are left in the queue, want %d", left, 2*n)
	}
	f.dispatcher(impatient)
	heard, results := f.commands(run, drover.VerbHeard), f.commands(run, drover.VerbResult)
	for range 2 * n {
		_ = await(t, asked, "a request").Respond([]byte(`"yes"`))
	}
	seen := map[int]bool{}
	for len(seen) < n {
		m := decode[drover.HeardMessage](t, heard.next())
		if m.Error != nil || m.Receipt != `"yes"` {
			t.Fatalf("heard %+v", m)
		}
		seen[m.Attempt] = true
	}
	for range n {
		if r := decode[drover.ResultMessage](t, results.next()); string(r.Output) != `"yes"` {
			t.Errorf("result %s", spell(r))
		}
	}
	f.settled()
}
