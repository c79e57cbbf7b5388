package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/api"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/internal/schema"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/kv/kvtest"
	"github.com/droverhq/drover/subjects"
)

const (
	patience   = time.Minute
	partitions = 4
)

// owner plays a worker: it folds commands with the real machine, and keeps
// records in memory. It performs no effects, so calls stay outstanding until a
// test answers them.
type owner struct {
	t     testing.TB
	nc    *nats.Conn
	js    jetstream.JetStream
	names subjects.Names
	store *kv.Store

	mu    sync.Mutex
	seq   uint64
	deaf  bool
	plans map[drover.Hash]*machine.Plan

	replies map[string]*schema.Schema // what each verb says that it answers
}

func newOwner(t testing.TB) *owner {
	t.Helper()
	return ownerOn(t, natstest.New(t).Connect())
}

func ownerOn(t testing.TB, nc *nats.Conn) *owner {
	t.Helper()
	o := &owner{
		t: t, nc: nc, names: subjects.Default(), store: kvtest.NewMemory(),
		plans: map[drover.Hash]*machine.Plan{},
	}
	o.js = natstest.JetStream(t, o.nc)
	for _, cfg := range []jetstream.StreamConfig{
		{Name: o.names.Calls(), Subjects: []string{o.names.CallAll()}, Retention: jetstream.WorkQueuePolicy},
		{
			Name: o.names.Commands(), Subjects: []string{o.names.InAll()},
			SubjectTransform: &jetstream.SubjectTransformConfig{Source: o.names.InAll(), Destination: o.names.CommandTransform(partitions)},
		},
		{Name: o.names.DeadLetters(), Subjects: []string{o.names.DeadAll()}, AllowDirect: true},
	} {
		if _, err := o.js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.nc.Subscribe(o.names.InAll(), o.fold); err != nil {
		t.Fatal(err)
	}
	return o
}

// serve runs the service until the test ends.
func (o *owner) serve(change func(*api.Config)) *owner {
	o.t.Helper()
	cfg := api.Config{
		Conn: o.nc, Names: o.names, Partitions: partitions, Records: o.store.Runs, Values: o.store.Values,
		Definitions: o.store.Definitions, Hooks: o.store.Hooks, Deliveries: o.store.Deliveries, Fleet: o.store.Fleet, Resolve: o.resolve, Worker: "w1", Logger: zerolog.New(zerolog.NewTestWriter(o.t)),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := api.New(cfg)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	o.readSchemas()
	o.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			o.t.Errorf("end: %v", err)
		}
	})
	return o
}

func (o *owner) resolve(ctx context.Context, req *drover.StartRequest, hash drover.Hash) (*machine.Plan, error) {
	var text []byte
	var err error
	switch {
	case req != nil && len(req.Definition) > 0:
		if text, err = drover.DefinitionText(req.Definition); err != nil {
			return nil, err
		}
	case req != nil && req.Workflow != "":
		if hash, err = o.store.Definitions.Lookup(ctx, req.Workflow); err != nil {
			return nil, err
		}
	case req != nil:
		hash = req.Hash
	}
	if text == nil {
		if text, err = o.store.Definitions.Get(ctx, hash); err != nil {
			return nil, err
		}
	}
	def, err := drover.ParseDefinition(text)
	if err != nil {
		return nil, err
	}
	canonical, hash, err := def.Canonical()
	if err != nil {
		return nil, err
	}
	plan, err := machine.Compile(def)
	if err != nil {
		return nil, err
	}
	plan.Warnings = def.Warnings()
	return plan, o.store.Definitions.Put(ctx, hash, canonical)
}

// fold folds one command, and answers it.
func (o *owner) fold(m *nats.Msg) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deaf {
		return
	}
	answer, err := o.apply(m)
	inbox := m.Header.Get(subjects.HeaderReply)
	if inbox == "" {
		return
	}
	reply := nats.NewMsg(inbox)
	if err != nil {
		reply.Header.Set(subjects.HeaderCode, string(err.Code))
		answer = err
	}
	reply.Data, _ = rawjson.Encode(answer)
	_ = o.nc.PublishMsg(reply)
}

func (o *owner) apply(m *nats.Msg) (any, *drover.Error) {
	ctx := context.Background()
	run, verb := parts(m.Subject)
	o.seq++
	c, start, refused := machine.DecodeCommand(o.seq, time.Now(), run, verb, m.Data, "")
	if refused != nil {
		return nil, refused
	}
	key := subjects.RunKey(subjects.Partition(run, partitions), drover.RunID(run))
	rec, err := o.store.Runs.Load(ctx, key)
	var state *machine.State
	var plan *machine.Plan
	if err == nil {
		if state, err = machine.Decode(rec.Data); err == nil {
			plan, err = o.resolve(ctx, nil, state.Hash)
		}
	} else if errors.Is(err, drover.CodeNotFound) && start != nil {
		plan, err = o.resolve(ctx, start, "")
	}
	if err != nil {
		return nil, drover.AsError(err, drover.CodeInternal)
	}
	if start != nil {
		sum := sha256.Sum256([]byte(run))
		c.Start.Hash, c.Start.Secret = plan.Hash, hex.EncodeToString(sum[:])
	}
	step, err := machine.Apply(plan, state, c, o.values)
	if err != nil {
		return nil, drover.AsError(err, drover.CodeInternal)
	}
	if step.Refused != nil {
		return nil, step.Refused
	}
	if step.Changed {
		o.commit(key, rec.Revision, step)
	}
	return step.Answer, nil
}

