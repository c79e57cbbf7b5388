package dispatcher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// patience is how long a test waits for what must come. It is never waited out
// unless the test fails.
const patience = time.Minute

const partitions = 4

// fleet is a server with the streams that a dispatcher needs, and the one end
// of everything.
type fleet struct {
	t      *testing.T
	server *natstest.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	names  subjects.Names
	values *values
	runs   states
	store  *kv.Store
	logs   *logs
}

func newFleet(t *testing.T, opts ...natstest.Option) *fleet {
	t.Helper()
	f := &fleet{
		t: t, server: natstest.New(t, opts...), names: subjects.Default(), logs: &logs{},
		values: &values{kept: map[string]json.RawMessage{}}, runs: states{},
	}
	f.nc = f.server.Connect()
	f.js = natstest.JetStream(t, f.nc)
	if _, err := topology.Ensure(t.Context(), f.js, f.names, topology.Settings{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.store, err = kv.Open(t.Context(), f.js, f.publisher(f.nc), f.names); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) publisher(nc *nats.Conn) *publish.Publisher {
	f.t.Helper()
	p, err := publish.New(nc, publish.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(p.Close)
	return p
}

// dispatcher makes one that runs until the test ends, or stop is called. stop
// returns when it has ended.
func (f *fleet) dispatcher(change ...func(*Options)) (d *Dispatcher, stop func()) {
	f.t.Helper()
	nc := f.server.Connect()
	opts := Options{
		Names: f.names, Conn: nc, Publisher: f.publisher(nc), Values: f.values, Runs: f.runs, Instance: "w1",
		Deliveries: f.store.Deliveries, Partitions: partitions, Owns: func(int) bool { return true },
		AllowPrivate: true, Logger: zerolog.New(f.logs),
	}
	for _, c := range change {
		c(&opts)
	}
	d, err := New(opts)
	if err != nil {
		f.t.Fatal(err)
	}
	return d, f.run(d)
}

func (f *fleet) run(d *Dispatcher) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := await(f.t, ended, "the end of Run"); err != nil {
			f.t.Errorf("Run: %v", err)
		}
	})
	f.t.Cleanup(stop)
	await(f.t, d.Ready(), "the built-in functions")
	return stop
}

// perform performs effects and waits for the end.
func (f *fleet) perform(d *Dispatcher, effects ...machine.Effect) {
	f.t.Helper()
	done := make(chan error, 2)
	d.Perform(effects, func(err error) { done <- err })
	if err := await(f.t, done, "the end of the effects"); err != nil {
		f.t.Fatalf("effects: %v", err)
	}
}

// log reads the messages of a stream from the first on, and follows it.
type log struct {
	t    *testing.T
	cons jetstream.Consumer
}

func (f *fleet) log(stream, filter string) *log {
	f.t.Helper()
	cons, err := f.js.OrderedConsumer(f.t.Context(), stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	if err != nil {
		f.t.Fatal(err)
	}
	return &log{f.t, cons}
}

func (l *log) next() jetstream.Msg {
	l.t.Helper()
	m, err := l.cons.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		l.t.Fatalf("no message came: %v", err)
	}
	return m
}

// stored is where the server keeps a command.
func stored(run drover.RunID, verb drover.Verb) string {
	return fmt.Sprintf("drover.cmd.%d.%s.%s", subjects.Partition(string(run), partitions), run, verb)
}

// commands reads the commands with a verb.
func (f *fleet) commands(run drover.RunID, verb drover.Verb) *log {
	return f.log(f.names.Commands(), stored(run, verb))
}

func decode[T any](t *testing.T, m interface{ Data() []byte }) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(m.Data(), &v); err != nil {
		t.Fatalf("%s: %v", m.Data(), err)
	}
	return v
}

// count is how many messages a stream holds under a subject.
func (f *fleet) count(stream, subject string) int {
	f.t.Helper()
	s, err := f.js.Stream(f.t.Context(), stream)
	if err != nil {
		f.t.Fatal(err)
	}
	info, err := s.Info(f.t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		f.t.Fatal(err)
	}
	n := 0
	for _, each := range info.State.Subjects {
		n += int(each)
	}
	return n
}

