// Package clock_test has the tests of the worker in which time passes. They run
// under a fake clock, which shares a process with no other test.
package clock_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

var names = subjects.Default()

const steps = `
nodes:
  a: {call: step}
  b: {call: step, input: {from: node:a}}
  c: {call: step, input: {from: node:b}}
output: {from: node:c}
`

// What a node gave can be read until the retention of its run is over. Then the
// run goes, and its values with it; one that is not over, or whose subscriber
// was not told, stays.
func TestDefinitions15RunsAreReadableUntilTheirRetentionIsOver(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		const retention = 5 * time.Minute
		defer work(t, s, retention)()
		big := make([]byte, 3000) // not in the record
		functions := function.New("step", func(context.Context, any) ([]byte, error) { return big, nil })
		serving, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		nc := s.Connect()
		go func() { served <- function.Serve(serving, nc, functions) }()
		defer func() {
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		}()
		done := make(chan struct{}, 10)
		if _, err := nc.Subscribe(names.DoneAll(), func(*nats.Msg) { done <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		js := s.JetStream()
		for run, notify := range map[string]drover.NotifyList{"over": nil, "untold": {{Subject: "nobody"}}} {
			start(t, js, run, steps, notify)
			<-done
		}
		start(t, js, "open", "nodes: {w: {wait: {name: go}}}\noutput: {from: node:w}\n", nil)

		time.Sleep(retention - time.Second)
		wantRuns(t, nc, "over", "untold", "open")
		time.Sleep(3 * time.Minute)
		wantRuns(t, nc, "untold", "open")
		values, err := js.Stream(t.Context(), subjects.BucketStream(names.Values()))
		if err != nil {
			t.Fatal(err)
		}
		info, err := values.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := info.State.Msgs; got != 3 { // the outputs of the run that stays
			t.Errorf("%d values are left", got)
		}
	})
}

// work runs a worker, and gives what ends it.
func work(t *testing.T, s *natstest.Server, retention time.Duration) (end func()) {
	t.Helper()
	w, err := worker.New(s.Connect(), worker.Options{
		Settings: topology.Settings{Partitions: 1, Retention: drover.Duration(retention)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-w.Ready()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// start starts a run, durably.
func start(t *testing.T, js jetstream.JetStream, run, yaml string, notify drover.NotifyList) {
	t.Helper()
	definition, err := json.Marshal(yaml)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(drover.StartRequest{Definition: definition, Notify: notify})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), names.In(drover.RunID(run), drover.VerbStart), data); err != nil {
		t.Fatal(err)
	}
}

// wantRuns demands that of the three runs these, and only these, can be read.
func wantRuns(t *testing.T, nc *nats.Conn, want ...string) {
	t.Helper()
	there := map[string]bool{}
	for _, run := range want {
		there[run] = true
	}
	for _, run := range []string{"over", "untold", "open"} {
		req, _ := json.Marshal(drover.RunRequest{RunID: drover.RunID(run), Node: "a"})
		if run == "open" {
			req, _ = json.Marshal(drover.RunRequest{RunID: drover.RunID(run)})
		}
		m, err := nc.Request(names.API("result"), req, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		code := drover.Code(m.Header.Get(subjects.HeaderCode))
		if there[run] != (code == "") || !there[run] && code != drover.CodeNotFound {
			t.Errorf("run %s is answered with %q, %.100s", run, code, m.Data)
		}
	}
}
