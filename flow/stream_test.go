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
)

// text is a stream as its readers see it.
func text(list []drover.Chunk) string {
	var b strings.Builder
	for i, c := range list {
		fmt.Fprintf(&b, "%s%d:%s:%s", map[bool]string{true: " "}[i > 0], c.Number, c.Type, c.Data)
	}
	return b.String()
}

var teller = flow.Program("teller", func(run *flow.Run, rounds int) (any, error) {
	w := flow.Stream(run, "log")
	for i := range rounds {
		if err := errors.Join(w.Text(fmt.Sprint("round ", i)), w.JSON(map[string]int{"i": i})); err != nil {
			return nil, err
		}
		if _, err := flow.Step(run, fmt.Sprint("step", i), func(context.Context) (int, error) { return i, nil }); err != nil {
			return nil, err
		}
		if err := run.Sleep(fmt.Sprint("pause", i), time.Hour); err != nil {
			return nil, err
		}
	}
	return nil, errors.Join(w.Bytes([]byte{0x00, 0xff}), w.Close())
})

func TestPrograms13RepeatedDrivesRepeatNoChunk(t *testing.T) {
	want := "1:text:round 0 2:json:{\"i\":0} 3:text:round 1 4:json:{\"i\":1} 5:text:round 2 6:json:{\"i\":2} 7:bytes:\x00\xff"
	for _, script := range []flowtest.Script{nil, func(e *flowtest.Env) { e.Forget() }, func(e *flowtest.Env) { e.Eager() }} {
		r := flowtest.Check(t, teller, 3, script)
		if got := text(r.Streams["log"]); got != want {
			t.Errorf("the stream is %q, want %q", got, want)
		}
	}
}

func TestPrograms13StreamsGoOnWhereABodyBeginsAnew(t *testing.T) {
	def := flow.Program("anew", func(run *flow.Run, round int) (any, error) {
		w, other := flow.Stream(run, "log"), flow.Stream(run, fmt.Sprint("only", round))
		for i := range 3 {
			if err := errors.Join(w.Text(fmt.Sprint(round, ".", i)), other.Text("x")); err != nil {
				return nil, err
			}
			if err := run.Sleep(fmt.Sprint("pause", i), time.Minute); err != nil {
				return nil, err
			}
		}
		if err := other.Close(); err != nil {
			return nil, err
		}
		if round < 3 {
			return nil, run.ContinueAsNew(round + 1)
		}
		return nil, w.Close()
	})
	r := flowtest.Check(t, def, 1, nil)
	want := "1:text:1.0 2:text:1.1 3:text:1.2 4:text:2.0 5:text:2.1 6:text:2.2 7:text:3.0 8:text:3.1 9:text:3.2"
	if got := text(r.Streams["log"]); got != want {
		t.Errorf("the stream is %q, want %q", got, want)
	}
	if got := text(r.Streams["only2"]); got != "1:text:x 2:text:x 3:text:x" {
		t.Errorf("the other stream is %q", got)
	}
}

func TestPrograms13WhatCannotBeWritten(t *testing.T) {
	def := flow.Program("bad", func(run *flow.Run, _ any) ([]string, error) {
		var codes []string
		add := func(err error) { codes = append(codes, string(drover.CodeOf(err, "none"))) }
		w := flow.Stream(run, "log")
		add(w.Bytes(make([]byte, drover.MaxChunk)))
		add(w.Bytes(make([]byte, drover.MaxChunk+1)))
		add(w.JSON(func() {}))
		add(flow.Stream(run, "log").Text("again"))
		add(flow.Stream(run, "a.b").Text("no id"))
		add(w.Close())
		add(w.Text("late"))
		add(w.Close())
		_, err := flow.Step(run, "log", func(context.Context) (int, error) { return 1, nil }) // ids of steps are others
		add(err)
		return codes, nil
	})
	got := flowtest.Output[[]string](flowtest.Check(t, def, nil, nil))
	if text := strings.Join(got, " "); text != "none too_large invalid_input conflict invalid_id none conflict conflict none" {
		t.Errorf("it says %s", text)
	}
}

func TestPrograms13StreamsInAStepAreRefused(t *testing.T) {
	def := flow.Program("inside", func(run *flow.Run, _ any) (any, error) {
		w := flow.Stream(run, "log")
		return flow.Step(run, "s", func(context.Context) (int, error) { return 0, w.Text("from a step") })
	})
	r := flowtest.Run(t, def, nil, nil)
	if r.Status != drover.StatusFailed || !strings.Contains(r.Error.Message, "outside of its branch") {
		t.Errorf("the run is %s: %v", r.Status, r.Error)
	}
}

// store is a transport whose streams are kept, and whose owner takes all records.
type store struct {
	mu       sync.Mutex
	messages []flow.StreamMessage
	entries  int
	ends     []*drover.DriveEnd
	before   func(s *store) // an append, once
	after    func() error   // an append
}

func (s *store) Record(_ context.Context, run drover.RunID, m *drover.RecordRequest) (*drover.RecordReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.End != nil {
		s.ends = append(s.ends, m.End)
	}
	return &drover.RecordReply{RunID: run, Records: m.At + len(m.Records), Entries: s.entries, Driving: m.End == nil}, nil
}

func (s *store) Journal(_ context.Context, run drover.RunID, _ int) (*drover.JournalReply, error) {
	return &drover.JournalReply{RunID: run, Input: raw("3")}, nil
}

