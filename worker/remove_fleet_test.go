package worker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/internal/natstest"
	publisher "github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
	"github.com/droverhq/drover/worker"
)

// A run whose removal was cut off is none for anybody who asks, and a start with its
// id makes a new run, with its own values.
func TestDelivery11AStartOverARunThatIsHalfRemoved(t *testing.T) {
	for name, input := range map[string]string{"a small input": `"new"`, "a big input": string(value("n", 5000))} {
		t.Run(name, func(t *testing.T) {
			s := natstest.New(t)
			begin(t, s, "one")
			a := newAudience(t, s)
			const echo = "nodes: {a: {set: {with: '${{ input }}'}}}\noutput: {from: node:a}\n"
			gives := func(run drover.RunID, input string) {
				t.Helper()
				reply, err := a.Start(t.Context(), drover.StartRequest{RunID: run, Definition: text(t, echo), Input: []byte(input)})
				if err != nil || !reply.Created {
					t.Fatalf("started %+v, error %v", reply, err)
				}
				result, err := a.Result(t.Context(), drover.RunRequest{RunID: run})
				if err != nil || string(result.Output) != input {
					t.Errorf("run %s gives %.100s, error %v", run, result.Output, err)
				}
			}
			gives("r", string(value("o", 5000)))
			retire(t, s, "r")
			if list, err := a.List(t.Context(), drover.ListRequest{}); err != nil || len(list.Runs) > 0 {
				t.Errorf("listed %+v, error %v", list.Runs, err)
			}
			gives("r", input)

			retire(t, s, "r")
			if run, err := a.Status(t.Context(), drover.RunRequest{RunID: "r"}); !errors.Is(err, drover.CodeNotFound) {
				t.Errorf("status %+v, error %v", run, err)
			}
			if _, err := a.Stop(t.Context(), "r", ""); !errors.Is(err, drover.CodeNotFound) {
				t.Errorf("stop: error %v", err)
			}
			gives("r", input)
		})
	}
}

// retire is what a janitor does first, and then it crashes.
func retire(t *testing.T, s *natstest.Server, run drover.RunID) {
	t.Helper()
	p, err := publisher.New(s.Connect(), publisher.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	store, err := kv.Open(t.Context(), s.JetStream(), p, subjects.Default())
	if err != nil {
		t.Fatal(err)
	}
	var key string
	var revision uint64
	if err := store.Runs.Scan(t.Context(), func(k string, rec kv.Record) bool {
		key, revision = k, rec.Revision
		return true
	}); err != nil || !strings.HasSuffix(key, "."+string(run)) {
		t.Fatalf("record %q, error %v", key, err)
	}
	last, err := store.Values.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Runs.Retire(t.Context(), key, revision, fmt.Appendf(nil, `{"values":%d}`, last)); err != nil {
		t.Fatal(err)
	}
}

// Nobody has an outcome told with the rights of a worker, whatever the prefix of its
// fleet is: the start is refused, and not only the delivery given up.
func TestDelivery01SubjectsOfTheFleetAreRefusedAtTheStart(t *testing.T) {
	s := natstest.New(t)
	beginOn(t, s.Connect(), worker.Options{Name: "one", Prefix: "shop"})
	nc := s.Connect()
	names, err := subjects.New("shop")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(nc, client.Options{Prefix: "shop", Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	const own = "shop.in.x.stop"
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, drover.CodeForbidden) || !strings.Contains(err.Error(), own) || !strings.Contains(err.Error(), "name a subject of your own") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	for kind, to := range map[string]drover.Notify{"subject": {Subject: own}, "stream_subject": {StreamSubject: own}} {
		_, err := c.Start(t.Context(), drover.StartRequest{RunID: "r", Definition: text(t, oneStep), Notify: drover.NotifyList{{Subject: "mine"}, to}})
		if refused(kind, err); !strings.Contains(err.Error(), "notify 1") {
			t.Errorf("%s: which? %v", kind, err)
		}
		defined := text(t, "notify: {"+kind+": "+own+"}\n"+oneStep)
		_, err = c.Start(t.Context(), drover.StartRequest{RunID: "r", Definition: defined})
		refused(kind+" of the definition", err)
		_, err = c.PutDefinition(t.Context(), drover.DefinitionRequest{Name: "w", Definition: defined})
		refused(kind+" of a definition that is put", err)
	}
	if _, err := c.Status(t.Context(), drover.RunRequest{RunID: "r"}); !errors.Is(err, drover.CodeNotFound) {
		t.Errorf("after that: error %v", err)
	}

	// A start in the log becomes a dead letter that says why.
	letters := make(chan *nats.Msg, 10)
	if _, err := nc.ChanSubscribe(names.DeadAll(), letters); err != nil || nc.Flush() != nil {
		t.Fatal("no subscription to dead letters")
	}
	for run, req := range map[drover.RunID]drover.StartRequest{
		"l1": {Definition: text(t, oneStep), Notify: drover.NotifyList{{Subject: own}}},
		"l2": {Definition: text(t, "notify: {subject: "+own+"}\n"+oneStep)},
	} {
		data, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.JetStream().Publish(t.Context(), names.In(run, drover.VerbStart), data); err != nil {
			t.Fatal(err)
		}
		select {
		case m := <-letters:
			var letter drover.DeadLetter
			if err := json.Unmarshal(m.Data, &letter); err != nil || letter.RunID != string(run) || letter.Error == nil {
				t.Fatalf("letter %.500s, error %v", m.Data, err)
			}
			refused("in the log", letter.Error)
		case <-time.After(patience):
			t.Fatal("no dead letter came")
		}
	}
}
