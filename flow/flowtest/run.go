package flowtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/machine"
)

// replays is how often a body is driven from its whole journal.
const replays = 20

// Run runs a program in the world of a script until it is over, and holds that each
// drive of its body asks for the same. A run that is blocked fails the test, unless
// the script allows it with [Env.Blocks].
func Run(tb testing.TB, def *flow.Def, input any, script Script) *Result {
	tb.Helper()
	w := newWorld(tb, newEnv(def, script))
	r := w.whole(input)
	w.replay(r)
	return r
}

// Check is Run, and then the same in a world in which the process dies after each
// record: the run must end in the same way.
func Check(tb testing.TB, def *flow.Def, input any, script Script) *Result {
	tb.Helper()
	r := Run(tb, def, input, script)
	for _, eager := range []bool{false, true} {
		env := newEnv(def, script)
		if env.eager && !eager {
			continue
		}
		env.crash, env.eager = true, eager
		w := newWorld(tb, env)
		again := w.whole(input)
		if again.Status != r.Status || string(again.Output) != string(r.Output) || message(again.Error) != message(r.Error) {
			tb.Errorf("flowtest: the run ended %s with %s (%s), and where its process died after each record (eager: %v) it ended %s with %s (%s)",
				r.Status, r.Output, message(r.Error), eager, again.Status, again.Output, message(again.Error))
		}
		w.replay(again)
	}
	return r
}

func message(e *drover.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Code) + ": " + e.Message
}

// whole runs until the end.
func (w *world) whole(input any) *Result {
	w.tb.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		w.tb.Fatalf("flowtest: the input is no JSON: %v", err)
	}
	w.env.w = w
	step := w.apply(&machine.Command{Verb: drover.VerbStart, Start: &machine.Start{
		StartRequest: drover.StartRequest{Input: raw, Tags: w.env.tags}, Hash: w.plan.Hash, Secret: secret,
	}})
	if step.Refused != nil {
		w.tb.Fatalf("flowtest: the run does not start: %v", step.Refused)
	}
	var body *flow.Body
	for !w.state.Terminal() && w.state.Status != drover.StatusBlocked {
		w.perform()
		switch {
		case w.state.Terminal():
		case w.asked != nil:
			body = w.drive(body)
		default:
			w.next()
		}
	}
	if body != nil {
		body.Close()
	}
	r := w.result()
	if r.Status == drover.StatusBlocked && !w.env.blocks {
		w.tb.Fatalf("flowtest: the run is blocked: %s", r.Note)
	}
	return r
}

// drive has the body driven. A process that died is followed by another.
func (w *world) drive(body *flow.Body) *flow.Body {
	w.tb.Helper()
	req := w.asked
	w.asked, w.last = nil, req
	for fence := 1; ; fence++ {
		if body == nil {
			body = w.env.def.NewBody(live{w}, w.options())
		}
		if w.drives++; fence > 1 { // what came with the message is of before
			again := *req
			again.Partial = true
			req = &again
		}
		if w.drives > 100_000 {
			w.tb.Fatalf("flowtest: the body was driven %d times, and is not over", w.drives)
		}
		_, err := body.Drive(w.tb.Context(), req, fence)
		switch {
		case errors.Is(err, errCrash):
			body = nil
			continue
		case errors.Is(err, drover.CodeFenced):
			return nil
		case err != nil:
			w.tb.Fatalf("flowtest: drive %d: %v", req.Drive, err)
		}
		if !body.Kept() {
			return nil
		}
		return body
	}
}

func (w *world) options() flow.BodyOptions {
	o := flow.BodyOptions{Instance: "flowtest"}
	if !w.env.drop && !w.env.crash {
		o.Keep = "flowtest"
	}
	return o
}

// next has the clock jump to what comes next.
func (w *world) next() {
	w.tb.Helper()
	due := w.state.Deadline()
	events := w.env.events
	switch {
	case len(events) > 0 && (due == 0 || !epoch.Add(events[0].at).After(due.Time())):
		if at := epoch.Add(events[0].at); at.After(w.now) {
			w.now = at
		}
		w.env.events = events[1:]
		events[0].do()
	case due != 0:
		if due.Time().After(w.now) {
			w.now = due.Time()
		}
		w.apply(&machine.Command{Verb: drover.VerbTick})
	default:
		remedy := "have it deliver that with After"
		if open := w.approvals(); len(open) > 0 {
			remedy = decide(open[0])
		}
		w.tb.Fatalf("flowtest: the run waits for %s, and the script has nothing more: %s", strings.Join(w.state.Program.OpenNodes(), ", "), remedy)
	}
}

