package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/rawjson"
)

// The exit statuses of a command that say more than that it failed. They are
// those of sysexits.h.
const (
	exitBadInput  = 65 // the input is at fault: another attempt cannot help
	exitTemporary = 75 // something was not there yet
)

const (
	maxLog = 4 << 10         // bytes of standard error that are kept for an error
	grace  = 2 * time.Second // from SIGTERM to SIGKILL
)

// program is a function that is a command: it gets the input as JSON on
// standard input, and what it writes to standard output is the output, as JSON
// or else as text. Standard error is its log.
//
// It runs in a process group of its own, which gets SIGTERM when the call is
// cancelled or its deadline passes, and SIGKILL some seconds later.
type program struct {
	name    drover.FunctionName
	command []string // the program and its arguments
	dir     string   // working directory; "": that of drover
	herd    *herd    // where it is counted while it runs; nil: nowhere
}

// herd knows the commands that run, so that none of them outlives a process
// that is killed by a second signal.
type herd struct {
	mu     sync.Mutex
	groups map[*exec.Cmd]bool
	closed bool
}

// start starts a command, and reports false when the herd was killed.
func (h *herd) start(cmd *exec.Cmd) (bool, error) {
	if h == nil {
		return true, cmd.Start()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false, nil
	}
	err := cmd.Start()
	if err == nil {
		if h.groups == nil {
			h.groups = map[*exec.Cmd]bool{}
		}
		h.groups[cmd] = true
	}
	return true, err
}

// over forgets a command that has ended.
func (h *herd) over(cmd *exec.Cmd) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.groups, cmd)
	}
}

// kill kills all that runs, and lets nothing start any more.
func (h *herd) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for cmd := range h.groups {
		_ = signalGroup(cmd, true) // it may have ended already
	}
}

// environ is the environment of a command: that of drover, and what it may
// know of its call.
func environ(c function.Call) []string {
	env := append(os.Environ(),
		envName("function")+"="+string(c.Function),
		envName("call")+"="+c.ID.String(),
		envName("run")+"="+string(c.ID.Run),
		fmt.Sprintf("%s=%d", envName("attempt"), c.ID.Attempt))
	if !c.Deadline.IsZero() {
		env = append(env, envName("deadline")+"="+c.Deadline.UTC().Format(time.RFC3339Nano))
	}
	return env
}

// do performs one call. Its errors are what the run is told: the last line of
// the log, and the whole kept log with it.
func (p *program) do(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	out, log := &capped{max: drover.MaxValue, full: end}, &tail{max: maxLog}
	cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	cmd.Dir = p.dir
	cmd.Env = environ(function.Info(ctx))
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stdout, cmd.Stderr = out, log
	cmd.WaitDelay = grace
	ownGroup(cmd)
	cmd.Cancel = func() error { return signalGroup(cmd, false) }
	err := p.run(cmd)
	if cmd.Process != nil && (ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay)) {
		// What is left of the group still holds pipes or works for nobody.
		_ = signalGroup(cmd, true)
	}
	switch {
	case out.over:
		e := drover.Errorf(drover.CodeTooLarge, "function %s wrote more than %d bytes to its standard output: write a reference to the value instead",
			p.name, drover.MaxValue)
		e.Permanent = true
		return nil, e
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, p.failed(err, log)
	}
	return output(out.kept), nil
}

// run starts a command and waits for its end.
func (p *program) run(cmd *exec.Cmd) error {
	started, err := p.herd.start(cmd)
	if !started {
		return function.ErrShutdown
	}
	if err != nil {
		return err
	}
	defer p.herd.over(cmd)
	return cmd.Wait()
}

// failed is the error of a command that could not be started, or did not exit
// with 0.
func (p *program) failed(err error, log *tail) *drover.Error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return drover.Errorf(drover.CodeFailed, "function %s: %s cannot be run: %v", p.name, p.command[0], err)
	}
	text := strings.TrimSpace(log.String())
	message := text[strings.LastIndexByte(text, '\n')+1:]
	if message == "" {
		message = fmt.Sprintf("function %s: %s ended with %s and wrote nothing to its standard error", p.name, p.command[0], exit)
	}
	e := drover.Errorf(drover.CodeFailed, "%s", message)
	if text != message {
		e.Stack = text
	}
	switch exit.ExitCode() {
	case exitBadInput:
		e.Code, e.Permanent = drover.CodeInvalidInput, true
	case exitTemporary:
		e.Code = drover.CodeUnavailable
	}
	return e
}

// output reads what a command wrote: JSON as it is, nothing as null, and all
// else as text without its last line end.
func output(raw []byte) json.RawMessage {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 {
		return json.RawMessage("null")
	}
	if json.Valid(trimmed) {
		return trimmed
	}
	text, err := rawjson.Encode(strings.TrimSuffix(string(raw), "\n"))
	if err != nil { // a string always has a JSON form
		return json.RawMessage("null")
	}
	return text
}

// capped keeps what is written to it up to a limit, and tells when there is
// more: whoever writes without an end has to be ended.
type capped struct {
	kept []byte
	max  int
	over bool
	full func()
}

func (c *capped) Write(p []byte) (int, error) {
	keep := p[:min(len(p), c.max-len(c.kept))]
	if len(keep) < len(p) && !c.over {
		c.over = true
		c.full()
	}
	c.kept = append(c.kept, keep...)
	return len(p), nil
}

// tail keeps the last bytes that are written to it.
type tail struct {
	kept []byte
	max  int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if cut := len(t.kept) - t.max; cut > 0 {
		t.kept = append(t.kept[:0], t.kept[cut:]...)
	}
	return len(p), nil
}

// String is what was kept, without a rune that was cut in two.
func (t *tail) String() string { return strings.ToValidUTF8(string(t.kept), "") }
