package api

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/droverhq/drover"
)

// How long a request may take.
const (
	readTime = 10 * time.Second
	listTime = 60 * time.Second
)

// class says which requests share a bound on how many there are at a time, so
// that commands which wait for an owner keep no reads from being answered.
type class int

const (
	commands class = iota
	reads
	scans  // go through all runs, letters, hooks or deliveries
	floods // send commands to many runs
	waits  // wait for the outcome of a run
)

// How many of those may be answered at a time.
const (
	maxScans  = 4
	maxFloods = 4
)

// endpoint is one verb.
type endpoint struct {
	verb    string
	about   string
	request reflect.Type // what its JSON holds, of the root package; nil: nothing
	reply   reflect.Type
	needs   []string // fields of the request that the type allows to leave out
	class   class
	limit   time.Duration
	do      func(ctx context.Context, data []byte) (any, error)
}

// name is that of the micro endpoint, which may have no dot.
func (e endpoint) name() string { return strings.ReplaceAll(e.verb, ".", "-") }

// metadata tells clients how to ask, as text: names and JSON Schemas.
func (e endpoint) metadata() map[string]string {
	m := map[string]string{
		"description": e.about, "reply": e.reply.Name(),
		"request_schema": schemaFor(e.request, e.needs...), "reply_schema": schemaFor(e.reply),
	}
	if e.request != nil {
		m["request"] = e.request.Name()
	}
	return m
}

func (s *Service) endpoints() []endpoint {
	commandTime := s.AnswerTime + readTime
	run := []string{"run_id"}
	return []endpoint{
		{"start", "start a run", of[drover.StartRequest](), of[drover.StartReply](), nil, commands, commandTime, s.start},
		{"stop", "ask for the end of a run", of[drover.StopRequest](), of[drover.StopReply](), run, commands, commandTime, with(s.stop)},
		{"tick", "make a run look at its deadlines", of[drover.RunRequest](), of[drover.RunRequest](), nil, commands, commandTime, with(s.tick)},
		{"deliver", "feed a wait of a run", of[drover.DeliverRequest](), of[drover.DeliverReply](), []string{"run_id", "name"}, commands, commandTime, with(s.deliver)},
		{"hold", "keep the outcome of a run for one who waits", of[drover.HoldRequest](), of[drover.HoldReply](), run, commands, commandTime, with(s.hold)},
		{"consume", "say that a waiter has the outcome", of[drover.WaiterRequest](), of[drover.HoldReply](), run, commands, commandTime, with(s.consume)},
		{"release", "say that a waiter has given up", of[drover.WaiterRequest](), of[drover.HoldReply](), run, commands, commandTime, with(s.release)},
		{"status", "show a run", of[drover.RunRequest](), of[drover.StatusReply](), nil, reads, readTime, with(s.status)},
		{"result", "the result of a run, a node or an item", of[drover.RunRequest](), of[drover.ResultReply](), nil, reads, readTime, with(s.resultOrWait)},
		{"why", "what a run is waiting for", of[drover.RunRequest](), of[drover.WhyReply](), nil, reads, readTime, with(s.why)},
		{"journal", "the journal of a program, from an entry on", of[drover.JournalRequest](), of[drover.JournalReply](), nil, reads, readTime, with(s.journal)},
		{"list", "runs, newest first", of[drover.ListRequest](), of[drover.ListReply](), nil, scans, listTime, with(s.list)},
		{"definition.put", "store and register a definition", of[drover.DefinitionRequest](), of[drover.DefinitionReply](), []string{"definition"}, reads, readTime, with(s.putDefinition)},
		{"definition.get", "a definition by name or hash", of[drover.DefinitionRequest](), of[drover.DefinitionReply](), nil, reads, readTime, with(s.getDefinition)},
		{"definition.list", "every registered name", nil, of[drover.DefinitionList](), nil, reads, readTime, with(s.listDefinitions)},
		{"dead.list", "commands that could not be folded, newest first", of[drover.DeadListRequest](), of[drover.DeadList](), nil, scans, listTime, with(s.listDead)},
		{"dead.show", "one of them, with its payload", of[drover.DeadRequest](), of[drover.DeadLetter](), nil, reads, readTime, with(s.showDead)},
		{"dead.requeue", "put one of them into the log of its run again", of[drover.DeadRequest](), of[drover.RequeueReply](), nil, commands, commandTime, with(s.requeue)},
		{"hook.deliver", "deliver to the run that holds a token, or start one", of[drover.HookRequest](), of[drover.HookReply](), nil, commands, 2 * commandTime, with(s.deliverHook)},
		{"hook.deliver.many", "deliver to every hook that a filter chooses", of[drover.HookManyRequest](), of[drover.HookManyReply](), nil, floods, listTime, with(s.deliverMany)},
		{"hook.list", "tokens that are taken, sorted", of[drover.HookListRequest](), of[drover.HookList](), nil, scans, listTime, with(s.listHooks)},
		{"hook.show", "who holds a token", of[drover.HookTokenRequest](), of[drover.Hook](), nil, reads, readTime, with(s.showHook)},
		{"hook.release", "free a token that nobody can use any more", of[drover.HookTokenRequest](), of[drover.Hook](), nil, commands, commandTime, with(s.releaseHook)},
		{"delivery.list", "deliveries of outcomes that are pending after a failure, or dead", of[drover.DeliveryListRequest](), of[drover.DeliveryList](), nil, scans, listTime, with(s.listDeliveries)},
		{"delivery.show", "how far one delivery of an outcome is", of[drover.DeliveryRequest](), of[drover.RunDelivery](), nil, reads, readTime, with(s.showDelivery)},
		{"delivery.replay", "try to deliver outcomes again at once", of[drover.ReplayRequest](), of[drover.ReplayReply](), nil, floods, listTime, with(s.replayDeliveries)},
		{"fleet", "workers and partitions", nil, of[drover.FleetReply](), nil, scans, listTime, with(s.fleet)},
	}
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

// with decodes the request of a verb.
func with[T any](do func(context.Context, *T) (any, error)) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, data []byte) (any, error) {
		req := new(T)
		if err := decode(data, req); err != nil {
			return nil, err
		}
		return do(ctx, req)
	}
}

// decode reads a request. Nothing at all is an empty one.
func decode(data []byte, req any) error {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return nil
	}
	if !utf8.Valid(data) { // what is none would become the same text, whatever it was
		return drover.Errorf(drover.CodeInvalidRequest, "the request is not UTF-8")
	}
	if data[0] != '{' {
		return drover.Errorf(drover.CodeInvalidRequest, "the request is no JSON object: write {...}")
	}
	if err := json.Unmarshal(data, req); err != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "the request cannot be read: %v", err)
	}
	return nil
}

// figures count the requests of one verb. The ones that micro keeps know only
// of the hand-over to a goroutine.
type figures struct {
	mu     sync.Mutex
	counts counts
}

type counts struct {
	Requests  int           `json:"requests"`
	Errors    int           `json:"errors"`
	LastError string        `json:"last_error,omitempty"`
	Time      time.Duration `json:"processing_time"`
	Average   time.Duration `json:"average_processing_time"`
}

func (f *figures) add(d time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Requests++
	f.counts.Time += d
	if err != nil {
		f.counts.Errors++
		f.counts.LastError = oneLine(err.Error())
	}
}

func (f *figures) read() counts {
	if f == nil {
		return counts{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counts
	c.Average = c.Time / time.Duration(max(c.Requests, 1))
	return c
}
