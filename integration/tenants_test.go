package integration_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// users gives what is within the authorization of a configuration, with users
// that begin with the name of a tenant.
func (x tenant) users(t *testing.T, text string) string {
	t.Helper()
	text = strings.TrimPrefix(strings.TrimSpace(text), "authorization {")
	text = strings.TrimSuffix(text, "}")
	if x.prefix != "" { // as docs/security.md says
		text = strings.NewReplacer("drover", x.prefix, "DROVER", strings.ToUpper(x.prefix)).Replace(text)
	}
	return strings.ReplaceAll(text, `user: "`, `user: "`+x.name+"_")
}

// works has a fleet do a run of an id that every fleet uses, and checks that it
// sees nothing else.
func (x tenant) works(t *testing.T, s *natstest.Server) *person {
	t.Helper()
	worker, greet := x.staff(t, s)
	operator := x.as(t, s, "operator")
	o, err := operator.Run(t.Context(), drover.StartRequest{
		RunID: "same", Input: json.RawMessage(`"` + x.name + `"`), Definition: raw("nodes: {a: {call: greet}}\noutput: {from: node:a}"),
	})
	if err != nil || string(o.Result) != `"Hello \"`+x.name+`\""` {
		t.Errorf("%s: the outcome is %+v, %v", x.name, o, err)
	}
	all, err := operator.List(t.Context(), drover.ListRequest{})
	if err != nil || len(all.Runs) != 1 || all.Runs[0].ID != "same" {
		t.Errorf("%s sees the runs %+v, %v", x.name, all.Runs, err)
	}
	if len(operator.refused) > 0 {
		t.Errorf("something was refused to %s: %v", x.name, <-operator.refused)
	}
	quiet(t, worker, greet)
	return operator
}

// Accounts share nothing, so that both fleets have the same names of everything.
func TestTenantsInTwoAccounts(t *testing.T) {
	text := documented(t, oneAccount)
	north, south := tenant{name: "north"}, tenant{name: "south"}
	s := guarded(t, configured(t, `
accounts {
  NORTH { jetstream: enabled `+north.users(t, text)+` }
  SOUTH { jetstream: enabled `+south.users(t, text)+` }
}`))
	ended := north.works(t, s).hears("drover.done.>")
	south.works(t, s)
	// The same command in the south is not heard in the north.
	if _, err := north.as(t, s, "feeder").nc.Request("drover.in.other.start", []byte(`{}`), patience); err != nil {
		t.Fatal(err)
	}
	if len(ended) > 0 {
		t.Errorf("the north hears of the south: %s", (<-ended).Data)
	}
}

// Prefixes share an account, so that permissions keep them apart.
func TestTenantsWithTwoPrefixes(t *testing.T) {
	text := documented(t, oneAccount)
	north, south := tenant{"north", "north"}, tenant{"south", "south"}
	o := configured(t, "authorization {"+north.users(t, text)+"}")
	o.Users = append(o.Users, configured(t, "authorization {"+south.users(t, text)+"}").Users...)
	s := guarded(t, o)
	ended := north.works(t, s).hears("north.done.>")
	south.works(t, s)
	if len(ended) > 0 {
		t.Errorf("the north hears of the south: %s", (<-ended).Data)
	}
	for role, subjects := range map[string][]string{
		"shop":     {"north.api.start", "north.api.deliver"},
		"feeder":   {"north.in.r.start", "north.in.r.deliver"},
		"greet":    {"north.in.r.result", "$JS.API.CONSUMER.MSG.NEXT.NORTH_CALLS.fn_greet", "$JS.ACK.NORTH_CALLS.fn_greet.1.1.1.1.1"},
		"operator": {"north.api.stop", "north.api.list"},
		"worker": {
			"north.in.r.start", "north.call.r.greet", "north.done.letter.r", "$KV.NORTH_RUNS.0.r", "$JS.API.STREAM.PURGE.NORTH",
			"$JS.API.STREAM.MSG.GET.KV_NORTH_RUNS", "$JS.API.CONSUMER.CREATE.NORTH.c.north.cmd.0.>", "_INBOX.north.shop.x",
		},
	} {
		south.as(t, s, role).cannotPublish(subjects...)
	}
	for role, subjects := range map[string][]string{
		"shop": {"_INBOX.north.shop.>"}, "greet": {"north.cancel.*.greet"}, "listener": {"north.done.letter.*"},
		"operator": {"north.done.>", "north.event.*"}, "worker": {"north.api.>", "north.cancel.>"},
	} {
		south.as(t, s, role).cannotSubscribe(subjects...)
	}
}

// Clients in another account reach what is exported, and their reply subjects
// are no way in.
func TestClientsInAnAccountOfTheirOwn(t *testing.T) {
	s := guarded(t, configured(t, documented(t, guestAccount)))
	worker, greet := alone.staff(t, s)
	guest := alone.as(t, s, "shop")
	inside := alone.as(t, s, "worker")
	receipts, told := guest.hears("shop.done"), guest.hears("drover.done.letter.*")
	commands := inside.hears("drover.in.*.stop")
	req := drover.StartRequest{
		RunID: "letter-1", Notify: []drover.Notify{{Subject: "shop.done"}},
		Definition: raw("name: letter\nnodes: {a: {call: greet}, b: {wait: {name: approve}, depends_on: [a]}}\noutput: {from: node:b}"),
	}
	if reply, err := guest.Start(t.Context(), req); err != nil || !reply.Created {
		t.Fatalf("the answer is %+v, %v", reply, err)
	}
	again, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.nc.PublishRequest("drover.api.start", "drover.in.letter-1.stop", again); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Deliver(t.Context(), drover.DeliverRequest{RunID: "letter-1", Name: "approve"}); err != nil {
		t.Fatal(err)
	}
	hook := drover.HookRequest{Token: "t", Start: &drover.StartRequest{RunID: "hooked", Definition: raw("nodes: {a: {wait: {hook: t}}}\noutput: {from: node:a}")}}
	if reply, err := guest.DeliverHook(t.Context(), hook); err != nil || !reply.Started {
		t.Errorf("the answer is %+v, %v", reply, err)
	}
	for _, m := range []*nats.Msg{await(t, receipts, "the notification"), await(t, told, "the outcome")} {
		if o := outcome(t, m); o.RunID != "letter-1" || o.Status != drover.StatusCompleted {
			t.Errorf("the outcome is %s", m.Data)
		}
	}
	for _, subject := range []string{"drover.api.list", "drover.in.r.start", "drover.in.r.stop"} {
		if m, err := guest.nc.Request(subject, nil, patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a request to %s gave %v, %v", subject, m, err)
		}
	}
	if len(commands) > 0 {
		t.Errorf("a reply subject of the guest came through: %s", (<-commands).Data)
	}
	quiet(t, worker, greet)
}
