package flow

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/replies"
	"github.com/droverhq/drover/subjects"
)

// The defaults of Options.
const (
	DefaultConcurrency  = 64
	DefaultKeepBodies   = 1000
	DefaultDrainTimeout = 30 * time.Second
)

// beatEvery is how often a drive says that it goes on. One that is silent for
// three times as long is lost.
const beatEvery = 10 * time.Second

// Options of a server. The zero value is good for most.
type Options struct {
	// Prefix is that of the fleet; "": subjects.DefaultPrefix.
	Prefix string
	// Instance is shown as who drives a run; "": made of the host and the process.
	// 1 to 128 bytes without white space, * or >, and with dots only between others.
	// No two servers may have the same.
	Instance string
	// Version is that of the programs: 1 to 64 letters, digits, - or _. A run in whose
	// journal a server of a version has written, or that waits as one drove it, is
	// driven by that version while somebody serves it. "": any server drives it.
	Version string
	// Draining has the server take only runs that are of its Version, and no new ones:
	// they wait for a server that is not, of whichever version. It needs a Version.
	Draining bool
	// Concurrency is how many bodies of each program are driven at the same time;
	// 0: DefaultConcurrency. Those that wait do not count.
	Concurrency int
	// KeepBodies is how many bodies that wait stay in memory, so that they go on
	// from where they are; 0: DefaultKeepBodies, negative: none.
	KeepBodies int
	// DrainTimeout is how long Run waits for drives when it is asked to end, before
	// it gives them to other servers; 0: DefaultDrainTimeout.
	DrainTimeout time.Duration
	// Logger gets what goes wrong outside of bodies, and which of them, or of their steps,
	// panicked, or which did not fit the journal; nil: slog.Default().
	Logger *slog.Logger
}

// Server drives the bodies of programs.
type Server struct {
	nc       *nats.Conn
	names    subjects.Names
	opts     Options
	programs map[string]*Def
	queue    *function.Server
	fleet    *fleet
	held     *held
}

// Serve drives programs with the default options, until ctx ends. It is NewServer
// and Run.
func Serve(ctx context.Context, nc *nats.Conn, programs ...*Def) error {
	s, err := NewServer(nc, Options{}, programs...)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// NewServer makes a server. It does not touch the connection until Run. The
// connection should reconnect for ever (nats.MaxReconnects(-1)): once it is
// closed, Run ends.
func NewServer(nc *nats.Conn, opts Options, programs ...*Def) (*Server, error) {
	names, err := subjects.New(opts.Prefix)
	if err != nil {
		return nil, err
	}
	if opts.Version != "" {
		if err := checkToken("version", opts.Version); err != nil {
			return nil, err
		}
	}
	if opts.Draining && opts.Version == "" {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "a server that is draining must have the Version whose runs it is to end, and has none")
	}
	opts.Instance = cmp.Or(opts.Instance, instance())
	if err := checkInstance(opts.Instance); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("flow: %w", err)
	}
	opts.Concurrency = cmp.Or(opts.Concurrency, DefaultConcurrency)
	opts.KeepBodies = cmp.Or(opts.KeepBodies, DefaultKeepBodies)
	opts.DrainTimeout = cmp.Or(opts.DrainTimeout, DefaultDrainTimeout)
	if opts.Logger == nil {
		opts.Logger = slog.Default() //nolint:sloglint // what a user of slog expects
	}
	s := &Server{nc: nc, names: names, opts: opts, programs: map[string]*Def{}}
	s.fleet = &fleet{nc: nc, js: js, names: names, replies: replies.New(nc)}
	s.held = newHeld(s)
	if s.queue, err = s.functions(programs); err != nil {
		return nil, err
	}
	return s, nil
}

