package conformance_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// wire is what processes say to their runs, and are answered, in the order in
// which it passed the server.
type wire struct {
	mu      sync.Mutex
	more    chan struct{}           // closed when there is more
	runs    map[drover.RunID][]*say // in order
	inboxes map[string]*say
	early   map[string]*nats.Msg // answers that were heard before what they answer
	asked   map[drover.RunID]chan *asked
	bad     map[drover.RunID][]string
}

// say is one record command, and its answer.
type say struct {
	drover.RecordRequest
	at    time.Time
	size  int
	reply *drover.RecordReply
	err   drover.Code
	over  bool // it was answered
}

func probeOf(run drover.RunID) string { return "conformance.probe." + string(run) }

// listen reads along. One channel for all keeps the order.
func listen(t *testing.T, nc *nats.Conn) *wire {
	t.Helper()
	w := &wire{
		more: make(chan struct{}), runs: map[drover.RunID][]*say{}, inboxes: map[string]*say{}, early: map[string]*nats.Msg{},
		asked: map[drover.RunID]chan *asked{}, bad: map[drover.RunID][]string{},
	}
	all := make(chan *nats.Msg, 100_000)
	for _, subject := range []string{names.In("*", drover.VerbRecord), probeOf("*")} {
		if _, err := nc.ChanSubscribe(subject, all); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case m := <-all:
				w.hear(m)
			case <-end:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(end)
		<-ended
	})
	return w
}

func (w *wire) hear(m *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tokens := strings.Split(m.Subject, ".")
	switch {
	case tokens[0] == "_INBOX":
		if s := w.inboxes[m.Subject]; s != nil {
			s.answered(m)
		} else {
			w.early[m.Subject] = m
		}
	case tokens[0] == "conformance":
		run := drover.RunID(tokens[2])
		a := &asked{m: m}
		if err := json.Unmarshal(m.Data, &a.question); err != nil {
			w.bad[run] = append(w.bad[run], "a question is no JSON: "+err.Error())
		}
		w.ask(run) <- a
	case tokens[1] == "in" && tokens[3] == string(drover.VerbRecord):
		run := drover.RunID(tokens[2])
		s := &say{at: time.Now(), size: len(m.Data)}
		if err := json.Unmarshal(m.Data, &s.RecordRequest); err != nil {
			w.bad[run] = append(w.bad[run], "a record is no JSON: "+err.Error())
		}
		w.runs[run] = append(w.runs[run], s)
		inbox := m.Header.Get(subjects.HeaderReply)
		if w.inboxes[inbox] = s; w.early[inbox] != nil {
			s.answered(w.early[inbox])
		}
	}
	close(w.more)
	w.more = make(chan struct{})
}

func (s *say) answered(m *nats.Msg) {
	if s.over {
		return
	}
	s.over, s.err = true, drover.Code(m.Header.Get(subjects.HeaderCode))
	if s.err == "" {
		s.reply = &drover.RecordReply{}
		_ = json.Unmarshal(m.Data, s.reply)
	}
}

// ask is where the questions of a run come. The lock is held.
func (w *wire) ask(run drover.RunID) chan *asked {
	if w.asked[run] == nil {
		w.asked[run] = make(chan *asked, 1000)
	}
	return w.asked[run]
}

func (w *wire) questions(run drover.RunID) <-chan *asked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ask(run)
}

// of is all that was said to a run.
func (w *wire) of(run drover.RunID) []say {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []say
	for _, s := range w.runs[run] {
		list = append(list, *s)
	}
	return list
}

// until waits for what is said.
func (w *wire) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	late := time.After(patience)
	for {
		w.mu.Lock()
		more := w.more
		w.mu.Unlock()
		if so() {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("gave up waiting until %s", what)
		}
	}
}

// said is for people.
func (w *wire) said(run drover.RunID) string {
	var b strings.Builder
	for _, s := range w.of(run) {
		data, _ := json.Marshal(s.RecordRequest)
		answer, _ := json.Marshal(s.reply)
		fmt.Fprintf(&b, "  %.400s\n    %s %.400s\n", data, s.err, answer)
	}
	return b.String()
}

// hand is one process with one handing-out of a drive.
type hand struct {
	drive, fence int
	instance     string
}

// check holds what must be so of every run, whatever it does.
func (r *run) check() {
	r.t.Helper()
	r.mu.Lock()
	bad := slices.Clone(r.bad[r.id])
	r.mu.Unlock()
	over := map[hand]string{} // why it may say nothing more
	known := map[hand]int{}   // entries that it was told of
	for i, s := range r.of(r.id) {
		h := hand{s.Drive, s.Fence, s.Instance}
		news := len(s.Records) > 0 || s.End != nil
		wrong := func(format string, args ...any) {
			bad = append(bad, fmt.Sprintf("command %d: "+format, append([]any{i + 1}, args...)...))
		}
		if s.Token == "" || s.Instance == "" || s.Fence < 1 {
			wrong("it lacks token, instance or fence")
		}
		if why := over[h]; why != "" && news {
			wrong("it came after the drive was over: %s", why)
		}
		if s.End != nil && s.End.Status == drover.DriveWaiting && s.Have < known[h] {
			wrong("it parks with %d entries, and was told of %d", s.Have, known[h])
		}
		switch {
		case !s.over, s.err != "" && s.err != drover.CodeFenced && s.err != drover.CodeForbidden:
		case s.err != "":
			over[h] = string(s.err)
		case !s.reply.Driving:
			over[h] = "the run is not driven any more"
		default:
			known[h] = max(known[h], s.reply.Entries)
		}
	}
	for _, text := range bad {
		r.t.Errorf("run %s: %s", r.id, text)
	}
	if len(bad) > 0 {
		r.t.Logf("it said:\n%s", r.said(r.id))
	}
	for what, n := range r.entries() {
		if n > 1 && (strings.HasPrefix(what, "step ") || strings.HasPrefix(what, "undo ")) {
			r.t.Errorf("run %s: the journal has %s %d times", r.id, what, n)
		}
	}
}
