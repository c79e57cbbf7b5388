package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

func TestProgramsMetadataChangesOnce(t *testing.T) {
	def := flow.Program("meta", func(run *flow.Run, rounds int) (any, error) {
		m := run.Metadata()
		for i := range rounds {
			if err := errors.Join(m.Set("round", i), run.Root().Increment("n", 1), run.Parent().Append("log", map[string]int{"i": i})); err != nil {
				return nil, err
			}
			if _, err := flow.Step(run, fmt.Sprint("step", i), func(context.Context) (int, error) { return i, nil }); err != nil {
				return nil, err
			}
			if err := run.Sleep(fmt.Sprint("pause", i), time.Hour); err != nil {
				return nil, err
			}
		}
		return nil, m.Remove("round")
	})
	r := flowtest.Check(t, def, 3, nil)
	got, err := json.Marshal(r.Metadata)
	if err != nil || string(got) != `{"log":[{"i":0},{"i":1},{"i":2}],"n":3}` {
		t.Errorf("the metadata is %s, %v", got, err)
	}
}

func TestProgramsMetadataThatCannotBe(t *testing.T) {
	def := flow.Program("bad", func(run *flow.Run, _ any) ([]string, error) {
		var codes []string
		m := run.Metadata()
		for _, err := range []error{
			m.Set("", 1), m.Set(strings.Repeat("k", drover.MaxMetaKey+1), 1), m.Set("f", func() {}), m.Append("big", strings.Repeat("x", drover.MaxMeta)),
			m.Set("a", 1),
		} {
			codes = append(codes, string(drover.CodeOf(err, "none")))
		}
		return codes, nil
	})
	got := flowtest.Output[[]string](flowtest.Check(t, def, nil, nil))
	if text := strings.Join(got, " "); text != "invalid_request invalid_request invalid_input invalid_input none" {
		t.Errorf("it says %s", text)
	}
}

// TestProgramsMetadataOfAFleet: parent and root are other runs, and all may be read
// while they go on.
func TestProgramsMetadataOfAFleet(t *testing.T) {
	leaf := flow.Program("leaf", func(run *flow.Run, i int) (int, error) {
		err := errors.Join(run.Metadata().Set("i", i), run.Parent().Increment("children", 1), run.Root().Append("leaves", i))
		return i, err
	})
	middle := flow.Program("middle", func(run *flow.Run, _ any) (any, error) {
		for i := range 3 {
			if _, err := flow.Invoke[int](run, fmt.Sprint("leaf", i), flow.ProgramNamed("leaf"), i); err != nil {
				return nil, err
			}
		}
		return flow.Wait[any](run, "go", "go")
	})
	root := flow.Program("root", func(run *flow.Run, _ any) (any, error) {
		return flow.Invoke[any](run, "middle", flow.ProgramNamed("middle"), nil)
	})
	f := newFleet(t)
	f.serve(flow.Options{}, root, middle, leaf)
	f.begin("root", "m1", nil)
	child := drover.ChildRunID(drover.CallID{Run: "m1", Node: "middle", Item: drover.NoItem, Attempt: 1})
	want := func(run drover.RunID, want string) {
		t.Helper()
		var got []byte
		for range 1000 {
			r, err := f.Status(t.Context(), drover.RunRequest{RunID: run})
			if got, _ = json.Marshal(r.Run.Metadata); err == nil && string(got) == want {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
		t.Fatalf("the metadata of %s is %s, want %s", run, got, want)
	}
	want("m1", `{"leaves":[0,1,2]}`)
	want(child, `{"children":3}`)
	f.deliver(child, "go", `1`)
	f.want("m1", drover.StatusCompleted, `1`)
	want("m1", `{"leaves":[0,1,2]}`)
}
