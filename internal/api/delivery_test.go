package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/api"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// over starts a run that is over at once, with subscribers.
func (o *owner) over(run, workflow, subscribers string) {
	o.t.Helper()
	o.start(`{"run_id":"` + run + `","definition":{"name":"` + workflow + `","nodes":{"a":{"set":{"with":1}}},"output":{"from":"node:a"}},"notify":` + subscribers + `}`)
	if s := o.status(run).Run.Status; s != drover.StatusCompleted {
		o.t.Fatalf("run %s is %s", run, s)
	}
}

// heard tells a run how an attempt went: fate is "received", "failed", "absent"
// or "forbidden", which is given up at once.
func (o *owner) heard(run drover.RunID, subscriber, attempt int, fate string) {
	o.t.Helper()
	id := drover.DeliveryIDOf(run, subscriber)
	sum := sha256.Sum256([]byte(run))
	m := drover.HeardMessage{DeliveryID: id, Attempt: attempt, Token: machine.Token(hex.EncodeToString(sum[:]), string(id))}
	switch fate {
	case "received":
		m.Receipt = "thanks"
	case "failed":
		m.Error = drover.Errorf(drover.CodeFailed, "it broke")
	case "absent":
		m.Error, m.Unmade = drover.Errorf(drover.CodeUnavailable, "nobody is there"), true
	case "forbidden":
		m.Error = drover.Errorf(drover.CodeForbidden, "not you")
		m.Error.Permanent = true
	}
	data, err := rawjson.Encode(m)
	if err != nil {
		o.t.Fatal(err)
	}
	msg := nats.NewMsg(o.names.In(run, drover.VerbHeard))
	msg.Data = data
	msg.Header.Set(subjects.HeaderReply, o.nc.NewInbox()) // its refusal must not pass in silence
	sub, err := o.nc.SubscribeSync(msg.Header.Get(subjects.HeaderReply))
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := o.js.PublishMsg(o.t.Context(), msg); err != nil {
		o.t.Fatal(err)
	}
	if answer, err := sub.NextMsg(patience); err != nil || answer.Header.Get(subjects.HeaderCode) != "" {
		o.t.Fatalf("heard: %v, error %v", answer, err)
	}
}

// listed gives the ids and statuses of what a request lists.
func (o *owner) listed(request string) string {
	o.t.Helper()
	var list drover.DeliveryList
	if err := o.ask("delivery.list", request, &list); err != nil {
		o.t.Fatal(err)
	}
	texts := make([]string, len(list.Deliveries))
	for i, d := range list.Deliveries {
		texts[i] = strings.Replace(string(d.ID), ":terminal:", "/", 1) + " " + string(d.Status)
	}
	if list.More {
		texts = append(texts, "more")
	}
	return strings.Join(texts, ", ")
}

func (o *owner) replay(request string) drover.ReplayReply {
	o.t.Helper()
	var reply drover.ReplayReply
	if err := o.ask("delivery.replay", request, &reply); err != nil {
		o.t.Fatal(err)
	}
	return reply
}

func (o *owner) hints() (keys []string) {
	o.t.Helper()
	if err := o.store.Deliveries.Scan(o.t.Context(), "", func(key string, _ kv.Hint) bool {
		keys = append(keys, key)
		return true
	}); err != nil {
		o.t.Fatal(err)
	}
	return keys
}

// says gives what the list says of a key.
func (o *owner) says(key string) (says kv.Hint) {
	o.t.Helper()
	if err := o.store.Deliveries.Scan(o.t.Context(), key, func(_ string, hint kv.Hint) bool {
		says = hint
		return true
	}); err != nil {
		o.t.Fatal(err)
	}
	return says
}

