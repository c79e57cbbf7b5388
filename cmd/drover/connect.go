package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/subjects"
)

// connection says which server and which fleet a command talks to, and as whom.
// An empty field is what the context says, where one is named.
type connection struct {
	url      string // or several, with commas; "": nats.DefaultURL
	context  string // name of a context of the nats command, or selectedContext
	identity identity
	tlsCA    string // files
	tlsCert  string
	tlsKey   string
	tlsFirst bool
	inbox    string // what the subjects of answers begin with
	prefix   string
	timeout  time.Duration // of a request; 0 for commands that make none
}

// identity is who connects. At most one kind is set.
type identity struct {
	creds          string // file of user credentials
	nkey           string // file of an nkey seed
	user, password string
	token          string
	jwt, seed      string // of a context only
}

// The time that an answer may take, where --timeout does not say otherwise.
const (
	answerTime = 10 * time.Second
	listTime   = time.Minute // all records are gone through
	forever    = 100 * 365 * 24 * time.Hour
)

// connectionFlags are the names of the flags of a connection, in the order of the help.
var connectionFlags = []string{
	"nats", "context", "creds", "nkey", "user", "password", "token",
	"tls-ca", "tls-cert", "tls-key", "tls-first", "inbox-prefix", "prefix",
}

// flags adds the flags of a connection to a command. Commands that only ask
// something have a timeout as well; 0 is for those that do not.
func (c *connection) flags(cmd *cobra.Command, timeout time.Duration) {
	f := cmd.Flags()
	f.StringVar(&c.url, "nats", "", "NATS server, or several with commas; "+nats.DefaultURL+" where nothing names one")
	f.StringVar(&c.context, "context", "", "context of the nats command, or "+selectedContext+" for the one selected there")
	f.StringVar(&c.identity.creds, "creds", "", "file of user credentials")
	f.StringVar(&c.identity.nkey, "nkey", "", "file of an nkey seed")
	f.StringVar(&c.identity.user, "user", "", "user name")
	f.StringVar(&c.identity.password, "password", "", "password of the user; better in the environment")
	f.StringVar(&c.identity.token, "token", "", "token; better in the environment")
	f.StringVar(&c.tlsCA, "tls-ca", "", "file of certificates that the server's is checked with")
	f.StringVar(&c.tlsCert, "tls-cert", "", "file of the client certificate")
	f.StringVar(&c.tlsKey, "tls-key", "", "file of the client certificate's key")
	f.BoolVar(&c.tlsFirst, "tls-first", false, "begin with the TLS handshake, for servers with handshake_first")
	f.StringVar(&c.inbox, "inbox-prefix", "", "what the subjects of answers begin with, for users with an inbox of their own")
	f.StringVar(&c.prefix, "prefix", subjects.DefaultPrefix, "prefix of the fleet's subjects")
	fromEnvironment(cmd, connectionFlags...)
	for _, name := range connectionFlags {
		f.Lookup(name).Annotations = map[string][]string{connectionAnnotation: nil}
	}
	if timeout > 0 {
		// Commands share c, and not their defaults.
		own := f.Duration("timeout", timeout, "how long an answer may take; 0: no limit")
		check := cmd.PreRunE
		cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
			if *own < 0 {
				return usageError("--timeout %s must not be negative", *own)
			}
			if c.timeout = *own; *own == 0 {
				c.timeout = forever
			}
			if check == nil {
				return nil
			}
			return check(cmd, args)
		}
		fromEnvironment(cmd, "timeout")
	}
}

// resolve fills in what the context says and no flag does. Who connects is
// taken as a whole: an identity on the command line leaves nothing of that of
// the context.
func (c *connection) resolve() error {
	if err := c.identity.check(); err != nil {
		return err
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return usageError("--tls-cert and --tls-key go together: give both")
	}
	if c.context != "" {
		known, err := loadContext(c.context)
		if err != nil {
			return err
		}
		c.url = cmp.Or(c.url, known.URL)
		if c.identity == (identity{}) {
			c.identity = known.identity()
		}
		c.tlsCA = cmp.Or(c.tlsCA, known.CA)
		if c.tlsCert == "" {
			c.tlsCert, c.tlsKey = known.Cert, known.Key
		}
		c.tlsFirst = c.tlsFirst || known.TLSFirst
		c.inbox = cmp.Or(c.inbox, known.InboxPrefix)
	}
	c.url = cmp.Or(c.url, nats.DefaultURL)
	return nil
}

// check refuses more than one identity.
func (i identity) check() error {
	var given []string
	for _, kind := range []struct{ flag, value string }{
		{"--creds", i.creds}, {"--nkey", i.nkey}, {"--user", i.user}, {"--token", i.token},
	} {
		if kind.value != "" {
			given = append(given, kind.flag)
		}
	}
	if len(given) > 1 {
		return usageError("%s are two identities: give one", strings.Join(given[:2], " and "))
	}
	if i.password != "" && i.user == "" {
		return usageError("--password is for a user: give --user as well")
	}
	return nil
}

// options are what nats.Connect needs to be this identity.
func (i identity) options() ([]nats.Option, error) {
	switch {
	case i.creds != "":
		return []nats.Option{nats.UserCredentials(i.creds)}, readable("--creds", i.creds)
	case i.nkey != "":
		opt, err := nats.NkeyOptionFromSeed(i.nkey)
		if err != nil {
			return nil, usageError("--nkey %s holds no seed: %w", i.nkey, err)
		}
		return []nats.Option{opt}, nil
	case i.user != "":
		return []nats.Option{nats.UserInfo(i.user, i.password)}, nil
	case i.jwt != "":
		return []nats.Option{nats.UserJWTAndSeed(i.jwt, i.seed)}, nil
	case i.token != "":
		return []nats.Option{nats.Token(i.token)}, nil
	}
	return nil, nil
}

