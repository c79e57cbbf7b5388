package api_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/api"
)

// bury puts a dead letter aside, as a worker does.
func (o *owner) bury(letter drover.DeadLetter) {
	o.t.Helper()
	data, err := json.Marshal(letter)
	if err == nil {
		_, err = o.js.Publish(o.t.Context(), o.names.Dead(int(letter.Sequence)%partitions, letter.Sequence), data)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *owner) letters(request string) drover.DeadList {
	o.t.Helper()
	var list drover.DeadList
	if err := o.ask("dead.list", request, &list); err != nil {
		o.t.Fatal(err)
	}
	return list
}

// logged is how many commands the log has.
func (o *owner) logged() uint64 {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), o.names.Commands())
	if err != nil {
		o.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func TestDeadLettersAreListedNewestFirst(t *testing.T) {
	o := newOwner(t).serve(nil)
	if list := o.letters(""); len(list.Letters) != 0 || list.More {
		t.Errorf("there were no letters: %+v", list)
	}
	const many = 1500 // more than a list reads at first
	stop := drover.Errorf(drover.CodeNotFound, "there is no run")
	for i := uint64(1); i <= many; i++ {
		letter := drover.DeadLetter{Sequence: 10 * i, RunID: fmt.Sprint("run", i%3), Verb: "stop", Error: stop, Payload: []byte(`{"reason":"x"}`)}
		if i == 2 {
			letter = drover.DeadLetter{Sequence: 20, RunID: "odd$id", Verb: "strat", Error: drover.Errorf(drover.CodeInvalidID, "odd"), Payload: []byte{0, 255}}
		}
		o.bury(letter)
	}
	if _, err := o.js.Publish(t.Context(), o.names.Dead(0, 7), []byte("no letter")); err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]struct {
		n           int
		first, last uint64
		more        bool
	}{
		"":                         {100, 15000, 14010, true},
		`{"limit":3}`:              {3, 15000, 14980, true},
		`{"run_id":"odd$id"}`:      {1, 20, 20, false},
		`{"verb":"strat"}`:         {1, 20, 20, false},
		`{"code":"invalid_id"}`:    {1, 20, 20, false},
		`{"verb":"start"}`:         {0, 0, 0, false},
		`{"limit":1000}`:           {1000, 15000, 5010, true},
		`{"run_id":"run1"}`:        {100, 14980, 12010, true},
		`{"code":"not_found"}`:     {100, 15000, 14010, true},
		`{"run_id":"r","limit":1}`: {0, 0, 0, false},
	} {
		list := o.letters(request)
		if len(list.Letters) != want.n || list.More != want.more {
			t.Errorf("%s: %d letters, more %v; want %+v", request, len(list.Letters), list.More, want)
			continue
		}
		if want.n > 0 && (list.Letters[0].Sequence != want.first || list.Letters[want.n-1].Sequence != want.last) {
			t.Errorf("%s: from %d to %d; want %+v", request, list.Letters[0].Sequence, list.Letters[want.n-1].Sequence, want)
		}
		for i, l := range list.Letters {
			if l.Payload != nil || l.Bytes == 0 || l.At == nil || l.Error == nil || i > 0 && l.Sequence >= list.Letters[i-1].Sequence {
				t.Fatalf("%s: letter %d is %+v", request, i, l)
			}
		}
	}
	var letter drover.DeadLetter
	if err := o.ask("dead.show", `{"sequence":20}`, &letter); err != nil || string(letter.Payload) != "\x00\xff" || letter.RunID != "odd$id" || letter.At == nil {
		t.Errorf("letter %+v, error %v", letter, err)
	}
	for _, request := range []string{`{"sequence":21}`, `{"sequence":1}`} {
		if err := o.ask("dead.show", request, nil); !errors.Is(err, drover.CodeNotFound) {
			t.Errorf("%s: %v", request, err)
		}
	}
	if err := o.ask("dead.show", `{"sequence":7}`, nil); !errors.Is(err, drover.CodeInternal) {
		t.Errorf("what is no letter: %v", err)
	}
}

func TestRequeueIsOneCommand(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.bury(drover.DeadLetter{Sequence: 41, RunID: "run1", Verb: "start", Error: drover.Errorf(drover.CodeNotFound, "no workflow"), Payload: []byte(`{"definition":` + plan + `}`)})
	before := o.logged()
	var answered sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		answered.Go(func() { errs[i] = o.ask("dead.requeue", `{"sequence":41}`, &drover.RequeueReply{}) })
	}
	answered.Wait()
	fine := 0
	for _, err := range errs {
		if err == nil {
			fine++
		} else if !errors.Is(err, drover.CodeNotFound) {
			t.Errorf("error %v", err)
		}
	}
	if fine == 0 || o.logged() != before+1 {
		t.Errorf("%d of 8 were answered, and there are %d commands more; want 1", fine, o.logged()-before)
	}
	o.until("the run", func() bool {
		return o.ask("status", `{"run_id":"run1"}`, &drover.StatusReply{}) == nil
	})
	if list := o.letters(""); len(list.Letters) != 0 {
		t.Errorf("letters %+v", list)
	}
	if err := o.ask("dead.requeue", `{"sequence":41}`, nil); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("once more: %v", err)
	}
}

