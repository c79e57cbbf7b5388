package embed

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// Options of a server.
type Options struct {
	// StoreDir is the folder of the streams, made if it is not there. Required.
	StoreDir string
	// Listen is where other processes may connect, "host:port"; port 0 takes a
	// free one. Empty: nobody can, only this process.
	Listen string
	// SyncAlways has every write on disk before it is acknowledged.
	SyncAlways bool
	// SyncInterval is how often writes are brought to disk. 0: 100 ms, and in a
	// cluster 2 min, which is what nats-server does by itself: what one server
	// loses with its power, the others have. It means nothing with SyncAlways.
	SyncInterval time.Duration
	// MaxPayload is how many bytes a message may have. 0: 8 MiB.
	MaxPayload int32
	// Name of the server. Empty: made up.
	Name string
	// Logger gets what the server has to say. The zero value drops it.
	Logger zerolog.Logger
}

const (
	defaultSyncInterval = 100 * time.Millisecond
	clusterSyncInterval = 2 * time.Minute
	defaultMaxPayload   = 8 << 20
	// startTime is how long a server may take to answer once it has read its
	// store, which takes as long as it takes.
	startTime = 30 * time.Second
)

// Server is a server that runs. Close ends it.
type Server struct {
	srv *server.Server
}

// Start runs a server, and returns when it answers. The error says which option
// cannot be used, or why the server did not come up, as when the port is taken.
func Start(o Options) (*Server, error) {
	opts, err := o.server()
	if err != nil {
		return nil, err
	}
	if err := free(o.Listen); err != nil {
		return nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("the embedded server: %w", err)
	}
	log := &logger{log: o.Logger}
	srv.SetLoggerV2(log, o.Logger.GetLevel() <= zerolog.DebugLevel, false, false)
	srv.Start()
	s := &Server{srv: srv}
	if why := ready(srv, log); why != "" {
		s.Close()
		return nil, fmt.Errorf("the embedded server in %q did not come up: %s", o.StoreDir, why)
	}
	return s, nil
}

// ready waits until the server answers, and else says why it does not.
func ready(srv *server.Server, log *logger) string {
	for end := time.Now().Add(startTime); time.Now().Before(end); {
		if srv.ReadyForConnections(100 * time.Millisecond) {
			return ""
		}
		if why := log.fatal(); why != "" {
			return why
		}
	}
	return fmt.Sprintf("it did not answer within %v", startTime)
}

// free tells at once of an address that cannot be listened on; the server would
// only try until its time is over.
func free(address string) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("the embedded server cannot listen: %w", err)
	}
	return l.Close()
}

// server makes the options of the server itself.
func (o Options) server() (*server.Options, error) {
	if o.StoreDir == "" {
		return nil, errors.New("the embedded server needs a folder: set StoreDir")
	}
	if o.SyncInterval < 0 || o.MaxPayload < 0 {
		return nil, fmt.Errorf(
			"the sync interval %v and the payload limit %d of the embedded server must not be negative", o.SyncInterval, o.MaxPayload)
	}
	if o.SyncInterval == 0 {
		o.SyncInterval = defaultSyncInterval
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = defaultMaxPayload
	}
	opts := &server.Options{
		ServerName:   o.Name,
		JetStream:    true,
		StoreDir:     o.StoreDir,
		SyncInterval: o.SyncInterval,
		SyncAlways:   o.SyncAlways,
		MaxPayload:   o.MaxPayload,
		NoSigs:       true, // signals are for whoever embeds it
		DontListen:   true,
	}
	if o.Listen == "" {
		return opts, nil
	}
	host, text, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("the address %q is no host:port: %w", o.Listen, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("the port of the address %q is no number up to 65535", o.Listen)
	}
	opts.DontListen, opts.Host, opts.Port = false, host, int(port)
	if port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	return opts, nil
}

// Connect gives a connection from inside the process, which needs no port and
// waits for the server for as long as it takes. The caller closes it.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{nats.InProcessServer(s.srv), nats.MaxReconnects(-1)}, opts...)
	nc, err := nats.Connect("", all...)
	if err != nil {
		return nil, fmt.Errorf("the embedded server: %w", err)
	}
	return nc, nil
}

// ClientURL is where other processes connect, or "" where they cannot.
func (s *Server) ClientURL() string {
	if s.srv.Addr() == nil {
		return ""
	}
	return s.srv.ClientURL()
}

// Close brings everything to disk, and returns when the server is down.
func (s *Server) Close() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}
