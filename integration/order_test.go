package integration_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// orders are what the README of the example says of its runs.
var orders = []struct {
	run    drover.RunID
	status drover.Status
	result string // or what its error says
	undone string
}{
	{"small", drover.StatusCompleted, `{"charge":"charge:small","total":80,"tracking":"track:`, ""},
	{"big", drover.StatusCompleted, `"approved_by":"kim"`, ""},
	{"piano", drover.StatusCompensated, "no carrier takes box 1: piano", "charge reserve"},
	{"never", drover.StatusCompensated, "changed their mind", "charge reserve"},
}

// TestOrder does what the README of the example says.
func TestOrder(t *testing.T) {
	t.Parallel()
	_, commands := shown(t, "order")
	dir, address := t.TempDir(), freeAddress(t)
	url := "nats://" + address
	env := []string{
		"DROVER_LISTEN=" + address, "DROVER_DATA=" + filepath.Join(dir, "data"), "DROVER_NATS=" + url, "NATS_URL=" + url,
		"DROVER_TIMEOUT=" + patience.String(),
	}
	fails := []string{"drover wait piano", "drover wait never"}
	var shop *process
	for i, line := range commands {
		if line == "go run ./examples/order" { // which cannot be killed with its child
			out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "order"), "../examples/order").CombinedOutput()
			if err != nil {
				t.Fatalf("the example cannot be built: %v\n%s", err, out)
			}
			shop = command(t, dir, "./order", env...)
			shop.line("serving order and parcel")
			continue
		}
		if line == `drover stop never --reason "changed their mind"` { // a reader is not as fast as this
			parks(t, connect(t, url), "never")
		}
		p := command(t, dir, line, env...)
		if i == 0 {
			p.line("drover is ready")
			continue
		}
		status, stdout, stderr := p.wait()
		if want := slices.Contains(fails, line); status != 0 && status != 4 || want != (status == 4) {
			t.Fatalf("%s: exit status %d, %s%s", line, status, stdout, stderr)
		}
	}
	f := connect(t, url)
	for _, want := range orders {
		o := f.outcome(want.run)
		text := compact(o.Result)
		if o.Error != nil {
			text = o.Error.Message
		}
		if o.Status != want.status || !strings.Contains(text, want.result) {
			t.Errorf("order %s is %s: %s; want %s, %s", want.run, o.Status, text, want.status, want.result)
		}
		if got := undone(f, want.run); got != want.undone {
			t.Errorf("order %s has undone %q, want %q", want.run, got, want.undone)
		}
	}
	shop.signal(os.Interrupt)
	if status, stdout, stderr := shop.wait(); status != 0 || !strings.Contains(stdout, "charge:piano: refunded\nshelf:piano: put back\n") {
		t.Errorf("the shop ends with %d and said\n%s%s", status, stdout, stderr)
	}
}

// parks waits until the body of a program waits.
func parks(t testing.TB, f *fleet, run drover.RunID) drover.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for r, err := range f.Watch(ctx, run) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Program != nil && r.Program.State == "parked" {
			return r
		}
	}
	t.Fatalf("run %s does not wait", run)
	panic("unreachable")
}

// undone is what a program has undone, in its order.
func undone(f *fleet, run drover.RunID) string {
	f.t.Helper()
	var ids []string
	for _, e := range f.history(run) {
		if e.Kind == drover.EntryUndo {
			ids = append(ids, e.ID)
		}
	}
	return strings.Join(ids, " ")
}

// history is the journal of a program.
func (f *fleet) history(run drover.RunID) []drover.Entry {
	f.t.Helper()
	j, err := f.Journal(f.t.Context(), run, 1)
	if err != nil {
		f.t.Fatalf("the journal of run %s: %v", run, err)
	}
	return j.Journal
}
