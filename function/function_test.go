package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/function/functiontest"
	"github.com/droverhq/drover/subjects"
)

type topic struct {
	Topic string `json:"topic"`
}

func TestResults(t *testing.T) {
	type in = context.Context
	typed := func(h func(in, topic) (any, error)) *function.Function { return function.New("f", h) }
	tests := []struct {
		name   string
		fn     *function.Function
		input  string
		output string
		err    *drover.Error // Message: a part of it
	}{
		{
			name: "typed", input: `{"topic":"herding","more":1}`, output: `["herding <1>"]`,
			fn: typed(func(_ in, v topic) (any, error) { return []string{v.Topic + " <1>"}, nil }),
		},
		{
			name: "raw", input: ` { "a" : [ 1 ] } `, output: `{"a":[1]}`,
			fn: raw("f", func(_ in, input json.RawMessage) (json.RawMessage, error) { return input, nil }),
		},
		{
			name: "no output is null", input: `1`, output: ``,
			fn: raw("f", func(in, json.RawMessage) (json.RawMessage, error) { return nil, nil }),
		},
		{
			name: "no input is null", input: ``, output: `"null"`,
			fn: raw("f", func(_ in, input json.RawMessage) (json.RawMessage, error) { return json.Marshal(string(input)) }),
		},
		{
			name: "input of another type", input: `"text"`,
			fn:  typed(func(in, topic) (any, error) { panic("must not be called") }),
			err: &drover.Error{Code: drover.CodeInvalidInput, Message: "function f cannot read its input", Permanent: true},
		},
		{
			name: "input that is no JSON", input: `{`,
			fn:  typed(func(in, topic) (any, error) { panic("must not be called") }),
			err: &drover.Error{Code: drover.CodeInvalidInput, Message: "function f cannot read its input", Permanent: true},
		},
		{
			name: "plain error", input: `{}`,
			fn:  typed(func(in, topic) (any, error) { return nil, errBoom }),
			err: &drover.Error{Code: drover.CodeFailed, Message: "boom"},
		},
		{
			name: "error with a code, wrapped", input: `{}`,
			fn: typed(func(in, topic) (any, error) {
				return nil, fmt.Errorf("reading: %w", drover.Errorf(drover.CodeNotFound, "no such page"))
			}),
			err: &drover.Error{Code: drover.CodeNotFound, Message: "reading: no such page"},
		},
		{
			name: "permanent", input: `{}`,
			fn:  typed(func(in, topic) (any, error) { return nil, fmt.Errorf("sorry: %w", function.Permanent(errBoom)) }),
			err: &drover.Error{Code: drover.CodeFailed, Message: "sorry: boom", Permanent: true},
		},
		{
			name: "retry after", input: `{}`,
			fn:  typed(func(in, topic) (any, error) { return nil, function.RetryAfter(errBoom, time.Minute) }),
			err: &drover.Error{Code: drover.CodeFailed, Message: "boom", RetryAfter: drover.Duration(time.Minute)},
		},
		{
			name: "panic", input: `{}`,
			fn:  typed(func(in, topic) (any, error) { panic("at the disco") }),
			err: &drover.Error{Code: drover.CodePanic, Message: "function f panicked: at the disco", Stack: "function_test.go"},
		},
		{
			name: "nil error of a type", input: `{}`,
			fn: typed(func(in, topic) (any, error) {
				var none *drover.Error
				return nil, none
			}),
			err: &drover.Error{Code: drover.CodePanic, Message: "function f panicked", Stack: "goroutine"},
		},
		{
			name: "handler that ends its goroutine", input: `{}`,
			fn:  typed(func(in, topic) (any, error) { runtime.Goexit(); return nil, nil }),
			err: &drover.Error{Code: drover.CodeFailed, Message: "function f ended its goroutine"},
		},
		{
			name: "output over the limit", input: `{}`,
			fn:  typed(func(in, topic) (any, error) { return strings.Repeat("x", drover.MaxValue), nil }),
			err: &drover.Error{Code: drover.CodeTooLarge, Message: "function f gave an output of 1048578 bytes", Permanent: true},
		},
		{
			name: "output that is no JSON", input: `{}`,
			fn:  raw("f", func(in, json.RawMessage) (json.RawMessage, error) { return json.RawMessage("{"), nil }),
			err: &drover.Error{Code: drover.CodeFailed, Message: "function f gave an output that is no JSON", Permanent: true},
		},
		{
			name: "output that JSON cannot hold", input: `{}`,
			fn:  typed(func(in, topic) (any, error) { return func() {}, nil }),
			err: &drover.Error{Code: drover.CodeFailed, Message: "function f gave an output that is no JSON", Permanent: true},
		},
		{
			name: "endless error", input: `{}`,
			fn:  typed(func(in, topic) (any, error) { return nil, errors.New(strings.Repeat("ä", 1<<20)) }),
			err: &drover.Error{Code: drover.CodeFailed, Message: "ä..."},
		},
	}
	f := newFleet(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := *f
			f.T = t
			stop := f.Serve(function.Options{Instance: "here"}, test.fn)
			f.Queue("run1/n@1", "f", test.input)
			r := f.Next()
			if r.Instance != "here" || r.Progress != nil || string(r.Output) != test.output {
				t.Errorf("result %+v, output %.100s", r, r.Output)
			}
			compare(t, r.Error, test.err)
			f.Drained()
			if err := stop(); err != nil {
				t.Errorf("end: %v", err)
			}
		})
	}
}

