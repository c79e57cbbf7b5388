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
		GroupWrites:  d.opts.GroupWrites,
		Logger:       slog.New(zerolog.NewSlogHandler(d.opts.Logger)),
		Reserved:     true,
	}, request, web, notify)
}

// marshal makes JSON without the escapes that only HTML needs: they make a
// value up to six times as large, so that it fits in no message any more.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// encode is marshal for what can be JSON always.
func encode(v any) json.RawMessage {
	data, err := marshal(v)
	if err != nil {
		return null
	}
	return data
}
