package dispatcher

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
)

func TestTickAndScheduleWakeARun(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	ends := make(chan error, 3)
	end := func(err error) { ends <- err }
	ticks := f.commands(run, drover.VerbTick)
	d.Tick(run, end)
	ticks.next()
	d.Schedule(run, time.Now().Add(-time.Minute), 7, end) // past: at once
	m := ticks.next()
	if scheduler := m.Headers().Get("Nats-Scheduler"); scheduler != "drover.timer.r1.7" {
		t.Errorf("the tick came from %q", scheduler)
	}
	at := time.Date(2126, 1, 2, 3, 4, 5, 6_000_000, time.FixedZone("x", 3600))
	d.Schedule(run, at, 8, end)
	for range 3 {
		if err := await(t, ends, "the ack"); err != nil {
			t.Fatal(err)
		}
	}
	timer := f.log(f.names.Commands(), "drover.timer.r1.8").next()
	if got := timer.Headers().Get("Nats-Schedule"); got != "@at 2126-01-02T02:04:05.006Z" {
		t.Errorf("schedule %q", got)
	}
	if n := f.count(f.names.Commands(), "drover.timer.>"); n != 1 {
		t.Errorf("%d timers are kept, want that of the future", n)
	}
}

func TestDeadLettersAreKept(t *testing.T) {
	f := newFleet(t, small())
	d, _ := f.dispatcher()
	for _, tc := range []struct {
		sequence uint64
		size     int
		kept     bool
	}{{5, 100, true}, {6, 30 << 10, false}} {
		done := make(chan error, 1)
		d.Dead(3, drover.DeadLetter{
			Sequence: tc.sequence, RunID: "r1", Verb: "dance", Error: drover.Errorf(drover.CodeUnknownVerb, "no verb"),
			Payload: make([]byte, tc.size),
		}, func(err error) { done <- err })
		if err := await(t, done, "the ack"); err != nil {
			t.Fatal(err)
		}
		letter := decode[drover.DeadLetter](t, f.log(f.names.DeadLetters(), f.names.Dead(3, tc.sequence)).next())
		if letter.Error.Code != drover.CodeUnknownVerb || !strings.HasPrefix(letter.Error.Message, "no verb") {
			t.Errorf("letter %+v", letter)
		}
		if kept := len(letter.Payload) == tc.size; kept != tc.kept || !kept && !strings.Contains(letter.Error.Message, "30720 bytes") {
			t.Errorf("payload of %d: %d are kept, %v", tc.size, len(letter.Payload), letter.Error)
		}
	}
}

func TestAnswersAndEvents(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	all, err := f.nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	next := func() *nats.Msg {
		t.Helper()
		for {
			m, err := all.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(m.Subject, "drover.event") || strings.HasPrefix(m.Subject, "_INBOX.me") || strings.HasPrefix(m.Subject, "drover.in") {
				return m
			}
		}
	}
	d.Answer("_INBOX.me.1", drover.StopReply{RunID: run, Status: drover.StatusCancelled})
	if m := next(); string(m.Data) != `{"run_id":"r1","status":"cancelled"}` || m.Header != nil {
		t.Errorf("answer %s %v", m.Data, m.Header)
	}
	d.Answer("_INBOX.me.1", drover.Errorf(drover.CodeTerminal, "it is over"))
	if m := next(); m.Header.Get("Drover-Error") != "terminal" || string(m.Data) != `{"code":"terminal","message":"it is over"}` {
		t.Errorf("answer %s %v", m.Data, m.Header)
	}
	// An answer must not become a command, or a request to the server.
	for _, inbox := range []string{"drover.in.r2.stop", "drover.api.stop", "$JS.API.STREAM.DELETE.DROVER", "a.*", ""} {
		d.Answer(inbox, drover.StopReply{RunID: run})
	}
	d.Event(run, drover.StatusWaiting, 9)
	if m := next(); m.Subject != "drover.event.r1" || string(m.Data) != `{"run_id":"r1","status":"waiting","applied":9}` {
		t.Errorf("event %s %s", m.Subject, m.Data)
	}
}
