package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
)

// doomed is a program that asks for children, waits and does a step. Its process
// dies when it has asked for them and was not answered (asking), in the step (step),
// or when that is recorded, in each drive (after).
func doomed(nc *nats.Conn, name, dies string) *flow.Def {
	return flow.Program(name, func(run *flow.Run, children int) (string, error) {
		id := string(run.Info().ID)
		if dies == "asking" {
			_, err := nc.Subscribe(names.In(drover.RunID(id), drover.VerbRecord), func(m *nats.Msg) {
				if bytes.Contains(m.Data, []byte(`"kind":"node"`)) {
					die(true)
				}
			})
			if err == nil {
				err = nc.Flush()
			}
			if err != nil {
				return "", err
			}
		}
		var list []*flow.Future[string]
		for i := range children {
			list = append(list, flow.StartInvoke[string](run, fmt.Sprint("child", i), flow.Workflow("child"), i))
		}
		if children > 0 {
			flow.StartInvoke[any](run, "aside", flow.Workflow("child"), children, flow.Detach())
		}
		said, err := flow.Wait[string](run, "go", "go")
		if err != nil {
			return "", err
		}
		for _, f := range list {
			got, err := f.Get(run)
			if err != nil {
				return "", err
			}
			said += " " + got
		}
		_, err = flow.Step(run, "one", func(context.Context) (any, error) {
			if err := noted(id, "one"); err != nil {
				return nil, err
			}
			if dies == "step" {
				die(true)
			}
			return nil, nil
		})
		if dies == "after" {
			die(false)
		}
		return said, err
	})
}

// The process of a run dies when it has asked for children, and before it is
// answered: each of them is there once.
func TestPrograms06ProcessDiesAsItAsksForChildren(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	_, err := f.PutDefinition(t.Context(), drover.DefinitionRequest{
		Name: "child", Definition: text("nodes: {a: {wait: {name: go}}, b: {set: {with: \"${{ 'c' + string(input) }}\"}, depends_on: [a]}}\noutput: {from: node:b}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := filepath.Join(t.TempDir(), "done")
	const runs, children = 5, 3
	for i := range runs { // each process dies at another moment of the same
		run := drover.RunID(fmt.Sprint("r", i))
		program := fmt.Sprint("doomed", i)
		f.begins(run, program, fmt.Sprint(children))
		host(t, f.url, done, program, "doomed", "asking", program).wait()
	}
	var all []string
	for i := range runs {
		all = append(all, fmt.Sprint("doomed", i))
	}
	host(t, f.url, done, "second", "doomed", "", all...)
	for i := range runs {
		run := drover.RunID(fmt.Sprint("r", i))
		parks(t, f, run)
		f.publish(run, drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: text("all")})
		for _, id := range []drover.NodeID{"child0", "child1", "child2", "aside"} {
			child := drover.ChildRunID(drover.CallID{Run: run, Node: id, Item: drover.NoItem, Attempt: 1})
			f.publish(child, drover.VerbDeliver, drover.DeliverRequest{Name: "go"})
		}
		f.completes(run, `"all c0 c1 c2"`)
	}
	list, err := f.List(t.Context(), drover.ListRequest{Workflow: "child"})
	if err != nil || len(list.Runs) != runs*(children+1) {
		t.Errorf("%d children, error %v; want %d", len(list.Runs), err, runs*(children+1))
	}
}

// A process that was asked directly, as it had the body in memory, dies: another
// one goes on, before the lease of the drive is over.
func TestPrograms03ProcessThatKeepsTheBodyIsKilled(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	done := filepath.Join(t.TempDir(), "done")
	old := host(t, f.url, done, "old", "doomed", "step", "doomed")
	f.begins("r1", "doomed", "0")
	parks(t, f, "r1")
	host(t, f.url, done, "new", "doomed", "", "doomed").line("serving")
	f.publish("r1", drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: text("go on")})
	old.wait()
	f.completes("r1", `"go on"`)
	if n := times(t, done)["r1 one"]; n != 2 {
		t.Errorf("the step was done %d times", n)
	}
	r, err := f.Status(t.Context(), drover.RunRequest{RunID: "r1"})
	if err != nil || r.Run.Program.Instance != "new" || r.Run.Program.Drive != 2 {
		t.Errorf("the program is %+v, error %v", r.Run.Program, err)
	}
	for _, n := range r.Run.Notes {
		if strings.Contains(n.Text, "was silent for") {
			t.Errorf("the lease had to be over: %s", n.Text)
		}
	}
}

// A body whose process exits in each drive is caught, as a failure that says so,
// and as a dead letter.
func TestPrograms15ProcessExitsInEachDrive(t *testing.T) {
	t.Parallel()
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	done := filepath.Join(t.TempDir(), "done")
	f.publish("r1", drover.VerbStart, drover.StartRequest{Definition: text("program: doomed\nmax_drives: 2"), Input: []byte("0")})
	f.publish("r1", drover.VerbDeliver, drover.DeliverRequest{Name: "go", Payload: text("go")})
	const deaths = 3 // one after the step, and two without anything new
	for i := range deaths {
		if status, _, _ := host(t, f.url, done, fmt.Sprint("p", i), "doomed", "after", "doomed").wait(); status != 1 {
			t.Errorf("process %d ended with %d", i, status)
		}
	}
	host(t, f.url, done, "last", "doomed", "after", "doomed")
	o := f.outcome("r1")
	if o.Status != drover.StatusFailed || o.Error.Code != drover.CodeTimeout ||
		!strings.Contains(o.Error.Message, "was driven 2 times without progress: its process dies or hangs each time; the last one was p2") {
		t.Errorf("the run is %s, error %v", o.Status, o.Error)
	}
	if n := times(t, done)["r1 one"]; n != 1 {
		t.Errorf("the step was done %d times", n)
	}
	letters, err := f.ListDead(t.Context(), drover.DeadListRequest{Verb: drover.LetterDrive})
	if err != nil || !slices.ContainsFunc(letters.Letters, func(l drover.DeadLetter) bool { return l.RunID == "r1" && l.Error.Message == o.Error.Message }) {
		t.Errorf("the letters are %+v, error %v", letters, err)
	}
}
