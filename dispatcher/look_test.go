package dispatcher

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

const versioned drover.FunctionName = "program.p.v1"

// lookEffect looks for the process behind an inbox, or with none for any that
// serves a version.
func lookEffect(run drover.RunID, inbox string, look int) machine.Effect {
	return machine.Effect{
		Owed: machine.Owed{Kind: machine.EffectLook, Attempt: 2}, Run: run, Inbox: inbox,
		Call:  &machine.Call{Function: versioned},
		Drive: &drover.DriveRequest{RunID: run, Program: "p", Drive: 2, Look: true},
		Look:  &drover.LookedMessage{Drive: 2, Look: look, Token: "tok"},
	}
}

// looks holds that of some looks of a run only these find nobody, in any order.
func (f *fleet) looks(run drover.RunID, want ...int) {
	f.t.Helper()
	log, got := f.commands(run, drover.VerbLooked), map[int]bool{}
	for range want {
		m := decode[drover.LookedMessage](f.t, log.next())
		if m.Drive != 2 || m.Token != "tok" {
			f.t.Errorf("it tells %+v", m)
		}
		got[m.Look] = true
	}
	for _, look := range want {
		if !got[look] {
			f.t.Errorf("looks %v of run %s found nobody, want %v", got, run, want)
		}
	}
	if n := f.count(f.names.Commands(), stored(run, drover.VerbLooked)); n != len(want) {
		f.t.Errorf("%d looks of run %s found nobody, want %v", n, run, want)
	}
}

// A process that was asked directly is not found where it is gone, or says that it
// does not drive. A look never asks it to begin.
func TestPrograms03AProcessIsAskedWhetherItDrives(t *testing.T) {
	f := newFleet(t)
	for inbox, answer := range map[string]string{"proc.drives": `{"taken":true}`, "proc.idle": `{"taken":false}`} {
		if _, err := f.nc.Subscribe(inbox, func(m *nats.Msg) {
			if !strings.Contains(string(m.Data), `"look":true`) {
				t.Errorf("asked to drive: %s", m.Data)
			}
			_ = m.Respond([]byte(answer))
		}); err != nil {
			t.Fatal(err)
		}
	}
	silent := make(chan *nats.Msg, 1)
	if _, err := f.nc.ChanSubscribe("proc.hangs", silent); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	d, stop := f.dispatcher()
	for i, inbox := range []string{"proc.drives", "proc.idle", "proc.hangs", "proc.gone", "drover.in.r1.stop"} {
		f.perform(d, lookEffect("r1", inbox, i+1))
	}
	full, stopFull := f.dispatcher()
	full.looking.Store(maxAsking)
	f.perform(full, lookEffect("r1", "proc.gone", 9)) // too many look already
	stopFull()
	await(t, silent, "the process that hangs")
	f.looks("r1", 2, 4, 5)
	stop()
	f.looks("r1", 2, 4, 5)
}

// Whoever looks for a version at the same time hears of one look, and the queue is
// asked once.
func TestPrograms12OneLookForAllRuns(t *testing.T) {
	f := newFleet(t)
	var asked atomic.Int64
	if _, err := f.nc.Subscribe("$JS.API.CONSUMER.INFO."+f.names.Calls()+"."+f.names.Consumer(versioned), func(*nats.Msg) { asked.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	d, stop := f.dispatcher()
	const runs = 50
	for i := range runs {
		f.perform(d, lookEffect(drover.RunID(fmt.Sprint("r", i)), "", i))
	}
	for i := range runs {
		f.looks(drover.RunID(fmt.Sprint("r", i)), i)
	}
	stop()
	if n := asked.Load(); n == 0 || n > runs/5 {
		t.Errorf("the queue was asked %d times", n)
	}
}

// A version is served by who asks for calls, or has some and answers. One that is
// dead has its calls for ever, and whoever listens to everything does not answer for
// it.
func TestPrograms12AVersionIsServedByWhoAnswers(t *testing.T) {
	f := newFleet(t)
	if _, err := f.nc.Subscribe("drover.>", func(*nats.Msg) {}); err != nil { // an audit
		t.Fatal(err)
	}
	cons, err := f.js.CreateConsumer(t.Context(), f.names.Calls(), jetstream.ConsumerConfig{
		Durable: f.names.Consumer(versioned), FilterSubject: f.names.CallsTo(versioned), AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	d, stop := f.dispatcher()
	defer stop()
	sees := func(want bool) {
		t.Helper()
		if got, err := d.served(versioned); err != nil || got != want {
			t.Fatalf("somebody serves it: %t, error %v; want %t", got, err, want)
		}
	}
	sees(false)
	if _, err := f.js.Publish(t.Context(), f.names.Call("r1", versioned), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := cons.Next(); err != nil { // and never acknowledged
		t.Fatal(err)
	}
	sees(false)
	busy, err := f.nc.Subscribe(f.names.CancelsTo(versioned), func(m *nats.Msg) { _ = m.Respond(nil) })
	if err == nil {
		err = f.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	sees(true)
	if err := busy.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	idle := f.nc.NewInbox()
	if _, err := f.nc.Subscribe(idle, func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	// A call that is asked for, and there is none.
	next := "$JS.API.CONSUMER.MSG.NEXT." + f.names.Calls() + "." + f.names.Consumer(versioned)
	if err := f.nc.PublishRequest(next, idle, []byte(`{"batch":1,"expires":60000000000}`)); err != nil {
		t.Fatal(err)
	}
	for late := time.After(patience); ; {
		if served, err := d.served(versioned); err != nil || served {
			if err != nil {
				t.Error(err)
			}
			return
		}
		select {
		case <-late:
			t.Fatal("who asks for calls is not found")
		default:
		}
	}
}