func compare(t *testing.T, got, want *drover.Error) {
	t.Helper()
	if got == nil || want == nil {
		if got != want {
			t.Errorf("error %v, want %v", got, want)
		}
		return
	}
	if got.Code != want.Code || got.Permanent != want.Permanent || got.RetryAfter != want.RetryAfter ||
		!strings.Contains(got.Message, want.Message) || !strings.Contains(got.Stack, want.Stack) || len(got.Message) > 5000 {
		t.Errorf("error %+v, want %+v", got, want)
	}
}

func TestInfo(t *testing.T) {
	if got := function.Info(t.Context()); got != (function.Call{}) {
		t.Errorf("without a call: %+v", got)
	}
	f := newFleet(t)
	infos := make(chan function.Call, 1)
	f.Serve(function.Options{Instance: "here"}, function.New("a.b", func(ctx context.Context, _ any) (any, error) {
		infos <- function.Info(ctx)
		return nil, nil
	}))
	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	f.Queue("run1/n#7@3", "a.b", "1", subjects.HeaderDeadline, deadline.Format(time.RFC3339Nano), subjects.HeaderHeartbeat, "1h0m0s")
	got := functiontest.Await(t, infos, "a call")
	if got.ID.String() != "run1/n#7@3" || got.ID.Item != 7 || got.ID.Attempt != 3 || got.Function != "a.b" ||
		got.Instance != "here" || !got.Deadline.Equal(deadline) || got.Heartbeat != time.Hour {
		t.Errorf("info %+v", got)
	}
}

func TestNewServerRefuses(t *testing.T) {
	f := newFleet(t)
	fn := function.New("f", func(context.Context, any) (any, error) { return nil, nil })
	named := func(name string) *function.Function {
		return function.New(name, func(context.Context, any) (any, error) { return nil, nil })
	}
	for want, try := range map[string]struct {
		opts function.Options
		fns  []*function.Function
	}{
		"at least one function":      {},
		"function f was given twice": {fns: []*function.Function{fn, named("f")}},
		"has no handler":             {fns: []*function.Function{{Name: "f"}}},
		"must not begin with _":      {fns: []*function.Function{named("_http")}},
		"function name":              {fns: []*function.Function{named("a..b")}},
		"prefix":                     {opts: function.Options{Prefix: "No"}, fns: []*function.Function{fn}},
		"must not be negative":       {opts: function.Options{Concurrency: -1}, fns: []*function.Function{fn}},
	} {
		if _, err := function.NewServer(f.Conn, try.opts, try.fns...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := function.NewServer(f.Conn, function.Options{Reserved: true}, named("_http")); err != nil {
		t.Errorf("reserved: %v", err)
	}
}
