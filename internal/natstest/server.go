package natstest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bootTime is how long a server may take until it answers. It takes
// milliseconds; this is for machines that are very busy.
const bootTime = 2 * time.Minute

// Option changes how a server is started.
type Option func(*server.Options)

// Listen opens a port on the loopback, for clients in other processes. The
// port stays the same over restarts.
func Listen() Option {
	return func(o *server.Options) {
		o.DontListen, o.Host, o.Port = false, "127.0.0.1", server.RANDOM_PORT
	}
}

// With changes any option of the server.
func With(change func(*server.Options)) Option { return change }

// Server is a server that belongs to a test. Its methods fail the test where
// something goes wrong, and must be called from the test's goroutine.
type Server struct {
	t    testing.TB
	opts *server.Options

	mu  sync.Mutex
	srv *server.Server
}

// New starts a server that ends with the test. Payloads may have 8 MiB, as with
// the servers that Drover embeds.
func New(t testing.TB, opts ...Option) *Server {
	t.Helper()
	o := &server.Options{
		JetStream:  true,
		StoreDir:   t.TempDir(),
		DontListen: true,
		MaxPayload: 8 << 20,
		NoLog:      true,
		NoSigs:     true,
	}
	for _, opt := range opts {
		opt(o)
	}
	s := &Server{t: t, opts: o}
	t.Cleanup(s.Stop)
	s.Start()
	return s
}

// Start boots a server that was stopped, with the store that it had.
func (s *Server) Start() {
	s.t.Helper()
	srv := s.boot()
	if !srv.ReadyForConnections(bootTime) {
		s.t.Fatalf("the server was not ready within %v", bootTime)
	}
}

// boot starts a server without waiting until it is ready.
func (s *Server) boot() *server.Server {
	s.t.Helper()
	srv, err := server.NewServer(s.opts.Clone())
	if err != nil {
		s.t.Fatalf("server: %v", err)
	}
	srv.Start()
	if addr, ok := srv.Addr().(*net.TCPAddr); ok && !s.opts.DontListen {
		s.opts.Port = addr.Port
	}
	s.mu.Lock()
	s.srv = srv
	s.mu.Unlock()
	return srv
}

// Stop shuts the server down, and returns when it is down. The store stays.
// It does nothing where the server is down already.
func (s *Server) Stop() {
	s.mu.Lock()
	srv := s.srv
	s.srv = nil
	s.mu.Unlock()
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

// Restart stops the server and starts it over the same store.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}

// Raw is the server itself, or nil while it is stopped.
func (s *Server) Raw() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv
}

// URL is where a server with Listen can be reached.
func (s *Server) URL() string {
	s.t.Helper()
	if s.opts.DontListen {
		s.t.Fatal("the server has no URL: start it with natstest.Listen()")
	}
	return s.Raw().ClientURL()
}

// InProcessConn makes a Server usable with nats.InProcessServer, over restarts.
func (s *Server) InProcessConn() (net.Conn, error) {
	srv := s.Raw()
	if srv == nil {
		return nil, nats.ErrNoServers
	}
	return srv.InProcessConn()
}

// Connect gives a connection that is closed with the test. It comes back by
// itself after a restart. Options that are given come after those defaults.
func (s *Server) Connect(opts ...nats.Option) *nats.Conn {
	s.t.Helper()
	url := ""
	all := []nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(5 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
	}
	if s.opts.DontListen {
		all = append(all, nats.InProcessServer(s))
	} else {
		url = s.URL()
	}
	closed := make(chan struct{})
	all = append(all, opts...)
	all = append(all, func(o *nats.Options) error {
		before := o.ClosedCB
		o.ClosedCB = func(nc *nats.Conn) {
			if before != nil {
				before(nc)
			}
			close(closed)
		}
		return nil
	})
	nc, err := nats.Connect(url, all...)
	if err != nil {
		s.t.Fatalf("connect: %v", err)
	}
	s.t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	return nc
}

// JetStream gives the JetStream of a connection of its own.
func (s *Server) JetStream() jetstream.JetStream {
	s.t.Helper()
	return JetStream(s.t, s.Connect())
}

// JetStream gives the JetStream of a connection.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream: %v", err)
	}
	return js
}
