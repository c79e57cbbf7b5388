package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

// TestStopBySignal: Ctrl-C at drover run is a request. The run is stopped, its
// call learns of it, and the outcome is printed.
func TestStopBySignal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "workflow.yaml")
	if err := os.WriteFile(file, []byte("name: endless\nnodes: {a: {call: endless}}\noutput: {from: \"node:a\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	begun, ended := make(chan drover.CallID, 10), make(chan error, 10)
	f := connect(t, "nats://"+address)
	f.serve(function.New("endless", func(ctx context.Context, _ json.RawMessage) (int, error) {
		begun <- function.Info(ctx).ID
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return 0, context.Cause(ctx)
	}))
	p := launch(t, "run", file, "--listen", address, "--run", "endless-1", "--json")
	if id := await(t, begun, "the call"); id.String() != "endless-1/a@1" {
		t.Errorf("the call is %s", id)
	}
	p.signal(os.Interrupt)
	status, stdout, stderr := p.wait()
	var o drover.Outcome
	if err := json.Unmarshal([]byte(stdout), &o); err != nil || status != 3 {
		t.Fatalf("exit status %d, outcome %q, %v\n%s", status, stdout, err, stderr)
	}
	if o.RunID != "endless-1" || o.Workflow != "endless" || o.Status != drover.StatusCancelled || o.Error == nil || o.Error.Code != drover.CodeStopped {
		t.Errorf("the outcome is %s", stdout)
	}
	if err := await(t, ended, "the end of the call"); !errors.Is(err, function.ErrCancelled) {
		t.Errorf("the call ended by %v", err)
	}
}

// A fleet that is asked to end does so, with status 0, and goes on later.
func TestDevGoesOnAfterSIGTERM(t *testing.T) {
	t.Parallel()
	address, data := freeAddress(t), t.TempDir()
	serve := func() *process { return launch(t, "dev", "--data", data, "--listen", address) }
	p := serve()
	p.line("drover is ready")
	f := connect(t, "nats://"+address)
	f.publish("parked", drover.VerbStart, drover.StartRequest{
		Definition: text("nodes: {w: {wait: {name: go}}}\noutput: {from: \"node:w\"}\n"),
	})
	until(t, "the wait", func() bool { _, err := f.Why(t.Context(), "parked"); return err == nil })
	f.why("parked", "delivery", "go", "go")
	p.signal(syscall.SIGTERM)
	if status, _, stderr := p.wait(); status != 0 {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
	serve().line("drover is ready")
	f.why("parked", "delivery", "go", "go")
	f.publish("parked", drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: number(5)})
	f.completes("parked", "5")
}

// The pause before an attempt is neither lost nor shortened when the server and
// the worker are killed in it.
func TestDefinitions12BackoffOutlivesARestart(t *testing.T) {
	t.Parallel()
	const pause = 2 * time.Second
	address, data := freeAddress(t), t.TempDir()
	serve := func() *process { return launch(t, "dev", "--data", data, "--listen", address) }
	p := serve()
	p.line("drover is ready")
	f := connect(t, "nats://"+address)
	f.serve(function.New("shaky", func(ctx context.Context, n int) (int, error) {
		if function.Info(ctx).ID.Attempt == 1 {
			return 0, function.RetryAfter(errors.New("not yet"), pause)
		}
		return n + 1, nil
	}))
	f.publish("patient", drover.VerbStart, drover.StartRequest{
		Definition: text("nodes: {a: {call: shaky, retry: {max_attempts: 2, initial: 1ms}}}\noutput: {from: \"node:a\"}\n"), Input: number(1),
	})
	until(t, "the pause", func() bool {
		reasons := f.reasons("patient")
		return len(reasons) == 1 && reasons[0].Waiting == "retry"
	})
	p.kill()
	serve().line("drover is ready")
	f.completes("patient", "2")
	s, err := f.Status(t.Context(), drover.RunRequest{RunID: "patient"})
	if err != nil || len(s.Run.Nodes[0].Attempts) != 2 {
		t.Fatalf("%+v, %v", s.Run.Nodes, err)
	}
	first, second := s.Run.Nodes[0].Attempts[0], s.Run.Nodes[0].Attempts[1]
	if got := second.StartedAt.Sub(*first.EndedAt); got < pause {
		t.Errorf("the pause was %v, and should be %v", got, pause)
	}
}
