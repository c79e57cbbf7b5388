package integration_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/droverhq/drover/internal/natstest"
)

// process is a program that a test started. It has ended when the test ends.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string   // of standard error and output, as they come
	ended chan struct{} // it has, and all its lines are read

	mu  sync.Mutex
	log bytes.Buffer // standard error
	out bytes.Buffer
}

// kept is how many lines may come that no test has looked at.
const kept = 10_000

// launch starts the binary.
func launch(t testing.TB, args ...string) *process {
	t.Helper()
	return start(t, exec.Command(binary(), args...)) //nolint:noctx // the test ends it
}

// command starts a line of the shell, in a folder, with more environment. The
// binary, nats and jq are found.
func command(t testing.TB, dir, line string, env ...string) *process {
	t.Helper()
	cmd := exec.Command("sh", "-c", "exec "+line) //nolint:noctx // the test ends it
	cmd.Dir = dir
	path := filepath.Dir(binary()) + string(os.PathListSeparator) + os.Getenv("PATH")
	cmd.Env = append(append(os.Environ(), "PATH="+path), env...)
	return start(t, cmd)
}

func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, lines: make(chan string, kept), ended: make(chan struct{})}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { p.read(stderr, &p.log) })
	reading.Go(func() { p.read(stdout, &p.out) })
	go func() { // kill waits for it
		reading.Wait()
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(cmd.Args, " "), p.tail())
		}
	})
	return p
}

func (p *process) read(from io.Reader, into *bytes.Buffer) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		into.WriteString(line)
		p.mu.Unlock()
		select {
		case p.lines <- line:
		default: // nobody looks
		}
		if err != nil {
			return
		}
	}
}

// line waits for a line that contains a text. Those before it are lost.
func (p *process) line(text string) string {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-p.lines:
			if strings.Contains(line, text) {
				return line
			}
		case <-p.ended:
			if len(p.lines) == 0 {
				p.t.Fatalf("%s ended without the line %q:\n%s", p.cmd.Args[0], text, p.tail())
			}
		case <-timeout:
			p.t.Fatalf("no line %q came:\n%s", text, p.tail())
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("signal %v: %v", s, err)
	}
}

// kill ends the process as a power switch does, and waits for its end. It does
// nothing where the process has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

// wait waits until the process ends by itself.
func (p *process) wait() (status int, stdout, stderr string) {
	p.t.Helper()
	await(p.t, p.ended, "the end of "+strings.Join(p.cmd.Args, " "))
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.ProcessState.ExitCode(), p.out.String(), p.log.String()
}

// tail is the end of what the process told, and its output.
func (p *process) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.log.Bytes()
	return string(log[max(0, len(log)-4000):]) + p.out.String()
}

// freeAddress finds a port of the loopback that nobody uses just now.
func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
}

// await receives what must come.
func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("gave up waiting for %s", what)
		panic("unreachable")
	}
}
