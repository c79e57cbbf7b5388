package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// begins starts a run of a program.
func (f *fleet) begins(run drover.RunID, program string, input string) {
	f.t.Helper()
	f.publish(run, drover.VerbStart, drover.StartRequest{Definition: text("program: " + program), Input: []byte(input)})
}

// times reads how often each step was done: "run step".
func times(t testing.TB, done string) map[string]int {
	t.Helper()
	data, err := os.ReadFile(done)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(data)) {
		n[strings.TrimSpace(line)]++
	}
	return n
}

// The process of a program of 20 steps is killed after each of them in turn, and
// in some: no step that was recorded runs again, and the result is right.
func TestPrograms01ProcessIsKilledAfterEachStep(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	done := filepath.Join(t.TempDir(), "done")
	var all []string
	dies := map[string]string{}
	for i := 1; i <= 20; i++ {
		dies[fmt.Sprint("after", i)] = fmt.Sprint("after:", i)
	}
	for _, i := range []int{1, 7, 12, 20} {
		dies[fmt.Sprint("in", i)] = fmt.Sprint("in:", i)
	}
	var first []*process
	for name, when := range dies {
		all = append(all, name)
		first = append(first, host(t, f.url, done, "first-"+name, "twenty", when, name))
		f.begins(drover.RunID(name), name, "null")
	}
	for _, p := range first {
		if status, _, _ := p.wait(); status == 0 {
			t.Error("a process that should die ended well")
		}
	}
	host(t, f.url, done, "second", "twenty", "", all...)
	for name := range dies {
		f.completes(drover.RunID(name), twentySum)
	}
	n := times(t, done)
	for name, when := range dies {
		for i := 1; i <= 20; i++ {
			want := 1
			if when == fmt.Sprint("in:", i) {
				want = 2
			}
			if got := n[fmt.Sprintf("%s s%d", name, i)]; got != want {
				t.Errorf("%s: step %d was done %d times, want %d", when, i, got, want)
			}
		}
	}
}

// One run goes through the death of three processes.
func TestPrograms03ProcessAfterProcessIsKilled(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	done := filepath.Join(t.TempDir(), "done")
	deaths := []string{"after:2", "in:6", "after:19"}
	if testing.Short() {
		deaths = deaths[:1]
	}
	f.begins("r1", "twenty", "null")
	for i, when := range deaths {
		host(t, f.url, done, fmt.Sprint("p", i), "twenty", when, "twenty").wait()
	}
	host(t, f.url, done, "last", "twenty", "", "twenty")
	f.completes("r1", twentySum)
	for step, n := range times(t, done) {
		if n != 1 && (step != "r1 s6" || n != 2) {
			t.Errorf("%s was done %d times", step, n)
		}
	}
	if r, err := f.Status(t.Context(), drover.RunRequest{RunID: "r1"}); err != nil || r.Run.Program.Instance != "last" {
		t.Errorf("the program is %+v, error %v", r.Run.Program, err)
	}
}

// A process is frozen in a step, another one takes the drive over, and the first
// one thaws: what it has to say is refused.
func TestPrograms02OldAndNewProcess(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	cmd := hosting(t, f.url, "", "old", "pair", "", "pair")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = out.Close() }()
	cmd.Stdin = in
	old := start(t, cmd)
	f.begins("r1", "pair", "null")
	old.line("in one")
	old.signal(syscall.SIGSTOP)
	fresh := host(t, f.url, "", "new", "pair", "", "pair")
	fresh.line("past one")
	parks(t, f, "r1")
	old.signal(syscall.SIGCONT)
	if err := out.Close(); err != nil { // the step ends
		t.Fatal(err)
	}
	old.line("left")
	if strings.Contains(old.tail(), "past one") {
		t.Error("the body of the old process went on although its record was refused")
	}
	f.publish("r1", drover.VerbDeliver, drover.DeliverRequest{Name: "end"})
	f.completes("r1", `"new"`)
	steps := 0
	for _, e := range f.history("r1") {
		if e.Kind == drover.EntryStep {
			steps++
			if string(e.Output) != `"new"` {
				t.Errorf("the journal has the step of %s", e.Output)
			}
		}
	}
	if steps != 1 {
		t.Errorf("the journal has %d steps", steps)
	}
}
