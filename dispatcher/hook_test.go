package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/kv/kvtest"
)

// hooked gives a dispatcher with claims in memory, where no run is but the ones
// that hold their tokens.
func (f *fleet) hooked() (*Dispatcher, kv.Hooks) {
	f.t.Helper()
	hooks := kvtest.NewMemory().Hooks
	d, _ := f.dispatcher(func(o *Options) { o.Claims, o.Runs = hooks, holders{} })
	return d, hooks
}

// holders are runs that all hold the token t.
type holders struct{}

func (holders) Load(context.Context, drover.RunID) (*machine.State, error) {
	return &machine.State{Hooks: []machine.Hook{{Token: "t", Mark: machine.HookOwned}}}, nil
}

func claimEffect(run drover.RunID) machine.Effect {
	return machine.Effect{
		Owed: machine.Owed{Kind: machine.EffectClaim, Node: "inbox", Token: "t"}, Run: run,
		Claim: &machine.Claim{Token: "t", Run: run, ID: machine.ClaimID(run, "inbox"), Node: "inbox", Since: time.Unix(1, 0).UTC(), Proof: "p"},
	}
}

func releaseEffect(run drover.RunID) machine.Effect {
	return machine.Effect{Owed: machine.Owed{Kind: machine.EffectRelease, Node: "inbox", Token: "t"}, Run: run, ClaimID: machine.ClaimID(run, "inbox")}
}

func TestHooks01ClaimsBecomeKeysAndCommands(t *testing.T) {
	f := newFleet(t)
	d, hooks := f.hooked()
	f.perform(d, claimEffect("r1"))
	rec, err := hooks.Get(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	won := decode[drover.ClaimedMessage](t, f.commands("r1", drover.VerbClaimed).next())
	if won != (drover.ClaimedMessage{Hook: "t", Claim: "r1/inbox", Proof: "p", Revision: rec.Revision}) {
		t.Errorf("the winner hears %+v", won)
	}
	f.perform(d, claimEffect("r2"))
	lost := decode[drover.ClaimedMessage](t, f.commands("r2", drover.VerbClaimed).next())
	if lost != (drover.ClaimedMessage{Hook: "t", Claim: "r2/inbox", Proof: "p", Owner: "r1", Since: "1970-01-01T00:00:01Z"}) {
		t.Errorf("the loser hears %+v", lost)
	}
	f.perform(d, releaseEffect("r2")) // it has none
	if _, err := hooks.Get(t.Context(), "t"); err != nil {
		t.Errorf("a run released the token of another: %v", err)
	}
	f.perform(d, releaseEffect("r1"), claimEffect("r1"), releaseEffect("r1")) // those of one batch are in order
	if _, err := hooks.Get(t.Context(), "t"); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("the token is not free: %v", err)
	}
}

// A claim whose store does not answer keeps no other effect from happening.
func TestClaimsMakeNothingElseWait(t *testing.T) {
	f := newFleet(t)
	stuck := &stuckClaims{Keys: kvtest.NewMemory().Hooks, asked: make(chan struct{}, claimWorkers)}
	d, _ := f.dispatcher(func(o *Options) { o.Claims, o.Runs = stuck, holders{} })
	done := make(chan error, claimWorkers)
	for i := range claimWorkers {
		d.Perform([]machine.Effect{claimEffect(drover.RunID(fmt.Sprint("c", i)))}, func(err error) { done <- err })
		await(t, stuck.asked, "the claim")
	}
	f.perform(d, callEffect("llm.plan", `1`), machine.Effect{Owed: machine.Owed{Kind: machine.EffectWithdraw}, Run: "r1", Functions: []drover.FunctionName{"x"}})
	d.end() // as Run does when it ends
	for range claimWorkers {
		if err := await(t, done, "the end of a claim"); err == nil {
			t.Error("a claim that was given up is no error, and would not be repeated")
		}
	}
}

type stuckClaims struct {
	hook.Keys
	asked chan struct{}
}

func (s *stuckClaims) Claim(ctx context.Context, _ string, _ []byte) (uint64, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	return 0, ctx.Err()
}

