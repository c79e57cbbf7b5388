package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/subjects"
)

// The defaults of Options.
const (
	DefaultRequests = 4096
	DefaultMemory   = 64 << 20
	DefaultPatience = 10 * time.Second
)

// The time that the parts of a request may take.
const (
	headerTime = 10 * time.Second // all headers have come
	idleTime   = 2 * time.Minute  // between two requests of a connection
	bodyTime   = 30 * time.Second // the whole body has come
	writeTime  = 30 * time.Second // the whole answer is taken
	drainTime  = 5 * time.Second  // what is being delivered when the gateway ends
	cutTime    = time.Second      // what is told then that it is not known
)

// maxHeader is how many bytes the headers of a request may have.
const maxHeader = 16 << 10

// Options of a gateway. The zero value is good for most.
type Options struct {
	// Prefix is that of the fleet; "": subjects.DefaultPrefix.
	Prefix string
	// Requests is how many may be under way at a time, those included that wait
	// for the answer of a run. The next is answered 503. 0: DefaultRequests.
	Requests int
	// Memory is how many bytes of bodies may be held at a time, each until it is
	// delivered; a body takes some times as much while it is. The next is answered
	// 503. 0: DefaultMemory.
	Memory int64
	// Patience is for how long a delivery that nobody can take is tried again
	// before it is answered 503. 0: DefaultPatience.
	Patience time.Duration
	// Logger gets failures of Drover, and with debug each request. It never gets
	// a token.
	Logger zerolog.Logger
}

// Gateway is a handler for HTTP, made by New.
type Gateway struct {
	nc      *nats.Conn
	client  *client.Client
	inboxes string // what the inboxes for answers begin with
	log     zerolog.Logger

	slots    chan struct{} // one is in it for each request under way
	memory   atomic.Int64  // that is left for bodies
	draining chan struct{} // closed when no caller may wait any more
	drain    func()
}

// New makes a gateway on a connection, which stays the caller's and should be
// one that reconnects for ever (nats.MaxReconnects(-1)). It needs the right to
// publish on drover.api.hook.deliver, and to subscribe to its own inboxes.
func New(nc *nats.Conn, opts Options) (*Gateway, error) {
	names, err := subjects.New(opts.Prefix)
	if err != nil {
		return nil, err
	}
	c, err := client.New(nc, client.Options{Prefix: opts.Prefix, Patience: cmp.Or(opts.Patience, DefaultPatience)})
	if err != nil {
		return nil, err
	}
	inbox := nc.NewInbox()
	g := &Gateway{
		nc: nc, client: c, log: opts.Logger,
		inboxes:  inbox[:strings.LastIndexByte(inbox, '.')] + ".http.",
		slots:    make(chan struct{}, cmp.Or(opts.Requests, DefaultRequests)),
		draining: make(chan struct{}),
	}
	if err := names.Foreign(g.inbox("", "")); err != nil {
		return nil, fmt.Errorf("workers will not answer to the inboxes of this connection: %w", err)
	}
	g.memory.Store(cmp.Or(opts.Memory, DefaultMemory))
	g.drain = sync.OnceFunc(func() { close(g.draining) })
	return g, nil
}

// Run serves until ctx ends. Then callers that wait for an answer get 202 at
// once, and those whose delivery is under way have some seconds until it is 503.
// It closes the listener, and returns when every request has ended. A gateway
// runs once.
func (g *Gateway) Run(ctx context.Context, l net.Listener) error {
	lasting, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	srv := &http.Server{
		Handler:                      g,
		BaseContext:                  func(net.Listener) context.Context { return lasting },
		ReadHeaderTimeout:            headerTime,
		IdleTimeout:                  idleTime,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(zerolog.NewSlogHandler(g.log), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }() // received below
	select {
	case err := <-ended:
		g.stop(srv, cut)
		return fmt.Errorf("HTTP at %s is served no more: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	g.stop(srv, cut)
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("HTTP at %s: %w", l.Addr(), err)
	}
	return nil
}

// stop ends the requests under way, first gently, and returns when all have
// ended.
func (g *Gateway) stop(srv *http.Server, cut context.CancelFunc) {
	g.drain()
	if late := shutdown(srv, drainTime); late {
		cut()
		if late = shutdown(srv, cutTime); late {
			_ = srv.Close()
		}
	}
	for range cap(g.slots) { // all of them are free
		g.slots <- struct{}{}
	}
}

// shutdown reports whether requests are under way after so long.
func shutdown(srv *http.Server, limit time.Duration) (late bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return errors.Is(srv.Shutdown(ctx), context.DeadlineExceeded)
}
