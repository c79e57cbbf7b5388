package conformance_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/subjects"
)

// functions serves functions until stop.
func (f *fleet) functions(t *testing.T, fns ...*function.Function) (stop func()) {
	t.Helper()
	s, err := function.NewServer(f.nc, function.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, fns...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := await(t, ended, "the end of the functions"); err != nil {
			t.Error(err)
		}
	}
}

// consumer is that of a program: the test takes drives as a process does.
func (f *fleet) consumer(t *testing.T, program string) jetstream.Consumer {
	t.Helper()
	fn := drover.FunctionName("program." + program)
	if c, err := f.js.Consumer(t.Context(), names.Calls(), names.Consumer(fn)); err == nil {
		return c
	}
	c, err := f.js.CreateOrUpdateConsumer(t.Context(), names.Calls(), jetstream.ConsumerConfig{
		Durable: names.Consumer(fn), FilterSubject: names.CallsTo(fn), AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 10 * time.Second, MaxDeliver: -1, MaxAckPending: 10_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// second is another process with a drive of a run: the test.
type second struct {
	*run
	request drover.DriveRequest
	said    drover.RecordRequest
}

// takes pulls the drive of a run.
func (r *run) takes(c jetstream.Consumer) (*second, jetstream.Msg) {
	r.t.Helper()
	m, err := c.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		r.t.Fatal(err)
	}
	s := &second{run: r}
	if err := json.Unmarshal(m.Data(), &s.request); err != nil {
		r.t.Fatal(err)
	}
	s.said = drover.RecordRequest{Drive: s.request.Drive, Fence: 2, Token: m.Headers().Get(subjects.HeaderToken), Instance: "the-test"}
	return s, m
}

// records sends a record, and gives its answer.
func (s *second) records(end *drover.DriveEnd, records ...drover.Entry) error {
	s.t.Helper()
	inbox := s.nc.NewInbox()
	sub, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	s.said.Records, s.said.End = records, end
	m := &nats.Msg{Subject: names.In(s.id, drover.VerbRecord), Header: nats.Header{}, Data: encode(s.t, s.said)}
	m.Header.Set(subjects.HeaderReply, inbox)
	if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
	got, err := sub.NextMsg(patience)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := drover.ErrorOf(got.Header.Get(subjects.HeaderCode), got.Data); err != nil {
		return err
	}
	var reply drover.RecordReply
	if err := json.Unmarshal(got.Data, &reply); err != nil {
		s.t.Fatal(err)
	}
	s.said.At, s.said.Have = reply.Records, reply.Entries
	return nil
}

func gave(id, output string) drover.Entry {
	return drover.Entry{Kind: drover.EntryStep, ID: id, Attempt: 1, Output: json.RawMessage(output)}
}

// checkHandedOut: of a message that was handed out before, the journal counts and
// not what is in it; and where that moves on as well, the drive begins anew.
func checkHandedOut(t *testing.T, f *fleet) {
	c := f.consumer(t, "handed")
	r := f.start(t, "handed", step("a"), step("b"), step("c"), tell("d"))
	s, m := r.takes(c)
	if err := s.records(nil, gave("a", `1`), gave("b", `2`)); err != nil {
		t.Fatal(err)
	}
	if err := m.Nak(); err != nil {
		t.Fatal(err)
	}
	f.process(t, "handed")
	asked := r.asks(drover.EntryStep, "c")
	want := `{"results":[1,2,"theirs",4]}`
	if s.records(nil, gave("c", `"ours"`)) == nil { // else the process has it, by a heartbeat
		want = `{"results":[1,2,"ours",4]}`
	}
	asked.gives(t, `"theirs"`)
	r.step("d", `4`)
	r.ends(drover.StatusCompleted, want)
}

// checkFenced: a process whose drive another one has says nothing more.
func checkFenced(t *testing.T, f *fleet) {
	f.process(t, "fenced")
	r := f.start(t, "fenced", step("a"), step("b"), step("never"))
	r.step("a", `1`)
	b := r.asks(drover.EntryStep, "b")
	last := r.of(r.id)
	s := &second{run: r, said: last[len(last)-1].RecordRequest}
	s.said.Fence, s.said.Instance, s.said.Keep = s.said.Fence+1, "the-test", ""
	s.said.At, s.said.Have = 1, 1
	if err := s.records(nil); err != nil {
		t.Fatal(err)
	}
	b.gives(t, `2`)
	r.until(t, "the process is refused", func() bool {
		list := r.of(r.id)
		return list[len(list)-1].err == drover.CodeFenced
	})
	r.acknowledged("fenced")
	if err := s.records(&drover.DriveEnd{Status: drover.DriveCompleted, Result: json.RawMessage(`"ours"`)}, gave("b", `3`)); err != nil {
		t.Fatal(err)
	}
	r.ends(drover.StatusCompleted, `"ours"`)
	other := f.start(t, "fenced", step("a")) // it serves on
	other.step("a", `1`)
	other.ends(drover.StatusCompleted, `{"results":[1]}`)
}

// acknowledged waits until no drive of a program is under way.
func (r *run) acknowledged(program string) {
	r.t.Helper()
	r.untilInfo(r.consumer(r.t, program), "all drives are acknowledged", func(i *jetstream.ConsumerInfo) bool { return i.NumAckPending == 0 })
}

func (r *run) untilInfo(c jetstream.Consumer, what string, so func(*jetstream.ConsumerInfo) bool) {
	r.t.Helper()
	tick, late := time.NewTicker(20*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		info, err := c.Info(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		if so(info) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("gave up waiting until %s", what)
		}
	}
}

// checkHeartbeats: a drive whose step takes longer than a silence may be is not
// lost, and its message does not come again.
func checkHeartbeats(t *testing.T, f *fleet) {
	const lease = 30 * time.Second // of a drive
	r := f.start(t, shared, step("a"), step("b"))
	r.step("a", `1`)
	b := r.asks(drover.EntryStep, "b")
	if !testing.Short() {
		begun := time.Now()
		r.until(t, "heartbeats come for longer than a drive lives without", func() bool {
			if len(r.questions(r.id)) > 0 {
				t.Fatal("the step runs once more: the drive was lost, or handed out again")
			}
			list := r.of(r.id)
			return list[len(list)-1].at.Sub(begun) > lease+time.Second
		})
	}
	b.gives(t, `2`)
	r.ends(drover.StatusCompleted, `{"results":[1,2]}`)
	for _, s := range r.of(r.id) {
		if s.Drive != 1 {
			t.Errorf("there is a drive %d", s.Drive)
		}
	}
}

// checkUnknown: fields and headers that nobody knows yet are ignored.
func checkUnknown(t *testing.T, f *fleet) {
	c := f.consumer(t, "unknown")
	r := f.start(t, "unknown", step("a"), step("b"))
	s, m := r.takes(c)
	body := map[string]any{}
	if err := json.Unmarshal(m.Data(), &body); err != nil {
		t.Fatal(err)
	}
	body["of_the_future"] = map[string]any{"x": []int{1}}
	again := &nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: encode(t, body)}
	again.Header.Del(subjects.HeaderMessageID)
	again.Header.Set("Of-The-Future", "1")
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js.PublishMsg(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	f.process(t, "unknown")
	r.step("a", `1`)
	b := r.asks(drover.EntryStep, "b")
	list := r.of(r.id)
	for _, junk := range []string{`{"run_id":"nobody","entries":7}`, `{"run_id":"` + string(r.id) + `","entries":99,"of_the_future":1}`, `{}`} {
		if err := f.nc.Publish(names.Nudge(list[len(list)-1].Instance), []byte(junk)); err != nil {
			t.Fatal(err)
		}
	}
	b.gives(t, `2`)
	r.ends(drover.StatusCompleted, `{"results":[1,2]}`)
}

// checkRepeats: with no answer the same record comes again, and is taken once.
func checkRepeats(t *testing.T, shared *fleet) {
	f := newFleet(t, shared.serve)
	stop := f.work()
	f.process(t, "repeats")
	r := f.start(t, "repeats", step("a"), step("b"))
	a := r.asks(drover.EntryStep, "a")
	stop()
	a.gives(t, `1`)
	r.until(t, "the same record came twice", func() bool {
		same := 0
		for _, s := range r.of(r.id) {
			if len(s.Records) == 1 && s.Records[0].ID == "a" {
				same++
			}
		}
		return same > 1
	})
	f.work()
	r.step("b", `2`)
	r.ends(drover.StatusCompleted, `{"results":[1,2]}`)
}