// functions makes the server of the calls that ask for drives.
func (s *Server) functions(programs []*Def) (*function.Server, error) {
	var list []*function.Function
	for _, p := range programs {
		if err := p.check(); err != nil {
			return nil, err
		}
		if s.programs[p.name] != nil {
			return nil, drover.Errorf(drover.CodeInvalidRequest, "program %s was given twice: give it once", p.name)
		}
		s.programs[p.name] = p
		if !s.opts.Draining {
			list = append(list, function.Message("program."+p.name, s.take))
		}
		if s.opts.Version != "" {
			list = append(list, function.Message("program."+p.name+"."+s.opts.Version, s.take))
		}
	}
	if len(list) == 0 {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "a server needs at least one program")
	}
	return function.NewServer(s.nc, function.Options{
		Prefix: s.opts.Prefix, Instance: s.opts.Instance, Concurrency: s.opts.Concurrency,
		DrainTimeout: s.opts.DrainTimeout, Logger: s.opts.Logger,
	}, list...)
}

// Ready is closed once every program has asked for drives.
func (s *Server) Ready() <-chan struct{} { return s.queue.Ready() }

// Run drives programs until ctx ends, and is called once. It gives nil when it was
// asked to end and all that it started has ended; an error when the connection was
// closed, or when functions of steps do not return. What was not finished in
// Options.DrainTimeout is driven by another server, from the journal.
func (s *Server) Run(ctx context.Context) error {
	shut, err := s.fleet.replies.Open()
	if err != nil {
		return drover.Errorf(drover.CodeUnavailable, "programs cannot be served: %v", err)
	}
	defer shut()
	nudges, err := s.nc.Subscribe(s.names.Nudge(s.opts.Instance), s.nudge)
	if err != nil {
		return drover.Errorf(drover.CodeUnavailable, "programs cannot be served: %v", err)
	}
	defer func() { _ = nudges.Unsubscribe() }()
	kept, err := s.nc.Subscribe(s.held.inbox, s.held.request)
	if err != nil {
		return drover.Errorf(drover.CodeUnavailable, "programs cannot be served: %v", err)
	}
	defer func() { _ = kept.Unsubscribe() }() // until all is over: one that still drives is looked for there
	err = s.queue.Run(ctx)
	return errors.Join(err, s.held.drain(s.opts.DrainTimeout))
}

// nudge hears that a journal has grown.
func (s *Server) nudge(m *nats.Msg) {
	var news struct {
		Run     drover.RunID `json:"run_id"`
		Entries int          `json:"entries"`
	}
	if json.Unmarshal(m.Data, &news) == nil {
		s.held.nudge(news.Run, news.Entries)
	}
}

// take drives a run as a queued message asks for.
func (s *Server) take(ctx context.Context, m *nats.Msg) error {
	req := &drover.DriveRequest{}
	meta, err := m.Metadata()
	if err == nil {
		err = json.Unmarshal(m.Data, req)
	}
	def := s.programs[req.Program]
	if err != nil || def == nil || m.Header.Get(subjects.HeaderToken) == "" {
		s.opts.Logger.Warn("a message was thrown away: it asks for no drive", slog.String("subject", m.Subject), slog.Any("error", err))
		return nil
	}
	req.Token = m.Header.Get(subjects.HeaderToken)
	if meta.NumDelivered > 1 {
		req.Partial = true // whoever had it before may have recorded
	}
	// A process that was asked directly has fence 1. One that gets the drive by the
	// queue comes after it.
	return s.held.drive(ctx, def, req, int(meta.NumDelivered)+1)
}

// driven says what becomes of the message of a drive: nil, it is done with.
func driven(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, drover.CodeFenced) || ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// checkInstance refuses what the owner of a run does not take as the name of who
// drives it.
func checkInstance(s string) error {
	const length = 128
	odd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '*' || r == '>' }
	dots := strings.Contains("."+s+".", "..")
	if s == "" || len(s) > length || !utf8.ValidString(s) || dots || strings.ContainsFunc(s, odd) {
		return drover.Errorf(drover.CodeInvalidID, "instance %q must be 1 to %d bytes of UTF-8 without white space, control characters, * or >, and with dots only between others", cut(s, length), length)
	}
	return nil
}

// instance makes the name of this process.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host[:min(len(host), 64)], os.Getpid(), strings.ToLower(rand.Text()[:5]))
}