// A delivery that is requeued once more, whenever that is, is the same one.
func TestRequeuedDeliveryHasAnID(t *testing.T) {
	o := newOwner(t).serve(nil)
	log, err := o.js.Stream(t.Context(), o.names.Commands())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ payload, want string }{
		{`{"name":"approved","payload":{"a":"<&>"}}`, `{"name":"approved","payload":{"a":"<&>"},"id":"requeue:1"}`},
		{`{"name":"approved","id":""}`, `{"name":"approved","id":"requeue:2"}`},
		{`{"name":"approved", "id":"mine"}`, `{"name":"approved", "id":"mine"}`},
	} {
		n := uint64(i + 1)
		o.bury(drover.DeadLetter{Sequence: n, RunID: "run1", Verb: "deliver", Error: drover.Errorf(drover.CodeNotFound, "no run"), Payload: []byte(c.payload)})
		var reply drover.RequeueReply
		if err := o.ask("dead.requeue", fmt.Sprintf(`{"sequence":%d}`, n), &reply); err != nil {
			t.Fatal(err)
		}
		if m, err := log.GetMsg(t.Context(), reply.Sequence); err != nil || string(m.Data) != c.want {
			t.Errorf("%s is in the log as %+v, error %v", c.payload, m, err)
		}
	}
}

// A child is not started for a parent that is over.
func TestRequeueStartsNoOrphan(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.start(`{"run_id":"lives","definition":` + plan + `}`)
	for i, c := range []struct {
		run, more string
		want      drover.Code
	}{
		{"lives", ``, ""},
		{"gone", ``, drover.CodeConflict},
		{"gone", `,"detached":true`, ""},
	} {
		n, call := uint64(i+1), drover.CallID{Run: drover.RunID(c.run), Node: "a", Item: drover.NoItem, Attempt: 1}
		parent := fmt.Sprintf(`{"call":%q,"token":"t","depth":1%s}`, call, c.more)
		o.bury(drover.DeadLetter{
			Sequence: n, RunID: string(drover.ChildRunID(call)), Verb: "start", Error: drover.Errorf(drover.CodeNotFound, "no workflow"),
			Payload: []byte(`{"definition":` + plan + `,"parent":` + parent + `}`),
		})
		err := o.ask("dead.requeue", fmt.Sprintf(`{"sequence":%d}`, n), &drover.RequeueReply{})
		if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %q", parent, err, c.want)
		}
	}
}

func TestRequeueSaysWhereTheCommandStands(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.bury(drover.DeadLetter{Sequence: 9, RunID: "run1", Verb: "tick", Error: drover.Errorf(drover.CodeNotFound, "no run")})
	var reply drover.RequeueReply
	if err := o.ask("dead.requeue", `{"sequence":9}`, &reply); err != nil || reply != (drover.RequeueReply{RunID: "run1", Verb: "tick", Sequence: 1}) {
		t.Errorf("reply %+v, error %v", reply, err)
	}
}

// A command that would be refused whatever its run is like stays a letter.
func TestRequeueRefusesWhatWouldComeBack(t *testing.T) {
	o := newOwner(t).serve(nil)
	letters := []drover.DeadLetter{
		{RunID: "odd$id", Verb: "stop"},
		{RunID: "", Verb: "stop"},
		{RunID: "a.b", Verb: "stop"},
		{RunID: "*", Verb: ">"},
		{RunID: "run1", Verb: "strat", Payload: []byte(`{}`)},
		{RunID: "run1", Verb: "api.stop"},
		{RunID: "run1", Verb: "drive", Payload: []byte(`{}`)}, // anybody may publish that; it is no drive
		{RunID: "run1", Verb: "start", Payload: []byte("\x00\xff")},
		{RunID: "run1", Verb: "start"}, // its payload was left out
		{RunID: "run1", Verb: "result", Payload: []byte(`{"call":"run2/n@1"}`)},
	}
	for i, l := range letters {
		l.Sequence, l.Error = uint64(i+1), drover.Errorf(drover.CodeInvalidRequest, "first")
		o.bury(l)
		err := o.ask("dead.requeue", fmt.Sprintf(`{"sequence":%d}`, l.Sequence), nil)
		if err == nil || errors.Is(err, drover.CodeUnavailable) || errors.Is(err, drover.CodeInternal) ||
			!strings.Contains(err.Error(), fmt.Sprintf("dead letter %d cannot be requeued", l.Sequence)) {
			t.Errorf("%q %q: %v", l.RunID, l.Verb, err)
		}
	}
	if n, list := o.logged(), o.letters(""); n != 0 || len(list.Letters) != len(letters) {
		t.Errorf("%d commands, %d letters", n, len(list.Letters))
	}
}

func TestDeadLettersNeedTheirStream(t *testing.T) {
	o := newOwner(t).serve(func(c *api.Config) { c.AnswerTime = 0 })
	if err := o.js.DeleteStream(t.Context(), o.names.DeadLetters()); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"dead.list", "dead.show", "dead.requeue", "fleet"} {
		if err := o.ask(verb, `{"sequence":1}`, nil); !errors.Is(err, drover.CodeUnavailable) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if _, err := o.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: o.names.DeadLetters(), Subjects: []string{o.names.DeadAll()}}); err != nil {
		t.Fatal(err)
	}
	if list := o.letters(""); len(list.Letters) != 0 {
		t.Errorf("letters %+v", list)
	}
}

func TestDeadLetterPayloadIsBase64(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.bury(drover.DeadLetter{Sequence: 1, RunID: "run1", Verb: "stop", Error: drover.Errorf(drover.CodeNotFound, "x"), Payload: []byte("hello")})
	var raw map[string]any
	if err := o.ask("dead.show", `{"sequence":1}`, &raw); err != nil || raw["payload"] != base64.StdEncoding.EncodeToString([]byte("hello")) {
		t.Errorf("letter %v, error %v", raw, err)
	}
}
