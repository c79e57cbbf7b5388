package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
	"github.com/droverhq/drover/internal/natstest"
)

// owner is a Transport whose answers a test writes.
type owner struct {
	mu      sync.Mutex
	answer  func(m *drover.RecordRequest) (*drover.RecordReply, error)
	journal drover.JournalReply
	got     []drover.RecordRequest
	read    int
}

func (o *owner) Record(_ context.Context, _ drover.RunID, m *drover.RecordRequest) (*drover.RecordReply, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, *m)
	return o.answer(m)
}

func (o *owner) Journal(context.Context, drover.RunID, int) (*drover.JournalReply, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read++
	return &o.journal, nil
}

func (*owner) StreamTail(context.Context, drover.RunID, string) (flow.StreamTail, error) {
	return flow.StreamTail{}, nil
}

func (*owner) StreamAppend(context.Context, drover.RunID, string, uint64, []flow.StreamMessage) (uint64, error) {
	return 1, nil
}

// keep keeps a journal as an owner does that refuses nothing.
func (o *owner) keep(m *drover.RecordRequest) (*drover.RecordReply, error) {
	j := &o.journal
	for _, e := range m.Records[min(len(m.Records), j.Records-m.At):] {
		j.Records++
		j.Entries++
		e.Number = j.Entries
		j.Journal = append(j.Journal, e)
	}
	r := &drover.RecordReply{Records: j.Records, Entries: j.Entries, New: j.Journal[m.Have:], Driving: true}
	if m.End != nil && (m.End.Status != drover.DriveWaiting || m.Have+len(m.Records) == j.Entries) {
		r.Driving = false
	}
	return r, nil
}

func request(drive int) *drover.DriveRequest {
	return &drover.DriveRequest{RunID: "r1", Program: "p", Drive: drive, Token: "t", Seed: "s"}
}

func TestPrograms02AFencedBodyStopsInSilence(t *testing.T) {
	ended := make(chan error, 1)
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		defer func() { ended <- run.Context().Err() }()
		n := 0
		return flow.Step(run, "s", count(&n))
	})
	o := &owner{answer: func(*drover.RecordRequest) (*drover.RecordReply, error) {
		return nil, drover.Errorf(drover.CodeFenced, "somebody else has it")
	}}
	body := def.NewBody(o, flow.BodyOptions{Keep: "inbox"})
	if _, err := body.Drive(t.Context(), request(1), 1); !errors.Is(err, drover.CodeFenced) || len(o.got) != 1 || body.Kept() {
		t.Fatalf("%v after %d commands", err, len(o.got))
	}
	if err := <-ended; err == nil {
		t.Error("the context of the body goes on")
	}
}

func TestPrograms02AStaleJournalIsReadAnew(t *testing.T) {
	steps := 0
	def := flow.Program("p", func(run *flow.Run, _ any) (int, error) {
		if _, err := flow.Step(run, "a", count(&steps)); err != nil {
			return 0, err
		}
		return flow.Step(run, "b", count(&steps))
	})
	o := &owner{journal: drover.JournalReply{Records: 1, Entries: 1, Journal: []drover.Entry{{Number: 1, Kind: drover.EntryStep, ID: "a", Output: raw("7")}}}}
	o.answer = func(m *drover.RecordRequest) (*drover.RecordReply, error) {
		if m.At < 1 {
			return nil, drover.Errorf(drover.CodeStale, "there is 1 record")
		}
		return o.keep(m)
	}
	end, err := def.NewBody(o, flow.BodyOptions{}).Drive(t.Context(), request(1), 2)
	if err != nil || end.Status != drover.DriveCompleted || o.read != 1 || steps != 2 { // a, that was not known to be done, and b
		t.Fatalf("%+v %v, read %d times, %d steps", end, err, o.read, steps)
	}
	if m := o.got[1]; m.At != 1 || len(m.Records) > 0 || m.End != nil {
		t.Errorf("before anything is done again it says %+v", m)
	}
}

