package function

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// What is kept of an error, so that a record stays small.
const (
	maxMessage = 4 << 10
	maxStack   = 8 << 10
)

// The causes with which the context of a call ends, besides its deadline:
// context.Cause gives them.
var (
	// ErrCancelled: the run does not want the call any more. Nobody waits for
	// its result.
	ErrCancelled = errors.New("function: the call was cancelled by its run")
	// ErrShutdown: the server ends, and has waited as long as it may. The call
	// goes back to the queue.
	ErrShutdown = errors.New("function: the server is shutting down")
)

// controlError is an error with what its handler says about the next attempt.
type controlError struct {
	err       error
	permanent bool
	after     time.Duration
}

func (e *controlError) Error() string { return e.err.Error() }
func (e *controlError) Unwrap() error { return e.err }

func (e *controlError) add(other *controlError) {
	e.permanent = e.permanent || other.permanent
	e.after = max(e.after, other.after)
}

// Permanent marks an error that trying again cannot help: the retry policy of
// the node is not asked. It is nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &controlError{err: err, permanent: true}
}

// RetryAfter marks an error after which the next attempt should begin no
// sooner than after d. It wins over the backoff of the node, and adds no
// attempt to what its policy allows. It is nil for nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &controlError{err: err, after: max(d, 0)}
}

// wire makes the error that travels: the code of the drover.Error in the
// chain, the text of the whole chain, and the marks on it.
func wire(err error) *drover.Error {
	var marks controlError
	for {
		control, ok := err.(*controlError) //nolint:errorlint // the outermost marks say nothing else
		if !ok {
			break
		}
		marks.add(control)
		err = control.err
	}
	for rest := err; ; {
		control, ok := errors.AsType[*controlError](rest)
		if !ok {
			break
		}
		marks.add(control)
		rest = control.err
	}
	e := *drover.AsError(err, drover.CodeFailed)
	if _, alone := err.(*drover.Error); !alone { //nolint:errorlint // anything around it has more to say
		e.Message, e.Problems = err.Error(), nil
	}
	if e.Code == "" {
		e.Code = drover.CodeFailed
	}
	e.Permanent = e.Permanent || marks.permanent
	e.RetryAfter = max(e.RetryAfter, drover.Duration(marks.after))
	e.Message, e.Stack = cut(e.Message, maxMessage), cut(e.Stack, maxStack)
	return &e
}

// cut makes text of at most so many bytes, valid UTF-8.
func cut(s string, size int) string {
	if len(s) > size {
		s = s[:size-3] + "..."
	}
	return strings.ToValidUTF8(s, "")
}

func permanent(code drover.Code, format string, args ...any) *drover.Error {
	e := drover.Errorf(code, format, args...)
	e.Permanent = true
	return e
}

func invalidInput(name string, err error) *drover.Error {
	return permanent(drover.CodeInvalidInput,
		"function %s cannot read its input: %v: make the input of the node fit the type of the handler", name, err)
}

func invalidOutput(name string, err error) *drover.Error {
	return permanent(drover.CodeFailed, "function %s gave an output that is no JSON: %v", name, err)
}

func tooLarge(name string, size, limit int) *drover.Error {
	return permanent(drover.CodeTooLarge,
		"function %s gave an output of %d bytes, over the limit of %d: store it elsewhere and give a reference", name, size, limit)
}

func panicked(name string, value any, stack []byte) *drover.Error {
	e := drover.Errorf(drover.CodePanic, "function %s panicked: %v", name, value)
	e.Stack = string(stack)
	return e
}

// errGoexit is what stays when a handler ends its goroutine.
func errGoexit(name string) error {
	return fmt.Errorf("function %s ended its goroutine and gave no result: it must return", name)
}
