package api

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

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
	scans // go through all runs
)

// maxScans is how many requests may go through all runs at a time.
const maxScans = 4

// endpoint is one verb.
type endpoint struct {
	verb    string
	about   string
	request string // the type of its JSON in the root package
	reply   string
	class   class
	limit   time.Duration
	do      func(ctx context.Context, data []byte) (any, error)
}

// name is that of the micro endpoint, which may have no dot.
func (e endpoint) name() string { return strings.ReplaceAll(e.verb, ".", "-") }

func (e endpoint) metadata() map[string]string {
	return map[string]string{"description": e.about, "request": e.request, "reply": e.reply}
}

func (s *Service) endpoints() []endpoint {
	commandTime := s.AnswerTime + readTime
	return []endpoint{
		{"start", "start a run", "StartRequest", "StartReply", commands, commandTime, s.start},
		{"stop", "ask for the end of a run", "StopRequest", "StopReply", commands, commandTime, with(s.stop)},
		{"tick", "make a run look at its deadlines", "RunRequest", "RunRequest", commands, commandTime, with(s.tick)},
		{"deliver", "feed a wait of a run", "DeliverRequest", "DeliverReply", commands, commandTime, with(s.deliver)},
		{"status", "show a run", "RunRequest", "StatusReply", reads, readTime, with(s.status)},
		{"result", "the result of a run, a node or an item", "RunRequest", "ResultReply", reads, readTime, with(s.result)},
		{"why", "what a run is waiting for", "RunRequest", "WhyReply", reads, readTime, with(s.why)},
		{"list", "runs, newest first", "ListRequest", "ListReply", scans, listTime, with(s.list)},
		{"definition.put", "store and register a definition", "DefinitionRequest", "DefinitionReply", reads, readTime, with(s.putDefinition)},
		{"definition.get", "a definition by name or hash", "DefinitionRequest", "DefinitionReply", reads, readTime, with(s.getDefinition)},
		{"definition.list", "every registered name", "", "DefinitionList", reads, readTime, with(s.listDefinitions)},
	}
}

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