// owner answers what is delivered to any run, with the answer of a fold.
func (f *fleet) owner(answer func(run string, d *drover.DeliverRequest) any) {
	var mu sync.Mutex
	sub, err := f.nc.Subscribe("drover.in.*.deliver", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		var d drover.DeliverRequest
		if err := json.Unmarshal(m.Data, &d); err != nil {
			f.t.Error(err)
		}
		reply := nats.NewMsg(m.Header.Get("Drover-Reply"))
		v := answer(m.Subject[len("drover.in."):len(m.Subject)-len(".deliver")], &d)
		if e, ok := v.(*drover.Error); ok {
			reply.Header.Set("Drover-Error", string(e.Code))
		}
		reply.Data, _ = json.Marshal(v)
		if err := f.nc.PublishMsg(reply); err != nil {
			f.t.Error(err)
		}
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := f.nc.Flush(); err != nil {
		f.t.Fatal(err)
	}
}

func TestHooks16HandOver(t *testing.T) {
	f := newFleet(t)
	d, hooks := f.hooked()
	var got []string
	f.owner(func(run string, m *drover.DeliverRequest) any {
		got = append(got, run+" "+m.ID+" "+string(m.Payload)+" "+m.Respond)
		return drover.DeliverReply{RunID: drover.RunID(run)}
	})
	f.values.put("r1.input", `{"in":1}`)
	f.values.put("r1.delivered.7", `"big"`)
	f.perform(d, claimEffect("r1"))
	f.perform(d, machine.Effect{
		Owed: machine.Owed{Kind: machine.EffectHandOver}, Run: "r1", To: "s1", Value: machine.Value{Key: "r1.input", Size: 8},
		Start: &drover.StartRequest{Hash: "h", Hooks: []string{"t"}}, ClaimIDs: []string{"r1/inbox"},
		Deliveries: []machine.Handed{
			{ID: "r1/1", Token: "t", Payload: machine.Value{JSON: json.RawMessage(`1`)}, Respond: "inbox"},
			{ID: "r1/2", Token: "t", Payload: machine.Value{Key: "r1.delivered.7", Size: 5}},
			{ID: "r1/3", Token: "t", Payload: machine.Value{Key: "r1.gone", Size: 5}},
			{ID: "r1/4", Token: "t"},
		},
	})
	if want := []string{"s1 r1/1 1 inbox", "s1 r1/2 \"big\" ", "s1 r1/4  "}; !slices.Equal(got, want) {
		t.Errorf("the successor got %q, want %q", got, want)
	}
	if start := f.commands("s1", drover.VerbStart).next(); string(start.Data()) != `{"hash":"h","input":{"in":1},"hooks":["t"]}` {
		t.Errorf("the start is %s", start.Data())
	}
	held, err := hook.Read(t.Context(), hooks, "t")
	if err != nil || held == nil || held.Run != "s1" || held.ID != "s1/" {
		t.Errorf("claim %+v, error %v", held, err)
	}
}

func TestRespondReachesOnlyForeignSubjects(t *testing.T) {
	f := newFleet(t)
	d, _ := f.hooked()
	inbox := f.nc.NewInbox()
	sub, err := f.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	stolen, err := f.nc.SubscribeSync("drover.in.r9.stop")
	if err != nil || f.nc.Flush() != nil {
		t.Fatal("no subscription")
	}
	respond := machine.Effect{Owed: machine.Owed{Kind: machine.EffectRespond, Node: "say"}, Run: "r1", Inbox: "drover.in.r9.stop", Status: 201, Value: machine.Value{JSON: json.RawMessage(`{"a":1}`)}}
	f.perform(d, respond)
	respond.Inbox = inbox
	f.perform(d, respond)
	m, err := sub.NextMsg(patience)
	if err != nil || string(m.Data) != `{"a":1}` || m.Header.Get("Drover-Status") != "201" {
		t.Fatalf("answer %+v, error %v", m, err)
	}
	if n, _, _ := stolen.Pending(); n > 0 {
		t.Error("a run spoke with the rights of the worker")
	}
}
