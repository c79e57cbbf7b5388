package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

const retention = time.Hour

// ground is a fleet of one partition, with the buckets that a janitor works in.
type ground struct {
	t     *testing.T
	js    jetstream.JetStream
	names subjects.Names
	store *kv.Store
}

func newGround(t *testing.T) *ground {
	t.Helper()
	nc := natstest.New(t).Connect()
	g := &ground{t: t, js: natstest.JetStream(t, nc), names: subjects.Default()}
	if _, err := topology.Ensure(t.Context(), g.js, g.names, topology.Settings{Partitions: 1, Retention: drover.Duration(retention)}); err != nil {
		t.Fatal(err)
	}
	p, err := publish.New(nc, publish.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if g.store, err = kv.Open(t.Context(), g.js, p, g.names); err != nil {
		t.Fatal(err)
	}
	g.cursor(1)
	return g
}

// worker makes one that owns the partition, and does nothing by itself. What it
// writes goes through a fuse.
func (g *ground) worker(f *fuse) *Worker {
	g.t.Helper()
	w, err := New(g.js.Conn(), Options{})
	if err != nil {
		g.t.Fatal(err)
	}
	w.settings = topology.Settings{Partitions: 1, Retention: drover.Duration(retention)}
	w.saved[0] = kv.Partition{Cursor: 1}
	w.runs, w.values, w.deliveries = runsOn{g.store.Runs, f}, valuesOn{g.store.Values, f}, deliveriesOn{g.store.Deliveries, f}
	w.fleet, w.js = g.store.Fleet, streamsOn{g.js, f}
	return w
}

// fuse lets so many writes through, and then nothing: the process has crashed, and
// what was written last was not known to be.
type fuse struct {
	mu     sync.Mutex
	left   int
	writes []string
	before func(write string) // is called before each

	refuses func(write string, run drover.RunID) bool // what the server refuses, each time
}

var errBurnt = drover.Errorf(drover.CodeUnavailable, "the process has crashed")

func (f *fuse) write(what string, run drover.RunID, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses != nil && f.refuses(what, run) {
		return drover.Errorf(drover.CodeUnavailable, "the server refuses %s of %q", what, run)
	}
	if f.left == 0 {
		return errBurnt
	}
	if f.before != nil {
		f.before(what)
	}
	f.writes = append(f.writes, what)
	err := do()
	if f.left--; f.left == 0 && err == nil {
		return errBurnt
	}
	return err
}

// whole is a fuse that holds.
func whole() *fuse { return &fuse{left: -1} }

type runsOn struct {
	kv.Runs
	f *fuse
}

func (r runsOn) Retire(ctx context.Context, key string, revision uint64, left []byte) (rev uint64, err error) {
	err = r.f.write("retire", "", func() error {
		rev, err = r.Runs.Retire(ctx, key, revision, left)
		return err
	})
	return rev, err
}

func (r runsOn) Purge(ctx context.Context, key string, revision uint64) error {
	return r.f.write("record", "", func() error { return r.Runs.Purge(ctx, key, revision) })
}

type valuesOn struct {
	kv.Values
	f *fuse
}

func (v valuesOn) PurgeRun(ctx context.Context, run drover.RunID, last uint64) error {
	return v.f.write("values", run, func() error { return v.Values.PurgeRun(ctx, run, last) })
}

type deliveriesOn struct {
	kv.Deliveries
	f *fuse
}

func (d deliveriesOn) Purge(ctx context.Context, keys []string, last uint64) error {
	return d.f.write("list", "", func() error { return d.Deliveries.Purge(ctx, keys, last) })
}

type streamsOn struct {
	jetstream.JetStream
	f *fuse
}

func (s streamsOn) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := s.JetStream.Stream(ctx, name)
	return streamOn{stream, s.f}, err
}

type streamOn struct {
	jetstream.Stream
	f *fuse
}

func (s streamOn) Purge(ctx context.Context, opts ...jetstream.StreamPurgeOpt) error {
	return s.f.write("streams", "", func() error { return s.Stream.Purge(ctx, opts...) })
}

var toldTo = drover.Notify{Subject: "app.done"}

// old makes the state of a program that ended long ago, with a big result, a dead
// delivery and a stream.
func (g *ground) old(run drover.RunID) *machine.State {
	const long = 1000 // ms since the epoch
	return &machine.State{
		V: machine.Version, Run: run, Status: drover.StatusCompleted, Created: long, Ended: long, Now: long, Secret: "s",
		Result:  machine.Value{Key: subjects.ResultKey(run), Size: 3000},
		Program: &machine.Program{State: machine.DriveOver},
		Notify: []machine.Subscriber{{
			Notify: toldTo, Status: drover.DeliveryDead, Since: long, At: long, Tried: 1, Listed: true, Error: drover.Errorf("x", "no"),
		}},
	}
}

// commit writes a record, or gives why not.
func (g *ground) commit(s *machine.State, revision uint64) (uint64, error) {
	g.t.Helper()
	data, err := machine.Encode(s)
	if err != nil {
		g.t.Fatal(err)
	}
	var written uint64
	done := make(chan error, 1)
	g.store.Runs.Commit([]kv.Commit{{Key: subjects.RunKey(0, s.Run), Revision: revision, Data: data, Done: func(rev uint64, err error) {
		written = rev
		done <- err
	}}})
	err = <-done
	return written, err
}

// keep writes all that a run has beside its record; text tells it from that of
// another run with the same id.
func (g *ground) keep(run drover.RunID, text string) {
	g.t.Helper()
	done := make(chan error, 2)
	g.store.Values.Put(subjects.ResultKey(run), json.RawMessage(`"`+text+`"`), func(err error) { done <- err })
	g.store.Deliveries.List(listKeyOf(run), kv.HintDead, func(err error) { done <- err })
	for range 2 {
		if err := <-done; err != nil {
			g.t.Fatal(err)
		}
	}
	if _, err := g.js.Publish(g.t.Context(), g.names.Stream(run, "out"), []byte(text)); err != nil {
		g.t.Fatal(err)
	}
}

func listKeyOf(run drover.RunID) string { return delivery.Key(&toldTo, 1, run, 0) }

// has says what there is of a run beside its record.
func (g *ground) has(run drover.RunID) string {
	g.t.Helper()
	var has []string
	values, err := g.store.Values.Get(g.t.Context(), []string{subjects.ResultKey(run)})
	for _, value := range values {
		has = append(has, "value "+string(value))
	}
	err = errors.Join(err, g.store.Deliveries.Scan(g.t.Context(), subjects.DeliveriesOf(run), func(string, kv.Hint) bool {
		has = append(has, "listed")
		return true
	}))
	stream, err2 := g.js.Stream(g.t.Context(), g.names.Streams())
	if err := errors.Join(err, err2); err != nil {
		g.t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(g.t.Context(), g.names.Stream(run, "out"))
	if err == nil {
		has = append(has, "stream "+string(m.Data))
	} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
		g.t.Fatal(err)
	}
	return strings.Join(has, ", ")
}

func allOf(text string) string { return fmt.Sprintf("value %q, listed, stream %s", text, text) }

// empty fails where a bucket or the stream has anything.
func (g *ground) empty() {
	g.t.Helper()
	for _, name := range []string{
		subjects.BucketStream(g.names.Runs()), subjects.BucketStream(g.names.Values()), subjects.BucketStream(g.names.Deliveries()), g.names.Streams(),
	} {
		stream, err := g.js.Stream(g.t.Context(), name)
		if err != nil {
			g.t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n > 0 {
			g.t.Errorf("%s has %d messages left", name, n)
		}
	}
}