// undelivered makes runs with deliveries in several states: a is dead and c
// pending to both of two, b is delivered to one and dead to the other, d is
// pending and has not failed.
func (o *owner) undelivered() {
	two := `[{"subject":"x.done"},{"url":"https://shop.example/hook?key=secret"}]`
	for _, run := range []string{"c", "b", "a", "d"} {
		workflow := "naming"
		if run == "c" {
			workflow = "other"
		}
		o.over(run, workflow, two)
	}
	for i := range 2 {
		o.heard("a", i, 1, "forbidden")
		o.heard("c", i, 1, []string{"failed", "absent"}[i])
	}
	o.heard("b", 0, 1, "failed")
	o.heard("b", 0, 2, "received")
	o.heard("b", 1, 1, "forbidden")
}

func TestDelivery12DeadDeliveriesAreListed(t *testing.T) {
	o := newOwner(t).serve(nil)
	if got := o.listed(""); got != "" {
		t.Errorf("nothing was delivered yet, and %s is listed", got)
	}
	o.undelivered()
	for request, want := range map[string]string{
		"":                               "a/0 dead, a/1 dead, b/1 dead, c/0 pending, c/1 pending",
		`{"limit":2}`:                    "a/0 dead, a/1 dead, more",
		`{"limit":5}`:                    "a/0 dead, a/1 dead, b/1 dead, c/0 pending, c/1 pending",
		`{"status":"dead"}`:              "a/0 dead, a/1 dead, b/1 dead",
		`{"status":"dead","limit":1}`:    "a/0 dead, more",
		`{"status":"pending"}`:           "c/0 pending, c/1 pending",
		`{"run_id":"b"}`:                 "b/1 dead",
		`{"run_id":"d"}`:                 "", // it did not fail
		`{"run_id":"none"}`:              "",
		`{"run_id":"a","status":"dead"}`: "a/0 dead, a/1 dead",
		`{"run_id":"a","workflow":"x"}`:  "",
		`{"workflow":"other"}`:           "c/0 pending, c/1 pending",
		`{"to":"x.done"}`:                "a/0 dead, c/0 pending",
		`{"to":"https://shop.example/hook","status":"dead"}`: "a/1 dead, b/1 dead",
	} {
		if got := o.listed(request); got != want {
			t.Errorf("%s lists %q, want %q", request, got, want)
		}
	}
	for _, request := range []string{`{"status":"delivered"}`, `{"status":"x"}`, `{"limit":1001}`, `{"limit":-1}`} {
		if err := o.ask("delivery.list", request, nil); !errors.Is(err, drover.CodeInvalidRequest) {
			t.Errorf("%s: error %v", request, err)
		}
	}
	if err := o.ask("delivery.list", `{"run_id":"a.*"}`, nil); !errors.Is(err, drover.CodeInvalidID) {
		t.Errorf("error %v", err)
	}
	var list drover.DeliveryList
	if err := o.ask("delivery.list", `{"run_id":"b"}`, &list); err != nil {
		t.Fatal(err)
	}
	d := list.Deliveries[0]
	if d.Workflow != "naming" || d.Outcome != drover.StatusCompleted || d.RunEnded.IsZero() || d.Attempts != 1 || d.EndedAt == nil || d.LastError == nil || d.LastError.Message != "not you" {
		t.Errorf("a dead delivery without its reason: %+v", d)
	}
}

// A program is named as for the list of runs.
func TestDelivery12DeliveriesAreListedByTheirProgram(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.undelivered()
	for run, program := range map[string]string{"p": "trip", "q": "sale"} {
		o.start(`{"run_id":"` + run + `","definition":{"program":"` + program + `"},"notify":[{"subject":"x.done"}]}`)
		var stopped drover.StopReply
		if err := o.ask("stop", `{"run_id":"`+run+`","force":true}`, &stopped); err != nil {
			t.Fatal(err)
		}
		o.heard(drover.RunID(run), 0, 1, "forbidden")
	}
	for workflow, want := range map[string]string{
		"program:trip": "p/0 dead", "program:sale": "q/0 dead", "program:trip@v1": "", "program:none": "", "trip": "",
		"naming": "a/0 dead, a/1 dead, b/1 dead",
	} {
		if got := o.listed(`{"workflow":"` + workflow + `"}`); got != want {
			t.Errorf("%s lists %q, want %q", workflow, got, want)
		}
	}
	if got := o.listed(`{"workflow":"program:trip","run_id":"q"}`); got != "" {
		t.Errorf("another program's run lists %q", got)
	}
	if got := o.replay(`{"workflow":"program:sale"}`); got.Matched != 1 || got.Replayed != 1 {
		t.Errorf("replayed %+v", got)
	}
}

