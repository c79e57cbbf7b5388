package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	acked "github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// store opens what a fleet that was set up remembers.
func store(t *testing.T, s *natstest.Server) *kv.Store {
	t.Helper()
	js := s.JetStream()
	p, err := acked.New(js.Conn(), acked.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	st, err := kv.Open(t.Context(), js, p, subjects.Default())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// until waits for a state of the partitions.
func until(t *testing.T, st *kv.Store, so func([]kv.Partition) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := false
	_ = st.Fleet.WatchPartitions(ctx, func(list []kv.Partition) {
		if so(list) {
			done = true
			cancel()
		}
	})
	if !done {
		t.Fatal("the partitions did not come to be owned as they should")
	}
}

// insist publishes a command until it is acknowledged: also over restarts.
func insist(t *testing.T, js jetstream.JetStream, run string, verb drover.Verb, payload any) {
	t.Helper()
	data, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := js.Publish(ctx, subjects.Default().In(drover.RunID(run), verb), data)
		cancel()
		if err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// all waits until every run has an outcome, which must be right, and one.
func all(t *testing.T, done <-chan drover.Outcome, runs int, result string) {
	t.Helper()
	ended := map[drover.RunID]drover.Outcome{}
	timeout := time.After(time.Minute)
	for len(ended) < runs {
		select {
		case o := <-done:
			if was, ok := ended[o.RunID]; ok && string(was.Result) != string(o.Result) {
				t.Errorf("run %s has two outcomes: %+v and %+v", o.RunID, was, o)
			}
			ended[o.RunID] = o
			if o.Status != drover.StatusCompleted || string(o.Result) != result {
				t.Errorf("run %s: %+v, result %s", o.RunID, o, o.Result)
			}
		case <-timeout:
			t.Fatalf("%d of %d runs ended", len(ended), runs)
		}
	}
}

func stepsFrom(t *testing.T, input string) drover.StartRequest {
	t.Helper()
	return drover.StartRequest{Definition: text(t, steps), Input: json.RawMessage(input)}
}

// A worker that is frozen loses its lease and its partitions. When it goes on it
// still believes that it owns them, and what it does then must harm nothing.
func TestAFrozenWorkerDoesNoHarm(t *testing.T) {
	s := natstest.New(t, natstest.Listen())
	p := newProxy(t, s)
	nc, err := nats.Connect(p.url(), nats.MaxReconnects(-1), nats.PingInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	first := beginOn(t, nc, worker.Options{Name: "first"})
	second := begin(t, s, "second")
	st := store(t, s)
	var c counter
	serve(t, s, c.function())
	done := outcomes(t, s)
	js := s.JetStream()
	const runs = 200
	for i := range runs {
		publish(t, js, fmt.Sprintf("r%d", i), drover.VerbStart, stepsFrom(t, "0"))
		switch i {
		case 50:
			p.freeze(true)
		case 150:
			until(t, st, func(list []kv.Partition) bool { return owned(list, second.ID()) == 8 })
			p.freeze(false)
		}
	}
	all(t, done, runs, "3")
	// It is a member again, and takes its share.
	until(t, st, func(list []kv.Partition) bool {
		return owned(list, first.ID()) == 4 && owned(list, second.ID()) == 4
	})
}

func owned(list []kv.Partition, worker string) int {
	n := 0
	for _, p := range list {
		if p.Worker == worker {
			n++
		}
	}
	return n
}

func TestAServerThatRestartsLosesNothing(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "first")
	begin(t, s, "second")
	var c counter
	serve(t, s, c.function())
	js := s.JetStream()
	const runs = 150
	for i := range runs {
		insist(t, js, fmt.Sprintf("r%d", i), drover.VerbStart, stepsFrom(t, "0"))
		if i%50 == 20 {
			s.Restart()
		}
	}
	kept(t, s, runs)
}

// kept waits until the stream of outcomes holds all: a listener may have been
// away when some were published.
func kept(t *testing.T, s *natstest.Server, runs int) {
	t.Helper()
	cons, err := s.JetStream().OrderedConsumer(t.Context(), subjects.Default().Outcomes(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	it, err := cons.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer it.Stop()
	got := make(chan drover.Outcome, 10_000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := map[drover.RunID]bool{}
	for len(seen) < runs {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatalf("%d of %d runs ended: %v", len(seen), runs, err)
		}
		var o drover.Outcome
		if err := json.Unmarshal(m.Data(), &o); err != nil {
			t.Fatal(err)
		}
		seen[o.RunID] = true
		got <- o
	}
	all(t, got, runs, "3")
}

// A partition that bears the name of a worker who lives and does not drive it
// would have no owner for as long as that worker lives.
func TestAPartitionThatNobodyDrivesIsGivenBack(t *testing.T) {
	s := natstest.New(t)
	first := begin(t, s, "first")
	second := begin(t, s, "second")
	st := store(t, s)
	until(t, st, func(list []kv.Partition) bool { return owned(list, first.ID()) == 4 && owned(list, second.ID()) == 4 })
	for n := range 8 {
		p, err := st.Fleet.Partition(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if p.Worker == first.ID() {
			continue
		}
		p.Worker = first.ID() // which does not want it
		p.Epoch++
		if _, err := st.Fleet.Save(t.Context(), p); err != nil && !errors.Is(err, kv.ErrConflict) {
			t.Fatal(err)
		}
	}
	until(t, st, func(list []kv.Partition) bool { return owned(list, first.ID()) == 4 && owned(list, second.ID()) == 4 })
	var c counter
	serve(t, s, c.function())
	done := outcomes(t, s)
	js := s.JetStream()
	for i := range 50 {
		publish(t, js, fmt.Sprintf("r%d", i), drover.VerbStart, stepsFrom(t, "0"))
	}
	all(t, done, 50, "3")
}

// A record of a later version cannot be read by this worker. A worker that can
// must get the partition all the same.
func TestAPartitionThatCannotBeFinishedIsHandedOver(t *testing.T) {
	s := natstest.New(t)
	first := beginOn(t, s.Connect(), worker.Options{Name: "first", DrainTimeout: time.Second})
	st := store(t, s)
	js := s.JetStream()
	for _, run := range inEach(8) {
		stored := make(chan error, 1)
		st.Runs.Commit([]kv.Commit{{
			Key: subjects.RunKey(subjects.Partition(run, 8), drover.RunID(run)), Data: []byte("of a later version"),
			Done: func(_ uint64, err error) { stored <- err },
		}})
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
		publish(t, js, run, drover.VerbStop, drover.StopRequest{})
	}
	second := beginOn(t, s.Connect(), worker.Options{Name: "second", DrainTimeout: time.Second})
	until(t, st, func(list []kv.Partition) bool { return owned(list, first.ID()) == 4 && owned(list, second.ID()) == 4 })
	var c counter
	serve(t, s, c.function())
	done := outcomes(t, s)
	for i := range 40 {
		publish(t, js, fmt.Sprintf("r%d", i), drover.VerbStart, stepsFrom(t, "0"))
	}
	all(t, done, 40, "3")
}

// inEach gives the id of a run in each partition.
func inEach(partitions int) map[int]string {
	ids := map[int]string{}
	for i := 0; len(ids) < partitions; i++ {
		id := fmt.Sprintf("x%d", i)
		ids[subjects.Partition(id, partitions)] = id
	}
	return ids
}

func TestAWorkerThatCannotBegin(t *testing.T) {
	t.Run("without JetStream", func(t *testing.T) {
		s := natstest.New(t, natstest.With(func(o *server.Options) { o.JetStream = false }))
		asked := make(chan struct{}, 100)
		if _, err := s.Connect().Subscribe("$JS.API.>", func(*nats.Msg) { asked <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- newWorker(t, s.Connect(), worker.Options{}).Run(ctx) }()
		<-asked
		cancel() // it would wait until the server has it
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("with other settings", func(t *testing.T) {
		s := natstest.New(t)
		begin(t, s, "first")
		w := newWorker(t, s.Connect(), worker.Options{Settings: topology.Settings{Partitions: 9}})
		if err := w.Run(t.Context()); !errors.Is(err, drover.CodeConflict) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("with a connection that is closed", func(t *testing.T) {
		nc := natstest.New(t).Connect()
		nc.Close()
		w := newWorker(t, nc, worker.Options{})
		if err := w.Run(t.Context()); err == nil {
			t.Error("it ran")
		}
	})
	t.Run("because it was asked to end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := newWorker(t, natstest.New(t).Connect(), worker.Options{})
		if err := w.Run(ctx); err != nil {
			t.Errorf("error %v", err)
		}
	})
}

// A worker that waits for its queue can be asked to end.
func TestAWorkerIsStoppedWhileItWaitsForItsQueue(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "first").end(t)
	js, names := s.JetStream(), subjects.Default()
	if err := js.DeleteConsumer(t.Context(), names.Calls(), names.Consumer(subjects.FunctionHTTP)); err != nil {
		t.Fatal(err)
	}
	// A queue refuses a second consumer of the same calls.
	if _, err := js.CreateConsumer(t.Context(), names.Calls(), jetstream.ConsumerConfig{
		Durable: "stranger", FilterSubject: names.CallsTo(subjects.FunctionHTTP), AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{}, 10)
	w := newWorker(t, s.Connect(), worker.Options{Logger: zerolog.New(said("no queue yet", waits))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-waits
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Somebody deletes the consumers of the log, again and again.
func TestConsumersOfTheLogMayBeDeleted(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "first")
	var c counter
	serve(t, s, c.function())
	done := outcomes(t, s)
	js, names := s.JetStream(), subjects.Default()
	stream, err := js.Stream(t.Context(), names.Commands())
	if err != nil {
		t.Fatal(err)
	}
	const runs = 100
	for i := range runs {
		publish(t, js, fmt.Sprintf("r%d", i), drover.VerbStart, stepsFrom(t, "0"))
		if i%25 != 10 {
			continue
		}
		list := stream.ConsumerNames(t.Context())
		for name := range list.Name() {
			_ = stream.DeleteConsumer(t.Context(), name)
		}
		if err := list.Err(); err != nil {
			t.Fatal(err)
		}
	}
	all(t, done, runs, "3")
}

// More is in the log than an owner reads ahead.
func TestABacklogIsWorkedOff(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "first").end(t)
	js := s.JetStream()
	const runs = 4500
	start := drover.StartRequest{Definition: json.RawMessage(`{"nodes":{"s":{"set":{"with":3}}},"output":{"from":"node:s"}}`)}
	data, err := json.Marshal(start)
	if err != nil {
		t.Fatal(err)
	}
	ids := inOne(runs)
	for i, id := range ids {
		if _, err := js.PublishAsync(subjects.Default().In(drover.RunID(id), drover.VerbStart), data); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
	done := outcomes(t, s)
	begin(t, s, "second")
	all(t, done, runs, "3")
}

// inOne gives ids of runs that are all in one partition of 8.
func inOne(n int) []string {
	var ids []string
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprintf("b%d", i); subjects.Partition(id, 8) == 3 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Anyone may start a run whose id is taken. What it brings must not become a
// value of the run that is there.
func TestAStartCannotPlantValuesInARun(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "first").end(t)
	js := s.JetStream()
	big := func(word string) json.RawMessage {
		var b []byte
		b = append(b, '"')
		for range 1000 {
			b = append(b, word...)
		}
		return append(b, '"')
	}
	publish(t, js, "r", drover.VerbStart, drover.StartRequest{Definition: json.RawMessage(
		`{"nodes":{"w":{"wait":{"name":"go"}},"x":{"set":{"with":"${{ nodes.w.output }}"}}},"output":{"from":"node:x"}}`)})
	begun := make(chan *nats.Msg, 10)
	if _, err := js.Conn().ChanSubscribe(subjects.Default().Event("r"), begun); err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	w := begin(t, s, "second")
	<-begun
	w.end(t) // it parks the run
	done := outcomes(t, s)
	publish(t, js, "r", drover.VerbStart, drover.StartRequest{Definition: json.RawMessage(
		`{"nodes":{"x":{"set":{"with":` + string(big("forged")) + `}}},"output":{"from":"node:x"}}`)})
	publish(t, js, "r", drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: big("honest")})
	begin(t, s, "third")
	if o := <-done; string(o.Result) != string(big("honest")) {
		t.Errorf("the result is %.40s", o.Result)
	}
}
