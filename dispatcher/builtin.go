package dispatcher

import (
	"bytes"
	"encoding/json"
	"log/slog"

	"github.com/rs/zerolog"

	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/subjects"
)

// builtins makes the server of the functions that belong to Drover itself. It
// is the one that users have for theirs: queue, heartbeats, results, panics
// and the drain are the same.
func (d *Dispatcher) builtins() (*function.Server, error) {
	request := function.New(string(subjects.FunctionRequest), d.request)
	request.Concurrency = d.opts.Requests
	web := function.New(string(subjects.FunctionHTTP), d.doHTTP)
	web.Concurrency = d.opts.HTTP
	notify := function.Message(string(subjects.FunctionNotify), d.notify)
	notify.Concurrency = d.opts.Notifies
	return function.NewServer(d.opts.Conn, function.Options{
		Prefix:       d.opts.Names.Prefix(),
		Instance:     d.opts.Instance,
		DrainTimeout: d.opts.DrainTimeout,
		Logger:       slog.New(zerolog.NewSlogHandler(d.opts.Logger)),
		Reserved:     true,
	}, request, web, notify)
}

// encode makes JSON without escapes that only HTML needs.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return null
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
