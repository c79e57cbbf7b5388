package flow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// A run that is blocked for want of a mark says which one, and what to do.
func TestPrograms12AMarkThatIsGoneIsNamed(t *testing.T) {
	marked := false
	def := flow.Program("p", func(run *flow.Run, _ any) (any, error) {
		if !marked {
			marked = run.Patched("with-insurance")
		}
		return nil, run.Sleep("s", time.Hour)
	})
	r := flowtest.Run(t, def, nil, func(e *flowtest.Env) {
		e.Forget()
		e.Blocks()
	})
	want := `entry 1 is Patched "with-insurance", and the body asks for node "s" (sleep): put that mark back where it was`
	if r.Status != drover.StatusBlocked || !strings.Contains(r.Note, want) || strings.Contains(r.Note, "mark the change") {
		t.Errorf("it is %s: %q does not say %q", r.Status, r.Note, want)
	}
}
