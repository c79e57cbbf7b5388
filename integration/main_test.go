package integration_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

var seed = flag.Uint64("seed", 0, "of the choices of a crash test; 0: a new one each time")

var kills = flag.Int("kills", 0, "how often a crash test kills; 0: 120 times, with -short 20 at most")

var parkedRuns = flag.Int("parked", 500, "how many programs wait at a time, where that is tried")

// patience is for how long something that must come may be waited for.
const patience = 90 * time.Second

// playsEnv has the test binary play another program.
const playsEnv = "DROVER_TEST_PLAYS"

// binaryEnv names the binary under test, to the tests.
const binaryEnv = "DROVER_TEST_BINARY"

func TestMain(m *testing.M) {
	if program := os.Getenv(playsEnv); program != "" {
		os.Exit(play(program, os.Args[1:]))
	}
	dir, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	natstest.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(dir)
		os.Exit(status)
	}))
}

// build makes the binary that all tests start, and the programs that commands
// of the README need and a machine may lack.
func build() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "drover-integration-"); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "drover")
	out, err := exec.Command("go", "build", "-o", binary, "../cmd/drover").CombinedOutput() //nolint:noctx // before any test
	if err != nil {
		return "", fmt.Errorf("the binary cannot be built: %w\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, name := range []string{"nats", "jq", "curl"} {
		script := fmt.Sprintf("#!/bin/sh\n%s=%s exec '%s' \"$@\"\n", playsEnv, name, self)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			return "", err
		}
	}
	return dir, os.Setenv(binaryEnv, binary)
}

func binary() string { return os.Getenv(binaryEnv) }

// play is a server, or as much of the commands nats, jq and curl as the README uses.
func play(program string, args []string) int {
	err := fmt.Errorf("%s %s is not played here", program, strings.Join(args, " "))
	switch {
	case program == "nats-server":
		err = playServer(args)
	case program == "nats" && len(args) == 4 && args[0] == "request" && args[1] == "--no-templates":
		err = natsRequest(args[2], args[3])
	case program == "nats" && len(args) == 3 && args[0] == "request" && !strings.Contains(args[2], "{{"): // else it would be a template
		err = natsRequest(args[1], args[2])
	case program == "nats" && len(args) == 5 && args[0] == "reply" && args[3] == "--count" && args[4] == "1":
		err = natsReply(args[1], args[2])
	case program == "jq" && len(args) == 2 && args[0] == "-Rs" && args[1] == ".":
		err = jq(func(text string) any { return text })
	case program == "jq" && len(args) == 1 && args[0] == `"Hello \(.)"`:
		err = jq(func(text string) any {
			var name string
			_ = json.Unmarshal([]byte(text), &name)
			return "Hello " + name
		})
	case program == "jq" && len(args) == 2 && args[0] == "-r" && args[1] == ".hooks[].token":
		err = printTokens()
	case program == "curl" && len(args) == 3 && args[0] == "--json":
		err = post(args[2], args[1])
	case program == "programs" && len(args) == 4:
		err = hostPrograms(args)
	case program == "worker" && len(args) == 1:
		err = weighedWorker(args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func jq(do func(string) any) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(do(string(text)))
}

func printTokens() error {
	var list drover.HookList
	err := json.NewDecoder(os.Stdin).Decode(&list)
	for _, h := range list.Hooks {
		fmt.Println(h.Token)
	}
	return err
}

// post delivers JSON by HTTP, and prints what it is answered.
func post(url, body string) error {
	resp, err := http.Post(url, "application/json", strings.NewReader(body)) //nolint:noctx // it is a program of its own
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return errors.New(resp.Status)
	}
	return nil
}

func natsRequest(subject, payload string) error {
	nc, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer nc.Close()
	m, err := nc.Request(subject, []byte(payload), 10*time.Second)
	if err != nil {
		return err
	}
	fmt.Println(string(m.Data))
	return nil
}

// natsReply answers one request.
func natsReply(subject, payload string) error {
	nc, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	fmt.Printf("Listening on %s\n", subject)
	m, err := sub.NextMsg(time.Hour)
	if err != nil {
		return err
	}
	fmt.Println(string(m.Data))
	if err := m.Respond([]byte(payload)); err != nil {
		return err
	}
	return nc.Flush()
}
