package function

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/subjects"
)

// The defaults of Options.
const (
	DefaultConcurrency  = 64
	DefaultDrainTimeout = 30 * time.Second
)

// Options of a server. The zero value is good for most.
type Options struct {
	// Prefix is that of the fleet; "": subjects.DefaultPrefix.
	Prefix string
	// Instance is shown as who performed a call; "": made of the host and the
	// process. Two servers may have the same.
	Instance string
	// Concurrency is how many calls of each function are performed at the same
	// time; 0: DefaultConcurrency.
	Concurrency int
	// DrainTimeout is how long Run waits for calls that run when it is asked
	// to end, before it ends their contexts; 0: DefaultDrainTimeout.
	DrainTimeout time.Duration
	// GroupWrites has results wait while others are being stored, and share one
	// sync: for a server that syncs every write to its disk before it
	// acknowledges it, with many calls at the same time. On others it only makes
	// calls slower.
	GroupWrites bool
	// Logger gets what goes wrong outside of handlers; nil: slog.Default().
	Logger *slog.Logger
	// Reserved allows names that begin with "_". They are Drover's own.
	Reserved bool
}

// Server performs the calls of functions.
type Server struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	results   *publish.Publisher // while Run runs with GroupWrites, else nil
	names     subjects.Names
	opts      Options
	functions []*Function
	ready     chan struct{}
}

// Serve performs the calls of functions with the default options, until ctx
// ends. It is NewServer and Run.
func Serve(ctx context.Context, nc *nats.Conn, functions ...*Function) error {
	s, err := NewServer(nc, Options{}, functions...)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// NewServer makes a server. It does not touch the connection until Run. The
// connection should reconnect for ever (nats.MaxReconnects(-1)): once it is
// closed, Run ends.
func NewServer(nc *nats.Conn, opts Options, functions ...*Function) (*Server, error) {
	names, err := subjects.New(opts.Prefix)
	if err != nil {
		return nil, err
	}
	if len(functions) == 0 {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "a server needs at least one function")
	}
	for i, f := range functions {
		if err := f.check(opts.Reserved); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(functions[:i], func(g *Function) bool { return g.Name == f.Name }) {
			return nil, drover.Errorf(drover.CodeInvalidRequest, "function %s was given twice: give it once", f.Name)
		}
	}
	if opts.Concurrency < 0 || opts.DrainTimeout < 0 {
		return nil, drover.Errorf(drover.CodeInvalidRequest,
			"concurrency %d and drain timeout %v must not be negative", opts.Concurrency, opts.DrainTimeout)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("function: %w", err)
	}
	opts.Instance = cmp.Or(opts.Instance, instance())
	opts.Concurrency = cmp.Or(opts.Concurrency, DefaultConcurrency)
	opts.DrainTimeout = cmp.Or(opts.DrainTimeout, DefaultDrainTimeout)
	if opts.Logger == nil {
		opts.Logger = slog.Default() //nolint:sloglint // what a user of slog expects
	}
	return &Server{
		nc: nc, js: js, names: names, opts: opts,
		functions: slices.Clone(functions), ready: make(chan struct{}),
	}, nil
}

// check refuses functions that no call could be for.
func (f *Function) check(reserved bool) error {
	if f == nil || f.call == nil && f.message == nil {
		return drover.Errorf(drover.CodeInvalidRequest, "a function has no handler: make it with New or Raw")
	}
	if _, err := drover.ParseFunctionName(string(f.Name)); err != nil {
		return err
	}
	if strings.HasPrefix(string(f.Name), "_") && !reserved {
		return drover.Errorf(drover.CodeInvalidID, "function name %q must not begin with _: such names belong to Drover", f.Name)
	}
	if f.Concurrency < 0 {
		return drover.Errorf(drover.CodeInvalidRequest, "concurrency %d of function %s must not be negative", f.Concurrency, f.Name)
	}
	return nil
}

// Ready is closed once every function has asked for calls.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run performs calls until ctx ends, and is called once. It gives nil when it
// was asked to end and has ended all calls; an error when the connection was
// closed, or when handlers did not return although their contexts had ended.
// Where one function ends with an error, all are drained.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if s.opts.GroupWrites {
		var err error
		if s.results, err = publish.New(s.nc, publish.Options{Timeout: publishTry, Group: s.names.StreamOf}); err != nil {
			close(s.ready)
			return err
		}
		defer s.results.Close()
	}
	var asking, running sync.WaitGroup
	asking.Add(len(s.functions))
	errs := make([]error, len(s.functions))
	for i, f := range s.functions {
		running.Go(func() {
			defer stop()
			asked := sync.OnceFunc(asking.Done)
			defer asked()
			errs[i] = newLoop(s, f, asked).run(ctx)
		})
	}
	asking.Wait()
	close(s.ready)
	running.Wait()
	return errors.Join(errs...)
}

// instance makes the name of this process.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:5]))
}
