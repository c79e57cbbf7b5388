package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/subjects"
)

func TestHooks08RepeatsOfOneCallHaveOneID(t *testing.T) {
	f := newFleet(t).work()
	f.answer("hook.deliver", drover.Errorf(drover.CodeUnavailable, "later"), drover.HookReply{RunID: "run1", Started: true})
	reply, err := f.client(client.Options{}).StartOrDeliver(t.Context(), "a b", json.RawMessage("1"), drover.StartRequest{Workflow: "w"})
	if err != nil || !reply.Started {
		t.Errorf("reply %+v, error %v", reply, err)
	}
	asked := f.requests()
	if len(asked) != 2 || asked[0] != asked[1] || !strings.Contains(asked[0], `"id":"d_`) || !strings.Contains(asked[0], `"start":{"workflow":"w"}`) {
		t.Errorf("asked %q", asked)
	}
	// A chosen id of the run would keep a second run from being started once
	// the first is over.
	if strings.Contains(asked[0], "run_id") {
		t.Errorf("asked %q", asked[0])
	}
}

// part is a message of an answer: JSON of its value, or an error.
type part struct {
	value any
	more  bool
}

// floods answers each delivery to many with the next list of messages.
func (f *fleet) floods(answers ...[]part) {
	f.t.Helper()
	_, err := f.nc.Subscribe(f.names.API("hook.deliver.many"), func(m *nats.Msg) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked = append(f.asked, string(m.Data))
		for _, p := range answers[0] {
			reply := nats.NewMsg(m.Reply)
			reply.Data, _ = json.Marshal(p.value)
			if e, ok := p.value.(*drover.Error); ok {
				reply.Header.Set(subjects.HeaderCode, string(e.Code))
			}
			if p.more {
				reply.Header.Set(subjects.HeaderMore, "1")
			}
			_ = f.nc.PublishMsg(reply)
		}
		if len(answers) > 1 {
			answers = answers[1:]
		}
	})
	if err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func results(n int) []part {
	var all []part
	for i := range n {
		all = append(all, part{value: drover.HookResult{Token: fmt.Sprint("t", i), RunID: "run1"}, more: true})
	}
	return all
}

func TestHooks20EachResultIsGivenAsItComes(t *testing.T) {
	f := newFleet(t)
	sum := part{value: drover.HookManyReply{Matched: 3, Accepted: 2, Failed: 1}}
	all := results(3)
	all[1].value = drover.HookResult{Token: "t1", RunID: "run2", Error: drover.Errorf(drover.CodeNotFound, "gone")}
	later := part{value: drover.Errorf(drover.CodeUnavailable, "later")}
	f.floods([]part{later}, append(slices.Clone(all), sum))
	nc := f.srv.Connect()
	c, err := client.New(nc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	deliveries := c.DeliverHooks(t.Context(), drover.HookManyRequest{HookFilter: drover.HookFilter{Prefix: "t"}})
	for range 2 { // the second time is a repeat
		var got []string
		for r, err := range deliveries {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Token)
			if (r.Error != nil) != (r.Token == "t1") {
				t.Errorf("result %+v", r)
			}
		}
		if !slices.Equal(got, []string{"t0", "t1", "t2"}) {
			t.Errorf("results %q", got)
		}
	}
	for range deliveries {
		break // whoever has enough leaves nothing behind
	}
	if n := nc.NumSubscriptions(); n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
	asked := f.requests()
	if len(asked) != 4 || asked[0] != asked[3] || !strings.Contains(asked[0], `"id":"d_`) || !strings.Contains(asked[0], `"stream":true`) {
		t.Errorf("asked %q", asked)
	}
}

func TestHooks20AnAnswerThatIsNotWholeIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		parts []part
		got   int
		code  drover.Code
		says  string
	}{
		"refused":       {[]part{{value: drover.Errorf(drover.CodeInvalidRequest, "which hooks?")}}, 0, drover.CodeInvalidRequest, "which hooks?"},
		"cut off":       {append(results(2), part{value: drover.Errorf(drover.CodeUnavailable, "no time")}), 2, drover.CodeUnavailable, `after the results of 2 hooks: deliver again with the id "mine"`},
		"results lost":  {append(results(2), part{value: drover.HookManyReply{Matched: 5, Accepted: 5}}), 2, drover.CodeUnavailable, "3 of 5 results were lost on their way, 5 of all were accepted"},
		"no result":     {[]part{{value: 7, more: true}}, 0, drover.CodeInternal, "cannot be read"},
		"nothing fits":  {[]part{{value: drover.HookManyReply{}}}, 0, "", ""},
		"a broken last": {append(results(1), part{value: "x"}), 1, drover.CodeInternal, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.floods(c.parts)
			got, failed := 0, error(nil)
			req := drover.HookManyRequest{HookFilter: drover.HookFilter{RunID: "run1"}, ID: "mine"}
			for _, err := range f.client(client.Options{Patience: time.Millisecond}).DeliverHooks(t.Context(), req) {
				if failed = err; err == nil {
					got++
				}
			}
			if got != c.got || (failed == nil) != (c.code == "") || c.code != "" && (!errors.Is(failed, c.code) || !strings.Contains(failed.Error(), c.says)) {
				t.Errorf("%d results, error %v", got, failed)
			}
		})
	}
}

func TestDeliverHooksEndsWithItsContext(t *testing.T) {
	f := newFleet(t)
	f.floods(results(1)) // and nothing more
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough")
	var failed error
	for _, err := range f.client(client.Options{}).DeliverHooks(ctx, drover.HookManyRequest{HookFilter: drover.HookFilter{Prefix: "t"}}) {
		failed = err
		cancel(enough)
	}
	if !errors.Is(failed, enough) {
		t.Errorf("error %v", failed)
	}
}
