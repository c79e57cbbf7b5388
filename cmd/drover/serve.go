package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/gateway"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

func (a *app) serveCommand() *cobra.Command {
	var (
		opts      worker.Options
		retention string
		http      string
		log       logs
	)
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve as a worker of a fleet, on a NATS server of yours",
		GroupID: groupServe,
		Long: `Serve joins the fleet that the server holds, and sets it up where there is none yet. Any number of workers
share the runs. SIGTERM drains: what is in flight ends, and the others take over. A second signal ends at once;
nothing is lost then either, but the others wait for the lease to run out.

--partitions, --replicas and --retention matter when a fleet is set up. Later they must be left out, or agree.`,
		Example: `  drover serve --nats nats://host:4222
  drover serve --nats tls://a:4222,tls://b:4222 --creds drover.creds --replicas 3 --log-format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := log.logger(a.err)
			if err != nil {
				return err
			}
			opts.Logger, opts.Prefix = logger, a.conn.prefix
			opts.Version = version().Version
			if opts.Settings.Retention, err = parseRetention(retention); err != nil {
				return err
			}
			return a.serve(cmd.Context(), opts, http)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Name, "name", "", "name of this worker; made of the host where it is not given")
	f.IntVar(&opts.Settings.Partitions, "partitions", 0, "into how many partitions the runs are split; 0: as set up, or 64")
	f.IntVar(&opts.Settings.Replicas, "replicas", 0, "1, or 3 on a cluster; 0: as set up, or 1")
	f.StringVar(&retention, "retention", "", "how long runs are kept after their end, like 12h or 7d; as set up, or 7d")
	f.DurationVar(&opts.Lease, "lease", 3*time.Second, "how long a worker that is gone is not missed, in whole seconds")
	f.DurationVar(&opts.DrainTimeout, "drain", 10*time.Second, "how long partitions may take to be given back after SIGTERM")
	f.BoolVar(&opts.AllowPrivate, "allow-private", false, allowPrivate)
	f.StringVar(&opts.WebhookSecrets, "webhook-secrets", "", webhookSecrets)
	f.BoolVar(&opts.GroupWrites, "group-writes", false, "let writes share a sync, for one server that syncs every write (sync_interval: always)")
	f.StringVar(&http, "http", "", httpFlag)
	fromEnvironment(cmd, "name", "partitions", "replicas", "retention", "lease", "drain", "allow-private", "webhook-secrets", "group-writes", "http")
	log.flags(cmd, "info")
	a.conn.flags(cmd, 0)
	return cmd
}

// What flags of several commands say.
const (
	allowPrivate   = "let http nodes and webhooks reach private and loopback addresses"
	webhookSecrets = "file of the secrets that sign webhooks: YAML with name: whsec_...; none is sent where it is not given"
)

func parseRetention(s string) (drover.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := drover.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, usageError("--retention %q must be a time like 12h or 7d", s)
	}
	return d, nil
}

// serve waits for the server, and works until it is asked to end. With an
// address it is a gateway for HTTP as well.
func (a *app) serve(ctx context.Context, opts worker.Options, http string) error {
	name := "the worker"
	if http != "" {
		name = "drover serve"
	}
	return untilInterrupted(ctx, name, func(ctx context.Context) error {
		nc, err := a.conn.await(ctx, opts.Logger)
		if nc == nil {
			return err
		}
		defer nc.Close()
		w, err := worker.New(nc, opts)
		if err != nil {
			return err
		}
		opts.Logger.Info().Str("server", nc.ConnectedUrlRedacted()).Str("prefix", a.conn.prefix).Msg("connected, joining the fleet")
		if http == "" {
			return w.Run(ctx)
		}
		return a.serveBoth(ctx, w, http, opts.Logger)
	}, opts.Logger)
}

// serveBoth runs a worker and a gateway. The gateway has a connection of its own,
// so that what strangers send does not hold up the worker.
func (a *app) serveBoth(ctx context.Context, w *worker.Worker, http string, log zerolog.Logger) error {
	nc, err := a.conn.await(ctx, log)
	if nc == nil {
		return err
	}
	defer nc.Close()
	parts, lasting := newCrew(), context.WithoutCancel(ctx) // stop ends them, in their order
	parts.start(lasting, "the worker", w.Run)
	if _, err := parts.startGateway(lasting, http, nc, gateway.Options{Prefix: a.conn.prefix, Logger: log}); err != nil {
		return errors.Join(err, parts.stop())
	}
	select {
	case err := <-parts.failed:
		return errors.Join(err, parts.stop())
	case <-ctx.Done():
		return parts.stop()
	}
}

// devOptions are the flags of drover dev.
type devOptions struct {
	data, listen string
	sync         string
	http         string
	functions    []string
	file         string
	allowPrivate bool
	secrets      string
	log          logs
}

func (a *app) devCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:     "dev",
		Short:   "Serve everything on this machine: a NATS server, a worker, and functions",
		GroupID: groupServe,
		Long: `Dev is a fleet in one process, for development. Its data outlives it. Anything that speaks NATS may connect,
without credentials, so it listens on this machine only unless --listen says otherwise.`,
		Example: `  drover dev
  drover dev --data /tmp/drover --listen 127.0.0.1:14222
  drover dev --functions examples/licences/functions.yaml
  drover dev --http 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.data, "data", ".drover", "folder that keeps everything")
	f.StringVar(&o.listen, "listen", "127.0.0.1:4222", "host:port for clients; port 0 is any that is free")
	f.StringVar(&o.sync, "sync", "interval", "when writes are flushed to the disk: interval (every 100 ms), or always")
	f.StringArrayVar(&o.functions, "function", nil, "function as name=command; may be given several times")
	f.StringVar(&o.file, "functions", "", "file of functions")
	f.BoolVar(&o.allowPrivate, "allow-private", false, allowPrivate)
	f.StringVar(&o.secrets, "webhook-secrets", "", webhookSecrets)
	f.StringVar(&o.http, "http", "", httpFlag)
	fromEnvironment(cmd, "data", "listen", "sync", "allow-private", "webhook-secrets", "http")
	o.log.flags(cmd, "info")
	return cmd
}

