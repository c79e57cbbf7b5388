package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// web is a gateway, seen from outside.
type web struct {
	t   *testing.T
	url string
	*client.Client
}

// gatewayOf waits until a process has said, behind some words, where it serves HTTP.
func gatewayOf(t *testing.T, p *process, words string, c *client.Client) web {
	t.Helper()
	_, address, _ := strings.Cut(p.line(words), words)
	address, _, _ = strings.Cut(strings.TrimSpace(address), "/")
	return web{t: t, url: "http://" + address, Client: c}
}

func (w web) in(t *testing.T) web { w.t = t; return w }

// response is what HTTP answered.
type response struct {
	status  int
	body    string
	headers string // but for the date
}

// post delivers to a token.
func (w web) post(token, payload string, headers ...string) response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"/hooks/"+token, strings.NewReader(payload))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Errorf("no answer: %v", err)
		return response{}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	resp.Header.Del("Date")
	return response{status: resp.StatusCode, body: string(body), headers: fmt.Sprint(resp.Header)}
}

// starts starts a run of a definition, and gives the token that it holds.
func (w web) starts(run drover.RunID, definition string) string {
	w.t.Helper()
	if _, err := w.Start(w.t.Context(), drover.StartRequest{RunID: run, Definition: text(definition)}); err != nil {
		w.t.Fatal(err)
	}
	return holds(w.t, w.Client, run)
}

const responds = `
nodes:
  order: {wait: {hook: true, public: true, schema: {type: object}, respond: {run: true, timeout: 2m}}}
  reply: {respond: {to: order, status: 201, with: {twice: "${{ nodes.order.output.n * 2 }}"}}}
output: {with: "${{ nodes.reply.status }}"}
`

