package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/internal/replies"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// The defaults of Config.
const (
	DefaultConcurrency = 512
	DefaultAnswerTime  = 5 * time.Second
)

// Records reads the records of runs, as kv.Runs does.
type Records interface {
	Load(ctx context.Context, key string) (kv.Record, error)
	Scan(ctx context.Context, visit func(key string, rec kv.Record) bool) error
}

// Values reads values that are not in their records, as kv.Values does.
type Values interface {
	Get(ctx context.Context, keys []string) (map[string]json.RawMessage, error)
}

// Fleet tells who lives and who owns what, as kv.Fleet does.
type Fleet interface {
	WatchMembers(ctx context.Context, changed func([]kv.Member)) error
	WatchPartitions(ctx context.Context, changed func([]kv.Partition)) error
}

// Resolve finds the compiled definition that a start, or where that is nil a
// hash, names. A definition that came with the start is checked and stored. Its
// errors have codes: not_found, invalid_definition with every problem.
type Resolve func(ctx context.Context, req *drover.StartRequest, hash drover.Hash) (*machine.Plan, error)

// Config says what a service works with. All of it is needed, but for the
// fields that have a default.
type Config struct {
	Conn        *nats.Conn
	Names       subjects.Names
	Partitions  int // of the fleet
	Records     Records
	Values      Values
	Definitions kv.Definitions
	Hooks       Hooks
	Deliveries  Deliveries
	Fleet       Fleet
	Resolve     Resolve
	Secret      []byte        // of the fleet: seals the sessions of those who start runs with reply_to
	Worker      string        // shown in the metadata of the service
	Version     string        // of Drover, as semantic version; "": 0.0.0
	Concurrency int           // commands, and again reads, at the same time; 0: DefaultConcurrency
	AnswerTime  time.Duration // for the owner of a run to answer a command; 0: DefaultAnswerTime
	Logger      zerolog.Logger
}

// Service answers requests.
type Service struct {
	Config
	js      jetstream.JetStream
	answers *replies.Replies
	sender  *hook.Sender
	slots   map[class]chan struct{}
	working sync.WaitGroup
	ready   chan struct{}
	ending  chan struct{} // closed: whoever waits is answered
	figures map[string]*figures
}

// New makes a service. It does nothing before Run.
func New(cfg Config) (*Service, error) {
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	cfg.Version = cmp.Or(cfg.Version, "0.0.0")
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	cfg.AnswerTime = cmp.Or(cfg.AnswerTime, DefaultAnswerTime)
	s := &Service{
		Config: cfg, js: js,
		answers: replies.New(cfg.Conn),
		slots: map[class]chan struct{}{
			commands: make(chan struct{}, cfg.Concurrency),
			reads:    make(chan struct{}, cfg.Concurrency),
			scans:    make(chan struct{}, maxScans),
			floods:   make(chan struct{}, maxFloods),
			waits:    make(chan struct{}, maxWaits),
		},
		ready:   make(chan struct{}),
		ending:  make(chan struct{}),
		figures: map[string]*figures{},
	}
	s.sender = newSender(s)
	return s, nil
}

// Ready is closed once requests are answered.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Run answers requests until ctx ends, and is called once. Requests that were
// taken by then are answered before it returns, those that wait for an outcome at
// once.
func (s *Service) Run(ctx context.Context) error {
	shut, err := s.answers.Open()
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	defer shut()
	defer s.working.Wait()
	defer close(s.ending)
	for _, e := range s.endpoints() {
		s.figures[e.name()] = &figures{}
	}
	svc, err := micro.AddService(s.Conn, micro.Config{
		Name:         s.Names.Service(),
		Version:      s.Version,
		Description:  "Drover: durable workflows",
		Metadata:     map[string]string{"worker": s.Worker, "prefix": s.Names.Prefix(), "error_schema": schemaFor(of[drover.Error]())},
		StatsHandler: func(e *micro.Endpoint) any { return s.figures[e.Name].read() },
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			s.Logger.Warn().Str("subject", e.Subject).Str("error", e.Description).Msg("a request of the API was lost")
		},
	})
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	defer func() { _ = svc.Stop() }()
	group := svc.AddGroup(s.Names.APIRoot())
	for _, e := range s.endpoints() {
		err := group.AddEndpoint(e.name(), micro.HandlerFunc(func(req micro.Request) { s.take(ctx, e, req) }),
			micro.WithEndpointSubject(e.verb), micro.WithEndpointMetadata(e.metadata()))
		if err != nil {
			return fmt.Errorf("api: %w", err)
		}
	}
	s.announced(ctx)
	close(s.ready)
	<-ctx.Done()
	return nil
}

// announced returns when the server knows of the service. One that cannot be
// reached now will be told once it can.
func (s *Service) announced(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if err := s.Conn.FlushWithContext(ctx); err != nil {
		s.Logger.Warn().Err(err).Msg("the API is not announced yet")
	}
}

