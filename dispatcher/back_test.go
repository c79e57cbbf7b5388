package dispatcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/subjects"
)

// itemEffect is a call, or a cancel, of an item of a fan-out.
func itemEffect(kind machine.EffectKind, item int) machine.Effect {
	e := callEffect("f", "1")
	id := drover.CallID{Run: run, Node: "n", Item: item, Attempt: 1}
	e.Kind = kind
	e.Call = &machine.Call{ID: id, Function: "f", Token: "token of " + id.String()}
	return e
}

// queuedCalls are the ids of the calls that are in the queue of f.
func (f *fleet) queuedCalls() (ids []string) {
	f.t.Helper()
	stream, err := f.js.Stream(f.t.Context(), f.names.Calls())
	if err != nil {
		f.t.Fatal(err)
	}
	info, err := stream.Info(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		if m, err := stream.GetMsg(f.t.Context(), seq); err == nil {
			ids = append(ids, m.Header.Get(subjects.HeaderCall))
		}
	}
	return ids
}

// A call that nobody has pulled is taken out of the queue by its id, and no other of
// its run, its function, or of a later life of its run.
func TestCancelledCallsLeaveTheQueue(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	var all []machine.Effect
	for item := range 8 {
		all = append(all, itemEffect(machine.EffectCall, item))
	}
	all = append(all, all[6]) // performed twice, as after a crash
	for i := range all {
		f.perform(d, all[i])
	}
	cancel := func(items ...int) (list []machine.Effect) {
		for _, item := range items {
			list = append(list, itemEffect(machine.EffectCancel, item))
		}
		return list
	}
	want := func(ids ...string) {
		t.Helper()
		if got := f.queuedCalls(); !slices.Equal(got, ids) {
			t.Fatalf("queued are %v, want %v", got, ids)
		}
	}
	f.perform(d, cancel(0, 1, 2, 4)...)
	want("r1/n#3@1", "r1/n#5@1", "r1/n#6@1", "r1/n#7@1", "r1/n#6@1")
	f.perform(d, cancel(0, 6, 9)...)
	want("r1/n#3@1", "r1/n#5@1", "r1/n#7@1")
	other := itemEffect(machine.EffectCancel, 3)
	other.Call.Token = "of an earlier run with this id"
	f.perform(d, other)
	want("r1/n#3@1", "r1/n#5@1", "r1/n#7@1")
	f.perform(d, cancel(3, 5, 7)...)
	want()
	f.perform(d, cancel(3, 5, 7)...)
}

// What takes something back comes after it was sent, also where the sending takes
// long; and before what is sent again.
func TestWhatIsTakenBackWasSentBefore(t *testing.T) {
	f := newFleet(t)
	h := &held{came: make(chan heldMsg, 100)}
	loads := make(chan struct{})
	f.values.hook = func([]string) { <-loads }
	f.values.put("big", `"big"`)
	d, _ := f.dispatcher(func(o *Options) { o.Publisher = h })
	start := machine.Effect{
		Owed: machine.Owed{Kind: machine.EffectStart}, Run: run, To: "c1", Value: machine.Value{Key: "big"}, Start: &drover.StartRequest{},
	}
	stop := machine.Effect{Owed: machine.Owed{Kind: machine.EffectStop}, Run: run, To: "c1", Stop: &drover.StopRequest{}}
	done := deliverEffect("", 0)
	done.Kind, done.Delivery = machine.EffectDone, nil
	ended := make(chan error, 1)
	d.Perform([]machine.Effect{start, stop, itemEffect(machine.EffectCall, 1), done}, func(err error) { ended <- err })
	next := func(subject string) heldMsg {
		t.Helper()
		m := await(t, h.came, subject)
		if m.msg.Subject != subject {
			t.Fatalf("sent is %s, want %s", m.msg.Subject, subject)
		}
		return m
	}
	next("drover.done.wf.r1").done(publish.Ack{}, nil) // it waits for none of them
	close(loads)
	for _, subject := range []string{"drover.in.c1.start", "drover.in.c1.stop", "drover.call.r1.f"} {
		m := next(subject)
		if len(h.came) > 0 {
			t.Errorf("more is sent before %s was stored", subject)
		}
		m.done(publish.Ack{}, nil)
	}
	if err := await(t, ended, "the end"); err != nil {
		t.Error(err)
	}
}

// A call whose publish is not acknowledged yet does not survive its withdraw, and what
// is queued after a withdraw does not go with it.
func TestAWithdrawKeepsItsPlace(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher(func(o *Options) { o.Publisher = racing{f.publisher(f.nc)} })
	withdraw := machine.Effect{Owed: machine.Owed{Kind: machine.EffectWithdraw}, Run: run, Functions: []drover.FunctionName{"f"}}
	dead := itemEffect(machine.EffectCancel, 1)
	dead.Kind = machine.EffectWithdraw
	for i, batch := range [][]machine.Effect{
		{itemEffect(machine.EffectCall, 0), withdraw, itemEffect(machine.EffectCall, 1)},
		{dead, itemEffect(machine.EffectCall, 1)},
		{itemEffect(machine.EffectCall, 0), itemEffect(machine.EffectCancel, 0)},
	} {
		f.perform(d, batch...)
		if got := fmt.Sprint(f.queuedCalls()); got != "[r1/n#1@1]" {
			t.Errorf("batch %d: queued are %s", i, got)
		}
	}
}

// racing is a Publisher whose messages are sent while its caller goes on.
type racing struct{ to *publish.Publisher }

func (r racing) Publish(m *nats.Msg, done func(publish.Ack, error)) { go r.to.Publish(m, done) }

// A drive that is asked for again is queued where the queue has lost it, and only
// there; also when the stream has forgotten its message id.
func TestADriveThatWasLostIsQueuedAgain(t *testing.T) {
	f := newFleet(t)
	d, _ := f.dispatcher()
	id := drover.CallID{Run: run, Node: "_drive", Item: drover.NoItem, Attempt: 3}
	drive := func(again bool, life time.Time) machine.Effect {
		return machine.Effect{
			Owed: machine.Owed{Kind: machine.EffectDrive, Attempt: 3}, Run: run, Again: again,
			Call:  &machine.Call{ID: id, Function: "program.p", Token: "tok"},
			Drive: &drover.DriveRequest{RunID: run, Program: "p", Drive: 3, Token: "tok", Started: life},
		}
	}
	queued := func(want int) {
		t.Helper()
		if n := f.count(f.names.Calls(), f.names.Call(run, "program.p")); n != want {
			t.Fatalf("%d drives are queued, want %d", n, want)
		}
	}
	f.perform(d, drive(false, time.Unix(1, 0)))
	f.perform(d, drive(true, time.Unix(2, 0))) // the time of the start makes the message id another one
	queued(1)
	stream, err := f.js.Stream(t.Context(), f.names.Calls())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.perform(d, drive(true, time.Unix(3, 0)))
	queued(1)
}
