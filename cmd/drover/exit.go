package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/droverhq/drover"
)

// The exit statuses.
const (
	exitCompleted          = 0
	exitFailed             = 1
	exitUsage              = 2
	exitCancelled          = 3
	exitCompensated        = 4
	exitCompensationFailed = 5
)

// exitError ends the program with a status; its error, where there is one, is
// told on standard error before.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is an error of whoever typed the command.
func usageError(format string, args ...any) error {
	return &exitError{status: exitUsage, err: fmt.Errorf(format, args...)}
}

// ended gives the error that ends the program with the status of a run that is
// over: nil where it completed.
func ended(status drover.Status) error {
	if code := exitStatus(status); code != exitCompleted {
		return &exitError{status: code}
	}
	return nil
}

// exitStatus is the exit status for a run that ended with a status.
func exitStatus(status drover.Status) int {
	switch status {
	case drover.StatusCompleted:
		return exitCompleted
	case drover.StatusCancelled:
		return exitCancelled
	case drover.StatusCompensated:
		return exitCompensated
	case drover.StatusCompensationFailed:
		return exitCompensationFailed
	case drover.StatusFailed, drover.StatusRunning, drover.StatusWaiting, drover.StatusBlocked:
		return exitFailed
	}
	return exitFailed
}

// invalid are the codes of errors that are the caller's own: no retry and no
// other server would help.
var invalid = []drover.Code{
	drover.CodeInvalidID, drover.CodeInvalidRequest, drover.CodeInvalidDefinition,
	drover.CodeInvalidInput, drover.CodeUnknownVerb, drover.CodeTooLarge,
}

// report tells an error on standard error, and gives the exit status for it.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitCompleted
	}
	status, told := exitFailed, err
	for _, code := range invalid {
		if errors.Is(err, code) {
			status = exitUsage
		}
	}
	var exit *exitError
	if errors.As(err, &exit) {
		status, told = exit.status, exit.err
	}
	if told != nil {
		fmt.Fprintln(stderr, "drover: "+told.Error())
	}
	return status
}
