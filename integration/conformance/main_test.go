package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/droverhq/drover/internal/natstest"
)

var serve = flag.String("serve", "", "a command that serves the program of docs/conformance.md, for TestPrograms18Command")

// hostEnv has the test binary serve the program by the SDK.
const hostEnv = "CONFORMANCE_HOST"

func TestMain(m *testing.M) {
	if os.Getenv(hostEnv) != "" {
		if err := host(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	natstest.VerifyTestMain(m)
}

// TestPrograms18SDK: the SDK for Go conforms.
func TestPrograms18SDK(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	conform(t, func() *exec.Cmd {
		cmd := exec.Command(self) //nolint:noctx // the test ends it
		cmd.Env = append(os.Environ(), hostEnv+"=1")
		return cmd
	})
}

const example = "../../examples/program-node"

// TestPrograms18PlainNode: Node.js with nothing but its NATS client conforms.
func TestPrograms18PlainNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "run.js", "serve.js", "conformance.js"} {
		data, err := os.ReadFile(filepath.Join(example, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--no-update-notifier")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v: the registry must be reachable\n%s", err, out)
	}
	conform(t, func() *exec.Cmd {
		cmd := exec.Command("node", "conformance.js") //nolint:noctx // the test ends it
		cmd.Dir, cmd.Env = dir, os.Environ()
		return cmd
	})
}

// TestPrograms18Command: what the flag names conforms.
func TestPrograms18Command(t *testing.T) {
	t.Parallel()
	for line := range strings.SplitSeq(*serve, "\n") {
		if line == "" {
			continue
		}
		conform(t, func() *exec.Cmd {
			cmd := exec.Command("sh", "-c", "exec "+line) //nolint:noctx,gosec // the test ends it; it is the user's own
			cmd.Env = os.Environ()
			return cmd
		})
	}
}

// The lock file of the example must work on every machine.
func TestPrograms18LockFileNamesNoMachine(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(example, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "https://registry.npmjs.org/", "")
	if strings.Contains(text, "://") || strings.Contains(text, "file:") || !strings.Contains(text, `"integrity": "sha512-`) {
		t.Error("package-lock.json names a machine, or has no checksums")
	}
}
