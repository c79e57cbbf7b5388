package integration_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
)

// The configurations are those that docs/security.md tells people to use.
const (
	oneAccount = iota
	guestAccount
)

// roles are the users of the first one.
var roles = []string{"shop", "feeder", "greet", "order", "reader", "listener", "operator", "worker"}

// documented gives a configuration of docs/security.md. Passwords are the
// names of their users.
func documented(t *testing.T, which int) string {
	t.Helper()
	doc, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```conf\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/security.md has %d configurations, want 2", len(blocks))
	}
	for _, role := range roles {
		t.Setenv(strings.ToUpper(role)+"_PASSWORD", role)
	}
	return blocks[which][1]
}

// configured gives the options that a configuration file sets.
func configured(t *testing.T, text string) *server.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return o
}

// guarded starts a server with the users of some options, and one called root
// that may do everything.
func guarded(t *testing.T, from *server.Options) *natstest.Server {
	t.Helper()
	return natstest.New(t, natstest.Listen(), natstest.With(func(o *server.Options) {
		o.Users, o.Accounts = from.Users, from.Accounts
		if len(o.Accounts) == 0 {
			o.Users = append(o.Users, &server.User{Username: "root", Password: "root"})
		}
	}))
}

// alone is the only fleet of its server.
var alone = tenant{}

// person is a user that is connected.
type person struct {
	*client.Client
	t       *testing.T
	nc      *nats.Conn
	refused chan error // what the server did not allow
}

// tenant is a fleet among others. The zero value is the only one there is.
type tenant struct {
	name   string // what its users begin with
	prefix string // of its subjects; "": drover
}

func (x tenant) user(role string) string {
	if x.name == "" {
		return role
	}
	return x.name + "_" + role
}

func (x tenant) inbox(role string) string {
	return "_INBOX." + cmp.Or(x.prefix, "drover") + "." + role
}

// flags connect a command as a user.
func (x tenant) flags(s *natstest.Server, role string, args ...string) []string {
	if x.prefix != "" {
		args = append(args, "--prefix", x.prefix)
	}
	return append(args, "--nats", s.URL(), "--user", x.user(role), "--password", role, "--inbox-prefix", x.inbox(role))
}

// staff starts a worker and the function greet as processes.
func (x tenant) staff(t *testing.T, s *natstest.Server) (worker, greet *process) {
	t.Helper()
	worker = launch(t, x.flags(s, "worker", "serve", "--partitions", "4")...)
	args := x.flags(s, "greet", "function", "greet")
	return worker, launch(t, append(args, "--", "sh", "-c", `read -r name; echo "Hello $name"`)...)
}

// as connects a user with the inbox of his role.
func (x tenant) as(t *testing.T, s *natstest.Server, role string) *person {
	t.Helper()
	p := &person{t: t, refused: make(chan error, 100)}
	p.nc = s.Connect(nats.UserInfo(x.user(role), role), nats.CustomInboxPrefix(x.inbox(role)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.refused <- err }))
	var err error
	if p.Client, err = client.New(p.nc, client.Options{Prefix: x.prefix, Patience: patience}); err != nil {
		t.Fatal(err)
	}
	return p
}

// cannot does something that the server must refuse.
func (p *person) cannot(verb, subject string, do func() error) {
	p.t.Helper()
	err := do()
	if err == nil {
		err = p.nc.Flush()
	}
	if err != nil {
		p.t.Errorf("%s %q: %v", verb, subject, err)
		return
	}
	err = await(p.t, p.refused, "the refusal of a "+verb+" "+subject)
	if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), strconv.Quote(subject)) {
		p.t.Errorf("%s %q was refused with %v", verb, subject, err)
	}
}

func (p *person) cannotPublish(all ...string) {
	p.t.Helper()
	for _, subject := range all {
		p.cannot("publish", subject, func() error { return p.nc.Publish(subject, []byte("{}")) })
	}
}

func (p *person) cannotSubscribe(all ...string) {
	p.t.Helper()
	for _, subject := range all {
		p.cannot("subscribe", subject, func() error { _, err := p.nc.SubscribeSync(subject); return err })
	}
}

// hears subscribes, and gives the messages. Deliveries get their receipt; other
// messages with a reply subject wait for the server.
func (p *person) hears(subject string) <-chan *nats.Msg {
	p.t.Helper()
	got := make(chan *nats.Msg, 100)
	_, err := p.nc.Subscribe(subject, func(m *nats.Msg) {
		if subject == "shop.done" {
			_ = m.Respond([]byte("ok"))
		}
		got <- m
	})
	if err == nil {
		err = p.nc.Flush()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// outcome reads an outcome.
func outcome(t *testing.T, m *nats.Msg) drover.Outcome {
	t.Helper()
	var o drover.Outcome
	if err := json.Unmarshal(m.Data, &o); err != nil {
		t.Fatalf("%q is no outcome: %v", m.Data, err)
	}
	return o
}

// letter greets, waits for approval, and asks a service.
const letter = `
name: letter
nodes:
  greet: {call: greet}
  approved: {wait: {name: approve}, depends_on: [greet]}
  stamped: {request: services.stamp, depends_on: [approved]}
output: {with: "${{ nodes.greet.output + nodes.stamped.output }}"}
`

// quiet fails where the server refused something to a process.
func quiet(t *testing.T, all ...*process) {
	t.Helper()
	for _, p := range all {
		p.kill()
		if text := p.tail(); strings.Contains(strings.ToLower(text), "permissions violation") {
			t.Errorf("something was refused to %v:\n%s", p.cmd.Args, text)
		}
	}
}

func TestRolesCanDoTheirWork(t *testing.T) {
	s := guarded(t, configured(t, documented(t, oneAccount)))
	worker, greet := alone.staff(t, s)
	root, shop, feeder := alone.as(t, s, "root"), alone.as(t, s, "shop"), alone.as(t, s, "feeder")
	operator, listener := alone.as(t, s, "operator"), alone.as(t, s, "listener")
	if _, err := root.nc.Subscribe("services.stamp", func(m *nats.Msg) { _ = m.Respond([]byte(`"stamped"`)) }); err != nil {
		t.Fatal(err)
	}
	receipts, told := shop.hears("shop.done"), listener.hears("drover.done.letter.*")
	if _, err := operator.PutDefinition(t.Context(), drover.DefinitionRequest{Name: "letter", Definition: raw(letter)}); err != nil {
		t.Fatal(err)
	}

	// By requests.
	_, err := shop.Start(t.Context(), drover.StartRequest{
		RunID: "asked", Workflow: "letter", Input: json.RawMessage(`"Ada"`), Notify: []drover.Notify{{Subject: "shop.done"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Deliver(t.Context(), drover.DeliverRequest{RunID: "asked", Name: "approve"}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*nats.Msg{await(t, receipts, "the notification"), await(t, told, "the outcome")} {
		if o := outcome(t, m); o.RunID != "asked" || string(o.Result) != `"Hello \"Ada\"stamped"` {
			t.Errorf("the outcome is %s", m.Data)
		}
	}

	// To hooks, which workers claim, scan and free.
	thread := drover.StartRequest{RunID: "thread", Definition: raw(`nodes: {a: {wait: {hook: "thread:1", count: 2}}}` + "\noutput: {from: node:a}")}
	if reply, err := shop.StartOrDeliver(t.Context(), "thread:1", json.RawMessage("1"), thread); err != nil || !reply.Started {
		t.Fatalf("the answer is %+v, %v", reply, err)
	}
	for r, err := range shop.DeliverHooks(t.Context(), drover.HookManyRequest{HookFilter: drover.HookFilter{Prefix: "thread:"}, Payload: json.RawMessage("2")}) {
		if err != nil || r.Error != nil {
			t.Errorf("the result is %+v, %v", r, err)
		}
	}
	if o, err := operator.Wait(t.Context(), "thread"); err != nil || string(o.Result) != "[1,2]" {
		t.Errorf("the outcome is %+v, %v", o, err)
	}

	// By durable publishes, with the answer of the fold.
	answers := feeder.hears("_INBOX.drover.feeder.answers")
	for _, m := range []*nats.Msg{
		{Subject: "drover.in.fed.start", Data: []byte(`{"workflow":"letter","input":"Alan"}`)},
		{Subject: "drover.in.fed.deliver", Data: []byte(`{"name":"approve"}`)},
	} {
		m.Header = nats.Header{"Drover-Reply": {"_INBOX.drover.feeder.answers"}}
		if ack, err := feeder.nc.RequestMsg(m, patience); err != nil || !strings.Contains(string(ack.Data), `"stream":"DROVER"`) {
			t.Fatalf("the acknowledgement is %v, %v", ack, err)
		}
		if a := await(t, answers, "the answer of the fold"); !strings.Contains(string(a.Data), `"fed"`) {
			t.Errorf("the answer is %s", a.Data)
		}
	}
	if o := outcome(t, await(t, told, "the outcome")); o.RunID != "fed" || o.Status != drover.StatusCompleted {
		t.Errorf("the outcome is %+v", o)
	}

	// A value that is kept outside of its record.
	big := json.RawMessage(`"` + strings.Repeat("a", 5000) + `"`)
	o, err := operator.Run(t.Context(), drover.StartRequest{RunID: "big", Input: big, Definition: raw("nodes: {a: {call: greet}}\noutput: {from: node:a}")})
	if err != nil || len(o.Result) < 5000 {
		t.Errorf("the outcome is %+v, %v", o, err)
	}

	// The command line, as the operator.
	for _, args := range [][]string{
		{"start", "--workflow", "letter", "--run", "ops", "--input", `"Grace"`},
		{"why", "ops"},
		{"list"},
		{"stop", "ops"},
		{"wait", "ops"},
		{"status", "ops"},
		{"definition", "get", "letter"},
		{"definition", "list"},
		{"dead", "list"},
		{"hook", "list"},
		{"fleet"},
	} {
		p := launch(t, alone.flags(s, "operator", args...)...)
		if status, out, stderr := p.wait(); status != 0 && args[0] != "wait" || stderr != "" || out == "" {
			t.Errorf("%v: exit status %d, %s, %s", args, status, out, stderr)
		}
	}
	for _, p := range []*person{shop, feeder, operator, listener} {
		if len(p.refused) > 0 {
			t.Errorf("something was refused: %v", <-p.refused)
		}
	}
	quiet(t, worker, greet)
}

func raw(definition string) json.RawMessage {
	text, _ := json.Marshal(definition)
	return text
}

func TestRolesCannotDoMore(t *testing.T) {
	s := guarded(t, configured(t, documented(t, oneAccount)))
	stores := []string{
		"$JS.API.STREAM.DELETE.DROVER", "$JS.API.STREAM.UPDATE.DROVER", "$JS.API.STREAM.DELETE.KV_DROVER_RUNS",
		"$JS.API.STREAM.CREATE.OTHER", "$JS.API.STREAM.PURGE.KV_DROVER_RUNS", "$JS.API.STREAM.PURGE.DROVER_DONE",
	}
	reads := []string{
		"$KV.DROVER_RUNS.0.r", "$KV.DROVER_DEFINITIONS.name.x", "$JS.API.STREAM.MSG.GET.KV_DROVER_RUNS",
		"$JS.API.DIRECT.GET.KV_DROVER_VALUES.$KV.DROVER_VALUES.r.input", "$JS.API.CONSUMER.CREATE.KV_DROVER_RUNS.c",
		"$JS.API.CONSUMER.CREATE.DROVER_DONE.c", "$JS.API.CONSUMER.CREATE.DROVER_CALLS.c",
		"$JS.API.STREAM.PURGE.DROVER", "$JS.API.STREAM.PURGE.DROVER_CALLS", "$JS.API.STREAM.INFO.DROVER", "$JS.API.STREAM.LIST", "$JS.API.INFO",
	}
	inner := []string{"drover.call.r.greet", "drover.call.r._http", "drover.done.letter.r", "drover.timer.r.1", "drover.dead.0.1", "drover.event.r", "drover.cancel.r.greet"}
	eaves := []string{">", "_INBOX.>", "_INBOX.drover.>", "_INBOX.drover.worker.>", "drover.>", "drover.in.>", "drover.cmd.>", "drover.call.>", "drover.api.>", "$KV.>", "$JS.API.>"}

	shop := alone.as(t, s, "shop")
	shop.cannotPublish(stores...)
	shop.cannotPublish(reads...)
	shop.cannotPublish(inner...)
	shop.cannotPublish("drover.in.r.start", "drover.in.r.stop", "drover.in.r.result", "drover.in.r.heard", "drover.api.stop", "drover.api.status", "drover.api.list", "drover.api.definition.put", "drover.api.hook.list", "drover.api.hook.release")
	shop.cannotSubscribe(eaves...)
	shop.cannotSubscribe("_INBOX.drover.feeder.>", "drover.done.>", "drover.event.*")

	feeder := alone.as(t, s, "feeder")
	feeder.cannotPublish(stores...)
	feeder.cannotPublish(reads...)
	feeder.cannotPublish(inner...)
	feeder.cannotPublish("drover.in.r.stop", "drover.in.r.result", "drover.in.r.child", "drover.in.r.heard", "drover.api.start", "drover.api.status")
	feeder.cannotSubscribe(eaves...)
	feeder.cannotSubscribe("_INBOX.drover.shop.>", "shop.>")

	greet := alone.as(t, s, "greet")
	greet.cannotPublish(stores...)
	greet.cannotPublish(reads...)
	greet.cannotPublish(inner...)
	greet.cannotPublish("drover.in.r.start", "drover.in.r.stop", "drover.in.r.deliver", "drover.api.start", "drover.api.status",
		"$JS.API.CONSUMER.CREATE.DROVER_CALLS.fn_other.drover.call.*.other", "$JS.API.CONSUMER.CREATE.DROVER_CALLS.fn_greet.drover.call.*.other",
		"$JS.API.CONSUMER.CREATE.DROVER_CALLS.fn_greet", "$JS.API.CONSUMER.MSG.NEXT.DROVER_CALLS.fn_other", "$JS.API.CONSUMER.DELETE.DROVER_CALLS.fn_greet",
		"$JS.ACK.DROVER_CALLS.fn_other.1.1.1.1.1", "$JS.API.CONSUMER.MSG.NEXT.DROVER_CALLS.fn__http")
	greet.cannotSubscribe(eaves...)
	greet.cannotSubscribe("drover.cancel.*.other", "drover.done.>", "_INBOX.drover.shop.>")

	listener := alone.as(t, s, "listener")
	listener.cannotPublish("drover.done.letter.r", "drover.in.r.start", "drover.api.status", "$JS.API.INFO", "anything")
	listener.cannotSubscribe(eaves...)
	listener.cannotSubscribe("drover.done.>", "drover.done.other.*", "drover.done.*.r")

	operator := alone.as(t, s, "operator")
	operator.cannotPublish(stores...)
	operator.cannotPublish(reads...)
	operator.cannotPublish(inner...)
	operator.cannotPublish("drover.in.r.result", "drover.in.r.start")
	operator.cannotSubscribe(eaves...)

	worker := alone.as(t, s, "worker")
	worker.cannotPublish(stores...)
	worker.cannotPublish("drover.api.stop", "other", "$JS.API.STREAM.LIST", "$JS.API.CONSUMER.CREATE.OTHER.c", "$KV.OTHER.k", "$JS.ACK.DROVER.c.1.1.1.1.1")
	worker.cannotSubscribe(">", "_INBOX.>", "_INBOX.drover.>", "_INBOX.drover.shop.>", "shop.>", "drover.in.>", "drover.call.>", "drover.done.>", "$KV.>")
}

// What the server lets pass, Drover refuses: see "What Drover itself guards".
func TestNobodyBorrowsTheRightsOfAWorker(t *testing.T) {
	s := guarded(t, configured(t, documented(t, oneAccount)))
	alone.staff(t, s)
	root, shop, greet, operator := alone.as(t, s, "root"), alone.as(t, s, "shop"), alone.as(t, s, "greet"), alone.as(t, s, "operator")
	waits := raw("nodes: {a: {wait: {name: never}}}\noutput: {from: node:a}")
	if _, err := operator.Start(t.Context(), drover.StartRequest{RunID: "victim", Definition: waits}); err != nil {
		t.Fatal(err)
	}
	told, notices := root.hears("drover.done.>"), root.hears("drover.in.victim.*")

	// A reply subject or an inbox that is a command to another run, with headers
	// that the server obeys on the stream of commands.
	quick, err := json.Marshal(drover.StartRequest{Definition: raw("nodes: {a: {set: {with: 1}}}\noutput: {from: node:a}")})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		body := fmt.Appendf(nil, `{"run_id":"attack-%d",%s`, i, quick[1:])
		err := shop.nc.PublishMsg(&nats.Msg{Subject: "drover.api.start", Reply: "drover.in.victim.stop", Data: body, Header: nats.Header{
			"Drover-Reply": {"drover.in.victim.stop"}, "Nats-Rollup": {"all"},
			"Nats-Schedule": {"@at " + time.Now().Format(time.RFC3339Nano)}, "Nats-Schedule-Target": {"drover.in.victim.stop"},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		await(t, told, "the outcome of an attack that only starts a run")
	}
	// An acknowledgement of the server that goes where it should not.
	dead := root.hears("drover.dead.>")
	for _, m := range []*nats.Msg{
		{Subject: "drover.in.victim.result", Data: []byte(`{"call":"victim/a@1","token":"guessed","output":1}`)},
		{Subject: "drover.in.attack.result", Reply: "drover.in.victim.stop", Data: []byte(`{}`)},
	} {
		if err := greet.nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // the forged result, the result of nothing, and the stop
		await(t, dead, "a dead letter")
	}
	// A request by a workflow, with the rights of the worker.
	stop := raw("nodes: {a: {request: drover.api.stop, input: {with: {run_id: victim}}, timeout: 1s, retry: {max_attempts: 1}}}\noutput: {from: node:a}")
	if _, err := shop.Start(t.Context(), drover.StartRequest{RunID: "attack", Definition: stop}); err != nil {
		t.Fatal(err)
	}
	if o := outcome(t, await(t, told, "the outcome of the attack")); o.Status != drover.StatusFailed {
		t.Errorf("the outcome is %+v", o)
	}
	status, err := operator.Status(t.Context(), drover.RunRequest{RunID: "victim"})
	if err != nil || status.Run.Status.Terminal() {
		t.Errorf("the victim is %s, %v", status.Run.Status, err)
	}
	for range len(notices) {
		if m := <-notices; m.Subject != "drover.in.victim.result" && !strings.Contains(string(m.Data), `"stream"`) {
			t.Errorf("a worker published %s: %s", m.Subject, m.Data)
		}
	}
}
