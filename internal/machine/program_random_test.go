package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// fleet is some processes that drive one run, those that are given up included,
// and a dumb twin of its journal.
type fleet struct {
	*world
	body       body
	all        []*process
	sent       []drover.RecordRequest
	count      int
	lines      []string // of the twin
	generation int
	effects    map[string]bool
	forgets    []Effect
	stopped    bool
}

func newFleet(t testing.TB, d *dice) *fleet {
	more := []string{"", `,"timeout":"30m"`, `,"compute_timeout":"2m","max_drives":40`, `,"retry":{"max_attempts":50,"initial":"1s"}`}[d.roll(4)]
	f := &fleet{world: newWorld(t, `{"program":"order"`+more+`}`), body: makeBody(d), effects: map[string]bool{}}
	f.watch = f.compare
	f.start([]string{`1`, string(quoted(3000))}[d.roll(2)])
	return f
}

// compare holds that the journal only grows, that only records of the process
// that drives are the body's, in their order, and that nothing is set off twice.
func (f *fleet) compare(step Step) {
	f.t.Helper()
	for _, e := range step.Effects {
		name := effectName(e)
		if e.Kind == EffectCall || e.Kind == EffectStart || e.Kind == EffectDrive {
			if f.effects[name] && !(e.Kind == EffectDrive && step.State.Program.Keep == "") { // a drive may be in the queue, or not
				f.t.Fatalf("%s is there twice", name)
			}
			f.effects[name] = true
		}
	}
	f.forgets = append(f.forgets, step.Effects...)
	if f.seq%5 == 0 { // what earlier journals have left goes a little later
		f.forget(f.forgets)
		f.forgets = nil
	}
	if f.s == nil || f.s.Program == nil || !step.Changed {
		return
	}
	if g := f.s.Program.Generation; g != f.generation {
		f.generation, f.lines = g, nil
		f.body = slices.DeleteFunc(f.body, func(o bodyOp) bool { return o.kind == "again" })
	}
	var now []string
	count := map[string]int{}
	for _, l := range f.world.lines() {
		now = append(now, f.entry(&l))
		key := fmt.Sprintf("%s %s@%d", l.Kind, l.ID, l.Attempt)
		if count[key]++; count[key] > 1 && l.Kind != drover.EntryCancel {
			f.t.Fatalf("%s counts twice in %q", key, now)
		}
	}
	if len(now) < len(f.lines) || !slices.Equal(now[:len(f.lines)], f.lines) {
		f.t.Fatalf("the journal was\n%q\nand is\n%q", f.lines, now)
	}
	f.lines = now
}

// tell sends a record, and holds the journal to what the twin says of it.
func (f *fleet) tell(m drover.RecordRequest) Step {
	f.t.Helper()
	f.sent = append(f.sent, m)
	g := f.s.Program
	var want []string
	if g.driving() && !f.s.Terminal() {
		for _, e := range m.Records[min(max(g.Records-m.At, 0), len(m.Records)):] {
			want = append(want, fmt.Sprintf("%s %s", e.Kind, e.ID))
		}
	}
	known, generation := len(f.lines), f.generation
	step := f.record1(m)
	if step.Refused != nil {
		want = nil
	}
	var got []string
	if generation == f.generation {
		for _, l := range f.world.lines()[known:] {
			if l.Kind != drover.EntryEnded && l.Kind != drover.EntryStop {
				got = append(got, fmt.Sprintf("%s %s", l.Kind, l.ID))
			}
		}
	}
	if !slices.Equal(got, want) && !(f.s.Terminal() && got == nil) {
		f.t.Fatalf("sent %s\nrecorded %q, want %q", show(m), got, want)
	}
	return step
}

// act has one process do what comes next.
func (f *fleet) act(p *process, lost bool) {
	f.t.Helper()
	step := f.tell(p.next(f.body))
	switch {
	case step.Refused != nil && step.Refused.Code == drover.CodeStale:
		p.pending = nil
		p.read()
	case step.Refused != nil && step.Refused.Code == drover.CodeFenced:
		f.gone(p)
	case step.Refused != nil:
		f.t.Fatalf("refused: %v", step.Refused)
	case lost:
	case !p.hear(step.Answer.(drover.RecordReply)):
		f.gone(p)
	}
}

func (f *fleet) gone(p *process) {
	f.all = slices.DeleteFunc(f.all, func(q *process) bool { return q == p })
}

// handOut gives the drive to one more process.
func (f *fleet) handOut() *process {
	f.count++
	p := f.world.handOut(fmt.Sprintf("proc-%d", f.count))
	f.all = append(f.all, p)
	return p
}