func TestPrograms02WhoseDriveItIs(t *testing.T) {
	def := flow.Program("p", func(run *flow.Run, _ any) (int, error) {
		n := 0
		return flow.Step(run, "a", count(&n))
	})
	for code, want := range map[drover.Code]drover.Code{
		drover.CodeFenced: drover.CodeFenced, drover.CodeForbidden: drover.CodeFenced, drover.CodeNotFound: drover.CodeFenced,
		drover.CodeInternal: drover.CodeInternal, drover.CodeInvalidRequest: drover.CodeInvalidRequest, drover.CodeFull: drover.CodeFull,
	} {
		o := &owner{answer: func(*drover.RecordRequest) (*drover.RecordReply, error) { return nil, drover.Errorf(code, "no") }}
		if _, err := def.NewBody(o, flow.BodyOptions{}).Drive(t.Context(), request(1), 1); drover.CodeOf(err, "") != want {
			t.Errorf("%s: %v, want %s", code, err, want)
		}
	}
}

func TestProgramsAnEndThatIsRefusedFails(t *testing.T) {
	def := flow.Program("p", func(*flow.Run, any) (string, error) { return "big", nil })
	for _, code := range []drover.Code{drover.CodeTooLarge, drover.CodeInvalidRequest} {
		o := &owner{}
		o.answer = func(m *drover.RecordRequest) (*drover.RecordReply, error) {
			if m.End.Status == drover.DriveCompleted {
				return nil, drover.Errorf(code, "it is refused")
			}
			return o.keep(m)
		}
		end, err := def.NewBody(o, flow.BodyOptions{}).Drive(t.Context(), request(1), 1)
		if err != nil || end.Status != drover.DriveFailed || end.Error.Code != code || o.got[len(o.got)-1].End != end {
			t.Errorf("%s: %+v, %v", code, end, err)
		}
	}
}

// Somebody else may have been asked for the same drive, and records between the
// time at which the journal is read and that at which the drive is taken: what he
// has done is not done again.
func TestPrograms02ADriveIsTakenBeforeAnythingIsDone(t *testing.T) {
	steps := 0
	def := flow.Program("p", func(run *flow.Run, _ any) (int, error) {
		return flow.Step(run, "a", count(&steps))
	})
	for _, c := range []struct {
		code  drover.Code
		steps int
		want  drover.Code
	}{{"", 1, ""}, {drover.CodeStale, 0, ""}, {drover.CodeFenced, 0, drover.CodeFenced}} {
		steps = 0
		o := &owner{}
		o.answer = func(m *drover.RecordRequest) (*drover.RecordReply, error) {
			if len(o.got) > 1 || c.code == "" {
				return o.keep(m)
			}
			o.journal = drover.JournalReply{Records: 1, Entries: 1, Journal: []drover.Entry{{Number: 1, Kind: drover.EntryStep, ID: "a", Output: raw("7")}}}
			return nil, drover.Errorf(c.code, "somebody else has recorded")
		}
		req := request(1)
		req.Partial = true
		end, err := def.NewBody(o, flow.BodyOptions{}).Drive(t.Context(), req, 2)
		if drover.CodeOf(err, "") != c.want || steps != c.steps || len(o.got[0].Records) > 0 || o.got[0].End != nil {
			t.Errorf("after %q: %+v, %v, %d steps, first said %+v", c.code, end, err, steps, o.got[0])
		}
	}
}

