package dispatcher

import (
	"encoding/json"
	"log/slog"

	"github.com/rs/zerolog"

	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// How many built-in calls of a kind may run at the same time in a worker.
const (
	maxRequests = 256
	maxHTTP     = 64
)

// builtins makes the server of the functions that belong to Drover itself. It
// is the one that users have for theirs: queue, heartbeats, results, panics
// and the drain are the same.
func (d *Dispatcher) builtins() (*function.Server, error) {
	request := function.New(string(subjects.FunctionRequest), d.request)
	request.Concurrency = maxRequests
	web := function.New(string(subjects.FunctionHTTP), d.doHTTP)
	web.Concurrency = maxHTTP
	return function.NewServer(d.opts.Conn, function.Options{
		Prefix:       d.opts.Names.Prefix(),
		Instance:     d.opts.Instance,
		DrainTimeout: d.opts.DrainTimeout,
		GroupWrites:  d.opts.GroupWrites,
		Logger:       slog.New(zerolog.NewSlogHandler(d.opts.Logger)),
		Reserved:     true,
	}, request, web)
}

// encode makes JSON of what can always be JSON.
func encode(v any) json.RawMessage {
	data, err := rawjson.Encode(v)
	if err != nil {
		return null
	}
	return data
}
