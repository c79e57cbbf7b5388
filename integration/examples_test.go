package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

func TestHeadlines(t *testing.T) {
	t.Parallel()
	definition, err := os.ReadFile("../examples/agents/headlines.json")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("with the agent of the example", func(t *testing.T) {
		status, stdout, stderr := launch(t, "run", "../examples/agents/headlines.json", "--input", `{"about": "the harbour"}`, "--json").wait()
		var o drover.Outcome
		if err := json.Unmarshal([]byte(stdout), &o); err != nil || status != 0 || o.Status != drover.StatusCompleted {
			t.Fatalf("exit status %d, outcome %q, %v\n%s", status, stdout, err, stderr)
		}
		if !strings.Contains(string(o.Result), "Nothing happened, three times") {
			t.Errorf("the result is %s", o.Result)
		}
	})
	t.Run("definitions 7: drafts come in the order of the sections, whatever order they end in", func(t *testing.T) {
		f, _ := dev(t)
		turns := newTurns()
		f.serve(function.Raw("agent", turns.agent))
		f.publish("news", drover.VerbStart, drover.StartRequest{Definition: definition, Input: json.RawMessage(`{"about":"<b>"}`)})
		f.completes("news", `"all of it"`)
		got, err := f.Result(t.Context(), drover.RunRequest{RunID: "news", Node: "draft"})
		if err != nil || compact(got.Output) != `[{"of":"Weather"},{"of":"Harbour"},{"of":"Markets"}]` {
			t.Errorf("drafts %s, error %v", got.Output, err)
		}
		turns.check(t)
	})
}

// turn is what an agent is called with.
type turn struct {
	Session   string `json:"session_id"`
	Model     string `json:"model"`
	Provider  string `json:"provider"`
	System    string `json:"system_prompt"`
	Message   string `json:"message"`
	Functions struct{ Allow, Deny []string }
	Output    *struct{ Type string }
}

// turns records what an agent is called with. It ends the drafts in the
// opposite order of their sections.
type turns struct {
	mu    sync.Mutex
	seen  map[string]turn // by session
	third chan struct{}   // closed when the third draft has ended
	other chan struct{}   // closed when the second has
}

func newTurns() *turns {
	return &turns{seen: map[string]turn{}, third: make(chan struct{}), other: make(chan struct{})}
}

func (l *turns) agent(_ context.Context, input json.RawMessage) (json.RawMessage, error) {
	var in turn
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.seen[in.Session] = in
	l.mu.Unlock()
	switch in.Session {
	case "wf_news_outline@r1":
		return json.RawMessage(`{"sections":["Weather","Harbour","Markets"]}`), nil
	case "wf_news_draft#2@r1":
		defer close(l.third)
		return json.RawMessage(`{"of":"Markets"}`), nil
	case "wf_news_draft#1@r1":
		<-l.third
		defer close(l.other)
		return json.RawMessage(`{"of":"Harbour"}`), nil
	case "wf_news_draft#0@r1":
		<-l.other
		return json.RawMessage(`{"of":"Weather"}`), nil
	case "wf_news_critique@r1":
		return json.RawMessage(`{}`), nil
	case "wf_news_final@r1":
		return json.RawMessage(`"all of it"`), nil
	}
	return nil, function.Permanent(errors.New("nobody expects " + in.Session))
}

// data is the input within the message of a turn.
func (l *turns) data(session string) string {
	_, rest, _ := strings.Cut(l.seen[session].Message, "<untrusted_json>\n")
	data, _, _ := strings.Cut(rest, "\n</untrusted_json>")
	return data
}

func (l *turns) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	outline := l.seen["wf_news_outline@r1"]
	if len(l.seen) != 6 || outline.Model != "small-1" || outline.Provider != "local" || outline.System != "You plan a newsletter." ||
		!strings.HasPrefix(outline.Message, "List the sections.") || outline.Output == nil || outline.Output.Type != "json" {
		t.Errorf("%d turns, the first is %+v", len(l.seen), outline)
	}
	if got := l.data("wf_news_outline@r1"); got != `{"about":"\u003cb\u003e"}` {
		t.Errorf("the input of the outline is %s: it must not hold an angle bracket", got)
	}
	draft := l.seen["wf_news_draft#1@r1"]
	if !slices.Equal(draft.Functions.Allow, []string{"docs::*"}) || !slices.Equal(draft.Functions.Deny, []string{"workflow::*", "mail::*"}) {
		t.Errorf("the functions of a draft are %+v", draft.Functions)
	}
	if got := l.data("wf_news_draft#1@r1"); got != `"Harbour"` {
		t.Errorf("the input of the second draft is %s", got)
	}
	if got := l.data("wf_news_final@r1"); got != `{"draft":[{"of":"Weather"},{"of":"Harbour"},{"of":"Markets"}],"critique":{}}` {
		t.Errorf("the input of the last turn is %s", got)
	}
}