func (o *owner) values(key string) (json.RawMessage, bool) {
	got, _ := o.store.Values.Get(context.Background(), []string{key})
	v, ok := got[key]
	return v, ok
}

func (o *owner) commit(key string, revision uint64, step machine.Step) {
	done := make(chan error, 1)
	for _, p := range step.Puts {
		o.store.Values.Put(p.Key, p.JSON, func(err error) { done <- err })
		if err := <-done; err != nil {
			o.t.Error(err)
		}
	}
	data, err := machine.Encode(step.State)
	if err != nil {
		o.t.Error(err)
	}
	o.store.Runs.Commit([]kv.Commit{{Key: key, Revision: revision, Data: data, Done: func(_ uint64, err error) { done <- err }}})
	if err := <-done; err != nil {
		o.t.Error(err)
	}
	for _, e := range step.Effects {
		o.list(step.State, e)
	}
}

// list performs the effects that list deliveries, as a worker does.
func (o *owner) list(s *machine.State, e machine.Effect) {
	call := func(key string, done func(error)) { o.store.Deliveries.List(key, kv.HintWaits, done) }
	switch e.Kind {
	case machine.EffectList:
	case machine.EffectUnlist:
		call = o.store.Deliveries.Unlist
	default:
		return
	}
	done := make(chan error, 1)
	call(listKey(s.Run, e.Index), func(err error) { done <- err })
	if err := <-done; err != nil {
		o.t.Error(err)
	}
}

func listKey(run drover.RunID, subscriber int) string {
	return subjects.DeliveryKey("target", subjects.Partition(string(run), partitions), run, subscriber)
}

// call ends a call, the way a function does.
func (o *owner) call(id, output string) {
	o.t.Helper()
	call, err := drover.ParseCallID(id)
	if err != nil {
		o.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(call.Run))
	result := drover.ResultMessage{Call: call, Token: machine.Token(hex.EncodeToString(sum[:]), id), Output: json.RawMessage(output), Instance: "i1"}
	data, err := rawjson.Encode(result)
	if err == nil {
		_, err = o.js.Publish(o.t.Context(), o.names.In(call.Run, drover.VerbResult), data)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// endpoint is what a client that knows nothing is told of a verb.
type endpoint struct {
	Name, Subject string
	Metadata      map[string]string
}

// endpoints asks the service for its endpoints.
func (o *owner) endpoints() []endpoint {
	o.t.Helper()
	m, err := o.nc.Request("$SRV.INFO."+o.names.Service(), nil, patience)
	var info struct{ Endpoints []endpoint }
	if err == nil {
		err = json.Unmarshal(m.Data, &info)
	}
	if err != nil || len(info.Endpoints) == 0 {
		o.t.Fatalf("the service tells nothing: %v", err)
	}
	return info.Endpoints
}

func (o *owner) readSchemas() {
	o.t.Helper()
	o.replies = map[string]*schema.Schema{}
	for _, e := range o.endpoints() {
		compiled, err := schema.Compile(json.RawMessage(e.Metadata["reply_schema"]))
		if err != nil {
			o.t.Fatalf("%s: %v", e.Name, err)
		}
		o.replies[strings.TrimPrefix(e.Subject, o.names.API(""))] = compiled
	}
}

// ask asks the API. The answer is decoded into reply.
func (o *owner) ask(verb, request string, reply any) error {
	o.t.Helper()
	return o.askIn(o.t, verb, request, reply)
}

// askIn is ask within another test.
func (o *owner) askIn(t testing.TB, verb, request string, reply any) error {
	t.Helper()
	m, err := o.nc.Request(o.names.API(verb), []byte(request), patience)
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	if code := m.Header.Get(subjects.HeaderCode); code != "" {
		e := &drover.Error{}
		if err := json.Unmarshal(m.Data, e); err != nil || string(e.Code) != code || m.Header.Get("Nats-Service-Error") == "" {
			t.Errorf("error answer %v %s", m.Header, m.Data)
		}
		return e
	}
	if m.Header.Get(subjects.HeaderMore) != "" {
		return nil // a result, and the reply comes later
	}
	if err := o.replies[verb].Validate(m.Data); err != nil {
		t.Errorf("%s: the answer %s is not what the schema says: %v", verb, m.Data, err)
	}
	if err := json.Unmarshal(m.Data, reply); err != nil {
		t.Fatalf("%s: answer %s: %v", verb, m.Data, err)
	}
	return nil
}
