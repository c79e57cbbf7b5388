package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/embed"
	"github.com/droverhq/drover/internal/gateway"
	"github.com/droverhq/drover/worker"
)

// local is a whole fleet in this process: a server, a worker and functions.
type local struct {
	*crew
	server *embed.Server
	nc     *nats.Conn
	client *client.Client
	http   net.Addr // of the gateway; nil: there is none
}

// localOptions say what a local fleet is made of.
type localOptions struct {
	data           string // folder of the server; "": a temporary one that is removed at the end
	listen         string // host:port; "": nobody else can connect
	syncAlways     bool
	served         *served         // functions; nil: none
	interrupt      <-chan struct{} // gives up the start when it is closed; nil: never
	allowPrivate   bool            // of http nodes and webhooks
	webhookSecrets string          // file; "": none
	http           string          // host:port of a gateway; "": none
	log            zerolog.Logger
}

// startLocal starts a fleet, and returns when its worker is ready. Its stop
// must be called.
func startLocal(ctx context.Context, opts localOptions) (_ *local, err error) {
	l := &local{crew: newCrew()}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.stop())
		}
	}()
	if err := l.serve(opts); err != nil {
		return nil, err
	}
	if l.nc, err = l.server.Connect(nats.Name("drover worker")); err != nil {
		return nil, err
	}
	l.onStop(func() error { l.nc.Close(); return nil })
	if l.client, err = client.New(l.nc, client.Options{}); err != nil {
		return nil, err
	}
	w, err := worker.New(l.nc, worker.Options{
		Alone: true, AllowPrivate: opts.allowPrivate, WebhookSecrets: opts.webhookSecrets, GroupWrites: opts.syncAlways,
		Version: version().Version, Logger: opts.log,
	})
	if err != nil {
		return nil, err
	}
	// What the process is asked to end by must not end the parts: stop does,
	// in their order.
	lasting := context.WithoutCancel(ctx)
	l.start(lasting, "the worker", w.Run)
	select {
	case <-w.Ready():
	case err := <-l.failed:
		return nil, err
	case <-opts.interrupt:
		return nil, &exitError{status: exitKilled, err: errors.New("interrupted before the worker was ready")}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if opts.served != nil && len(opts.served.programs) > 0 {
		server, err := opts.served.server(l.nc)
		if err != nil {
			return nil, err
		}
		l.start(lasting, "the function server", server.Run)
	}
	return l, l.serveHTTP(lasting, opts)
}

// serveHTTP starts a gateway, where one is asked for.
func (l *local) serveHTTP(ctx context.Context, opts localOptions) error {
	if opts.http == "" {
		return nil
	}
	nc, err := l.server.Connect(nats.Name("drover gateway"))
	if err != nil {
		return err
	}
	l.onStop(func() error { nc.Close(); return nil })
	l.http, err = l.startGateway(ctx, opts.http, nc, gateway.Options{Logger: opts.log})
	return err
}

// serve starts the server, in a folder that no other process uses.
func (l *local) serve(opts localOptions) error {
	dir := opts.data
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "drover-"); err != nil {
			return fmt.Errorf("no folder for the server can be made: %w", err)
		}
		l.onStop(func() error { return os.RemoveAll(dir) })
	} else if err := l.lock(dir); err != nil {
		return err
	}
	log := opts.log
	if log.GetLevel() > zerolog.DebugLevel {
		// Its warnings tell how it mends what a crash left, which it always can.
		log = log.Level(max(log.GetLevel(), zerolog.ErrorLevel))
	}
	server, err := embed.Start(embed.Options{StoreDir: dir, Listen: opts.listen, SyncAlways: opts.syncAlways, Logger: log})
	if err != nil {
		return err
	}
	l.server = server
	l.onStop(func() error { server.Close(); return nil })
	return nil
}

// lock takes a folder for this process until stop.
func (l *local) lock(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return usageError("the data folder cannot be made: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return usageError("the data folder %s cannot be written to: %w", dir, err)
	}
	if err := lockFile(f); err != nil {
		return errors.Join(drover.Errorf(drover.CodeConflict,
			"another drover uses the data folder %s: end it, or choose another folder with --data", dir), f.Close())
	}
	l.onStop(f.Close)
	return nil
}
