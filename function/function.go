package function

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

// Function is a named handler. [New], [Raw] and [Message] make one.
type Function struct {
	// Name is what definitions call.
	Name drover.FunctionName
	// Concurrency is how many of its calls one server performs at the same
	// time; 0: Options.Concurrency. Change it before the server is made.
	Concurrency int

	call    func(ctx context.Context, input []byte) ([]byte, error) // nil for a message function
	message func(ctx context.Context, m *nats.Msg) error
}

// New makes a function whose input and output are JSON of the types In and
// Out. An input that is no In fails the call for good, with the code
// invalid_input; the handler does not see it. The errors of a handler may be
// made with [Permanent] and [RetryAfter]; a *drover.Error keeps its code, any
// other has the code failed.
func New[In, Out any](name string, handler func(ctx context.Context, in In) (Out, error)) *Function {
	return &Function{
		Name: drover.FunctionName(name),
		call: func(ctx context.Context, input []byte) ([]byte, error) {
			var in In
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, invalidInput(name, err)
			}
			out, err := handler(ctx, in)
			if err != nil {
				return nil, err
			}
			return encode(name, out)
		},
	}
}

// Raw makes a function that gets its input as the JSON that it is, and gives
// its output as JSON. An empty output means null.
func Raw(name string, handler func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)) *Function {
	return &Function{
		Name: drover.FunctionName(name),
		call: func(ctx context.Context, input []byte) ([]byte, error) {
			out, err := handler(ctx, input)
			return out, err
		},
	}
}

// Message makes a function that gets queued messages as they are, and answers
// each in its own way before it returns: nil takes the message off the queue,
// an error gives it back, to be delivered again a second later. It has no
// deadline, and cannot be cancelled. Drover's own functions are made with it;
// for any other, New and Raw do more.
func Message(name string, handler func(ctx context.Context, m *nats.Msg) error) *Function {
	return &Function{Name: drover.FunctionName(name), message: handler}
}

// encode makes JSON of what a function gives, or of what is told of it.
func encode(name string, v any) ([]byte, error) {
	data, err := rawjson.Encode(v)
	if err != nil {
		return nil, invalidOutput(name, err)
	}
	return data, nil
}
