package drover

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Code says what kind of error it is. Codes are part of the protocol: they
// never change their meaning, and travel as they are spelled here.
type Code string

// The codes. Each is what errors.Is compares: errors.Is(err, CodeNotFound).
const (
	// CodeInvalidID: an id breaks the grammar of its kind.
	CodeInvalidID Code = "invalid_id"
	// CodeInvalidRequest: a payload cannot be read, or lacks what it must have.
	CodeInvalidRequest Code = "invalid_request"
	// CodeInvalidDefinition: a definition has problems; Error.Problems lists them.
	CodeInvalidDefinition Code = "invalid_definition"
	// CodeInvalidInput: an input does not fit the input_schema of its definition.
	CodeInvalidInput Code = "invalid_input"
	// CodeUnknownVerb: no command or request has this name.
	CodeUnknownVerb Code = "unknown_verb"
	// CodeNotFound: no such run, definition, node or wait.
	CodeNotFound Code = "not_found"
	// CodeConflict: the same id or key was used with something different.
	CodeConflict Code = "conflict"
	// CodeTerminal: the run is over, and takes no more commands.
	CodeTerminal Code = "terminal"
	// CodeForbidden: a token is missing or wrong.
	CodeForbidden Code = "forbidden"
	// CodeFull: an inbox or a queue has no room; nothing was stored.
	CodeFull Code = "full"
	// CodeReleased: the hook that a node waits on was released.
	CodeReleased Code = "released"
	// CodeUnread: a hook still has deliveries that nothing has read.
	CodeUnread Code = "unread"
	// CodeFenced: another process drives the program now.
	CodeFenced Code = "fenced"
	// CodeStale: the journal of a program has moved on.
	CodeStale Code = "stale"
	// CodeTooLarge: a value, a definition or a fan-out is over its limit.
	CodeTooLarge Code = "too_large"
	// CodeUnavailable: the server or the fleet could not answer; try again.
	CodeUnavailable Code = "unavailable"

	// CodeFailed: a function answered with an error that has no code.
	CodeFailed Code = "failed"
	// CodePanic: a function panicked; Error.Stack has its stack.
	CodePanic Code = "panic"
	// CodeTimeout: an attempt, a wait or a run took longer than it may.
	CodeTimeout Code = "timeout"
	// CodeLost: a call was silent for longer than its heartbeat.
	CodeLost Code = "lost"
	// CodeContract: an output does not fit the contract of its node.
	CodeContract Code = "contract"
	// CodeExpression: an expression or a template could not be evaluated.
	CodeExpression Code = "expression"
	// CodeUnexpandable: a fan-out cannot be made of what it reads.
	CodeUnexpandable Code = "unexpandable"
	// CodeNodesFailed: a run failed because of its nodes; the message names them.
	CodeNodesFailed Code = "nodes_failed"
	// CodeStopped: a run or a node was stopped on request.
	CodeStopped Code = "stopped"
	// CodeChild: a child run did not complete.
	CodeChild Code = "child"
	// CodeInternal: Drover itself is at fault.
	CodeInternal Code = "internal"
)

// Error makes a Code an error, so that it can be the target of errors.Is.
func (c Code) Error() string { return string(c) }

// Error is an error that survives the wire: a stable code, and a sentence that
// names the thing, the value and the fix.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Problems are the single problems of a definition or a request.
	Problems []Problem `json:"problems,omitempty"`
	// Permanent: trying again cannot help.
	Permanent bool `json:"permanent,omitempty"`
	// RetryAfter asks for the next attempt no sooner than this; it wins over
	// the retry policy of the node.
	RetryAfter Duration `json:"retry_after,omitempty"`
	// Run is the run that it is about where that is another than the one that
	// was meant: the owner of a token that is taken, the successor of one that
	// has ended.
	Run RunID `json:"run_id,omitempty"`
	// Stack is the stack of a function that panicked, or the end of the log of
	// a command.
	Stack string `json:"stack,omitempty"`
}

// Error gives the sentence, and a line for each problem.
func (e *Error) Error() string {
	s := e.Message
	if s == "" {
		s = string(e.Code)
	}
	for _, p := range e.Problems {
		s += "\n  " + p.String()
	}
	return s
}

// Is reports whether target is the code of e.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf gives the code of an error: that of the Error in its chain, or the Code
// that is there by itself; else other.
func CodeOf(err error, other Code) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if code, ok := errors.AsType[Code](err); ok {
		return code
	}
	return other
}

// AsError gives the Error in err's chain, or wraps err as one with the code
// other. It is nil for nil.
func AsError(err error, other Code) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: other, Message: err.Error()}
}

// maxOddError is how much of a body that is no Error is shown, in bytes.
const maxOddError = 1 << 10

// ErrorOf reads the error of an answer. code is its header Drover-Error, which
// alone decides: without one the answer is no error, and ErrorOf gives nil; with
// one it is an error of that code, whatever its body says. A body that is no JSON
// of an Error becomes the message, of which 1 KiB is kept.
func ErrorOf(code string, body []byte) *Error {
	if code == "" {
		return nil
	}
	e := &Error{}
	if err := json.Unmarshal(body, e); err != nil || e.Code == "" && e.Message == "" {
		e = &Error{Message: strings.ToValidUTF8(string(body[:min(len(body), maxOddError)]), "")}
	}
	e.Code = Code(code)
	return e
}

// Problem is one thing that is wrong with a definition or a request.
type Problem struct {
	Place   string `json:"place"`          // path from the top: "nodes.plan.retry.factor"
	Line    int    `json:"line,omitempty"` // line in the source, from 1; 0 where unknown
	Message string `json:"message"`        // what is wrong, with the value
	Fix     string `json:"fix,omitempty"`  // what to do about it
}

// String is the problem as one line.
func (p Problem) String() string {
	s := p.Place
	if s == "" {
		s = "(top)"
	}
	if p.Line > 0 {
		s += fmt.Sprintf(" (line %d)", p.Line)
	}
	s += ": " + p.Message
	if p.Fix != "" {
		s += "; " + p.Fix
	}
	return s
}
