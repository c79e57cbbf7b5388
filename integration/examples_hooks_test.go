package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/function"
)

// shown gives the README of an example, and its commands in their order.
func shown(t *testing.T, example string) (whole string, commands []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../examples", example, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(data), "```") {
		if language, block, _ := strings.Cut(part, "\n"); i%2 == 1 && language == "" {
			for line := range strings.Lines(block) {
				commands = append(commands, strings.TrimSpace(line))
			}
		}
	}
	return string(data), commands
}

// follow does what the README of an example says, in a copy of the examples. The
// first command is the server; each other one must succeed. It gives what they
// printed.
func follow(t *testing.T, example string) (f *fleet, printed []string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../examples")); err != nil {
		t.Fatal(err)
	}
	_, commands := shown(t, example)
	address := freeAddress(t)
	url := "nats://" + address
	for i, line := range commands {
		p := command(t, dir, line, "DROVER_LISTEN="+address, "DROVER_DATA="+filepath.Join(dir, "data"),
			"DROVER_NATS="+url, "NATS_URL="+url, "DROVER_TIMEOUT="+patience.String())
		if i == 0 {
			p.line("drover is ready")
			f = connect(t, url)
			continue
		}
		status, stdout, stderr := p.wait()
		if status != 0 || strings.Contains(stdout, `"code":`) {
			t.Fatalf("%s: exit status %d, %s%s", line, status, stdout, stderr)
		}
		printed = append(printed, stdout)
		if strings.Contains(line, "start --workflow") { // a reader is not as fast as this
			run := drover.RunID(strings.Fields(stdout)[0])
			until(t, "a claim by run "+string(run), func() bool {
				hooks, err := f.ListHooks(t.Context(), drover.HookListRequest{HookFilter: drover.HookFilter{RunID: run}})
				return err == nil && len(hooks.Hooks) == 1
			})
		}
	}
	return f, printed
}

// say sends a message to a thread, in the words of the README of the example.
func say(ctx context.Context, c *client.Client, message json.RawMessage) error {
	reply, err := c.StartOrDeliver(ctx, "thread:9", message, drover.StartRequest{
		Workflow: "thread", Input: json.RawMessage(`{"thread": 9}`),
	})
	if err == nil && reply.RunID == "" {
		return errors.New("no run has the message")
	}
	return err
}

// model plays the function of the thread, and keeps the messages in the order in
// which they come.
type model struct {
	mu    sync.Mutex
	texts []string
	want  int
	all   chan []string // gets them once there are so many
}

func (m *model) answer(_ context.Context, in struct{ Text string }) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.texts = append(m.texts, in.Text); len(m.texts) == m.want {
		m.all <- slices.Clone(m.texts)
	}
	return map[string]string{"re": in.Text}, nil
}

func TestThread(t *testing.T) {
	t.Parallel()
	t.Run("its README works as it stands", func(t *testing.T) {
		whole, _ := shown(t, "thread")
		_, snippet, _ := strings.Cut(whole, "```go\n")
		snippet, _, _ = strings.Cut(snippet, "```")
		file, err := os.ReadFile("examples_hooks_test.go")
		if err != nil || snippet == "" || !strings.Contains(squeeze(string(file)), squeeze(snippet)) {
			t.Errorf("nothing here has the words of\n%s%v", snippet, err)
		}
		f, _ := follow(t, "thread")
		var said []string
		for _, o := range untilOver(t, f) {
			said = append(said, string(o.Result))
		}
		for _, text := range []string{"hello", "are you there?", "anyone?", "bye"} {
			if all := strings.Join(said, "\n"); strings.Count(all, `"`+text+`"`) != 1 {
				t.Errorf("%q is not answered once, or given back, in\n%s", text, all)
			}
		}
	})
	t.Run("hooks 18 and 19: many senders, one run at a time, each message once and in order", func(t *testing.T) {
		const senders, messages = 4, 8
		f, _ := dev(t)
		definition, err := os.ReadFile("../examples/thread/workflow.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.PutDefinition(t.Context(), drover.DefinitionRequest{Definition: text(string(definition))}); err != nil {
			t.Fatal(err)
		}
		m := &model{want: senders * messages, all: make(chan []string, 1)}
		f.serve(function.New("chat.answer", m.answer))
		sent := make(chan error, senders)
		for s := range senders {
			go func() { // sent has its end
				for n := range messages {
					message, _ := json.Marshal(map[string]string{"text": fmt.Sprintf("%d/%d", s, n)})
					if err := say(t.Context(), f.Client, message); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
		}
		for range senders {
			if err := await(t, sent, "a sender"); err != nil {
				t.Fatal(err)
			}
		}
		texts := await(t, m.all, "the last message")
		over := untilOver(t, f)
		for _, o := range over {
			if o.Status != drover.StatusCompleted || o.Unread > 0 && o.Successor == "" {
				t.Errorf("a run ended %s with %d unread, and no successor", o.Status, o.Unread)
			}
		}
		wantEachOnceInOrder(t, texts, senders, messages)
		if len(m.texts) != m.want || len(over) < m.want/2 {
			t.Errorf("%d messages came to %d runs, which read two each; %d were sent", len(m.texts), len(over), m.want)
		}
	})
}

// wantEachOnceInOrder demands every message of every sender, in its order.
func wantEachOnceInOrder(t *testing.T, texts []string, senders, messages int) {
	t.Helper()
	next := make([]int, senders)
	for _, text := range texts {
		var s, n int
		if _, err := fmt.Sscanf(text, "%d/%d", &s, &n); err != nil || s >= senders || next[s] != n {
			t.Fatalf("%q comes next in %v", text, texts)
		}
		next[s]++
	}
	for s, n := range next {
		if n != messages {
			t.Errorf("%d messages of sender %d were answered, of %d", n, s, messages)
		}
	}
}

// untilOver waits until no run of the fleet goes on, and every successor has
// been, and gives the outcomes. An outcome may name a successor that only begins.
func untilOver(t *testing.T, f *fleet) []drover.Outcome {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	over := map[drover.RunID]drover.Outcome{}
	until(t, "the end of all runs", func() bool {
		<-tick.C
		list, err := f.List(t.Context(), drover.ListRequest{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.Runs {
			if _, ok := over[r.ID]; !ok {
				over[r.ID] = f.outcome(r.ID)
			}
		}
		for _, o := range over {
			if _, ok := over[o.Successor]; o.Successor != "" && !ok {
				return false
			}
		}
		return true
	})
	return slices.Collect(maps.Values(over))
}

func TestLiveQuery(t *testing.T) {
	t.Parallel()
	_, printed := follow(t, "livequery")
	want := map[int]string{
		5: "delivered to 2 of 2 hooks", 6: `"row": 17`, 7: `"row": 17`, 8: `"accepted":1`, 9: `"row": 4`,
	}
	for i, says := range want {
		if i >= len(printed) || !strings.Contains(printed[i], says) {
			t.Errorf("command %d does not say %q: %q", i, says, printed)
		}
	}
}
