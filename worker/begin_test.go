package worker_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/worker"
)

func newWorker(t *testing.T, nc *nats.Conn, opts worker.Options) *worker.Worker {
	t.Helper()
	if opts.Lease == 0 {
		opts.Lease = time.Second
	}
	if opts.Settings == (topology.Settings{}) {
		opts.Settings.Partitions = 8
	}
	w, err := worker.New(nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// beginOn starts a worker over a connection, and waits until it owns its share.
func beginOn(t *testing.T, nc *nats.Conn, opts worker.Options) *member {
	t.Helper()
	opts.Logger = zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Worker: newWorker(t, nc, opts), nc: nc, stop: cancel, done: make(chan error, 1)}
	go func() { m.done <- m.Run(ctx) }()
	t.Cleanup(func() { m.end(t) })
	select {
	case <-m.Ready():
	case err := <-m.done:
		t.Fatalf("worker %s did not begin: %v", m.ID(), err)
	}
	return m
}

// said gives a log that tells when it says something.
func said(what string, heard chan<- struct{}) io.Writer { return &ear{[]byte(what), heard} }

type ear struct {
	what  []byte
	heard chan<- struct{}
}

func (e *ear) Write(p []byte) (int, error) {
	if bytes.Contains(p, e.what) {
		select {
		case e.heard <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}