// random does one random thing.
func (f *fleet) random(d *dice) {
	g := f.s.Program
	switch d.roll(13) {
	case 0:
		if g.driving() {
			p := f.handOut() // also where another drives: the queue thinks that it is dead
			p.d.keep = []string{"", "_INBOX.kept"}[d.roll(2)]
			p.d.version = []string{"", "v1", "v2"}[d.roll(3)]
		}
	case 1, 2, 3, 4:
		if len(f.all) > 0 {
			f.act(f.all[d.roll(len(f.all))], d.roll(4) == 1)
		}
	case 5:
		if len(f.sent) > 0 {
			f.tell(f.sent[d.roll(len(f.sent))])
		}
	case 6:
		if len(f.all) > 0 {
			f.gone(f.all[d.roll(len(f.all))])
		}
	case 7:
		f.pass(time.Duration(d.roll(20)) * time.Second).tick()
	case 8:
		if len(f.s.Active) > 0 {
			f.end(&graph{}, d.roll(20))
		}
	case 9:
		f.deliver("x", []string{`1`, string(quoted(2500))}[d.roll(2)], []string{"", "1", "2"}[d.roll(3)])
	case 10:
		if d.roll(6) == 1 {
			f.stopped = true
			f.send(&Command{Verb: drover.VerbStop, Stop: &drover.StopRequest{Reason: "random", Force: d.roll(3) == 1}})
		}
	case 11:
		f.hostile(d)
	case 12:
		if d.roll(2) == 1 && f.s.Program.Looks > 0 {
			f.looked(1 + d.roll(f.s.Program.Looks))
			return
		}
		if len(f.all) > 0 && d.roll(3) == 1 {
			p := f.all[d.roll(len(f.all))]
			f.tell(p.d.request(&drover.DriveEnd{Status: []drover.DriveStatus{drover.DrivePanicked, drover.DriveBlocked}[d.roll(2)], Error: bad("random")}))
			f.gone(p)
		}
	}
}

// hostile sends what no process should.
func (f *fleet) hostile(d *dice) {
	m := f.driven().request(nil, stepped("a~2", `1`))
	switch d.roll(6) {
	case 0:
		m.Token = "forged"
	case 1:
		m.At += 1 + d.roll(3)
	case 2:
		m.Have += 1 + d.roll(3)
	case 3:
		m.Records = []drover.Entry{asked("n", `{"wait":{"from":"n"}}`, "")}
	case 4:
		m.Records = []drover.Entry{{Kind: "stop", ID: "x"}}
	}
	if f.record1(m); f.last.Refused == nil {
		f.t.Fatalf("%s was taken", show(m))
	}
}

// finish has the run come to its end, as a fleet without faults does.
func (f *fleet) finish() {
	f.t.Helper()
	f.all = nil
	for round := 0; !f.s.Terminal(); round++ {
		if round > 1000 {
			f.t.Fatalf("%+v\ndoes not end: %s", f.body, f.record)
		}
		if len(Why(f.p, f.s)) == 0 {
			f.t.Fatalf("waits for nothing: %s", f.record)
		}
		switch g := f.s.Program; {
		case g.driving() && len(f.all) > 0:
			f.act(f.all[0], false)
		case g.driving():
			f.handOut()
		case g.State == DriveBlocked:
			f.pass(time.Millisecond).tick()
		case len(f.s.Active) == 0:
			f.wake()
		default:
			f.end(&graph{}, round)
		}
	}
}

func playProgram(t *testing.T, data []byte) {
	d := &dice{data}
	f := newFleet(t, d)
	for range 300 {
		if len(d.bytes) == 0 || f.s.Terminal() {
			break
		}
		f.random(d)
	}
	f.finish()
	f.view()
	before := string(f.record)
	for _, m := range f.sent[max(0, len(f.sent)-3):] {
		f.record1(m)
	}
	if string(f.record) != before {
		t.Fatal("a terminal run changed")
	}
	f.judge()
}

// judge holds the end of the run to what its body is.
func (f *fleet) judge() {
	f.t.Helper()
	steps := 0
	for _, l := range f.lines {
		if strings.HasPrefix(l, "step ") {
			steps++
		}
	}
	for _, o := range f.body {
		if o.kind == "dropped" && o.many == 2 && f.generation == 0 && slices.Contains(f.lines, "node "+o.id) && !f.effects["start "+o.id+"@1"] {
			f.t.Fatalf("the abandoned child %s was not started: %q", o.id, f.lines)
		}
	}
	switch s := f.s.Status; {
	case s == drover.StatusCompleted:
		f.wantResult(fmt.Sprint(steps))
		for _, o := range f.body {
			if o.kind == "step" || o.kind == "tries" {
				steps--
			}
		}
		if steps != 0 {
			f.t.Fatalf("%+v\nis over, with %q", f.body, f.lines)
		}
	case s == drover.StatusFailed && (f.s.Error.Code == drover.CodeTimeout || f.s.Error.Code == "x"):
	case s == drover.StatusCompensationFailed && f.stopped && strings.Contains(f.s.Error.Message, "does not fit the journal: random"):
	case (s == drover.StatusCancelled || s == drover.StatusCompensated) && f.s.Program.Stop != nil, s == drover.StatusCancelled && f.stopped:
	default:
		f.t.Fatalf("ended %s (%v)", s, f.s.Error)
	}
}

func randomBytes(rng *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.IntN(256))
	}
	return data
}

func FuzzProgram(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		f.Add(randomBytes(rng, 20+rng.IntN(500)))
	}
	f.Fuzz(func(t *testing.T, data []byte) { playProgram(t, data) })
}

// Whatever crashes, is lost, comes twice or too late: what a body did counts
// once, in the order of the log.
func TestPrograms01AgreeWithADumbTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	ends := map[drover.Status]int{}
	for range 150 {
		d := &dice{randomBytes(rng, 30)}
		f := newFleet(t, d)
		for range 40 {
			f.random(&dice{randomBytes(rng, 4)})
			if f.s.Terminal() {
				break
			}
		}
		f.finish()
		f.judge()
		ends[f.s.Status]++
	}
	if ends[drover.StatusCompleted] < 50 || ends[drover.StatusCompensated] == 0 || ends[drover.StatusCancelled] == 0 {
		t.Fatalf("that is no test: %v", ends)
	}
}
