package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/replies"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// Publisher stores messages in streams. done is called exactly once, on any
// goroutine, and must not block. Publish itself may block for a while when very
// much is under way.
type Publisher interface {
	Publish(msg *nats.Msg, done func(publish.Ack, error))
}

// Values gives the values behind keys; kv.Values is one. One that the answer
// lacks is gone for good: a value is stored before anything refers to it, and
// the leader was asked.
type Values interface {
	Get(ctx context.Context, keys []string) (map[string]json.RawMessage, error)
	// Sweep removes values of a run whose keys are dead, and may leave some.
	Sweep(ctx context.Context, run drover.RunID, dead func(key string) bool) error
}

// Options of a dispatcher.
type Options struct {
	// Names of the fleet, its connection and what it publishes with. Required.
	Names     subjects.Names
	Conn      *nats.Conn
	Publisher Publisher
	// Values holds the inputs and results that are too big for a record. Required.
	Values Values
	// Runs reads the states of runs, to see whether one still holds a token, or has
	// an outcome to deliver. Required.
	Runs hook.Runs
	// Claims keeps the claims of hooks. Without it no run can have a hook.
	Claims hook.Keys
	// Deliveries lists what could not be delivered at once, Owns says which of the
	// Partitions of the fleet are this worker's. Required.
	Deliveries kv.Deliveries
	Partitions int
	Owns       func(partition int) bool
	// Seal is the secret of the fleet, which seals sessions for the successors of
	// runs.
	Seal []byte
	// Secrets gives the secrets that sign webhooks for a name; nil: there are none.
	Secrets func(name string) [][]byte
	// Instance is shown in a run as who did its built-in calls. Empty means
	// "worker".
	Instance string
	// AllowPrivate lets http nodes reach private, loopback and link-local
	// addresses, and with them whatever trusts this machine.
	AllowPrivate bool
	// GroupWrites is function.Options.GroupWrites of the built-in functions.
	GroupWrites bool
	// DrainTimeout is how long built-in calls may go on after Run is asked to
	// end; then they are given back to the queue. 0 means 5 s.
	DrainTimeout time.Duration
	Logger       zerolog.Logger
}

func (o *Options) defaults() {
	if o.Instance == "" {
		o.Instance = "worker"
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 5 * time.Second
	}
}

// slowWorkers is how many batches may load values, or empty the queue, at the
// same time. Each holds at most loadBytes of values, or one that is larger.
const (
	slowWorkers = 64
	loadBytes   = 1 << 20
)

// driveWorkers is how many drives are looked for in the queue at the same time. They
// are not slow workers, as one of those may be waiting for a drive.
const driveWorkers = 16

// quietLines is how many lines a second are logged of what anyone may cause.
const quietLines = 10

// Dispatcher performs effects. Make one with New, and let Run run: until then
// what is given to Perform waits.
type Dispatcher struct {
	opts      Options
	js        jetstream.JetStream
	http      *http.Client
	quiet     zerolog.Logger // for what anyone may cause very often
	functions *function.Server
	deliverer *delivery.Deliverer
	queue     *queue         // what is to be published: short tasks, in order, on one goroutine
	slow      *queue         // what waits for answers
	claims    *queue         // claims and releases of hooks
	lost      *queue         // drives that may be queued already
	claimant  *hook.Claimant // nil: there are no hooks
	logs      *runLogs
	ends      context.Context // of what changes hooks
	end       context.CancelFunc

	calls   atomic.Pointer[jetstream.Stream] // once it was found
	asking  atomic.Int64                     // processes whether they have a body in memory
	looking atomic.Int64                     // for processes
	sights  sightings

	sweeping atomic.Int64 // what bodies that began anew have left behind

	mu       sync.Mutex
	ended    bool
	runs     map[drover.RunID][]*batch // batches that wait for an earlier one of their run
	inflight sync.WaitGroup            // batches and operations that have not ended
}

// New makes a dispatcher. It does not touch the connection until Run.
func New(opts Options) (*Dispatcher, error) {
	if opts.Conn == nil || opts.Publisher == nil || opts.Values == nil || opts.Runs == nil || opts.Deliveries == nil || opts.Owns == nil || opts.Partitions < 1 {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "a dispatcher needs Conn, Publisher, Values, Runs, Deliveries, Partitions and Owns: set them all")
	}
	opts.defaults()
	js, err := jetstream.New(opts.Conn)
	if err != nil {
		return nil, fmt.Errorf("dispatcher: %w", err)
	}
	d := &Dispatcher{
		opts:   opts,
		js:     js,
		http:   newClient(opts.AllowPrivate),
		quiet:  opts.Logger.Sample(&zerolog.BurstSampler{Burst: quietLines, Period: time.Second}),
		queue:  newQueue(),
		slow:   newQueue(),
		claims: newQueue(),
		lost:   newQueue(),
		runs:   map[drover.RunID][]*batch{},
		sights: sightings{of: map[drover.FunctionName]*sighting{}},
	}
	d.ends, d.end = context.WithCancel(context.Background())
	d.logs = &runLogs{d: d, answers: replies.New(opts.Conn)}
	if opts.Claims != nil {
		d.claimant = &hook.Claimant{Claims: opts.Claims, Runs: opts.Runs, Log: d.logs, Now: time.Now, Pause: pause}
		d.claimant.Undelivered = func(run drover.RunID, _ string, left int) { d.undelivered(run, left) }
	}
	if d.functions, err = d.builtins(); err != nil {
		return nil, err
	}
	d.deliverer = delivery.New(delivery.Options{
		Names: opts.Names, Conn: opts.Conn, HTTP: d.http, Source: d,
		Secrets: opts.Secrets, Heard: d.heard, DrainTimeout: opts.DrainTimeout, Logger: opts.Logger,
	})
	return d, nil
}

// Ready is closed once the built-in functions have asked for calls.
func (d *Dispatcher) Ready() <-chan struct{} { return d.functions.Ready() }

// Run performs effects and serves the built-in functions until ctx ends, and is
// called once. It returns when everything that it was given has ended: effects
// as well, so the caller lets the partitions go first, and closes the Publisher
// last. The error is that the connection was closed, or that a built-in call
// could not be ended.
func (d *Dispatcher) Run(ctx context.Context) error {
	defer d.end()
	shut, err := d.logs.answers.Open()
	if err != nil {
		return fmt.Errorf("dispatcher: %w", err)
	}
	defer shut()
	var undelivered error
	var senders sync.WaitGroup
	senders.Go(d.queue.work)
	for range claimWorkers {
		senders.Go(d.claims.work)
	}
	for range slowWorkers {
		senders.Go(d.slow.work)
	}
	for range driveWorkers {
		senders.Go(d.lost.work)
	}
	var delivering sync.WaitGroup
	delivering.Go(func() { undelivered = d.deliverer.Run(ctx) })
	err = d.functions.Run(ctx)
	delivering.Wait()
	d.http.CloseIdleConnections()
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.end() // a hand-over may take long, and the next owner does it again
	d.inflight.Wait()
	d.queue.close()
	d.slow.close()
	d.claims.close()
	d.lost.close()
	senders.Wait()
	return errors.Join(err, undelivered)
}

// begin counts something in that must end before Run returns. It is false when
// it is too late for that.
func (d *Dispatcher) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return false
	}
	d.inflight.Add(1)
	return true
}

// errEnded is how things end that come after Run has.
func errEnded() error {
	return drover.Errorf(drover.CodeUnavailable, "the dispatcher has ended: give this to the next owner of the run")
}