func TestDelivery12ShowsOneDelivery(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.undelivered()
	o.start(`{"run_id":"going","definition":` + plan + `,"notify":{"subject":"x.done"}}`)
	for id, want := range map[string]drover.DeliveryStatus{
		"b:terminal:0": drover.DeliveryDelivered, "b:terminal:1": drover.DeliveryDead, "c:terminal:0": drover.DeliveryPending, "d:terminal:1": drover.DeliveryPending,
	} {
		var d drover.RunDelivery
		if err := o.ask("delivery.show", `{"delivery_id":"`+id+`"}`, &d); err != nil || d.Status != want || string(d.ID) != id || string(d.RunID) != id[:1] {
			t.Errorf("%s is shown as %+v, error %v", id, d, err)
		}
		if want == drover.DeliveryDelivered && d.Receipt != "thanks" {
			t.Errorf("receipt %q", d.Receipt)
		}
	}
	for id, want := range map[string]error{
		"": drover.CodeInvalidID, "b": drover.CodeInvalidID, "b:terminal:-1": drover.CodeInvalidID, "b:terminal:00x": drover.CodeInvalidID, ".*:terminal:0": drover.CodeInvalidID,
		"b:terminal:2": drover.CodeNotFound, "none:terminal:0": drover.CodeNotFound, "going:terminal:0": drover.CodeConflict,
	} {
		if err := o.ask("delivery.show", `{"delivery_id":"`+id+`"}`, nil); !errors.Is(err, want) {
			t.Errorf("%q: error %v, want %v", id, err, want)
		}
	}
}

func TestDelivery12ReplaysOneByOneOrByFilter(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.undelivered()
	for _, c := range []struct {
		request           string
		matched, replayed int
		left              string // that is dead
	}{
		{`{"delivery_id":"b:terminal:0"}`, 1, 0, "a/0 dead, a/1 dead, b/1 dead"}, // it was delivered
		{`{"delivery_id":"a:terminal:1"}`, 1, 1, "a/0 dead, b/1 dead"},
		{`{"delivery_id":"a:terminal:1"}`, 1, 1, "a/0 dead, b/1 dead"}, // again: it is pending, and harmless
		{`{"to":"nobody"}`, 0, 0, "a/0 dead, b/1 dead"},
		{`{"run_id":"c"}`, 2, 2, "a/0 dead, b/1 dead"},
		{`{"status":"dead","to":"x.done"}`, 1, 1, "b/1 dead"},
		{`{"status":"dead"}`, 1, 1, ""},
		{`{"workflow":"naming"}`, 3, 3, ""},
	} {
		if got := o.replay(c.request); got.Matched != c.matched || got.Replayed != c.replayed || len(got.Errors) > 0 {
			t.Errorf("%s gives %+v, want %d and %d", c.request, got, c.matched, c.replayed)
		}
		if got := o.listed(`{"status":"dead"}`); got != c.left {
			t.Errorf("after %s %q is dead, want %q", c.request, got, c.left)
		}
	}
	// What was replayed is told with the same id, as the next attempt.
	o.heard("b", 1, 2, "received")
	if got := o.listed(""); strings.Contains(got, "b/1") {
		t.Errorf("what has a receipt is listed: %s", got)
	}
	for request, want := range map[string]error{
		``:                                drover.CodeInvalidRequest,
		`{}`:                              drover.CodeInvalidRequest,
		`{"status":"held"}`:               drover.CodeInvalidRequest,
		`{"delivery_id":"x"}`:             drover.CodeInvalidID,
		`{"delivery_id":"a:terminal:9"}`:  drover.CodeNotFound,
		`{"delivery_id":"no:terminal:0"}`: drover.CodeNotFound,
		`{"delivery_id":"a:terminal:0","status":"dead"}`: drover.CodeInvalidRequest,
	} {
		if err := o.ask("delivery.replay", request, nil); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", request, err, want)
		}
	}
}

