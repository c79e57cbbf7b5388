package integration_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/function"
)

// readme gives the README, and its fenced blocks by language.
func readme(t *testing.T) (whole string, blocks map[string][]string) {
	t.Helper()
	data, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks = map[string][]string{}
	for i, part := range strings.Split(string(data), "```") {
		if i%2 == 1 {
			language, text, _ := strings.Cut(part, "\n")
			blocks[language] = append(blocks[language], text)
		}
	}
	return string(data), blocks
}

// lines are the commands of the README that begin like this.
func lines(blocks map[string][]string, prefix string) []string {
	var found []string
	for _, block := range blocks[""] {
		for line := range strings.Lines(block) {
			if line = strings.TrimSpace(line); line != "" && strings.HasPrefix(line, prefix) {
				found = append(found, line)
			}
		}
	}
	return found
}

// greet serves the function of the README in Go, in its words.
func greet(ctx context.Context, url string) error {
	nc, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	return function.Serve(ctx, nc, function.New("greet", func(ctx context.Context, name string) (string, error) {
		return "Hello " + name, nil
	}))
}

func TestReadme(t *testing.T) {
	t.Parallel()
	whole, blocks := readme(t)
	t.Run("its workflow is the one of the examples", func(t *testing.T) {
		file, err := os.ReadFile("../examples/greet/workflow.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if a, b := withoutComments(blocks["yaml"][0]), withoutComments(string(file)); a != b {
			t.Errorf("the README has\n%s\nand the example\n%s", a, b)
		}
	})
	t.Run("its Go is what this test runs", func(t *testing.T) {
		file, err := os.ReadFile("readme_test.go")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(squeeze(string(file)), squeeze(blocks["go"][0])) {
			t.Errorf("nothing here has the words of\n%s", blocks["go"][0])
		}
	})
	t.Run("its program is one that compiles", func(t *testing.T) {
		file, err := os.ReadFile("../flow/flowtest/example_readme_test.go")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(squeeze(string(file)), squeeze(blocks["go"][1])) {
			t.Errorf("nothing there has the words of\n%s", blocks["go"][1])
		}
	})
	t.Run("its links lead somewhere", func(t *testing.T) {
		text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(whole, "")
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", link[1])); err != nil {
				t.Errorf("%s: %v", link[0], err)
			}
		}
	})
	t.Run("its flags are known", func(t *testing.T) {
		for _, line := range lines(blocks, "drover serve") {
			_, help, _ := launch(t, "serve", "--help").wait()
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(line, -1) {
				if !strings.Contains(help, flag+" ") {
					t.Errorf("%s: there is no flag %s", line, flag)
				}
			}
		}
	})
	t.Run("its commands work as they stand", func(t *testing.T) { followReadme(t, blocks) })
}

func withoutComments(yaml string) string {
	var b strings.Builder
	for line := range strings.Lines(yaml) {
		if line = strings.TrimRight(line, " \n"); line != "" && line[0] != '#' {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }

// steps are the commands of the README in the order in which it prints them:
// how each begins, and what it says. One that says "" is for the shell, or takes
// too long to be run here.
var steps = []struct{ prefix, says string }{
	{"./droverw run ", ""},
	{"go test ./...", ""},
	{"go build -o drover ./cmd/drover", ""},
	{`export PATH="$PWD:$PATH"`, ""},
	{"drover dev", "drover is ready"},
	{"drover function greet", "serving"},
	{"nats reply", "Listening"},
	{"nats request", `"hash":`},
	{"nats request", `"stream":`},
	{"nats request", `"stream":`},
	{"drover start", "letter-2\n"},
	{"drover why", "run letter-2 is"},
	{"drover deliver", "delivered"},
	{"drover wait", `"text": "Hello Ada"`},
	{"nats request", `"stream":`},
	{"curl", "by HTTP"},
	{"drover delivery list", "DELIVERY"},
	{"drover delivery replay", "tried again"},
	{"drover serve", ""},
}

// followReadme does what the README says, in its order, in a folder with the
// examples.
func followReadme(t *testing.T, blocks map[string][]string) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../examples")); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	url, web := "nats://"+address, freeAddress(t)
	commands := lines(blocks, "")
	if len(commands) != len(steps) {
		t.Fatalf("the README has %d commands, and %d are known here:\n%s", len(commands), len(steps), strings.Join(commands, "\n"))
	}
	var subscriber *process
	for i, step := range steps {
		line := commands[i]
		if !strings.HasPrefix(line, step.prefix) {
			t.Fatalf("command %d of the README is %s, and should begin with %s", i, line, step.prefix)
		}
		if step.says == "" {
			continue
		}
		line = strings.ReplaceAll(line, "127.0.0.1:8080", web)
		if step.prefix == "curl" {
			holds(t, connect(t, url).Client, "refund-1")
		}
		p := command(t, dir, line, "DROVER_LISTEN="+address, "DROVER_DATA="+filepath.Join(dir, "data"), "DROVER_NATS="+url, "NATS_URL="+url)
		switch step.prefix {
		case "nats reply":
			subscriber = p
			p.line(step.says)
		case "drover dev":
			p.line(step.says)
			inGo(t, connect(t, url))
		case "drover function greet":
			p.line(step.says)
		case "curl":
			if status, _, stderr := p.wait(); status != 0 {
				t.Fatalf("%s: %s", line, stderr)
			}
			connect(t, url).completes("refund-1", `{"approved":true}`)
		default:
			status, stdout, stderr := p.wait()
			if status != 0 || !strings.Contains(stdout, step.says) || strings.Contains(stdout, `"code":`) {
				t.Fatalf("%s: exit status %d, %s%s", line, status, stdout, stderr)
			}
		}
	}
	var o drover.Outcome
	line := subscriber.line(`"run_id":"letter-1"`)
	if err := json.Unmarshal([]byte(line), &o); err != nil || compact(o.Result) != `{"by":"Grace","text":"Hello Ada, Hello Alan","to":"2 people"}` {
		t.Errorf("the subscriber was told %s, %v", line, err)
	}
	if status, _, stderr := subscriber.wait(); status != 0 {
		t.Errorf("the subscriber ended with %d: %s", status, stderr)
	}
}

// inGo sees one run through with the function in Go alone.
func inGo(t *testing.T, f *fleet) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- greet(ctx, f.url) }()
	f.publish("in-go", drover.VerbStart, drover.StartRequest{
		Definition: text("nodes: {a: {call: greet}}\noutput: {from: \"node:a\"}\n"), Input: json.RawMessage(`"Grace"`),
	})
	f.completes("in-go", `"Hello Grace"`)
	cancel()
	if err := await(t, done, "the end of the function"); err != nil {
		t.Error(err)
	}
}

// holds waits until a run holds a token.
func holds(t *testing.T, c *client.Client, run drover.RunID) (token string) {
	t.Helper()
	until(t, "the hook of run "+string(run), func() bool {
		list, err := c.ListHooks(t.Context(), drover.HookListRequest{HookFilter: drover.HookFilter{RunID: run}})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range list.Hooks {
			token = h.Token
		}
		return token != ""
	})
	return token
}
