package embed

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// StartCluster runs servers that share one replicated JetStream, 3 as a rule, in
// folders within StoreDir, and returns when they have a leader. Name is ignored.
// Listen must be empty: each listens on a port of the loopback that is free, as
// routes need it. It is for trials and measurements: servers that are to survive
// each other belong on machines of their own.
func StartCluster(size int, o Options) ([]*Server, error) {
	if o.Listen != "" {
		return nil, fmt.Errorf("the embedded cluster cannot listen on %q: leave Listen empty", o.Listen)
	}
	o.SyncInterval = cmp.Or(o.SyncInterval, clusterSyncInterval)
	ports, err := freePorts(size)
	if err != nil {
		return nil, err
	}
	routes := make([]*url.URL, size)
	for i, port := range ports {
		routes[i] = &url.URL{Scheme: "nats-route", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	}
	var servers []*Server
	fail := func(err error) ([]*Server, error) {
		for _, s := range servers {
			s.Close()
		}
		return nil, err
	}
	var logs []*logger
	for i, port := range ports {
		node := o
		node.Name = "node-" + strconv.Itoa(i)
		node.StoreDir = filepath.Join(o.StoreDir, node.Name)
		node.Listen = "127.0.0.1:0"
		opts, err := node.server()
		if err != nil {
			return fail(err)
		}
		opts.Cluster = server.ClusterOpts{Name: "embedded", Host: "127.0.0.1", Port: port}
		opts.Routes = routes
		srv, err := server.NewServer(opts)
		if err != nil {
			return fail(fmt.Errorf("the embedded server %s: %w", node.Name, err))
		}
		log := &logger{log: o.Logger}
		srv.SetLoggerV2(log, false, false, false)
		servers, logs = append(servers, &Server{srv: srv}), append(logs, log)
		srv.Start()
	}
	for i, s := range servers {
		if why := ready(s.srv, logs[i]); why != "" {
			return fail(fmt.Errorf("server %d of the embedded cluster in %q did not come up: %s", i, o.StoreDir, why))
		}
	}
	if !elected(servers) {
		return fail(errors.New("the servers of the embedded cluster did not agree on a leader"))
	}
	return servers, nil
}

// elected waits until the servers have a leader, and follow it.
func elected(servers []*Server) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(startTime); time.Now().Before(end); <-tick.C {
		leaders, current := 0, 0
		for _, s := range servers {
			if s.srv.JetStreamIsLeader() {
				leaders++
			}
			if s.srv.JetStreamIsCurrent() {
				current++
			}
		}
		if leaders == 1 && current == len(servers) {
			return true
		}
	}
	return false
}

// freePorts finds ports of the loopback that nobody uses just now. They are below
// those that systems give to connections, so that none of these takes one before
// the server listens on it.
func freePorts(n int) ([]int, error) {
	var ports []int
	var last error
	for range 100 {
		if len(ports) == n {
			return ports, nil
		}
		port := 10000 + rand.IntN(20000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("the embedded cluster needs %d free ports: %w", n, last)
}
