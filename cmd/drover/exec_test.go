package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestCommandsAreFunctions(t *testing.T) {
	for _, c := range []struct {
		name, line, input, want string
		code                    drover.Code // of the error, "" for none
		permanent               bool
		message, log            string
	}{
		{name: "JSON goes in and out", line: `cat`, input: `{"a": 1}`, want: `{"a": 1}`},
		{name: "text is a string", line: `printf 'one\ntwo\n'`, want: `"one\ntwo"`},
		{name: "two JSON values are text", line: `echo 1; echo 2`, want: `"1\n2"`},
		{name: "text that HTML would escape", line: `echo '<&>'`, want: `"<&>"`},
		{name: "nothing is null", line: `true`, want: `null`},
		{name: "a number is a number", line: `echo 42`, want: `42`},
		{name: "no UTF-8 is mended", line: `printf '\377'`, want: `"\ufffd"`},
		{name: "the log is no output", line: `echo busy >&2; echo '"done"'`, want: `"done"`},
		{name: "the last line of the log is the message", line: `echo first >&2; echo 'disk is full' >&2; exit 3`, code: drover.CodeFailed, message: "disk is full", log: "first\ndisk is full"},
		{name: "a failure without a log says what it was", line: `exit 3`, code: drover.CodeFailed, message: "function f: sh ended with exit status 3 and wrote nothing to its standard error"},
		{name: "75 is temporary", line: `echo 'not yet' >&2; exit 75`, code: drover.CodeUnavailable, message: "not yet"},
		{name: "65 is for good", line: `echo 'no such page' >&2; exit 65`, code: drover.CodeInvalidInput, permanent: true, message: "no such page"},
		{name: "a signal is a failure", line: `kill -9 $$`, code: drover.CodeFailed, message: "function f: sh ended with signal: killed and wrote nothing to its standard error"},
		{name: "an input that nobody reads", line: `echo 1`, input: `"` + strings.Repeat("x", 1<<20) + `"`, want: `1`},
		{name: "an output over the limit", line: `head -c 1048577 /dev/zero | tr '\0' 1`, code: drover.CodeTooLarge, permanent: true},
		{name: "an output without an end", line: `yes`, code: drover.CodeTooLarge, permanent: true},
		{name: "an output at the limit", line: `head -c 1048576 /dev/zero | tr '\0' 1`, want: strings.Repeat("1", 1<<20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &program{name: "f", command: shell(c.line)}
			got, err := p.do(t.Context(), []byte(c.input))
			if c.code == "" {
				if err != nil || string(got) != c.want {
					t.Fatalf("gave %s, %v; want %s", shorten(string(got), 100), err, shorten(c.want, 100))
				}
				return
			}
			e := drover.AsError(err, "none")
			if e.Code != c.code || e.Permanent != c.permanent {
				t.Errorf("error %v has code %s, permanent %v; want %s, %v", err, e.Code, e.Permanent, c.code, c.permanent)
			}
			if c.message != "" && e.Message != c.message || e.Stack != c.log {
				t.Errorf("message %q, log %q; want %q, %q", e.Message, e.Stack, c.message, c.log)
			}
		})
	}
}

func TestCommandThatIsNotThere(t *testing.T) {
	p := &program{name: "f", command: []string{"/nowhere/to/be/found"}}
	if _, err := p.do(t.Context(), nil); !errors.Is(err, drover.CodeFailed) || !strings.Contains(err.Error(), "/nowhere/to/be/found") {
		t.Errorf("gave %v, which does not name the command", err)
	}
}

func TestOnlyTheEndOfTheLogIsKept(t *testing.T) {
	p := &program{name: "f", command: shell(`head -c 100000 /dev/zero | tr '\0' é >&2; echo >&2; echo 'the end' >&2; exit 1`)}
	_, err := p.do(t.Context(), nil)
	e := drover.AsError(err, "none")
	if e.Message != "the end" || len(e.Stack) > maxLog {
		t.Errorf("message %q with a log of %d bytes, want %q and at most %d", e.Message, len(e.Stack), "the end", maxLog)
	}
}

func TestCommandsRunInTheFolderOfTheirFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, functionsFile)
	if err := os.WriteFile(file, []byte("f: pwd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := programs{}
	if err := all.load(file); err != nil {
		t.Fatal(err)
	}
	got, err := all["f"].do(t.Context(), nil)
	if err != nil || string(got) != strconv.Quote(dir) {
		t.Errorf("pwd gave %s, %v; want %q", got, err, dir)
	}
}

// endless writes its process id and that of a child, both of which do as the
// script says on SIGTERM, to a pipe, and waits for ever.
func endless(t *testing.T, script string) (*program, func() []int) {
	t.Helper()
	pipe := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &program{name: "f", command: shell(script + ` sleep 1000 & echo "$$ $!" >` + pipe + `; while :; do wait; done`)}
	return p, func() []int {
		f, err := os.Open(pipe) // waits for the command
		if err != nil {
			t.Error(err)
			return nil
		}
		defer f.Close()
		line, err := bufio.NewReader(f).ReadString('\n')
		if err != nil {
			t.Error(err)
			return nil
		}
		var pids []int
		for word := range strings.FieldsSeq(line) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Error(err)
				return nil
			}
			pids = append(pids, pid)
		}
		return pids
	}
}

// gone waits until none of the processes is there, or is dead and only waits
// to be collected by a parent that is not ours.
func gone(t *testing.T, pids []int) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for _, pid := range pids {
		for alive(pid) {
			runtime.Gosched()
			if time.Now().After(end) {
				t.Fatalf("process %d is still there", pid)
			}
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestCancelledCommandsEndWithAllThatTheyStarted(t *testing.T) {
	for name, script := range map[string]string{
		"one that heeds SIGTERM":   ``,
		"one that ignores SIGTERM": `trap '' TERM;`,
	} {
		t.Run(name, func(t *testing.T) {
			p, started := endless(t, script)
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("nobody wants it any more")
			ended := make(chan error, 1)
			go func() {
				_, err := p.do(ctx, nil)
				ended <- err
			}()
			pids := started()
			cancel(cause)
			if err := <-ended; !errors.Is(err, cause) {
				t.Errorf("ended with %v, want the cause of the cancel", err)
			}
			gone(t, pids)
		})
	}
}

func TestCancelledCommandsMayTidyUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tidied")
	p, started := endless(t, "trap 'echo tidied >"+file+"; exit' TERM;")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = p.do(ctx, nil)
	}()
	pids := started()
	cancel()
	<-ended
	gone(t, pids)
	if text, err := os.ReadFile(file); err != nil || string(text) != "tidied\n" {
		t.Errorf("a command that heeds SIGTERM wrote %q (%v) at its end", text, err)
	}
}

func TestHerdKillsWhatRunsAndStartsNothingMore(t *testing.T) {
	p, started := endless(t, `trap '' TERM;`)
	p.herd = &herd{}
	ended := make(chan error, 1)
	go func() {
		_, err := p.do(t.Context(), nil)
		ended <- err
	}()
	pids := started()
	p.herd.kill()
	if err := <-ended; !errors.Is(err, drover.CodeFailed) {
		t.Errorf("the killed command ended with %v", err)
	}
	gone(t, pids)
	if _, err := p.do(t.Context(), nil); err == nil {
		t.Error("a command was started in a herd that had been killed")
	}
}