func (s *store) StreamTail(context.Context, drover.RunID, string) (tail flow.StreamTail, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail(), nil
}

func (s *store) tail() (tail flow.StreamTail) {
	if n := len(s.messages); n > 0 {
		tail = flow.StreamTail{Sequence: uint64(10 * n), Message: s.messages[n-1]}
	}
	return tail
}

func (s *store) StreamAppend(_ context.Context, _ drover.RunID, _ string, after uint64, list []flow.StreamMessage) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.before; before != nil {
		s.before = nil
		before(s)
	}
	if s.tail().Sequence != after {
		return 0, drover.Errorf(drover.CodeConflict, "not the last one")
	}
	s.messages = append(s.messages, list...)
	if s.after != nil {
		return s.tail().Sequence, s.after()
	}
	return s.tail().Sequence, nil
}

// speaker writes without anything else, so that a drive needs no journal.
var speaker = flow.Program("speaker", func(run *flow.Run, chunks int) (any, error) {
	w := flow.Stream(run, "log")
	for i := range chunks {
		if err := w.Text(fmt.Sprint(i)); err != nil {
			return nil, err
		}
	}
	return nil, w.Close()
})

func (s *store) drive(t *testing.T, drive, fence int) (*drover.DriveEnd, error) {
	t.Helper()
	return speaker.NewBody(s, flow.BodyOptions{}).Drive(t.Context(), &drover.DriveRequest{RunID: "r", Program: "speaker", Drive: drive, Input: raw("3")}, fence)
}

func (s *store) want(t *testing.T, want string) {
	t.Helper()
	got := ""
	for i, m := range s.messages {
		if m.Number != i+1 {
			t.Errorf("message %d has number %d", i+1, m.Number)
		}
		got += fmt.Sprintf("%s(%d.%d) ", m.Data, m.Writer.Drive, m.Writer.Fence)
	}
	if got = strings.TrimSpace(got); got != want {
		t.Errorf("the stream is %s, want %s", got, want)
	}
}

func (s *store) write(drive, fence int, list ...string) {
	for _, data := range list {
		s.messages = append(s.messages, flow.StreamMessage{
			Number: len(s.messages) + 1, Type: drover.ChunkText, Data: []byte(data), Writer: flow.StreamWriter{Drive: drive, Fence: fence},
		})
	}
}

func TestPrograms13OldDrivesLose(t *testing.T) {
	for _, tt := range []struct {
		what         string
		drive, fence int // of who writes in between
		fenced       bool
		want         string
	}{
		{"an older drive", 1, 7, false, "0(1.7) 1(2.2) 2(2.2) (2.2)"},
		{"an older fence", 2, 1, false, "0(2.1) 1(2.2) 2(2.2) (2.2)"},
		{"a later drive", 3, 1, true, "0(3.1)"},
		{"a later fence", 2, 3, true, "0(2.3)"},
	} {
		for _, first := range []bool{true, false} {
			s := &store{}
			if first { // it is there when the drive begins
				s.write(tt.drive, tt.fence, "0")
			} else { // or comes when it has looked
				s.before = func(s *store) { s.write(tt.drive, tt.fence, "0") }
			}
			end, err := s.drive(t, 2, 2)
			if fenced := errors.Is(err, drover.CodeFenced); fenced != tt.fenced || !fenced && (err != nil || end.Status != drover.DriveCompleted) {
				t.Errorf("%s (first: %v): %v, %v", tt.what, first, end, err)
			}
			s.want(t, tt.want)
		}
	}
}

func TestPrograms13LostAnswersRepeatNothing(t *testing.T) {
	s := &store{}
	s.after = func() error {
		s.after = nil
		return drover.Errorf(drover.CodeConflict, "as of a repeat that the transport made")
	}
	if end, err := s.drive(t, 2, 1); err != nil || end.Status != drover.DriveCompleted {
		t.Errorf("%v, %v", end, err)
	}
	if len(s.messages) != 4 {
		t.Errorf("%d messages, want 4", len(s.messages))
	}
}

func TestPrograms13ABodyThatWritesOnAfterItsEndIsBlocked(t *testing.T) {
	s := &store{}
	s.write(1, 1, "0")
	s.messages = append(s.messages, flow.StreamMessage{Number: 2, End: true, Writer: flow.StreamWriter{Drive: 1, Fence: 1}})
	end, err := s.drive(t, 2, 1)
	if err != nil || end.Status != drover.DriveBlocked || !strings.Contains(end.Error.Message, "has ended with 1 chunks") {
		t.Errorf("%v, %v", end, err)
	}
}

func TestPrograms13ProcessesThatEndLeaveTheRest(t *testing.T) {
	s := &store{}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the process ends")
	s.after = func() error { cancel(gone); return gone }
	end, err := speaker.NewBody(s, flow.BodyOptions{}).Drive(ctx, &drover.DriveRequest{RunID: "r", Program: "speaker", Drive: 1, Input: raw("3")}, 1)
	if !errors.Is(err, gone) || len(s.ends) > 0 {
		t.Errorf("%v, %v, %v", end, err, s.ends)
	}
	s.after = nil
	if end, err := s.drive(t, 1, 2); err != nil || end.Status != drover.DriveCompleted {
		t.Errorf("%v, %v", end, err)
	}
	if len(s.messages) != 4 {
		t.Errorf("%d messages, want 4", len(s.messages))
	}
}