// settled waits until no call is in the queue.
func (f *fleet) settled() {
	f.t.Helper()
	deadline := time.After(patience)
	for f.count(f.names.Calls(), f.names.CallAll()) > 0 {
		select {
		case <-deadline:
			f.t.Fatal("the queue did not get empty")
		case <-time.After(time.Millisecond):
		}
	}
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// values is a Values in memory.
type values struct {
	mu   sync.Mutex
	kept map[string]json.RawMessage
	fail error
	hook func(keys []string)
	// sweep is called before a sweep, which fails where it does.
	sweep func(ctx context.Context) error
	swept chan struct{} // gets something after each, if it is there
}

func (v *values) Sweep(ctx context.Context, run drover.RunID, dead func(string) bool) error {
	if v.swept != nil {
		defer func() { v.swept <- struct{}{} }()
	}
	if v.sweep != nil {
		if err := v.sweep(ctx); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.kept, func(key string, _ json.RawMessage) bool {
		return strings.HasPrefix(key, string(run)+".") && dead(key)
	})
	return v.fail
}

func (v *values) put(key string, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept[key] = json.RawMessage(value)
}

func (v *values) Get(_ context.Context, keys []string) (map[string]json.RawMessage, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hook != nil {
		v.hook(keys)
	}
	found := maps.Clone(v.kept)
	maps.DeleteFunc(found, func(key string, _ json.RawMessage) bool {
		for _, k := range keys {
			if k == key {
				return false
			}
		}
		return true
	})
	return found, v.fail
}

// states are the runs that there are. They do not change while a dispatcher runs.
type states map[drover.RunID]*machine.State

func (s states) Load(_ context.Context, run drover.RunID) (*machine.State, error) {
	if state := s[run]; state != nil {
		return state, nil
	}
	return nil, drover.Errorf(drover.CodeNotFound, "there is no run %s", run)
}

// logs keeps what was logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

const run = drover.RunID("r1")

func callOf(node drover.NodeID) drover.CallID {
	return drover.CallID{Run: run, Node: node, Item: drover.NoItem, Attempt: 2}
}

var deadline = time.Date(2126, 3, 4, 5, 6, 7, 89_000_000, time.UTC)

func callEffect(function drover.FunctionName, input string) machine.Effect {
	return machine.Effect{
		Owed: machine.Owed{Kind: machine.EffectCall, Node: "n", Attempt: 2}, Run: run,
		Call:  &machine.Call{ID: callOf("n"), Function: function, Token: "tok", Deadline: deadline},
		Value: machine.Value{JSON: json.RawMessage(input)},
	}
}

func outcomeOf(status drover.Status) *drover.Outcome {
	return &drover.Outcome{
		DeliveryID: "r1:terminal:0", RunID: run, Workflow: "wf", Status: status,
		StartedAt: time.Unix(1, 0).UTC(), EndedAt: time.Unix(2, 0).UTC(), Tags: map[string]string{"b": "<2>", "a": "1"},
	}
}

func deliverEffect(subject string, attempt int) machine.Effect {
	return machine.Effect{
		Owed: machine.Owed{Kind: machine.EffectDeliver, Attempt: attempt}, Run: run, Outcome: outcomeOf(drover.StatusCompleted),
		Delivery: &machine.Delivery{ID: "r1:terminal:0", Notify: drover.Notify{Subject: subject}, Token: "dtok", Attempt: attempt},
		Value:    machine.Value{JSON: json.RawMessage(`{"ok":true}`)},
	}
}

// tellEffect delivers the outcome to a function.
func tellEffect(function drover.FunctionName) machine.Effect {
	e := deliverEffect("", 1)
	e.Delivery.Notify = drover.Notify{Function: function}
	e.Call = &machine.Call{
		ID: drover.CallID{Run: run, Node: "_outcome", Item: 0, Attempt: 1}, Function: function, Token: "ctok", Deadline: deadline,
	}
	return e
}
