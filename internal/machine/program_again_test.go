package machine

import (
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// A stop that comes between the last look of the body and its new beginning is not
// lost with the journal.
func TestPrograms07AStopIsNotLostByANewBeginning(t *testing.T) {
	w := newProgram(t, "")
	d := w.driven()
	req := d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: []byte(`2`)}, drover.Entry{Kind: drover.EntryStep, ID: "a", Attempt: 1})
	w.send(&Command{Verb: drover.VerbStop, Stop: &drover.StopRequest{Reason: "enough"}})
	d.send(req)
	if w.s.Status != drover.StatusCancelled || w.s.Error == nil || !strings.Contains(w.s.Error.Message, "enough") {
		t.Errorf("run is %s: %v", w.s.Status, w.s.Error)
	}
}

// A body that begins anew for ever without doing anything is found.
func TestPrograms11BeginningAnewIsNoProgress(t *testing.T) {
	w := newProgram(t, `,"max_drives":5`)
	for range 20 {
		if w.s != nil && w.s.Terminal() {
			break
		}
		d := w.driven()
		d.send(d.request(&drover.DriveEnd{Status: drover.DriveAgain, Input: []byte(`1`)}))
	}
	if w.s.Status != drover.StatusFailed {
		t.Errorf("run is %s after %d drives", w.s.Status, w.s.Program.Drive)
	}
}
