package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/dispatcher"
	"github.com/droverhq/drover/internal/api"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// Options of a worker. The zero value is a worker of the fleet drover with the
// settings that are stored, or the defaults.
type Options struct {
	// Name is shown to people. Empty means the host name. Several workers may
	// share a name: each gets an id of its own.
	Name string
	// Prefix of the fleet. Empty means drover.
	Prefix string
	// Settings of the fleet. A field that is set and differs from what is
	// stored is an error of Run.
	Settings topology.Settings
	// Lease is how long a worker that is gone is not missed: whole seconds.
	// 0 means 3 s.
	Lease time.Duration
	// Alone says that every worker that the fleet knows of has ended, as where
	// this process is the server as well, and has just begun. Their leases are
	// ended instead of waited for. A worker that lives nevertheless loses
	// nothing: it joins anew.
	Alone bool
	// CoverAfter is how long a run lives before its wake-up is made durable.
	// 0 means 10 s.
	CoverAfter time.Duration
	// DrainTimeout is how long partitions may take to be given back when the
	// worker is asked to stop. 0 means 10 s.
	DrainTimeout time.Duration
	// SweepEvery is how often one worker of the fleet looks for claims of hooks
	// that crashes left behind. 0 means 30 s.
	SweepEvery time.Duration
	// AllowPrivate lets http nodes and webhooks reach private and loopback
	// addresses.
	AllowPrivate bool
	// WebhookSecrets is the file of the secrets that sign webhooks: YAML, a map of
	// a name to one secret, or to a list with the latest first. A change of it is
	// seen within a second or so. Empty means that no webhook is sent.
	WebhookSecrets string
	// GroupWrites has writes to a stream wait while others to it are under way,
	// and share one sync: for a server that syncs every write to its disk before
	// it acknowledges it. On others it only makes runs slower.
	GroupWrites bool
	// Version of the binary, shown in the metadata of the API.
	Version string
	// Logger is silent by default.
	Logger zerolog.Logger
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	if o.Lease == 0 {
		o.Lease = 3 * time.Second
	}
	if o.SweepEvery <= 0 {
		o.SweepEvery = 30 * time.Second
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 10 * time.Second
	}
	return o
}

// Worker is a member of a fleet.
type Worker struct {
	opts  Options
	id    string
	log   zerolog.Logger
	quiet zerolog.Sampler // of what may go wrong for very many runs at once
	names subjects.Names
	js    jetstream.JetStream
	signs *delivery.Secrets // webhooks; nil: there are none
	ready chan struct{}

	settings   topology.Settings
	runs       kv.Runs
	values     kv.Values
	hooks      kv.Hooks
	deliveries kv.Deliveries
	fleet      kv.Fleet
	secret     []byte // of the fleet
	plans      *plans
	dispatcher *dispatcher.Dispatcher
	work       sync.WaitGroup // what async began
	alone      chan struct{}  // slots of maxAlone
	fetches    chan struct{}  // slots of maxFetches

	late    late          // the janitor's
	failed  []oldRun      // the janitor's: runs that could not be removed when it last tried
	adopted chan struct{} // has something where partitions were taken

	mu    sync.Mutex
	saved map[int]kv.Partition // own partitions
}

// New makes a worker over a connection, which stays the caller's. The
// connection should reconnect forever.
func New(nc *nats.Conn, opts Options) (*Worker, error) {
	opts = opts.withDefaults()
	names, err := subjects.New(opts.Prefix)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", drover.CodeUnavailable, err)
	}
	id := subjects.Encode(opts.Name) + "-" + newSecret()[:8]
	log := opts.Logger.With().Str("worker", id).Logger()
	var signs *delivery.Secrets
	if opts.WebhookSecrets != "" {
		if signs, err = delivery.OpenSecrets(opts.WebhookSecrets, log); err != nil {
			return nil, err
		}
	}
	return &Worker{
		opts:    opts,
		id:      id,
		log:     log,
		signs:   signs,
		quiet:   &zerolog.BurstSampler{Burst: 10, Period: time.Second},
		names:   names,
		js:      js,
		ready:   make(chan struct{}),
		alone:   make(chan struct{}, maxAlone),
		fetches: make(chan struct{}, maxFetches),
		saved:   map[int]kv.Partition{},
		adopted: make(chan struct{}, 1),
	}, nil
}