// options are what nats.Connect needs, for a client with a name. resolve comes
// first.
func (c *connection) options(name string) ([]nats.Option, error) {
	opts, err := c.identity.options()
	if err != nil {
		return nil, err
	}
	opts = append(opts, nats.Name(name))
	if c.tlsCA != "" {
		if err := readable("--tls-ca", c.tlsCA); err != nil {
			return nil, err
		}
		opts = append(opts, nats.RootCAs(c.tlsCA))
	}
	if c.tlsCert != "" {
		if _, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey); err != nil {
			return nil, usageError("--tls-cert and --tls-key are no pair of certificate and key: %w", err)
		}
		opts = append(opts, nats.ClientCert(c.tlsCert, c.tlsKey))
	}
	if c.tlsFirst {
		// It says nothing of TLS itself: a URL with nats:// stays without.
		opts = append(opts, nats.Secure(), nats.TLSHandshakeFirst())
	}
	if c.inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.inbox))
	}
	return opts, nil
}

// readable tells of a file that cannot be read before a connection is tried
// again and again without it.
func readable(flag, file string) error {
	if _, err := os.ReadFile(file); err != nil {
		return usageError("%s cannot be read: %w", flag, err)
	}
	return nil
}

// prepare reads all that a connection needs and names its client.
func (c *connection) prepare() ([]nats.Option, error) {
	if err := c.resolve(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return c.options("drover on " + host)
}

// connect opens a connection, and fails where there is no server.
func (c *connection) connect() (*nats.Conn, error) {
	opts, err := c.prepare()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(c.url, opts...)
	switch {
	case err == nil:
		return nc, nil
	case refused(err):
		return nil, c.refusal(err)
	case errors.Is(err, nats.ErrNoServers):
		return nil, unreachable(c.shown())
	}
	return nil, fmt.Errorf("the NATS server at %s cannot be reached: %w", c.shown(), err)
}

// Waiting for a server: between two tries, and between two lines that say so.
const (
	dialAgain  = 500 * time.Millisecond
	awayAgain  = 10 * time.Second
	awayServer = "no NATS server answers at "
)

// A server whose machine is frozen or unplugged keeps its connections. Pings that
// stay unanswered tell, after some 15 s; nats.go's own bounds take four minutes.
const (
	pingEvery = 5 * time.Second
	maxPings  = 2
)

// await opens a connection that lasts: it waits for its server until ctx ends,
// and looks for it again for ever when it is lost. A server that is there and
// refuses is an error. Where ctx ends first, there is neither a connection nor
// an error.
func (c *connection) await(ctx context.Context, log zerolog.Logger) (*nats.Conn, error) {
	opts, err := c.prepare()
	if err != nil {
		return nil, err
	}
	opts = append(opts, nats.MaxReconnects(-1), nats.ReconnectWait(dialAgain),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(maxPings),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() && err != nil {
				log.Warn().Err(err).Msg("the connection to the NATS server is lost, trying again")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info().Str("server", nc.ConnectedUrlRedacted()).Msg("connected to a NATS server again")
		}))
	again, told := time.NewTicker(dialAgain), time.Time{}
	defer again.Stop()
	for {
		nc, err := nats.Connect(c.url, opts...)
		_, misspelled := errors.AsType[*url.Error](err)
		switch {
		case err == nil:
			return nc, nil
		case misspelled:
			return nil, usageError("--nats %s is no URL of a NATS server: %w", c.shown(), err)
		case refused(err):
			return nil, c.refusal(err)
		case time.Since(told) >= awayAgain:
			told = time.Now()
			log.Warn().AnErr("error", err).Msg(awayServer + c.shown() + ", trying again")
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			log.Info().Msg("ended before a NATS server answered")
			return nil, nil
		}
	}
}

func (c *connection) refusal(err error) error {
	return &exitError{status: exitFailed, err: fmt.Errorf("the NATS server at %s refuses this client: %w", c.shown(), err)}
}

// refused reports errors of a server that is there, or of what this client
// knows of it. No other try helps.
func refused(err error) bool {
	for _, known := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported, nats.ErrTokenAlreadySet,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	// The server closes the connection of a certificate that it does not know,
	// now earlier, now later.
	return unverified || alert || errors.Is(err, nats.ErrTLS) || strings.Contains(err.Error(), "remote error: tls:")
}

// shown is the URL without what is secret in it.
func (c *connection) shown() string {
	var all []string
	for one := range strings.SplitSeq(c.url, ",") {
		one = strings.TrimSpace(one)
		scheme, rest, ok := strings.Cut(one, "://")
		if !ok {
			scheme, rest = "", one
		}
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			rest = rest[at+1:]
		}
		if ok {
			rest = scheme + "://" + rest
		}
		all = append(all, rest)
	}
	return strings.Join(all, ",")
}

func unreachable(url string) error {
	return &exitError{status: exitFailed, err: errors.New(awayServer + url +
		": start one with drover dev, or name yours with --nats or " + envName("nats"))}
}

// withClient calls do with a client of the fleet.
func (a *app) withClient(ctx context.Context, do func(context.Context, *client.Client) error) error {
	nc, err := a.conn.connect()
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

// withClientInTime is withClient for what may take --timeout in all.
func (a *app) withClientInTime(ctx context.Context, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.conn.timeout)
	defer cancel()
	return a.withClient(ctx, do)
}
