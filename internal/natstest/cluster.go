package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster is servers that share one replicated JetStream.
type Cluster struct {
	t       testing.TB
	Servers []*Server
}

// NewCluster starts so many servers, 3 as a rule, and returns when they have
// elected a leader for JetStream. All of it ends with the test.
func NewCluster(t testing.TB, size int, opts ...Option) *Cluster {
	t.Helper()
	ports := make([]int, size)
	routes := make([]*url.URL, size)
	for i := range ports {
		ports[i] = FreePort(t)
		routes[i] = &url.URL{Scheme: "nats-route", Host: fmt.Sprintf("127.0.0.1:%d", ports[i])}
	}
	c := &Cluster{t: t}
	for i, port := range ports {
		s := &Server{t: t, opts: &server.Options{
			ServerName: fmt.Sprintf("node-%d", i),
			JetStream:  true,
			StoreDir:   t.TempDir(),
			Host:       "127.0.0.1",
			Port:       server.RANDOM_PORT,
			MaxPayload: 8 << 20,
			NoLog:      true,
			NoSigs:     true,
			Cluster:    server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port},
			Routes:     routes,
		}}
		for _, opt := range opts {
			opt(s.opts)
		}
		t.Cleanup(s.Stop)
		s.boot()
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		if srv := s.Raw(); !srv.ReadyForConnections(bootTime) {
			t.Fatalf("server %s of the cluster was not ready within %v", srv.Name(), bootTime)
		}
	}
	c.WaitReady()
	return c
}

// WaitReady returns when the servers that run have a leader for JetStream, and
// each of them is current with it.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	deadline := time.After(bootTime)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !c.ready() {
		select {
		case <-deadline:
			c.t.Fatalf("the cluster had no leader within %v", bootTime)
		case <-tick.C:
		}
	}
}

func (c *Cluster) ready() bool {
	leaders := 0
	for _, s := range c.Servers {
		srv := s.Raw()
		if srv == nil {
			continue
		}
		if !srv.JetStreamIsCurrent() {
			return false
		}
		if srv.JetStreamIsLeader() {
			leaders++
		}
	}
	return leaders == 1
}

// URL lists every server, for a client that may use any of them.
func (c *Cluster) URL() string {
	urls := make([]string, 0, len(c.Servers))
	for _, s := range c.Servers {
		if s.Raw() != nil {
			urls = append(urls, s.URL())
		}
	}
	return strings.Join(urls, ",")
}

// StreamLeader gives the server that leads a stream of the global account, or
// nil while there is none.
func (c *Cluster) StreamLeader(stream string) *Server {
	for _, s := range c.Servers {
		if srv := s.Raw(); srv != nil && srv.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return s
		}
	}
	return nil
}

// FreePort finds a port of the loopback that nobody uses just now, and that
// nobody is given by chance before the test listens on it, or while the server
// behind it is down: systems give connections and listeners without a port of
// their own one from 32768 on.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(20000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		return port
	}
	t.Fatal("100 ports in a row were not free")
	return 0
}
