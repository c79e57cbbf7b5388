package flow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// What is kept of an error, so that a journal stays small.
const (
	maxMessage = 4 << 10
	maxStack   = 8 << 10
)

// controlError is an error with what a step says about its next attempt.
type controlError struct {
	err   error
	fatal bool
	after time.Duration
}

func (e *controlError) Error() string { return e.err.Error() }
func (e *controlError) Unwrap() error { return e.err }

// Fatal marks an error of a step that trying again cannot help. It is nil for
// nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &controlError{err: err, fatal: true}
}

// RetryAfter marks an error of a step after which its next attempt should begin
// in d. It wins over the backoff of the policy, and adds no attempt to what that
// allows. It is nil for nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &controlError{err: err, after: max(d, 0)}
}

// againError has the body begin anew.
type againError struct{ input []byte }

func (e *againError) Error() string { return "the program begins anew with another input" }

// wire makes the error that a journal keeps: the code of the drover.Error in the
// chain, the text of the whole chain, and the marks on it.
func wire(err error) *drover.Error {
	e := *drover.AsError(err, drover.CodeFailed)
	if _, alone := err.(*drover.Error); !alone { //nolint:errorlint // anything around it has more to say
		e.Message, e.Problems = err.Error(), nil
	}
	for rest := err; ; {
		control, ok := errors.AsType[*controlError](rest)
		if !ok {
			break
		}
		e.Permanent = e.Permanent || control.fatal
		e.RetryAfter = max(e.RetryAfter, drover.Duration(control.after))
		rest = control.err
	}
	if e.Code == "" {
		e.Code = drover.CodeFailed
	}
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

// panicked is the error of a panic, or where value is nil of an end without one.
func panicked(what string, value any, stack []byte) *drover.Error {
	text := fmt.Sprintf("%s panicked: %v", what, value)
	if value == nil {
		text = what + " ended its goroutine (runtime.Goexit) and gave no result: it must return"
	}
	e := drover.Errorf(drover.CodePanic, "%s", text)
	e.Stack = cut(string(stack), maxStack)
	return e
}
