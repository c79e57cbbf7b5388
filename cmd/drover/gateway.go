package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/internal/gateway"
)

const httpFlag = "host:port at which hooks take deliveries by HTTP, like 127.0.0.1:8080; none by default"

// startGateway adds a gateway to the parts of a process, and gives the address at
// which it listens.
func (c *crew) startGateway(ctx context.Context, address string, nc *nats.Conn, opts gateway.Options) (net.Addr, error) {
	g, err := gateway.New(nc, opts)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if _, misspelled := errors.AsType[*net.AddrError](err); misspelled {
		return nil, usageError("--http %q must be host:port: %w", address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("--http %s cannot be listened at: %w", address, err)
	}
	opts.Logger.Info().Stringer("address", l.Addr()).Msg("hooks take deliveries by HTTP")
	c.start(ctx, "the gateway for HTTP", func(ctx context.Context) error { return g.Run(ctx, l) })
	return l.Addr(), nil
}