// newSecret gives text that nobody can guess.
func newSecret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ID is the name under which the fleet knows this worker.
func (w *Worker) ID() string { return w.id }

// Ready is closed when the worker owns its share of the partitions and answers
// requests.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Run joins the fleet and works until ctx ends; then it gives back what it
// owns, and returns nil. It returns an error where it cannot begin, or goes on
// without what it needs. Everything that it started has ended when it returns.
func (w *Worker) Run(ctx context.Context) error {
	settings, err := topology.Ensure(ctx, w.js, w.names, w.opts.Settings)
	if ctx.Err() != nil {
		return nil // there is nothing to give back yet
	}
	if err != nil {
		return err
	}
	w.settings = settings
	if limit, err := topology.CheckPayload(w.js.Conn()); limit == 0 {
		return err
	} else if err != nil {
		w.log.Warn().Err(err).Msg("large values will be refused")
	}
	publisher, err := publish.New(w.js.Conn(), w.publishing())
	if err != nil {
		return err
	}
	defer publisher.Close()
	store, err := kv.Open(ctx, w.js, publisher, w.names)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	w.runs, w.values, w.hooks, w.deliveries, w.fleet = store.Runs, store.Values, store.Hooks, store.Deliveries, store.Fleet
	if w.secret, err = w.fleet.Secret(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	w.plans = newPlans(store.Definitions)
	w.dispatcher, err = dispatcher.New(dispatcher.Options{
		Names: w.names, Conn: w.js.Conn(), Publisher: publisher, Values: store.Values,
		Claims: store.Hooks, Runs: &states{store.Runs, settings.Partitions},
		Deliveries: store.Deliveries, Partitions: settings.Partitions, Owns: w.owns, Seal: w.secret,
		Secrets: w.signs.Of, Instance: w.id, AllowPrivate: w.opts.AllowPrivate,
		GroupWrites: w.opts.GroupWrites, Logger: w.log,
	})
	if err != nil {
		return err
	}
	service, err := api.New(api.Config{
		Conn: w.js.Conn(), Names: w.names, Records: store.Runs, Values: store.Values,
		Partitions: settings.Partitions, Definitions: store.Definitions, Hooks: store.Hooks, Deliveries: store.Deliveries, Fleet: store.Fleet, Resolve: w.plans.resolve,
		Secret: w.secret, Worker: w.id, Version: w.opts.Version, Logger: w.log,
	})
	if err != nil {
		return err
	}
	return w.serve(ctx, service)
}

// publishing says how the worker writes.
func (w *Worker) publishing() publish.Options {
	var o publish.Options
	if w.opts.GroupWrites {
		o.Group = w.names.StreamOf
	}
	return o
}

// serve runs the parts of a worker, each until the one that needs it has ended:
// partitions first, then requests, then effects.
func (w *Worker) serve(ctx context.Context, service *api.Service) error {
	// Parts outlive ctx: it asks the partitions to end, and they need the rest.
	rest, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var parts sync.WaitGroup
	part := func(name string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(rest); err != nil && rest.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	part("dispatcher", w.dispatcher.Run)
	part("api", service.Run)
	part("janitor", w.janitor)
	part("adopter", w.adopter)
	for _, ready := range []<-chan struct{}{w.dispatcher.Ready(), service.Ready()} {
		select {
		case <-ready:
		case <-rest.Done():
		case <-ctx.Done():
		}
	}
	var err error
	if ctx.Err() == nil {
		err = w.membership(ctx, rest)
	}
	w.work.Wait()
	cause := context.Cause(rest)
	cancel(nil)
	parts.Wait()
	return errors.Join(err, cause)
}

// async does something that may block, for an owner.
func (w *Worker) async(do func()) { w.work.Go(do) }

// passed notes how far a partition has come, for the janitor.
func (w *Worker) passed(saved kv.Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved[saved.Number] = saved
}
