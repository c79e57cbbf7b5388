package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/subjects"
)

// connection says which server and which fleet a command talks to.
type connection struct {
	url     string // or several, with commas
	creds   string // file of user credentials
	nkey    string // file of an nkey seed
	tlsCA   string // files
	tlsCert string
	tlsKey  string
	prefix  string
	timeout time.Duration // of a request; 0 for commands that make none
}

// The time that an answer may take, where --timeout does not say otherwise.
const (
	answerTime = 10 * time.Second
	listTime   = time.Minute // all records are gone through
)

// flags adds the flags of a connection to a command. Commands that only ask
// something have a timeout as well; 0 is for those that do not.
func (c *connection) flags(cmd *cobra.Command, timeout time.Duration) {
	f := cmd.Flags()
	f.StringVar(&c.url, "nats", nats.DefaultURL, "NATS server, or several with commas")
	f.StringVar(&c.creds, "creds", "", "file of user credentials")
	f.StringVar(&c.nkey, "nkey", "", "file of an nkey seed")
	f.StringVar(&c.tlsCA, "tls-ca", "", "file of certificates that the server's is checked with")
	f.StringVar(&c.tlsCert, "tls-cert", "", "file of the client certificate")
	f.StringVar(&c.tlsKey, "tls-key", "", "file of the client certificate's key")
	f.StringVar(&c.prefix, "prefix", subjects.DefaultPrefix, "prefix of the fleet's subjects")
	fromEnvironment(cmd, "nats", "creds", "nkey", "tls-ca", "tls-cert", "tls-key", "prefix")
	if timeout > 0 {
		f.DurationVar(&c.timeout, "timeout", timeout, "how long an answer may take")
		fromEnvironment(cmd, "timeout")
	}
}

// options are what nats.Connect needs, for a client with a name.
func (c *connection) options(name string) ([]nats.Option, error) {
	opts := []nats.Option{nats.Name(name)}
	if c.creds != "" && c.nkey != "" {
		return nil, usageError("--creds and --nkey are two identities: give one")
	}
	if c.creds != "" {
		opts = append(opts, nats.UserCredentials(c.creds))
	}
	if c.nkey != "" {
		opt, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, usageError("--nkey %s holds no seed: %w", c.nkey, err)
		}
		opts = append(opts, opt)
	}
	if c.tlsCA != "" {
		opts = append(opts, nats.RootCAs(c.tlsCA))
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, usageError("--tls-cert and --tls-key go together: give both")
	}
	if c.tlsCert != "" {
		opts = append(opts, nats.ClientCert(c.tlsCert, c.tlsKey))
	}
	return opts, nil
}

// connect opens a connection. One that lasts tries for ever to find its server
// again; any other fails at once where there is none.
func (c *connection) connect(lasts bool) (*nats.Conn, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	opts, err := c.options("drover on " + host)
	if err != nil {
		return nil, err
	}
	if lasts {
		opts = append(opts, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(500*time.Millisecond))
	}
	nc, err := nats.Connect(c.url, opts...)
	if errors.Is(err, nats.ErrNoServers) {
		return nil, unreachable(c.url)
	}
	return nc, err
}

func unreachable(url string) error {
	return &exitError{status: exitFailed, err: errors.New("no NATS server answers at " + url +
		": start one with drover dev, or name yours with --nats or " + envName("nats"))}
}

// withClient calls do with a client of the fleet.
func (a *app) withClient(ctx context.Context, do func(context.Context, *client.Client) error) error {
	nc, err := a.conn.connect(false)
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := client.New(nc, client.Options{Prefix: a.conn.prefix, Patience: a.conn.timeout})
	if err != nil {
		return err
	}
	return do(ctx, c)
}