func TestPrograms10HeartbeatsAndNudges(t *testing.T) {
	natstest.Clock(t, func(t *testing.T) {
		def := flow.Program("p", func(run *flow.Run, _ any) (string, error) {
			return flow.Step(run, "slow", func(ctx context.Context) (string, error) {
				select {
				case <-time.After(time.Minute + time.Second):
					return "done", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
		})
		o := &owner{}
		beats := 0
		o.answer = func(m *drover.RecordRequest) (*drover.RecordReply, error) {
			if len(m.Records) == 0 && m.End == nil {
				if beats++; beats == 3 { // there is a stop
					o.journal.Entries++
					o.journal.Journal = append(o.journal.Journal, drover.Entry{Number: 1, Kind: drover.EntryStop, ID: "enough"})
				}
			}
			return o.keep(m)
		}
		start := time.Now()
		body := def.NewBody(o, flow.BodyOptions{Beat: 10 * time.Second})
		end, err := body.Drive(t.Context(), request(1), 1)
		if err != nil || end.Status != drover.DriveCancelled || time.Since(start) != 20*time.Second {
			t.Fatalf("%+v %v after %s", end, err, time.Since(start))
		}
	})
}

// The owner hears of a drive whose first step takes long: soon, and what a body
// that was kept knows is that of its run.
func TestPrograms10ALongStepOfAKeptBodyHasHeartbeats(t *testing.T) {
	natstest.Clock(t, func(t *testing.T) {
		def := flow.Program("p", func(run *flow.Run, _ any) (string, error) {
			if _, err := flow.Wait[string](run, "w", "go"); err != nil {
				return "", err
			}
			return flow.Step(run, "slow", func(context.Context) (string, error) {
				time.Sleep(25 * time.Second)
				return "done", nil
			})
		})
		o := &owner{}
		o.answer = o.keep
		body := def.NewBody(o, flow.BodyOptions{Keep: "inbox", Beat: 10 * time.Second})
		if _, err := body.Drive(t.Context(), request(1), 1); err != nil {
			t.Fatal(err)
		}
		next := request(2)
		next.From, next.Records, next.Entries = 2, 1, 2
		next.Journal = []drover.Entry{{Number: 2, Kind: drover.EntryEnded, ID: "w", Output: raw(`"x"`)}}
		o.journal.Journal = append(o.journal.Journal, next.Journal...)
		o.journal.Entries = 2
		o.got = nil
		if end, err := body.Drive(t.Context(), next, 1); err != nil || end.Status != drover.DriveCompleted {
			t.Fatalf("%+v %v", end, err)
		}
		for i, m := range o.got[:min(3, len(o.got))] {
			if m.Drive != 2 || m.At != 1 || m.Have != 2 || len(m.Records) > 0 || m.End != nil {
				t.Errorf("heartbeat %d is %+v", i+1, m)
			}
		}
		if len(o.got) != 5 && len(o.got) != 4 { // after 1, 10 and 20 s; the step, and the end
			t.Errorf("it said %d things", len(o.got))
		}
	})
}

func TestPrograms16AKeptBodyGoesOn(t *testing.T) {
	bodies := 0
	def := flow.Program("p", func(run *flow.Run, _ any) (string, error) {
		bodies++
		return flow.Wait[string](run, "w", "go")
	})
	o := &owner{}
	o.answer = o.keep
	body := def.NewBody(o, flow.BodyOptions{Keep: "inbox"})
	end, err := body.Drive(t.Context(), request(1), 1)
	if err != nil || end.Status != drover.DriveWaiting || !body.Kept() || o.got[0].Keep != "inbox" {
		t.Fatalf("%+v %v", end, err)
	}
	next := request(2)
	next.From, next.Records, next.Entries = 2, 1, 2
	next.Journal = []drover.Entry{{Number: 2, Kind: drover.EntryEnded, ID: "w", Output: raw(`"x"`)}}
	o.journal.Journal = append(o.journal.Journal, next.Journal...)
	o.journal.Entries = 2
	end, err = body.Drive(t.Context(), next, 1)
	if err != nil || end.Status != drover.DriveCompleted || string(end.Result) != `"x"` || bodies != 1 || o.read != 0 {
		t.Fatalf("%+v %v, %d executions, read %d times", end, err, bodies, o.read)
	}
}

func TestPrograms16AKeptBodyOfAnotherJournalIsDropped(t *testing.T) {
	bodies := 0
	def := flow.Program("p", func(run *flow.Run, _ any) (string, error) {
		bodies++
		return flow.Wait[string](run, "w", "go")
	})
	o := &owner{}
	o.answer = o.keep
	body := def.NewBody(o, flow.BodyOptions{Keep: "inbox"})
	if end, err := body.Drive(t.Context(), request(1), 1); err != nil || end.Status != drover.DriveWaiting {
		t.Fatalf("%+v %v", end, err)
	}
	next := request(2)
	next.Seed = "another"
	next.From, next.Records, next.Entries = 2, 1, 2
	next.Journal = []drover.Entry{{Number: 2, Kind: drover.EntryEnded, ID: "w", Output: raw(`"x"`)}}
	o.journal.Journal = append(o.journal.Journal, next.Journal...)
	o.journal.Entries = 2
	end, err := body.Drive(t.Context(), next, 1)
	if err != nil || end.Status != drover.DriveCompleted || bodies != 2 || o.read != 1 {
		t.Fatalf("%+v %v, %d executions, read %d times", end, err, bodies, o.read)
	}
}

func TestProgramsIDsThatCannotBeRunNothing(t *testing.T) {
	for _, id := range []string{"", "a~b", "a@b", "a.b", strings.Repeat("x", 101)} {
		n := 0
		def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
			_, err := flow.Step(run, id, count(&n))
			for _, err := range []error{err, run.Sleep(id, time.Second), flow.Stream(run, id).Text("x")} {
				if !errors.Is(err, drover.CodeInvalidID) || !strings.Contains(err.Error(), "~ @") {
					return nil, fmt.Errorf("id %q: %w", id, err)
				}
			}
			return nil, nil
		})
		if r := flowtest.Run(t, def, nil, nil); r.Status != drover.StatusCompleted || n != 0 || len(r.Journal) != 0 {
			t.Errorf("%q: %s %v, %d steps", id, r.Status, r.Error, n)
		}
	}
}

func TestPrograms14ADroppedBodyUnwinds(t *testing.T) {
	var did log
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		defer did.did("outer")
		flow.Go(run, func(run *flow.Run) (any, error) {
			defer did.did("branch")
			return flow.Wait[any](run, "v", "go")
		})
		func() {
			defer func() { did.did("recovered " + map[bool]string{true: "something", false: "nothing"}[recover() != nil]) }()
			_, _ = flow.Wait[any](run, "w", "go")
		}()
		_, err := flow.Wait[any](run, "again", "go") // a body that goes on is unwound again
		did.did("never")
		return nil, err
	})
	o := &owner{}
	o.answer = o.keep
	body := def.NewBody(o, flow.BodyOptions{Keep: "inbox"})
	if end, err := body.Drive(t.Context(), request(1), 1); err != nil || end.Status != drover.DriveWaiting {
		t.Fatalf("%+v %v", end, err)
	}
	body.Close()
	did.want(t, "branch recovered something outer")
	if len(o.got) != 1 {
		t.Errorf("%d commands", len(o.got))
	}
}