func (a *app) dev(ctx context.Context, o *devOptions) error {
	log, err := o.log.logger(a.err)
	if err != nil {
		return err
	}
	if o.sync != "interval" && o.sync != "always" {
		return usageError("--sync %q must be interval or always", o.sync)
	}
	all := programs{}
	if o.file != "" {
		if err := all.load(o.file); err != nil {
			return err
		}
	}
	for _, arg := range o.functions {
		if err := all.add(arg); err != nil {
			return err
		}
	}
	fns := &served{programs: all, concurrency: 16, drain: 30 * time.Second, log: log}
	defer fns.running.kill()
	return untilInterrupted(ctx, "drover dev", func(ctx context.Context) error {
		fleet, err := startLocal(ctx, localOptions{
			data: o.data, listen: o.listen, syncAlways: o.sync == "always",
			served: fns, allowPrivate: o.allowPrivate, webhookSecrets: o.secrets, http: o.http, log: log,
		})
		if err != nil {
			return err
		}
		fmt.Fprint(a.err, welcome(fleet.server.ClientURL(), o.data))
		if fleet.http != nil {
			fmt.Fprintf(a.err, "hooks take POST at http://%s/hooks/TOKEN\n\n", fleet.http)
		}
		select {
		case <-ctx.Done():
			return fleet.stop()
		case err := <-fleet.failed:
			return errors.Join(err, fleet.stop())
		}
	}, log)
}

// hello is a workflow that needs no function.
const hello = `{"nodes": {"hello": {"set": {"with": "Hello ${{ input }}"}}}, "output": {"from": "node:hello"}}`

// welcome says how to talk to a server, with this program and without it. Each
// command works as it stands.
func welcome(url, data string) string {
	names := subjects.Default()
	var b strings.Builder
	fmt.Fprintf(&b, "drover is ready at %s, its data is in %s\n", url, data)
	server, nats := "", "nats"
	if url != "nats://127.0.0.1:4222" {
		server, nats = " --nats "+url, "nats -s "+url
	}
	fmt.Fprintf(&b, "\n  echo '%s' |\n    drover start -%s --input '\"Ada\"' --wait\n  drover list%s\n", hello, server, server)
	fmt.Fprintf(&b, "\nor with any NATS client:\n\n")
	fmt.Fprintf(&b, "  %s request --no-templates %s \\\n    '{\"definition\": %s, \"input\": \"Ada\"}'\n", nats, names.In("hello-1", drover.VerbStart), hello)
	fmt.Fprintf(&b, "  %s request %s '{\"run_id\": \"hello-1\"}'\n", nats, names.API("result"))
	fmt.Fprintf(&b, "  %s sub '%s'\n\n", nats, names.DoneAll())
	return b.String()
}
