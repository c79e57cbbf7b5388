package dispatcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// listener is a subscriber that answers everything with the same receipt.
func (f *fleet) listener(subject string) <-chan *nats.Msg {
	f.t.Helper()
	got := make(chan *nats.Msg, 1000)
	nc := f.server.Connect()
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
		got <- m
		_ = m.Respond([]byte("thanks"))
	}); err != nil {
		f.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		f.t.Fatal(err)
	}
	return got
}

func TestDelivery05SubscriberGetsTheBytesOfTheOutcome(t *testing.T) {
	f := newFleet(t, small())
	d, _ := f.dispatcher()
	got, heard := f.listener("app.done"), f.commands(run, drover.VerbHeard)
	word := func(size int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", size) + `"`) }
	f.values.put("r1.result", string(word(20<<10)))
	outcome := outcomeOf(drover.StatusCompleted)
	for i, tc := range []struct {
		name  string
		value machine.Value
		want  []byte
		code  drover.Code // of the error that is told in place of the result
	}{
		{"small", machine.Value{JSON: json.RawMessage(`{"ok":true}`)}, Encode(outcome, json.RawMessage(`{"ok":true}`)), ""},
		{"none", machine.Value{}, Encode(outcome, nil), ""},
		{"kept in the bucket", machine.Value{Key: "r1.result", Size: 20 << 10}, Encode(outcome, word(20<<10)), ""},
		{"gone from the bucket", machine.Value{Key: "r1.gone", Size: 3000}, nil, drover.CodeInternal},
		{"too large", machine.Value{JSON: word(40 << 10)}, nil, drover.CodeTooLarge},
		{"too large with its headers", machine.Value{JSON: word(31 << 10)}, nil, drover.CodeTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := deliverEffect("app.done", 1)
			e.Value, e.Delivery.ID = tc.value, drover.DeliveryIDOf(run, i)
			f.perform(d, e)
			m := await(t, got, "the outcome")
			if m.Header.Get("Drover-Delivery") != string(e.Delivery.ID) || m.Header.Get("Drover-Token") != "" {
				t.Errorf("headers %v", m.Header)
			}
			var o drover.Outcome
			if err := json.Unmarshal(m.Data, &o); err != nil {
				t.Fatal(err)
			}
			switch {
			case tc.want != nil && !bytes.Equal(m.Data, tc.want):
				t.Errorf("got\n%.300s\nwant\n%.300s", m.Data, tc.want)
			case tc.code != "" && (o.Error == nil || o.Error.Code != tc.code || o.Status != drover.StatusCompleted || string(o.Result) != "null"):
				t.Errorf("without its result: %.300s", m.Data)
			}
			h := decode[drover.HeardMessage](t, heard.next())
			if h.DeliveryID != e.Delivery.ID || h.Token != "dtok" || h.Attempt != 1 || h.Receipt != "thanks" || h.Error != nil {
				t.Errorf("heard %+v", h)
			}
		})
	}
}

func TestAttemptThatFindsNobodyIsNotMade(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	heard := f.commands(run, drover.VerbHeard)
	for i, tc := range []struct{ subject, says string }{
		{"app.done", "app.done"}, {"drover.in.r2.stop", "belongs to Drover"}, {"$SYS.x", "belongs to the server"},
	} {
		e := deliverEffect(tc.subject, 1)
		e.Delivery.ID = drover.DeliveryIDOf(run, i)
		f.perform(d, e)
		h := decode[drover.HeardMessage](t, heard.next())
		if h.Error == nil || !h.Unmade || h.DeliveryID != e.Delivery.ID || !strings.Contains(h.Error.Message, tc.says) || h.Error.Permanent != (i > 0) {
			t.Errorf("%s: %+v, %v", tc.subject, h, h.Error)
		}
	}
	if n := f.count(f.names.Commands(), stored("r2", drover.VerbStop)); n > 0 {
		t.Error("an outcome became a command")
	}
}

// What a function is told waits in its queue.
func TestFunctionIsToldByACall(t *testing.T) {
	f := newFleet(t, small())
	d, _ := f.dispatcher()
	calls, err := f.js.Stream(t.Context(), f.names.Calls())
	if err != nil {
		t.Fatal(err)
	}
	f.values.put("r1.result", `{"ok":true}`)
	kept, gone, large := tellEffect("app.told"), tellEffect("app.told"), tellEffect("app.told")
	kept.Value = machine.Value{Key: "r1.result", Size: 3000}
	gone.Value = machine.Value{Key: "r1.gone", Size: 3000}
	large.Value = machine.Value{JSON: json.RawMessage(`"` + strings.Repeat("x", 40<<10) + `"`)}
	for _, e := range []machine.Effect{tellEffect("app.told"), kept, gone, large} {
		f.perform(d, e)
	}
	want := string(Encode(outcomeOf(drover.StatusCompleted), json.RawMessage(`{"ok":true}`)))
	for i, says := range []string{want, want, "r1.gone", "does not fit in a message"} {
		m, err := calls.GetMsg(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 && string(m.Data) != want || !strings.Contains(string(m.Data), says) {
			t.Errorf("call %d: %.300s", i, m.Data)
		}
		h := m.Header
		if m.Subject != "drover.call.r1.app.told" || h.Get("Drover-Call") != "r1/_outcome#0@1" || h.Get("Drover-Token") != "ctok" ||
			h.Get("Drover-Deadline") != deadline.Format(time.RFC3339Nano) {
			t.Errorf("call %d on %s: %v", i, m.Subject, h)
		}
	}
}

// list gives the keys of the list, oldest first.
func (f *fleet) list() []string {
	f.t.Helper()
	var keys []string
	if err := f.store.Deliveries.Scan(f.t.Context(), "", func(key string, _ kv.Hint) bool {
		keys = append(keys, key)
		return true
	}); err != nil {
		f.t.Fatal(err)
	}
	return keys
}

func listEffect(kind machine.EffectKind, n drover.Notify, run drover.RunID, subscriber int) machine.Effect {
	return machine.Effect{
		Owed: machine.Owed{Kind: kind, Index: subscriber}, Run: run,
		Delivery: &machine.Delivery{ID: drover.DeliveryIDOf(run, subscriber), Notify: n},
	}
}

func TestDeliveriesAreListedUnderWhomTheyAreFor(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	to := drover.Notify{Subject: "app.done"}
	batch := drover.Notify{Subject: "app.done", Batch: &drover.Batch{Max: 10}}
	key := func(n drover.Notify, run drover.RunID, i int) string {
		return subjects.DeliveryKey(delivery.Target(&n), d.partition(run), run, i)
	}
	f.perform(d, listEffect(machine.EffectList, to, "r1", 0))
	f.perform(d, listEffect(machine.EffectList, batch, "r1", 1))
	f.perform(d, listEffect(machine.EffectList, to, "r2", 3))
	if want := []string{key(to, "r1", 0), key(batch, "r1", 1), key(to, "r2", 3)}; !slices.Equal(f.list(), want) {
		t.Errorf("the list has %v, want %v", f.list(), want)
	}
	var found []drover.DeliveryID
	visit := func(run drover.RunID, i int) bool {
		found = append(found, drover.DeliveryIDOf(run, i))
		return true
	}
	if err := d.Listed(t.Context(), delivery.Target(&to), visit); err != nil || fmt.Sprint(found) != "[r1:terminal:0 r2:terminal:3]" {
		t.Errorf("for the target: %v, error %v", found, err)
	}
	d.opts.Owns = func(partition int) bool { return partition == d.partition("r2") }
	found = nil
	if err := d.Listed(t.Context(), delivery.Target(&to), visit); err != nil || fmt.Sprint(found) != "[r2:terminal:3]" {
		t.Errorf("for the target, in own partitions: %v, error %v", found, err)
	}
	f.perform(d, listEffect(machine.EffectUnlist, to, "r1", 0))
	f.perform(d, listEffect(machine.EffectUnlist, to, "r1", 0)) // a repeat
	if want := []string{key(batch, "r1", 1), key(to, "r2", 3)}; !slices.Equal(f.list(), want) {
		t.Errorf("the list has %v, want %v", f.list(), want)
	}
}

// ended is a run that is over, with one subscriber.
func ended(run drover.RunID, n drover.Notify, status drover.DeliveryStatus) *machine.State {
	return &machine.State{
		Run: run, Workflow: "wf", Secret: "s3cret", Status: drover.StatusCompleted, Created: 1000, Ended: 2000, Now: 2000,
		Result: machine.Value{JSON: json.RawMessage(`7`)},
		Notify: []machine.Subscriber{{Notify: n, Status: status, Tried: 4, Since: 2000, Listed: true}},
	}
}

func TestOnlyWhatIsPendingIsLoaded(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	to := drover.Notify{Subject: "app.done"}
	f.values.put("kept.result", `"kept"`)
	for run, status := range map[drover.RunID]drover.DeliveryStatus{
		"pending": drover.DeliveryPending, "kept": drover.DeliveryPending, "dead": drover.DeliveryDead,
		"delivered": drover.DeliveryDelivered, "consumed": drover.DeliveryConsumed, "called": drover.DeliveryPending,
	} {
		f.runs[run] = ended(run, to, status)
	}
	f.runs["kept"].Result = machine.Value{Key: "kept.result", Size: 3000}
	f.runs["called"].Notify[0].Notify = drover.Notify{Function: "app.told"}
	for _, run := range []drover.RunID{"pending", "dead", "delivered", "consumed", "called", "gone"} {
		n := to
		if s := f.runs[run]; s != nil {
			n = s.Notify[0].Notify
		}
		f.perform(d, listEffect(machine.EffectList, n, run, 0))
	}
	load := func(run drover.RunID) *delivery.Job {
		t.Helper()
		j, err := d.Load(t.Context(), run, 0)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	for run, result := range map[drover.RunID]string{"pending": `"result":7,`, "kept": `"result":"kept",`} {
		j := load(run)
		if j == nil || j.Attempt != 5 || j.ID != drover.DeliveryIDOf(run, 0) || j.Token == "" || j.Run != run ||
			j.Outcome == nil || !strings.Contains(string(j.Body), result) {
			t.Errorf("run %s: %+v", run, j)
		}
	}
	for _, run := range []drover.RunID{"dead", "delivered", "consumed", "called", "gone"} {
		if j := load(run); j != nil {
			t.Errorf("run %s: %+v", run, j)
		}
	}
	if j, err := d.Load(t.Context(), "pending", 7); j != nil || err != nil {
		t.Errorf("a subscriber that is not there: %+v, error %v", j, err)
	}
	// The keys of those that are over were left behind.
	f.perform(d, listEffect(machine.EffectList, to, "last", 0)) // after the writes that take them off
	var left []string
	for _, key := range f.list() {
		_, run, _, _ := subjects.DeliveryOfKey(key)
		left = append(left, string(run))
	}
	if !slices.Equal(left, []string{"pending", "dead", "called", "last"}) {
		t.Errorf("left on the list: %v", left)
	}
	d.opts.Owns = func(int) bool { return false }
	if j := load("pending"); j != nil {
		t.Errorf("of another worker's partition: %+v", j)
	}
}

// A worker that takes over finds out by itself who is there.
func TestDelivery10WhatWasListedIsTriedAtOnce(t *testing.T) {
	f := newFleet(t)
	here, away := drover.Notify{Subject: "app.here"}, drover.Notify{Subject: "app.away"}
	const n = 50
	d, stop := f.dispatcher()
	for i := range n {
		for name, to := range map[string]drover.Notify{"here": here, "away": away} {
			id := drover.RunID(fmt.Sprint(name, i))
			f.runs[id] = ended(id, to, drover.DeliveryPending)
			f.perform(d, listEffect(machine.EffectList, to, id, 0))
		}
	}
	stop()
	got := f.listener("app.here")
	heard := f.log(f.names.Commands(), "drover.cmd.*.*.heard")
	d, stop = f.dispatcher()
	if err := d.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	delivered := map[drover.DeliveryID]bool{}
	for len(delivered) < n {
		m := await(t, got, "a delivery")
		delivered[drover.DeliveryID(m.Header.Get("Drover-Delivery"))] = true
	}
	for range n {
		if h := decode[drover.HeardMessage](t, heard.next()); h.Error != nil || h.Attempt != 5 || !delivered[h.DeliveryID] {
			t.Errorf("heard %+v", h)
		}
	}
	stop()
	if n := f.count(f.names.Commands(), "drover.cmd.*.*.heard"); n != len(delivered) {
		t.Errorf("%d were heard of, but only %d delivered: nobody was asked for the others", n, len(delivered))
	}
}
