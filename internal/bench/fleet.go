package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/embed"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// prefix is that of the fleet of a row.
const prefix = "drover_bench"

// fleet is all parts of a fleet.
type fleet struct {
	opts      Options
	names     subjects.Names
	js        jetstream.JetStream
	listener  *nats.Conn // hears outcomes
	publisher *publish.Publisher
	hash      drover.Hash
	calls     atomic.Int64 // of the no-op function
	failed    chan error   // a part ended without having been asked to

	servers []*embed.Server
	turn    int
	undo    []func() error // what ends the parts, in the order of their start
}

// newFleet starts a fleet. It is to be stopped also where it did not start.
func newFleet(ctx context.Context, opts Options) (*fleet, error) {
	f := &fleet{opts: opts, failed: make(chan error, 1)}
	var err error
	if f.names, err = subjects.New(prefix); err != nil {
		return f, err
	}
	if opts.URL == "" {
		if err := f.serve(); err != nil {
			return f, err
		}
	}
	if err := f.connections(ctx); err != nil {
		return f, err
	}
	for range opts.Workers {
		if err := f.work(ctx); err != nil {
			return f, err
		}
	}
	for range opts.Functions {
		if err := f.functions(ctx); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *fleet) onStop(do func() error) { f.undo = append(f.undo, do) }

// stop ends all parts, the last one first.
func (f *fleet) stop() error {
	var errs []error
	for _, do := range slices.Backward(f.undo) {
		errs = append(errs, do())
	}
	f.undo = nil
	return errors.Join(errs...)
}

// settings are those of a fleet of this row.
func (f *fleet) settings() topology.Settings {
	return topology.Settings{Partitions: f.opts.Partitions, Replicas: f.opts.Replicas}
}

// serve starts the embedded servers.
func (f *fleet) serve() error {
	dir, err := os.MkdirTemp(f.opts.Dir, "drover-bench-")
	if err != nil {
		return fmt.Errorf("no folder for the server can be made: %w", err)
	}
	f.onStop(func() error { return os.RemoveAll(dir) })
	o := embed.Options{SyncAlways: f.opts.SyncAlways, SyncInterval: f.opts.SyncInterval}
	if f.opts.TCP && f.opts.Replicas == 1 { // a cluster listens anyway
		o.Listen = "127.0.0.1:0"
	}
	if f.opts.Replicas > 1 {
		o.StoreDir = dir
		f.servers, err = embed.StartCluster(f.opts.Replicas, o)
	} else {
		var s *embed.Server
		o.StoreDir = filepath.Join(dir, "server")
		s, err = embed.Start(o)
		f.servers = []*embed.Server{s}
	}
	if err != nil {
		return err
	}
	f.onStop(func() error {
		var all sync.WaitGroup
		for _, s := range f.servers {
			all.Go(s.Close)
		}
		all.Wait()
		return nil
	})
	return nil
}

// connect opens a connection of its own for a part, to one server after the
// other.
func (f *fleet) connect(name string) (*nats.Conn, error) {
	nc, err := f.dial(nats.Name("drover bench "+name), nats.MaxReconnects(-1))
	if err == nil {
		f.onStop(func() error { nc.Close(); return nil })
	}
	return nc, err
}

func (f *fleet) dial(opts ...nats.Option) (*nats.Conn, error) {
	if f.opts.URL != "" {
		return nats.Connect(f.opts.URL, opts...)
	}
	s := f.servers[f.turn%len(f.servers)]
	f.turn++
	if f.opts.TCP {
		return nats.Connect(s.ClientURL(), opts...)
	}
	return s.Connect(opts...)
}

// connections makes those of the publisher and the subscriber, and the streams.
func (f *fleet) connections(ctx context.Context) error {
	nc, err := f.connect("publisher")
	if err != nil {
		return err
	}
	if f.js, err = jetstream.New(nc); err != nil {
		return err
	}
	if f.opts.URL != "" {
		if err := removeStreams(ctx, f.js, f.names); err != nil { // of a benchmark that was killed
			return err
		}
		f.onStop(func() error { return removeStreams(context.WithoutCancel(ctx), f.js, f.names) })
	}
	if _, err := topology.Ensure(ctx, f.js, f.names, f.settings()); err != nil {
		return err
	}
	if f.publisher, err = publish.New(nc, publish.Options{}); err != nil {
		return err
	}
	f.onStop(func() error { f.publisher.Close(); return nil })
	f.listener, err = f.connect("subscriber")
	return err
}

// start runs a part until the fleet is stopped.
func (f *fleet) start(ctx context.Context, name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { // onStop waits for it
		err := run(ctx)
		if ctx.Err() == nil {
			select {
			case f.failed <- fmt.Errorf("%s ended: %w", name, err):
			default:
			}
		}
		ended <- err
	}()
	f.onStop(func() error {
		cancel()
		return <-ended
	})
}

func (f *fleet) work(ctx context.Context) error {
	nc, err := f.connect("worker")
	if err != nil {
		return err
	}
	w, err := worker.New(nc, worker.Options{
		Prefix: f.names.Prefix(), Settings: f.settings(), GroupWrites: f.opts.GroupWrites,
	})
	if err != nil {
		return err
	}
	f.start(ctx, "the worker", w.Run)
	return f.await(ctx, w.Ready())
}

func (f *fleet) functions(ctx context.Context) error {
	nc, err := f.connect("functions")
	if err != nil {
		return err
	}
	one := json.RawMessage("1")
	s, err := function.NewServer(nc, function.Options{Prefix: f.names.Prefix(), GroupWrites: f.opts.GroupWrites},
		function.Raw(noop, func(context.Context, json.RawMessage) (json.RawMessage, error) {
			f.calls.Add(1)
			return one, nil
		}))
	if err != nil {
		return err
	}
	f.start(ctx, "the function server", s.Run)
	return f.await(ctx, s.Ready())
}

// await waits until a part is ready.
func (f *fleet) await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case err := <-f.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// define stores the definition of the runs.
func (f *fleet) define(ctx context.Context, yaml string) error {
	c, err := client.New(f.js.Conn(), client.Options{Prefix: f.names.Prefix()})
	if err != nil {
		return err
	}
	text, _ := json.Marshal(yaml)
	reply, err := c.PutDefinition(ctx, drover.DefinitionRequest{Definition: text})
	f.hash = reply.Hash
	return err
}

// streamNames lists the streams of a fleet that are there.
func streamNames(ctx context.Context, js jetstream.JetStream, names subjects.Names) ([]string, error) {
	list := js.StreamNames(ctx)
	var found []string
	own, bucket := strings.ToUpper(names.Prefix()), subjects.BucketStream(strings.ToUpper(names.Prefix()))
	for name := range list.Name() {
		rest, ok := strings.CutPrefix(name, own)
		if !ok {
			rest, ok = strings.CutPrefix(name, bucket)
		}
		if ok && (rest == "" || rest[0] == '_') {
			found = append(found, name)
		}
	}
	return found, list.Err()
}

// settled is stored once nothing is stored any more: what follows the end of a
// run, such as the receipt of its notification.
func (f *fleet) settled(ctx context.Context) (uint64, error) {
	last := uint64(0)
	for range settleTries {
		now, err := f.stored(ctx)
		if err != nil || now == last {
			return now, err
		}
		last = now
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return last, nil
}

// How long settled looks; owners of partitions save their cursors meanwhile.
const (
	settleTries = 40
	settlePause = 25 * time.Millisecond
)

// listen has a handler get all that comes on a subject from now on, until stop is
// called.
func (f *fleet) listen(subject string, handler nats.MsgHandler) (stop func(), err error) {
	sub, err := f.listener.Subscribe(subject, handler)
	if err != nil {
		return nil, err
	}
	stop = func() { _ = sub.Unsubscribe() }
	if err := errors.Join(sub.SetPendingLimits(-1, -1), f.listener.Flush()); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// stored is how many messages all streams of the fleet have ever stored.
func (f *fleet) stored(ctx context.Context) (uint64, error) {
	names, err := streamNames(ctx, f.js, f.names)
	if err != nil {
		return 0, err
	}
	total := uint64(0)
	for _, name := range names {
		s, err := f.js.Stream(ctx, name)
		if err != nil {
			return 0, err
		}
		total += s.CachedInfo().State.LastSeq
	}
	return total, nil
}

// removeStreams takes a fleet off a server.
func removeStreams(ctx context.Context, js jetstream.JetStream, names subjects.Names) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	list, err := streamNames(ctx, js, names)
	for _, name := range list {
		if e := js.DeleteStream(ctx, name); e != nil && !errors.Is(e, jetstream.ErrStreamNotFound) {
			err = errors.Join(err, e)
		}
	}
	return err
}
