package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/subjects"
)

// garbage is what no subject wants.
func garbage() []string {
	return []string{
		"", "garbage", "\x00", "\x00\x01\xff\xfe{", "{", "[]", "7", `"text"`, "null", "{}", `{"\u0000":"\u0000"}`, "\xff\xff",
		`{"definition":5}`, `{"definition":{"nodes":[]}}`, `{"definition":"\u0000"}`, `{"definition":{"nodes":{"a":{"set":{"with":1}}},"output":{"from":"node:b"}}}`,
		`{"definition":"a: &a [*a]"}`, `{"workflow":"nobody"}`, `{"workflow":"a.b *>"}`, `{"workflow":7}`, `{"hash":"*"}`, `{"hash":"../.."}`,
		`{"hash":"` + strings.Repeat("a", 64) + `"}`, `{"workflow":"w","hash":"` + strings.Repeat("a", 64) + `"}`,
		`{"run_id":"a.b","name":"go","node":"a","status":"odd","limit":-1}`, `{"run_id":"` + strings.Repeat("x", 500) + `"}`, `{"run_id":"nobody","item":-5}`,
		`{"run_id":{},"name":{},"payload":{},"id":{},"reason":{}}`, `{"name":"","definition":"version: 7"}`, `{"name":"a b","definition":{}}`,
		`{"call":"x"}`, `{"call":"bystander/a@0","token":""}`, `{"call":"bystander/a#99999999999@1","token":"t","output":1}`,
		`{"call":"other/a@1","token":"t","output":1}`, `{"call":"victim/a@1","token":"` + strings.Repeat("0", 64) + `","output":"forged"}`,
		`{"call":"victim/a@1","token":"forged","error":{"code":"failed","message":"forged","permanent":true}}`,
		`{"call":"victim/a@1","token":"forged","child":"c","status":"completed","result":1}`,
		`{"delivery_id":"victim:terminal:0","token":"forged","attempt":1,"receipt":"forged"}`, `{"delivery_id":"\u0000","attempt":-1}`,
		`{"notify":{"subject":"a b*>"},"workflow":"w"}`, `{"notify":[{}],"definition":{}}`, `{"idempotency_key":"` + strings.Repeat("k", 2000) + `","workflow":"w"}`,
		`{"parent":{"call":"victim/a@1","token":"forged","depth":-1},"workflow":"w"}`,
		strings.Repeat("[", 100_000), `{"input":` + strings.Repeat(`{"a":`, 20_000) + `1` + strings.Repeat("}", 20_000) + `}`, `{"limit":1e999}`,
		strings.Repeat("x", drover.MaxValue), `{"payload":"` + strings.Repeat("x", drover.MaxValue) + `","name":"go"}`,
	}
}

var verbs = []string{"start", "stop", "tick", "deliver", "result", "child", "heard", "dance", "START", "ü"}

var apiVerbs = []string{
	"start", "stop", "tick", "deliver", "status", "result", "why", "list", "definition.put", "definition.get", "definition.list",
}

// TestGarbage: whatever comes on whatever subject is told to its sender, or is a
// dead letter, and disturbs nobody.
func TestGarbage(t *testing.T) {
	t.Parallel()
	f, p := dev(t)
	f.serve(functionsOf(newTally())...)
	release := make(chan struct{})
	begun := make(chan struct{}, 10)
	f.serve(function.New("held", func(_ context.Context, n int) (int, error) {
		begun <- struct{}{}
		<-release
		return n, nil
	}))
	f.publish("victim", drover.VerbStart, drover.StartRequest{Definition: text(fmt.Sprintf(oneCall, "held")), Input: number(7)})
	await(t, begun, "the call of the victim")

	t.Run("commands", func(t *testing.T) { f.in(t).commands(t) })
	t.Run("forged commands", func(t *testing.T) { f.in(t).forged(t) })
	t.Run("requests", func(t *testing.T) {
		for _, verb := range apiVerbs {
			for _, payload := range garbage() {
				m, err := f.nc.Request(names.API(verb), []byte(payload), patience)
				if err != nil {
					t.Fatalf("%s: %.80q: %v", verb, payload, err)
				}
				wantAnswer(t, verb, payload, m)
			}
		}
	})
	t.Run("calls, cancels and hints", func(t *testing.T) { f.in(t).calls(t) })

	if len(begun) > 0 {
		t.Error("the call of the victim came again")
	}
	close(release)
	f.completes("victim", "7")
	f.publish("after", drover.VerbStart, drover.StartRequest{Definition: text(sequence), Input: number(1)})
	f.completes("after", "4")
	if tail := p.tail(); strings.Contains(tail, "panic") || strings.Contains(tail, "goroutine ") {
		t.Error("something panicked")
	}
	if mib := memory(t, p); mib > 700 {
		t.Errorf("the process has %d MiB", mib)
	}
}

