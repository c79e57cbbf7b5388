package integration_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/droverhq/drover/internal/natstest"
)

const plainNATS = "../examples/plain-nats"

// TestPlainNATS: Node.js with nothing but its NATS client starts a run, serves
// a function, delivers to a wait, takes the outcome and reads.
func TestPlainNATS(t *testing.T) {
	t.Parallel()
	s := natstest.New(t, natstest.Listen())
	launch(t, "serve", "--nats", s.URL(), "--lease", "1s", "--partitions", "8")
	if _, err := connect(t, s.URL()).Fleet(t.Context()); err != nil { // answered once a worker is there
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "function.js", "main.js"} {
		data, err := os.ReadFile(filepath.Join(plainNATS, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if status, stdout, stderr := command(t, dir, "npm ci --no-audit --no-fund --no-update-notifier").wait(); status != 0 {
		t.Fatalf("npm ci exits with %d: the registry must be reachable\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr := command(t, dir, "node main.js", "NATS_URL="+s.URL()).wait()
	if status != 0 || stderr != "" {
		t.Fatalf("exit status %d\n%s%s", status, stdout, stderr)
	}
	steps := plainSteps(t, stdout)
	run, _ := steps["started"]["run"].(string)
	for step, want := range map[string]string{
		"schema":  `{"start":["definition","hash","hold","idempotency_key","input","notify","reply_to","run_id","tags","workflow"]}`,
		"refused": `{"code":"invalid_definition","problems":["nodes.a.cal","nodes.b.timeout","output"]}`,
		"started": `{"durable":true,"run":"` + run + `"}`,
		"waiting": `{"items":{"done":2}}`,
		"why":     `{"reasons":["delivery approve"]}`,
		"dead":    `{"code":"unknown_verb","verb":"dance"}`,
		"forged":  `{"code":"forbidden"}`,
		"outcome": `{"delivery":"` + run + `:terminal:0","result":{"by":"Grace","total":8},"status":"completed"}`,
		"result":  `{"output":5}`,
		"list":    `{"runs":[[true,"completed"]]}`,
	} {
		got, err := json.Marshal(steps[step])
		if err != nil || string(got) != want {
			t.Errorf("step %s printed %s, want %s", step, got, want)
		}
	}
}

// plainSteps reads what the example prints: a line of JSON for each step.
func plainSteps(t *testing.T, stdout string) map[string]map[string]any {
	t.Helper()
	steps := map[string]map[string]any{}
	for line := range strings.Lines(stdout) {
		var step map[string]any
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatalf("the line %q is no JSON: %v", line, err)
		}
		name, _ := step["step"].(string)
		delete(step, "step")
		steps[name] = step
	}
	return steps
}

// The lock file must work on every machine.
func TestPlainNATSLockFileNamesNoMachine(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(plainNATS, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"(?:resolved|link)": *"?([^",]*)|file:[^"]*|https?://[^"]*`).FindAllString(string(data), -1) {
		if !strings.Contains(m, "https://registry.npmjs.org/") {
			t.Errorf("package-lock.json has %s", m)
		}
	}
	if !strings.Contains(string(data), `"integrity": "sha512-`) {
		t.Error("package-lock.json has no checksums")
	}
}