func TestProgramsWhatCannotBeAskedForIsAnError(t *testing.T) {
	def := flow.Program("bad", func(run *flow.Run, _ any) (string, error) {
		good := flow.StartCall[string](run, "good", "echo", "x")
		_, err := flow.Call[string](run, "call", "no function", nil)
		if drover.CodeOf(err, "") == "" || errors.Is(err, drover.CodeStopped) {
			return "", errors.New("the call was made")
		}
		big := make([]string, 3)
		for i := range big { // several at a time
			f := flow.StartWait[string](run, string(rune('a'+i)), "n", flow.Schema(`{"type":"nonsense"}`))
			if _, err := f.Get(run); err == nil {
				return "", errors.New("the wait was made")
			}
		}
		return good.Get(run)
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) {
		e.Function("echo", func(in raw) (any, error) { return in, nil })
	})
	if got := flowtest.Output[string](r); got != "x" {
		t.Fatal(got)
	}
}

func TestPrograms07AForcedStopEndsSteps(t *testing.T) {
	natstest.Clock(t, func(t *testing.T) {
		def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
			return flow.Step(run, "slow", func(ctx context.Context) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		})
		o := &owner{answer: func(*drover.RecordRequest) (*drover.RecordReply, error) {
			return &drover.RecordReply{Status: drover.StatusCancelled}, nil
		}}
		body := def.NewBody(o, flow.BodyOptions{Beat: 10 * time.Second})
		start := time.Now()
		if _, err := body.Drive(t.Context(), request(1), 1); !errors.Is(err, drover.CodeFenced) || time.Since(start) != time.Second {
			t.Fatalf("%v after %s", err, time.Since(start))
		}
	})
}
