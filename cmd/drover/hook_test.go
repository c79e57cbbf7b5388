package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

func TestHookCommandsAskTheFleet(t *testing.T) {
	since := time.Now().Add(-90 * time.Second)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	unread := 3
	odd := "order:1 *\x1b[2J>"
	for _, c := range []asking{
		{
			name: "list", args: []string{"hook", "list", "--tag", "query=users", "--token-prefix", "order:", "--run", "r_1", "--limit", "3"}, verb: "hook.list",
			reply: drover.HookList{Hooks: []drover.Hook{
				{Token: odd, RunID: "r_1", Node: "paid", Since: since, Public: true},
				{Token: "t", RunID: "r_2", Since: since, Retained: &at},
				{Token: "u", RunID: "r_3", Since: since, Starting: true},
			}, More: true},
			asked: `{"tags":{"query":"users"},"prefix":"order:","run_id":"r_1","limit":3}`,
			out: []string{
				"TOKEN           RUN  NODE  HELD FOR  STATE\n", "order:1 *?[2J>  r_1  paid  1m30s     held, public\n",
				"t               r_2        1m30s     retained\n", "starting\n", "there are more",
			},
		},
		{
			name: "show", args: []string{"hook", "show", odd}, verb: "hook.show", asked: `{"token":"order:1 *\u001b[2J>"}`,
			reply: drover.Hook{
				Token: odd, RunID: "r_1", Node: "paid", Since: at, Until: &at, Unread: &unread,
				Tags: map[string]string{"b": "2", "a": "1"}, Metadata: json.RawMessage(`{"for":"kim"}`),
			},
			out: []string{
				"token     order:1 *?[2J>\nrun       r_1\nnode      paid\nstate     held\nsince     2026-01-02T03:04:05Z\nuntil     2026-01-02T03:04:05Z\nunread    3\n",
				"tag       a=1\ntag       b=2\nmetadata  {\"for\":\"kim\"}\n",
			},
		},
		{
			name: "show as JSON", args: []string{"hook", "show", "t", "--json"}, verb: "hook.show", asked: `{"token":"t"}`,
			reply: drover.Hook{Token: "t", RunID: "r_1", Since: at}, out: []string{`{"token":"t","run_id":"r_1","since":"2026-01-02T03:04:05Z"}` + "\n"},
		},
		{
			name: "deliver", args: []string{"hook", "deliver", "--id", "mail-17", "--", "-t", "-"}, stdin: `[1]`, verb: "hook.deliver",
			reply: drover.HookReply{RunID: "r_1"}, asked: `{"token":"-t","payload":[1],"id":"mail-17"}`, out: []string{"delivered to r_1\n"},
		},
		{
			name: "deliver again", args: []string{"hook", "deliver", "t", "--id", "x", "--async"}, verb: "hook.deliver",
			reply: drover.HookReply{RunID: "r_1", Async: true}, asked: `{"token":"t","id":"x","async":true}`, out: []string{"on its way to r_1\n"},
		},
		{
			name: "start or deliver", args: []string{"hook", "deliver", "t", "1", "--id", "x", "--workflow", "w", "--input", "2", "--tag", "k=v"}, verb: "hook.deliver",
			reply: drover.HookReply{RunID: "r_1", Started: true}, asked: `{"token":"t","payload":1,"id":"x","start":{"workflow":"w","input":2,"tags":{"k":"v"}}}`,
			out: []string{"started r_1, and delivered to it\n"},
		},
		{
			name: "nobody holds it", args: []string{"hook", "deliver", "t", "--id", "x"}, verb: "hook.deliver", asked: `{"token":"t","id":"x"}`,
			reply: drover.Errorf(drover.CodeNotFound, "nobody holds the token \"t\""), status: exitFailed, err: "nobody holds the token",
		},
		{
			name: "a payload that does not fit", args: []string{"hook", "deliver", "t", "--id", "x"}, verb: "hook.deliver", asked: `{"token":"t","id":"x"}`,
			reply: drover.Errorf(drover.CodeInvalidInput, "paid is missing"), status: exitUsage, err: "paid is missing",
		},
		{
			name: "release", args: []string{"hook", "release", "t", "--force"}, verb: "hook.release", asked: `{"token":"t","force":true}`,
			reply: drover.Hook{Token: "t", RunID: "r_1"}, out: []string{"t is free, run r_1 had it\n"},
		},
	} {
		t.Run(c.name, c.run)
	}
}

func TestHookUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"hook", "delver"}, `no command "delver"; did you mean deliver?`},
		{[]string{"hook", "deliver"}, "usage: drover hook deliver TOKEN"},
		{[]string{"hook", "deliver", "t", "{"}, "the payload is no JSON: {"},
		{[]string{"hook", "deliver", "t", "--input", "1"}, "give --start, --workflow or --hash as well"},
		{[]string{"hook", "deliver", "t", "--workflow", "w", "--hash", "h"}, "at most one of --start, --workflow and --hash, not 2"},
		{[]string{"hook", "deliver", "t", "--workflow", "w", "--tag", "x"}, `--tag "x" is not key=value`},
		{[]string{"hook", "deliver-many", "--tag", "x"}, `--tag "x" is not key=value`},
		{[]string{"hook", "list", "--tag", "x"}, `--tag "x" is not key=value`},
	} {
		if status, out, err := cli(t, "", c.args...); status != exitUsage || !strings.Contains(err, c.says) || out != "" {
			t.Errorf("%q: exit status %d, %q, and on standard error %q", c.args, status, out, err)
		}
	}
}

// Deliveries to many hooks are told one by one, as they come.
func TestHooks20DeliverManyTellsEachHook(t *testing.T) {
	f := newFleet(t)
	asked := make(chan string, 10)
	_, err := f.nc.Subscribe(subjects.Default().API("hook.deliver.many"), func(m *nats.Msg) {
		asked <- string(m.Data)
		for _, part := range []any{
			drover.HookResult{Token: "a", RunID: "r_1"},
			drover.HookResult{Token: "b\n", RunID: "r_2", Error: drover.Errorf(drover.CodeNotFound, "nobody holds b")},
			drover.HookManyReply{Matched: 2, Accepted: 1, Failed: 1},
		} {
			reply := nats.NewMsg(m.Reply)
			reply.Data, _ = json.Marshal(part)
			if _, result := part.(drover.HookResult); result {
				reply.Header.Set(subjects.HeaderMore, "1")
			}
			_ = f.nc.PublishMsg(reply)
		}
	})
	if err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	status, out, stderr := f.cli("", "hook", "deliver-many", `{"n":1}`, "--tag", "query=users", "--id", "x")
	if want := "b?: nobody holds b\ndelivered to 1 of 2 hooks\n"; status != exitFailed || out != want || stderr != "" {
		t.Errorf("exit status %d, %q, %q; want %q", status, out, stderr, want)
	}
	if got, want := <-asked, `{"tags":{"query":"users"},"payload":{"n":1},"id":"x","stream":true}`; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	status, out, _ = f.cli("", "hook", "deliver-many", "--token-prefix", "a", "--id", "x", "--json")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); status != exitFailed || len(lines) != 2 || lines[0] != `{"token":"a","run_id":"r_1"}` {
		t.Errorf("exit status %d, %q", status, out)
	}
}

// The commands on a fleet with a real worker.
func TestHookCommandsOnAFleet(t *testing.T) {
	l, err := startLocal(t.Context(), localOptions{data: t.TempDir(), listen: "127.0.0.1:0", log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(envName("nats"), l.server.ClientURL())
	file := write(t, t.TempDir(), "thread.yaml", `
nodes:
  first: {wait: {hook: "thread:${{ input }}", hold: true, tags: {kind: thread}}}
  last: {wait: {from: first}, depends_on: [first]}
output: {with: ["${{ nodes.first.output }}", "${{ nodes.last.output }}"]}
`)
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"hook", "deliver", "thread:9", "1"}, exitFailed, `nobody holds the token "thread:9"`},
		{[]string{"hook", "deliver", "thread:9", "1", "--id", "a", "--start", file, "--input", "9", "--run", "r_9"}, 0, "started r_9, and delivered to it\n"},
		{[]string{"hook", "deliver", "thread:9", "1", "--id", "a"}, 0, "delivered before to r_9, nothing changed\n"},
		{[]string{"hook", "list", "--tag", "kind=thread"}, 0, "\nthread:9  r_9  first "},
		{[]string{"hook", "show", "thread:9"}, 0, "unread    0\n"},
		{[]string{"why", "r_9"}, 0, "    drover hook deliver thread:9 "},
		{[]string{"hook", "release", "thread:9"}, exitFailed, "run r_9 holds the token"},
		{[]string{"hook", "deliver-many", "2", "--token-prefix", "thread:"}, 0, "delivered to 1 of 1 hook\n"},
		{[]string{"wait", "r_9"}, 0, "1,\n    2\n"},
		{[]string{"hook", "show", "thread:9"}, exitFailed, "nobody holds the token"},
	} {
		says := func() (int, string) {
			status, out, stderr := cli(t, "", c.args...)
			return status, out + stderr
		}
		status, text := says()
		// What follows from a command that was accepted takes a moment.
		for deadline := time.Now().Add(time.Minute); !strings.Contains(text, c.says) && time.Now().Before(deadline); {
			status, text = says()
		}
		if status != c.status || !strings.Contains(text, c.says) {
			t.Fatalf("%q: exit status %d, %q; want %d and %q", c.args, status, text, c.status, c.says)
		}
	}
}