// broken is what is wrong with testdata/iii/broken.json: where, and what to do.
var broken = []struct{ place, says string }{
	{"model", "belongs to agent"},
	{"nodes.a.agent.input", "move it to nodes.a.input"},
	{"nodes.a.agent.fanout", "move it to nodes.a.fanout"},
	{"nodes.b.agent.model", "blank"},
	{"output", "missing"},
}

func wantBroken(t *testing.T, problems []drover.Problem) {
	t.Helper()
	if len(problems) != len(broken) {
		t.Errorf("%d problems, want %d: %v", len(problems), len(broken), problems)
	}
	for _, want := range broken {
		if !slices.ContainsFunc(problems, func(p drover.Problem) bool {
			return p.Place == want.place && strings.Contains(p.String(), want.says)
		}) {
			t.Errorf("no problem at %s says %q: %v", want.place, want.says, problems)
		}
	}
}

func TestBrokenDefinitionIsToldInOneAnswer(t *testing.T) {
	t.Parallel()
	const file = "../testdata/iii/broken.json"
	definition, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("definitions 1: by validate", func(t *testing.T) {
		status, stdout, _ := launch(t, "validate", file, "--json").wait()
		var got struct{ Problems []drover.Problem }
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || status != 2 {
			t.Errorf("exit status %d, %v", status, err)
		}
		wantBroken(t, got.Problems)
	})
	f, _ := dev(t)
	t.Run("definitions 1: by a request", func(t *testing.T) {
		m, err := f.nc.Request(names.API("start"), []byte(`{"definition":`+string(definition)+`}`), patience)
		if err != nil {
			t.Fatal(err)
		}
		var got drover.Error
		if err := json.Unmarshal(m.Data, &got); err != nil || m.Header.Get("Drover-Error") != string(drover.CodeInvalidDefinition) {
			t.Errorf("the answer is %s, %v", m.Data, err)
		}
		wantBroken(t, got.Problems)
	})
	t.Run("definitions 3: by a command there is no run, and a dead letter", func(t *testing.T) {
		f.publish("broken", drover.VerbStart, drover.StartRequest{Definition: definition})
		var letters []drover.DeadLetter
		until(t, "a dead letter", func() bool { letters = f.letters(); return len(letters) > 0 })
		if l := letters[0]; l.RunID != "broken" || l.Verb != "start" || l.Error.Code != drover.CodeInvalidDefinition {
			t.Errorf("the dead letter is %+v", l)
		}
		wantBroken(t, letters[0].Error.Problems)
		if _, err := f.Status(t.Context(), drover.RunRequest{RunID: "broken"}); !errors.Is(err, drover.CodeNotFound) {
			t.Errorf("the status of the run: %v", err)
		}
	})
}

// licences is the result of the example.
type licences struct {
	Folder     string
	Texts      int
	Words      int
	MostCommon []struct {
		Word  string
		Count int
	} `json:"most_common"`
}

// TestLicences runs what the README begins with, in a copy of the examples.
func TestLicences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../examples")); err != nil {
		t.Fatal(err)
	}
	texts := filepath.Join(dir, "licences", "texts")
	input, err := json.Marshal(map[string]string{"folder": texts})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--input", string(input)}} {
		cmd := exec.CommandContext(t.Context(), binary(), append([]string{"run", "licences/workflow.yaml"}, args...)...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		p := start(t, cmd)
		status, stdout, stderr := p.wait()
		var o drover.Outcome
		var got licences
		err := json.Unmarshal([]byte(stdout), &o)
		if err == nil {
			err = json.Unmarshal(o.Result, &got)
		}
		if err != nil || status != 0 || o.Status != drover.StatusCompleted || o.RunID == "" || o.EndedAt.IsZero() {
			t.Fatalf("exit status %d, outcome %q, %v\n%s", status, stdout, err, stderr)
		}
		checkLicences(t, &got)
	}
}

// checkLicences counts again.
func checkLicences(t *testing.T, got *licences) {
	t.Helper()
	entries, err := os.ReadDir(got.Folder)
	if err != nil {
		t.Fatal(err)
	}
	count, texts, words := map[string]int{}, 0, 0
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(got.Folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		texts++
		for _, word := range asciiWords(string(data)) {
			count[word]++
			words++
		}
	}
	if got.Texts != texts || got.Words != words || len(got.MostCommon) == 0 {
		t.Errorf("%d texts with %d words and %d common ones; counted again: %d with %d", got.Texts, got.Words, len(got.MostCommon), texts, words)
	}
	for i, w := range got.MostCommon {
		if count[w.Word] != w.Count || i > 0 && w.Count > got.MostCommon[i-1].Count {
			t.Errorf("%q is counted %d times and stands at %d; counted again: %d", w.Word, w.Count, i, count[w.Word])
		}
	}
}

func asciiWords(text string) []string {
	return strings.FieldsFunc(strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text), func(r rune) bool { return r < 'a' || r > 'z' })
}
