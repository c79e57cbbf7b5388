package api_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/api"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/seal"
	"github.com/droverhq/drover/subjects"
)

var fleetSecret = []byte("of the fleet")

func withSecret(c *api.Config) { c.Secret = fleetSecret }

// tenants is a server with a fleet's account, and two that may ask it to start
// runs. That of NORTH says who its users are.
func tenants(t *testing.T) *natstest.Server {
	t.Helper()
	s := natstest.New(t, natstest.With(func(o *server.Options) {
		fleet, north, south := server.NewAccount("FLEET"), server.NewAccount("NORTH"), server.NewAccount("SOUTH")
		o.Accounts = []*server.Account{fleet, north, south}
		o.Users = []*server.User{
			{Username: "worker", Password: "p", Account: fleet},
			{Username: "ann", Password: "p", Account: north},
			{Username: "bob", Password: "p", Account: north},
			{Username: "cy", Password: "p", Account: south},
		}
	}))
	account := func(name string) *server.Account {
		a, err := s.Raw().LookupAccount(name)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	fleet := account("FLEET")
	err := fleet.EnableJetStream(nil, nil)
	for _, subject := range []string{"drover.api.start", "drover.api.hook.deliver"} {
		err = errors.Join(err, fleet.AddServiceExport(subject, nil))
		for _, name := range []string{"NORTH", "SOUTH"} {
			err = errors.Join(err, account(name).AddServiceImport(fleet, subject, subject))
		}
		err = errors.Join(err, account("NORTH").SetServiceImportSharing(fleet, subject, true))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asker asks the API with headers.
type asker struct {
	t  *testing.T
	nc *nats.Conn
}

func (a asker) ask(verb, request string, headers map[string]string) (data []byte, err error) {
	a.t.Helper()
	m := nats.NewMsg("drover.api." + verb)
	m.Data = []byte(request)
	for k, v := range headers {
		m.Header.Set(k, v)
	}
	answer, err := a.nc.RequestMsg(m, patience)
	if err != nil {
		a.t.Fatal(err)
	}
	if e := drover.ErrorOf(answer.Header.Get(subjects.HeaderCode), answer.Data); e != nil {
		return nil, e
	}
	return answer.Data, nil
}

// record reads what is stored of a run.
func (o *owner) record(run drover.RunID) *machine.State {
	o.t.Helper()
	rec, err := o.store.Runs.Load(o.t.Context(), subjects.RunKey(subjects.Partition(string(run), partitions), run))
	if err != nil {
		o.t.Fatal(err)
	}
	state, err := machine.Decode(rec.Data)
	if err != nil {
		o.t.Fatal(err)
	}
	return state
}

// lastTold is who was added to those who are told.
func (o *owner) lastTold(run drover.RunID) drover.Notify {
	o.t.Helper()
	told := o.record(run).Notify
	if len(told) == 0 {
		o.t.Fatalf("nobody is told how run %s ends", run)
	}
	n := told[len(told)-1].Notify
	if !seal.Check(fleetSecret, run, n.Session, n.Seal) {
		o.t.Errorf("the session %q of run %s has the seal %q", n.Session, run, n.Seal)
	}
	return n
}

func TestDelivery02TheSessionIsThatOfTheConnection(t *testing.T) {
	s := tenants(t)
	o := ownerOn(t, s.Connect(nats.UserInfo("worker", "p"))).serve(withSecret)
	as := func(user string) asker { return asker{t, s.Connect(nats.UserInfo(user, "p"))} }
	request := func(run, more string) string {
		return `{"run_id":"` + run + `",` + more + `,"definition":` + plan + `}`
	}
	forged := map[string]string{"Nats-Request-Info": `{"acc":"SOUTH","user":"cy"}`}
	for _, c := range []struct{ run, user, more, want string }{
		{"a", "ann", `"reply_to":true`, "user.NORTH.ann"},
		{"b", "bob", `"reply_to":{"template":"It is done.","inline":true},"notify":{"subject":"x"}`, "user.NORTH.bob"},
		{"c", "cy", `"reply_to":{}`, "user.SOUTH._"}, // an import that does not share who asks
		{"d", "ann", `"reply_to":{"session":"user.SOUTH.cy","account":"SOUTH"},"session":"user.SOUTH.cy","caller":"cy"`, "user.NORTH.ann"},
	} {
		if _, err := as(c.user).ask("start", request(c.run, c.more), forged); err != nil {
			t.Errorf("%s: %v", c.run, err)
		} else if n := o.lastTold(drover.RunID(c.run)); n.Session != c.want {
			t.Errorf("%s: session %q, want %q", c.run, n.Session, c.want)
		}
	}
	if n := o.lastTold("b"); n.Template != "It is done." || !n.Inline || len(o.record("b").Notify) != 2 {
		t.Errorf("the session of b is told as %+v", n)
	}
	for _, more := range []string{
		`"notify":{"session":"user.NORTH.bob","seal":"00"}`,
		`"notify":[{"subject":"x"},{"session":"user.NORTH.bob"}],"reply_to":true`,
		`"notify":{"subject":"x","seal":"00"}`,
	} {
		if _, err := as("ann").ask("start", request("e", more), nil); !errors.Is(err, drover.CodeForbidden) {
			t.Errorf("%s: %v", more, err)
		}
	}
	// In the account of the workers anyone may write that header.
	for _, headers := range []map[string]string{nil, forged} {
		if _, err := as("worker").ask("start", request("e", `"reply_to":true`), headers); !errors.Is(err, drover.CodeForbidden) {
			t.Errorf("a caller of the workers' account, with %v: %v", headers, err)
		}
	}
	if seen := o.status("a").Run.Deliveries; len(seen) != 1 || seen[0].Notify.Seal != "" {
		t.Errorf("the status shows %+v", seen)
	}
}

// The server keeps reply subjects of its own for itself, which is how a request
// from another account is known.
func TestDelivery02NobodyMakesARequestLookImported(t *testing.T) {
	s := tenants(t)
	o := ownerOn(t, s.Connect(nats.UserInfo("worker", "p"))).serve(withSecret)
	for _, reply := range []string{"_R_.mine", "_GR_.a.b._R_.mine"} {
		refused := make(chan error, 1)
		nc := s.Connect(nats.UserInfo("worker", "p"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		m := nats.NewMsg("drover.api.start")
		m.Reply = reply
		m.Header.Set("Nats-Request-Info", `{"acc":"NORTH","user":"ann"}`)
		m.Data = []byte(`{"run_id":"r","reply_to":true,"definition":` + plan + `}`)
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := <-refused; !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("reply %s: %v", reply, err)
		}
	}
	var reply drover.StatusReply
	if err := o.ask("status", `{"run_id":"r"}`, &reply); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("the run is there: %+v, %v", reply, err)
	}
}

func TestDelivery02AFunctionAsksAsItsCall(t *testing.T) {
	o := newOwner(t).serve(withSecret)
	f := asker{t, o.nc}
	o.start(`{"run_id":"parent","definition":` + plan + `}`)
	token := machine.Token(o.record("parent").Secret, "parent/plan@1")
	as := func(call, token string) map[string]string {
		return map[string]string{"Drover-Call": call, "Drover-Token": token}
	}
	const request = `{"run_id":"child","reply_to":true,"definition":` + plan + `}`
	for name, headers := range map[string]map[string]string{
		"another's token":  as("parent/plan@1", machine.Token("guessed", "parent/plan@1")),
		"no token":         as("parent/plan@1", ""),
		"a later attempt":  as("parent/plan@2", machine.Token(o.record("parent").Secret, "parent/plan@2")),
		"no node of it":    as("parent/other@1", machine.Token(o.record("parent").Secret, "parent/other@1")),
		"a wait":           as("parent/ok@1", machine.Token(o.record("parent").Secret, "parent/ok@1")),
		"an unknown run":   as("nobody/plan@1", token),
		"only a token":     {"Drover-Token": token},
		"its compensation": as("parent/plan/undo@1", machine.Token(o.record("parent").Secret, "parent/plan/undo@1")),
	} {
		if _, err := f.ask("start", request, headers); !errors.Is(err, drover.CodeForbidden) && !errors.Is(err, drover.CodeInvalidID) {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := subjects.SessionOfCall("wf_parent_plan@r1")
	if _, err := f.ask("start", request, as("parent/plan@1", token)); err != nil {
		t.Error(err)
	} else if n := o.lastTold("child"); n.Session != want {
		t.Errorf("session %q, want %q", n.Session, want)
	}
	hook := `{"token":"t","payload":1,"start":{"reply_to":true,"definition":{"nodes":{"in":{"wait":{"hook":"t"}}},"output":{"from":"node:in"}}}}`
	data, err := f.ask("hook.deliver", hook, as("parent/plan@1", token))
	var reply drover.HookReply
	if err != nil || json.Unmarshal(data, &reply) != nil || !reply.Started {
		t.Errorf("hook: %s, %v", data, err)
	} else if n := o.lastTold(reply.RunID); n.Session != want {
		t.Errorf("session %q, want %q", n.Session, want)
	}
	o.call("parent/plan@1", `1`)
	o.until("the end of the call", func() bool { return o.status("parent").Run.Nodes[0].Status == drover.NodeDone })
	if _, err := f.ask("start", `{"reply_to":true,"definition":`+plan+`}`, as("parent/plan@1", token)); !errors.Is(err, drover.CodeForbidden) {
		t.Errorf("a call that is over: %v", err)
	}
	if _, err := f.ask("start", `{"definition":`+plan+`}`, as("parent/plan@1", token)); err != nil {
		t.Errorf("without reply_to: %v", err)
	}
}
