package flow

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

func TestProgramsAJournalThatLacksAPartIsReadAgain(t *testing.T) {
	f := &fleet{nc: natstest.New(t).Connect(), names: subjects.Default()}
	var asked atomic.Int32
	_, err := f.nc.Subscribe(f.names.API("journal"), func(m *nats.Msg) {
		first := asked.Add(1) == 1
		for n := 2; n <= 4; n++ {
			if n == 3 && first {
				continue
			}
			part := nats.NewMsg(m.Reply)
			part.Data, _ = json.Marshal(drover.JournalReply{RunID: "r", Entries: 4, Journal: []drover.Entry{{Number: n}}})
			if n < 4 {
				part.Header.Set(subjects.HeaderMore, "1")
			}
			_ = m.RespondMsg(part)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Journal(t.Context(), "r", 2)
	if err != nil || len(got.Journal) != 3 || asked.Load() != 2 {
		t.Fatalf("%+v, %v, asked %d times", got, err, asked.Load())
	}
}

func TestProgramsCancelledNodesAreForgotten(t *testing.T) {
	def := Program("p", func(run *Run, _ any) (any, error) {
		_, err := Select(run, StartSleep(run, "s", time.Hour), StartWait[any](run, "w", "go"))
		if err == nil {
			err = run.Sleep("more", time.Hour)
		}
		return nil, err
	})
	c := newCore(def, &drover.DriveRequest{RunID: "r", Seed: "s"}, nil)
	defer c.destroy()
	c.settle()
	for _, o := range c.issued {
		c.journal = append(c.journal, o.entry)
	}
	c.journal = append(c.journal, drover.Entry{Kind: drover.EntryEnded, ID: "s"}, drover.Entry{Kind: drover.EntryCancel, ID: "w"})
	for len(c.journal) > 0 {
		c.consume()
		c.settle()
	}
	if len(c.nodes) != 1 || c.nodes["more"] == nil || c.broken != nil {
		t.Errorf("%v, %+v", sortedKeys(c.nodes), c.broken)
	}
}