// take hands a request to a goroutine, or refuses it when there are too many.
func (s *Service) take(ctx context.Context, e endpoint, req micro.Request) {
	e = e.as(req.Data())
	slots := s.slots[e.class]
	if n := len(req.Data()); e.class == waits && n > maxWaitBytes {
		s.respond(e, req, time.Now(), nil, drover.Errorf(drover.CodeTooLarge, "a request that waits has %d bytes, and may have %d", n, maxWaitBytes))
		return
	}
	select {
	case slots <- struct{}{}:
	default:
		s.respond(e, req, time.Now(), nil, drover.Errorf(drover.CodeUnavailable,
			"worker %s answers %d requests like this one already: ask again a little later", s.Worker, cap(slots)))
		return
	}
	// A request that was taken is finished although the service is asked to end.
	ctx = withCaller(context.WithoutCancel(ctx), req)
	s.working.Go(func() {
		defer func() { <-slots }()
		ctx, cancel := context.WithTimeout(ctx, e.limit)
		defer cancel()
		start := time.Now()
		reply, err := s.perform(ctx, e, req)
		s.respond(e, req, start, reply, err)
	})
}

// parts is a reply of several messages: it hands all but the last one to more,
// and gives that.
type parts func(more func(any)) (any, error)

// perform answers one request. A panic is an error of this request only.
func (s *Service) perform(ctx context.Context, e endpoint, req micro.Request) (reply any, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.Logger.Error().Str("verb", e.verb).Interface("panic", v).Bytes("stack", debug.Stack()).Msg("a request failed")
			err = drover.Errorf(drover.CodeInternal, "the request for %s failed: the log of worker %s tells more", e.verb, s.Worker)
		}
	}()
	reply, err = e.do(ctx, req.Data())
	if several, ok := reply.(parts); ok && err == nil {
		return several(func(v any) { s.more(e, req, v) })
	}
	return reply, err
}

// more sends a part of an answer, which another one follows.
func (s *Service) more(e endpoint, req micro.Request, part any) {
	m := nats.NewMsg(req.Reply())
	m.Header.Set(subjects.HeaderMore, "1")
	var err error
	if m.Data, err = rawjson.Encode(part); err != nil {
		s.Logger.Error().Err(err).Str("verb", e.verb).Msg("a part of an answer is no JSON")
		return
	}
	s.reply(e, m)
}

// respond sends the answer. It does not go through the request, which belongs
// to the goroutine that delivered it.
func (s *Service) respond(e endpoint, req micro.Request, start time.Time, reply any, err error) {
	var data []byte
	if err == nil {
		if data, err = rawjson.Encode(reply); err != nil {
			err = drover.Errorf(drover.CodeInternal, "the answer to %s is no JSON: %v", e.verb, err)
		}
	}
	if limit := s.Conn.MaxPayload() - 4096; err == nil && limit > 0 && int64(len(data)) > limit {
		err = drover.Errorf(drover.CodeTooLarge,
			"the answer to %s has %d bytes, and the server takes %d: ask for less, such as one node or item", e.verb, len(data), limit)
	}
	m := nats.NewMsg(req.Reply())
	if err != nil {
		failure := problem(err)
		data, _ = rawjson.Encode(failure)
		m.Header.Set(subjects.HeaderCode, string(failure.Code))
		m.Header.Set(micro.ErrorHeader, oneLine(failure.Message))
		m.Header.Set(micro.ErrorCodeHeader, status(failure.Code))
	}
	m.Data = data
	s.figures[e.name()].add(time.Since(start), err)
	s.reply(e, m)
}

// reply publishes an answer, where it may go.
func (s *Service) reply(e endpoint, m *nats.Msg) {
	if m.Subject == "" {
		return // nobody wants to know
	}
	if s.Names.Foreign(m.Subject) != nil {
		// Anyone may name it, and it must not be a way to publish with the
		// rights of a worker.
		s.Logger.Debug().Str("verb", e.verb).Str("reply", m.Subject).Msg("a request asked for an answer where none may go")
		return
	}
	if err := s.Conn.PublishMsg(m); err != nil {
		s.Logger.Warn().Err(err).Str("verb", e.verb).Msg("a request could not be answered")
	}
}

// problem gives an error a code: what has none is trouble with the stores.
func problem(err error) *drover.Error {
	if errors.Is(err, context.DeadlineExceeded) {
		return drover.Errorf(drover.CodeUnavailable, "the store did not answer in time: %v", err)
	}
	e := *drover.AsError(err, drover.CodeOf(err, drover.CodeUnavailable))
	if e.Message == "" {
		e.Message = string(e.Code)
	}
	return &e
}

// status is the code of an error for tools that know those of HTTP.
func status(code drover.Code) string {
	switch code {
	case drover.CodeInvalidID, drover.CodeInvalidRequest, drover.CodeInvalidDefinition, drover.CodeInvalidInput, drover.CodeUnknownVerb:
		return "400"
	case drover.CodeForbidden:
		return "403"
	case drover.CodeNotFound:
		return "404"
	case drover.CodeConflict, drover.CodeTerminal, drover.CodeReleased, drover.CodeUnread:
		return "409"
	case drover.CodeTooLarge:
		return "413"
	case drover.CodeFull:
		return "429"
	case drover.CodeUnavailable:
		return "503"
	default:
		return "500"
	}
}

// oneLine makes text that fits in a header.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "")), " ")
	if len(s) > 1000 {
		s = strings.ToValidUTF8(s[:1000], "") + "..."
	}
	return s
}