// The list hints, and the records decide.
func TestHintsThatAreWrongAreRemoved(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.undelivered()
	right := o.hints()
	wrong := []string{
		listKey("b", 0), listKey("b", 7), listKey("gone", 0),
		subjects.DeliveryKey("other", 3, "b", 0), // an old target, and a wrong partition
	}
	for _, key := range append(wrong, "somebody.elses", "a.b.c.d", "a.0.b.-1") {
		done := make(chan error, 1)
		o.store.Deliveries.List(key, kv.HintWaits, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	want := "a/0 dead, a/1 dead, b/1 dead, c/0 pending, c/1 pending"
	for range 2 { // two hints at one delivery need two looks
		if got := o.listed(""); got != want {
			t.Errorf("listed %q, want %q", got, want)
		}
	}
	o.until("the wrong hints are gone", func() bool {
		return !slices.ContainsFunc(o.hints(), func(key string) bool { return slices.Contains(wrong, key) })
	})
	// One that waits is found by those who look for such, whatever late owners wrote.
	for key, says := range map[string]kv.Hint{listKey("c", 0): kv.HintDead, listKey("c", 1): kv.HintQueued} {
		o.store.Deliveries.List(key, says, func(error) {})
		o.until("the hint says "+string(says), func() bool { return o.says(key) == says })
		o.listed("")
		o.until("the hint is mended", func() bool { return o.says(key) == kv.HintWaits })
	}
	left := o.hints()
	for _, key := range right {
		if !slices.Contains(left, key) {
			t.Errorf("hint %s is gone, and was right", key)
		}
	}
}

// One run of many that cannot be asked keeps no other from being replayed.
func TestDelivery12ReplayOfManyTellsWhatFailed(t *testing.T) {
	o := newOwner(t)
	records := &lostRecords{Records: o.store.Runs}
	o.serve(func(c *api.Config) { c.AnswerTime, c.Records = time.Second, records })
	const runs = 600
	for i := range runs {
		run := fmt.Sprintf("run%03d", i)
		o.over(run, "naming", `{"subject":"x.done"}`)
		o.heard(drover.RunID(run), 0, 1, "forbidden")
	}
	if got := o.replay(`{"status":"dead"}`); got.Matched != runs || got.Replayed != runs {
		t.Errorf("replayed %+v", got)
	}
	if got := o.listed(`{"status":"dead"}`); got != "" {
		t.Errorf("dead are still %s", got)
	}
	o.mu.Lock()
	o.deaf = true
	o.mu.Unlock()
	got := o.replay(`{"to":"x.done"}`)
	if got.Matched != runs || got.Replayed != 0 || len(got.Errors) != 10 || !errors.Is(got.Errors[0], drover.CodeUnavailable) {
		t.Errorf("nobody answered: %d of %d, errors %v", got.Replayed, got.Matched, got.Errors)
	}
	records.failing.Store(true)
	if err := o.ask("delivery.list", "", nil); !errors.Is(err, drover.CodeUnavailable) {
		t.Errorf("a list without the records: %v", err)
	}
	if n := len(o.hints()); n != runs {
		t.Errorf("%d hints are left of %d: the records were not there, and decided nothing", n, runs)
	}
}

// lostRecords has no records for a while.
type lostRecords struct {
	api.Records
	failing atomic.Bool
}

func (w *lostRecords) Load(ctx context.Context, key string) (kv.Record, error) {
	if w.failing.Load() {
		return kv.Record{}, drover.Errorf(drover.CodeUnavailable, "no leader")
	}
	return w.Records.Load(ctx, key)
}
