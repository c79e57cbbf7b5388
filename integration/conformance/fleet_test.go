package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// patience is how long a test waits for what must come.
const patience = 90 * time.Second

var names = subjects.Default()

// fleet is a server with a worker, whose wire the test reads along.
type fleet struct {
	t     *testing.T
	s     *natstest.Server
	nc    *nats.Conn
	js    jetstream.JetStream
	made  atomic.Int64
	serve func() *exec.Cmd
	*client.Client
	*wire
}

func newFleet(t *testing.T, serve func() *exec.Cmd) *fleet {
	t.Helper()
	f := &fleet{t: t, s: natstest.New(t, natstest.Listen()), serve: serve}
	f.nc = f.s.Connect()
	var err error
	if f.js, err = jetstream.New(f.nc); err != nil {
		t.Fatal(err)
	}
	if f.Client, err = client.New(f.nc, client.Options{Patience: patience}); err != nil {
		t.Fatal(err)
	}
	f.wire = listen(t, f.s.Connect())
	return f
}

// work has a worker work, until stop is called or the test ends.
func (f *fleet) work() (stop func()) {
	f.t.Helper()
	w, err := worker.New(f.s.Connect(nats.InProcessServer(tap{f.s, f.hear})), worker.Options{Alone: true, Settings: topology.Settings{Partitions: 4}})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	await(f.t, w.Ready(), "the worker")
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("end of the worker: %v", err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

func await[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("gave up waiting for %s", what)
		panic("unreachable")
	}
}

// process is one that serves the program under some name.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	out   bytes.Buffer // once it has ended
}

// process starts one. It has ended when the test ends.
func (f *fleet) process(t *testing.T, program string, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: f.serve(), ended: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Env, append(env, "NATS_URL="+f.s.URL(), "CONFORMANCE_PROGRAM="+program)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // end waits for it
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if p.end(syscall.SIGKILL); t.Failed() {
			t.Logf("%s said:\n%s", program, p.out.String())
		}
	})
	return p
}

// end ends the process by a signal.
func (p *process) end(s syscall.Signal) {
	p.t.Helper()
	_ = p.cmd.Process.Signal(s)
	await(p.t, p.ended, "the end of the process")
}

// run is one run, and what its steps ask.
type run struct {
	*fleet
	t  *testing.T
	id drover.RunID
}

// next is a run that has not begun.
func (f *fleet) next(t *testing.T) *run {
	return &run{fleet: f, t: t, id: drover.RunID(fmt.Sprintf("c-%d", f.made.Add(1)))}
}

// start starts a run of a program, or of a definition, that plays a script.
func (f *fleet) start(t *testing.T, program string, script ...op) *run {
	t.Helper()
	r := f.next(t)
	r.begins(program, script...)
	return r
}

func (r *run) begins(definition string, script ...op) {
	r.t.Helper()
	if !strings.HasPrefix(definition, "{") {
		definition = `{"program":"` + definition + `"}`
	}
	start := drover.StartRequest{RunID: r.id, Definition: json.RawMessage(definition), Input: encode(r.t, r.script(script...))}
	if _, err := r.Start(r.t.Context(), start); err != nil {
		r.t.Fatal(err)
	}
}

// script is the input that has steps ask this run's test.
func (r *run) script(list ...op) script { return script{Probe: probeOf(r.id), Script: list} }

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// asked is a question that a step has asked.
type asked struct {
	question
	m *nats.Msg
}

// gives answers a step with its output.
func (a *asked) gives(t *testing.T, output string) {
	t.Helper()
	if err := a.m.Respond(encode(t, told{Output: json.RawMessage(output)})); err != nil {
		t.Fatal(err)
	}
}

// fails answers a step with an error.
func (a *asked) fails(t *testing.T, e *drover.Error) {
	t.Helper()
	if err := a.m.Respond(encode(t, told{Error: e})); err != nil {
		t.Fatal(err)
	}
}

// asks waits for the next question, which must be of this kind and id.
func (r *run) asks(kind drover.EntryKind, id string) *asked {
	r.t.Helper()
	a := await(r.t, r.questions(r.id), fmt.Sprintf("%s %q of run %s\n%s", kind, id, r.id, r.said(r.id)))
	if a.Kind != kind || a.ID != id {
		r.t.Fatalf("run %s asked for %s %q, want %s %q\n%s", r.id, a.Kind, a.ID, kind, id, r.said(r.id))
	}
	return a
}

// step has the next step give something.
func (r *run) step(id, output string) *asked {
	r.t.Helper()
	a := r.asks(drover.EntryStep, id)
	a.gives(r.t, output)
	return a
}

func (r *run) deliver(name, payload string) {
	r.t.Helper()
	if _, err := r.Deliver(r.t.Context(), drover.DeliverRequest{RunID: r.id, Name: name, Payload: json.RawMessage(payload)}); err != nil {
		r.t.Fatal(err)
	}
}

// ends waits for the end of the run, and checks it and all that was said.
func (r *run) ends(status drover.Status, result string) *drover.Error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	o, err := r.Wait(ctx, r.id)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.said(r.id))
	}
	if got := string(o.Result); o.Status != status || result != "" && got != result {
		r.t.Fatalf("run %s ended %s with %s and %v, want %s with %s\n%s", r.id, o.Status, got, o.Error, status, result, r.said(r.id))
	}
	r.check()
	select {
	case a := <-r.questions(r.id):
		r.t.Errorf("run %s asked for %s %q as well", r.id, a.Kind, a.ID)
	default:
	}
	return o.Error
}

// parks waits until the run waits, and nobody drives it.
func (r *run) parks() {
	r.t.Helper()
	r.until(r.t, "run "+string(r.id)+" parks", func() bool {
		list := r.of(r.id)
		last := len(list) - 1
		return last >= 0 && list[last].End != nil && list[last].End.Status == drover.DriveWaiting && list[last].reply != nil && !list[last].reply.Driving
	})
}

// entries counts the entries of the journal by kind and id.
func (r *run) entries() map[string]int {
	r.t.Helper()
	got, err := r.Journal(r.t.Context(), r.id, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range got.Journal {
		count[string(e.Kind)+" "+e.ID]++
	}
	return count
}