func TestHooks22Gateway(t *testing.T) {
	t.Parallel()
	f, p := dev(t, "--http", "127.0.0.1:0")
	w := gatewayOf(t, p, "hooks take POST at http://", f.Client)

	t.Run("accepted is 202", func(t *testing.T) {
		w := w.in(t)
		token := w.starts("approve", "nodes: {a: {wait: {approve: ok?}}}\noutput: {from: \"node:a\"}\n")
		if got := w.post(token, "true"); got.status != 202 || got.body != "" {
			t.Errorf("answered %+v", got)
		}
		f.completes("approve", `{"approved":true}`)
	})
	t.Run("a fixed answer", func(t *testing.T) {
		w := w.in(t)
		token := w.starts("fixed", "nodes: {a: {wait: {hook: true, public: true, respond: {status: 203, with: {hello: \"${{ run.id }}\"}}}}}\noutput: {from: \"node:a\"}\n")
		if got := w.post(token, "plain", "Content-Type", "text/plain"); got.status != 203 || got.body != `{"hello":"fixed"}` {
			t.Errorf("answered %+v", got)
		}
		f.completes("fixed", `"plain"`)
	})
	t.Run("the answers of runs", func(t *testing.T) { w.in(t).many() })
	t.Run("a payload that the schema refuses", func(t *testing.T) {
		w := w.in(t)
		token := w.starts("schema", responds)
		got := w.post(token, "[]")
		var e drover.Error
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || got.status != 422 || e.Code != drover.CodeInvalidInput {
			t.Errorf("answered %+v", got)
		}
		if got = w.post(token, `{"n":1}`); got.status != 201 {
			t.Errorf("a good one is answered %+v", got)
		}
	})
	t.Run("an id again", func(t *testing.T) {
		w := w.in(t)
		token := w.starts("again", "nodes: {a: {wait: {hook: true, public: true, count: 2}}}\noutput: {from: \"node:a\"}\n")
		for i, want := range []int{202, 202, 409} {
			if got := w.post(token, []string{"1", " 1 ", "2"}[i], "Idempotency-Key", "k"); got.status != want || got.body != "" {
				t.Errorf("delivery %d was answered %+v, want %d", i, got, want)
			}
		}
		w.post(token, "3")
		f.completes("again", `[1,3]`)
		if got := w.post(token, "1", "Idempotency-Key", "k"); got.status != 202 {
			t.Errorf("after the end: %+v", got)
		}
	})
	t.Run("what is not for the public is not there", func(t *testing.T) { w.in(t).hidden() })

	// A run that never answers.
	token := w.starts("never", `
nodes:
  order: {wait: {hook: true, public: true, respond: {run: true, timeout: 5m}}}
  later: {wait: {name: go}, depends_on: [order]}
  reply: {respond: {to: order}, depends_on: [later]}
output: {from: "node:order"}
`)
	ended := make(chan response, 1)
	go func() { ended <- w.post(token, `"read"`) }()
	until(t, "the delivery", func() bool {
		result, err := f.Result(t.Context(), drover.RunRequest{RunID: "never", Node: "order"})
		return err == nil && string(result.Output) == `"read"`
	})
	p.signal(syscall.SIGTERM)
	if got := await(t, ended, "an answer"); got.status != 202 || got.body != "" {
		t.Errorf("a caller who waited was answered %+v", got)
	}
	if status, _, stderr := p.wait(); status != 0 {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
	if log := p.tail(); strings.Contains(log, token) {
		t.Errorf("a token was logged: %s", log)
	}
}

// many has callers wait for runs at the same time.
func (w web) many() {
	const callers = 40
	var all sync.WaitGroup
	for n := range callers {
		token := w.starts(drover.RunID(fmt.Sprint("many-", n)), responds)
		all.Go(func() {
			if got := w.post(token, fmt.Sprintf(`{"n":%d}`, n)); got.status != 201 || got.body != fmt.Sprintf(`{"twice":%d}`, 2*n) {
				w.t.Errorf("caller %d was answered %+v", n, got)
			}
		})
	}
	all.Wait()
}

// hidden posts to tokens of every kind that HTTP does not reach.
func (w web) hidden() {
	unknown := w.post("h_unknown", "1")
	if unknown.status != 404 || unknown.body != "" {
		w.t.Errorf("unknown: %+v", unknown)
	}
	private := w.starts("private", "nodes: {a: {wait: {hook: true}}}\noutput: {from: \"node:a\"}\n")
	named := w.starts("named", "nodes: {a: {wait: {hook: order}}}\noutput: {from: \"node:a\"}\n")
	released := w.starts("released", "nodes: {a: {wait: {hook: true, public: true}}}\noutput: {from: \"node:a\"}\n")
	retained := w.starts("retained", "nodes: {a: {wait: {hook: true, public: true, retain: 1h}}}\noutput: {from: \"node:a\"}\n")
	for run, token := range map[drover.RunID]string{"released": released, "retained": retained} {
		if got := w.post(token, "1"); got.status != 202 {
			w.t.Errorf("%s: %+v", run, got)
		}
		w.isOver(run)
	}
	// An id that somebody used by NATS tells nothing by HTTP.
	if _, err := w.DeliverHook(w.t.Context(), drover.HookRequest{Token: named, ID: "k", Payload: json.RawMessage("1")}); err != nil {
		w.t.Fatal(err)
	}
	w.isOver("named")
	for kind, token := range map[string]string{"private": private, "named": named, "released": released, "retained": retained} {
		for _, key := range []string{"", "k"} {
			if got := w.post(token, "2", "Idempotency-Key", key); got != unknown {
				w.t.Errorf("%s: %+v, and unknown is %+v", kind, got, unknown)
			}
		}
	}
	if hook, err := w.ShowHook(w.t.Context(), private); err != nil || hook.Unread == nil || *hook.Unread != 0 {
		w.t.Errorf("the private hook is %+v, %v", hook, err)
	}
}

func (w web) isOver(run drover.RunID) {
	w.t.Helper()
	if _, err := w.Wait(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
}

// A worker with the documented rights, and the one more that docs/security.md
// tells to give one with --http.
func TestHooks22GatewayWithRights(t *testing.T) {
	text := documented(t, oneAccount)
	more := strings.Replace(text, `"services.>", "shop.>", "_INBOX.drover.>"`, `"drover.api.hook.deliver", "services.>", "shop.>", "_INBOX.drover.>"`, 1)
	if more == text {
		t.Fatal("the worker of docs/security.md has other rights")
	}
	s := guarded(t, configured(t, more))
	p := launch(t, alone.flags(s, "worker", "serve", "--partitions", "4", "--http", "127.0.0.1:0")...)
	w := gatewayOf(t, p, "hooks take deliveries by HTTP address=", alone.as(t, s, "operator").Client)
	token := w.starts("order", responds)
	if got := w.post(token, `{"n":3}`); got.status != 201 || got.body != `{"twice":6}` {
		t.Errorf("answered %+v", got)
	}
	p.signal(syscall.SIGTERM)
	if status, _, stderr := p.wait(); status != 0 {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
}