// commands sends each piece of garbage as each command, once with a wish for an
// answer and once without. What was told to the one must be kept of the other, but
// for what comes as a rule when its run is gone.
func (f *fleet) commands(t *testing.T) {
	inbox := f.nc.NewInbox()
	answers, err := f.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	refused := map[uint64]string{}
	for _, run := range []string{"bystander", "ödd", "a@b#c", "%00", strings.Repeat("x", 200)} {
		for _, verb := range verbs {
			for _, payload := range garbage() {
				if len(payload) > 10_000 && run != "bystander" {
					continue
				}
				e := f.refuses(t, run, verb, payload, inbox, answers)
				switch late := verb == "tick" || verb == "child"; {
				case e == nil:
				case late && e.Code == drover.CodeNotFound: // nobody misses what comes for a run that is gone
					f.raw(t, run, verb, payload, "")
				default:
					refused[f.raw(t, run, verb, payload, "")] = run + "." + verb + ": " + payload
				}
			}
		}
	}
	kept := map[uint64]bool{}
	last := uint64(0)
	for seq := range refused {
		last = max(last, seq)
	}
	until(t, "the last dead letter", func() bool {
		return f.count(names.DeadLetters()) >= uint64(len(refused))
	})
	for _, l := range f.letters() {
		kept[l.Sequence] = true
		if l.Error.Code == "" || l.Error.Message == "" {
			t.Errorf("dead letter %d says nothing: %+v", l.Sequence, l.Error)
		}
	}
	for seq, what := range refused {
		if !kept[seq] {
			t.Errorf("no dead letter is kept of %.100q", what)
		}
	}
	t.Logf("%d commands were refused, up to %d", len(refused), last)
}

// raw publishes a command, and gives its place in the log.
func (f *fleet) raw(t *testing.T, run, verb, payload, inbox string) uint64 {
	t.Helper()
	m := nats.NewMsg(names.In(drover.RunID(run), drover.Verb(verb)))
	m.Data = []byte(payload)
	if inbox != "" {
		m.Header.Set(subjects.HeaderReply, inbox)
	}
	ack, err := f.js.PublishMsg(t.Context(), m)
	if err != nil {
		t.Fatalf("%s: %.80q: %v", m.Subject, payload, err)
	}
	return ack.Sequence
}

// refuses sends a command that wants an answer, and gives the error that it is. What has nothing to answer is followed by a command that does, in the
// same log.
func (f *fleet) refuses(t *testing.T, run, verb, payload, inbox string, answers *nats.Subscription) *drover.Error {
	t.Helper()
	f.raw(t, run, verb, payload, inbox)
	f.raw(t, run, "sentinel", "", inbox)
	var e *drover.Error
	for {
		m, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatalf("%s.%s: %.80q has no answer: %v", run, verb, payload, err)
		}
		got := wantAnswer(t, verb, payload, m)
		if got != nil && strings.Contains(got.Message, "sentinel") || got != nil && e != nil {
			return e
		}
		e = got
	}
}

// wantAnswer demands an answer that can be read, and gives the error that it is.
func wantAnswer(t *testing.T, verb, payload string, m *nats.Msg) *drover.Error {
	t.Helper()
	code := m.Header.Get("Drover-Error")
	if code == "" {
		if !json.Valid(m.Data) {
			t.Errorf("%s: %.80q: the answer is %.200q", verb, payload, m.Data)
		}
		return nil
	}
	e := &drover.Error{}
	if err := json.Unmarshal(m.Data, e); err != nil || string(e.Code) != code || e.Message == "" {
		t.Errorf("%s: %.80q: the error is %.200q with the code %s", verb, payload, m.Data, code)
	}
	if e.Code == drover.CodeInternal || e.Code == drover.CodeUnavailable {
		t.Errorf("%s: %.80q is answered as if Drover were at fault: %v", verb, payload, e)
	}
	return e
}

// forged sends what only a function, a child or a deliverer may say to a run
// that lives.
func (f *fleet) forged(t *testing.T) {
	before := f.applied("victim")
	dead := f.count(names.DeadLetters())
	sent := uint64(0)
	for _, verb := range []string{"result", "child", "heard", "start", "deliver"} {
		for _, payload := range garbage() {
			if len(payload) > 10_000 {
				continue
			}
			f.raw(t, "victim", verb, payload, "")
			sent++
		}
	}
	until(t, "the dead letters", func() bool { return f.count(names.DeadLetters()) >= dead+sent })
	if after := f.applied("victim"); after != before {
		t.Errorf("the victim was at command %d and is at %d", before, after)
	}
	f.why("victim", "call", "held", "being performed")
}

// calls puts garbage into the queue of calls, and where nothing is kept.
func (f *fleet) calls(t *testing.T) {
	heard := make(chan struct{})
	waiting, cancel := context.WithCancel(t.Context())
	go func() { // ends with waiting
		defer close(heard)
		o, err := f.Wait(waiting, "victim")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("garbage ended the wait for the victim: %+v, %v", o, err)
		}
	}()
	functions := []drover.FunctionName{"add", "flaky", subjects.FunctionRequest, subjects.FunctionHTTP}
	for _, payload := range garbage() {
		for _, fn := range functions {
			if _, err := f.js.Publish(t.Context(), names.Call("nobody", fn), []byte(payload)); err != nil {
				t.Fatal(err)
			}
		}
		for _, subject := range []string{
			names.Cancel("nobody", "add"), names.Cancel("a@b", "held"), names.Event("victim"), names.Event("ödd"), names.Done("w", "victim"),
		} {
			if err := f.nc.Publish(subject, []byte(payload)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, fn := range functions {
		until(t, "an empty queue of "+string(fn), func() bool {
			c, err := f.js.Consumer(t.Context(), names.Calls(), names.Consumer(fn))
			if err != nil {
				t.Fatal(err)
			}
			info := c.CachedInfo()
			return info.NumPending == 0 && info.NumAckPending == 0
		})
	}
	cancel()
	await(t, heard, "the end of the wait")
}

// memory is what a process occupies, in MiB.
func memory(t *testing.T, p *process) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0 // no Linux
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(data)
	if err != nil || found == nil {
		t.Fatalf("%s, %v", data, err)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}
