package api_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// TestDefinitions14KeysAreScopedByCaller: the same key of two callers that the
// server tells apart makes two runs, and twice that of one makes one.
func TestDefinitions14KeysAreScopedByCaller(t *testing.T) {
	s := natstest.New(t, natstest.With(func(o *server.Options) {
		fleet, north, south := server.NewAccount("FLEET"), server.NewAccount("NORTH"), server.NewAccount("SOUTH")
		o.Accounts = []*server.Account{fleet, north, south}
		o.Users = []*server.User{
			{Username: "worker", Password: "w", Account: fleet},
			{Username: "north", Password: "n", Account: north},
			{Username: "south", Password: "s", Account: south},
		}
	}))
	fleet, err := s.Raw().LookupAccount("FLEET")
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.EnableJetStream(nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := fleet.AddServiceExport("drover.api.start", nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"NORTH", "SOUTH"} {
		guest, err := s.Raw().LookupAccount(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := guest.AddServiceImport(fleet, "drover.api.start", "drover.api.start"); err != nil {
			t.Fatal(err)
		}
	}
	ownerOn(t, s.Connect(nats.UserInfo("worker", "w"))).serve(nil)
	north, south := s.Connect(nats.UserInfo("north", "n")), s.Connect(nats.UserInfo("south", "s"))
	a, b, again := startWithKey(t, north), startWithKey(t, south), startWithKey(t, north)
	if !a.Created || !b.Created || a.RunID == b.RunID {
		t.Errorf("the key of two callers made %+v and %+v", a, b)
	}
	if again.Created || again.RunID != a.RunID {
		t.Errorf("the key made %+v, and when it came again %+v", a, again)
	}
}

func startWithKey(t *testing.T, nc *nats.Conn) drover.StartReply {
	t.Helper()
	m, err := nc.Request("drover.api.start", []byte(`{"idempotency_key": "k", "definition": {"nodes": {"a": {"wait": {"name": "x"}}}, "output": {"from": "node:a"}}}`), patience)
	if err != nil {
		t.Fatal(err)
	}
	var reply drover.StartReply
	if err := json.Unmarshal(m.Data, &reply); err != nil || reply.RunID == "" {
		t.Fatalf("the answer is %s, %v", m.Data, err)
	}
	return reply
}