func (w *world) result() *Result {
	view := machine.View(w.plan, w.state, w.value, true)
	note := ""
	if view.Status == drover.StatusBlocked && len(view.Notes) > 0 {
		note = view.Notes[len(view.Notes)-1].Text
	}
	return &Result{
		Note: note, Status: view.Status, Output: view.Result, Error: view.Error, Journal: w.journal(1), Streams: w.chunks(), Metadata: view.Metadata,
		Drives: w.drives, Elapsed: w.now.Sub(epoch), tb: w.tb,
	}
}

// replay drives the body from the whole journal, and holds that it ends as the
// run did, and asks for the same each time.
func (w *world) replay(r *Result) {
	w.tb.Helper()
	g, want := w.state.Program, drover.DriveStatus(r.Status)
	switch {
	case w.end == nil, w.end.Status == drover.DriveBlocked:
		return // the end is not one that the body came to
	case w.end.Status == drover.DrivePanicked && g.Letter == 0:
		return // nor is it that panic
	case w.end.Status == drover.DrivePanicked:
		want = drover.DrivePanicked
	}
	journal := &drover.JournalReply{RunID: w.run, Input: w.load(w.state.Input), Records: g.Records, Entries: g.Entries, Journal: r.Journal}
	var first []flow.Op
	for range replays {
		var ops []flow.Op
		t := &finished{journal: journal, tails: w.tail}
		body := w.env.def.NewBody(t, flow.BodyOptions{Trace: func(o flow.Op) { ops = append(ops, o) }})
		req := &drover.DriveRequest{RunID: w.run, Generation: g.Generation, Program: w.env.def.Name(), Seed: w.last.Seed, Partial: true, Tags: w.last.Tags, Started: w.last.Started}
		end, err := body.Drive(w.tb.Context(), req, 1)
		switch {
		case err != nil:
			w.tb.Fatalf("flowtest: a drive from the whole journal: %v", err)
		case end.Status == drover.DriveBlocked:
			w.tb.Fatalf("flowtest: the body is not the same in every drive: %s", end.Error.Message)
		case tellsPanic(r.Journal) && !slices.ContainsFunc(ops, func(o flow.Op) bool { return o.Kind == drover.EntryPanic }):
			w.tb.Fatalf("flowtest: the body is not the same in every drive: it panicked in the run, and did not with its whole journal")
		case len(t.extra) > 0:
			w.tb.Fatalf("flowtest: the body is not the same in every drive: with the whole journal it asks for %s %q", t.extra[0].Kind, t.extra[0].ID)
		case end.Status != want:
			w.tb.Fatalf("flowtest: the body is not the same in every drive: it %s in the run, and %s with its whole journal (%v)", came(want), came(end.Status), end.Error)
		}
		if first == nil {
			first = ops
		}
		if diff := difference(first, ops); diff != "" {
			w.tb.Fatalf("flowtest: the body is not the same in every drive: %s", diff)
		}
	}
}

// tellsPanic reports whether a journal says that the body panicked.
func tellsPanic(journal []drover.Entry) bool {
	return slices.ContainsFunc(journal, func(e drover.Entry) bool { return e.Kind == drover.EntryPanic })
}

// came says how a body ended.
func came(s drover.DriveStatus) string {
	if s == drover.DrivePanicked {
		return "panicked"
	}
	return "ended " + string(s)
}

// difference tells the first one between what two drives ask for.
func difference(a, b []flow.Op) string {
	for i := range max(len(a), len(b)) {
		x, y := "nothing", "nothing"
		if i < len(a) {
			x = show(a[i])
		}
		if i < len(b) {
			y = show(b[i])
		}
		if x != y {
			return fmt.Sprintf("operation %d is %s in one and %s in another", i+1, x, y)
		}
	}
	return ""
}

func show(o flow.Op) string {
	s := fmt.Sprintf("%s %q", o.Kind, o.ID)
	if o.Step != nil {
		s += " " + string(o.Step)
	}
	if o.Input != nil {
		s += " with " + string(o.Input)
	}
	return s
}
