package flow_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// A text of a body is no expression, also where it looks like one.
func TestProgramsTextsMeanWhatTheySay(t *testing.T) {
	const token = `order/${{ 1 + 1 }}/${{"x"}}`
	def := flow.Program("literal", func(run *flow.Run, _ any) (string, error) {
		hook := run.Hook("h", token, flow.HookOptions{Tags: map[string]string{"a": "${{ nope }}"}, Metadata: map[string]string{"q": `"${{"`}})
		return flow.Next[string](run, hook, "n", flow.Timeout(time.Hour))
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) { e.After(time.Minute, func() { e.DeliverHook(token, "yes") }) })
	if got := flowtest.Output[string](r); got != "yes" {
		t.Fatal(got, r.Status, r.Error)
	}
}

// Whoever asks a person can say with which token to answer.
func TestProgramsKnowTheTokensThatAreMade(t *testing.T) {
	def := flow.Program("token", func(run *flow.Run, _ any) (string, error) {
		a := flow.StartApprove(run, "ok", "ship?", flow.Timeout(time.Hour))
		token, err := a.Token(run)
		if err != nil {
			return "", err
		}
		if _, err := flow.Step(run, "mail", func(context.Context) (string, error) { return token, nil }); err != nil {
			return "", err
		}
		if d, err := a.Get(run); err != nil || !d.Approved {
			return "", err
		}
		return token, nil
	})
	r := flowtest.Check(t, def, nil, func(e *flowtest.Env) { e.After(time.Minute, func() { e.Decide("ok", true) }) })
	if got := flowtest.Output[string](r); !strings.HasPrefix(got, "h_") {
		t.Fatal(got, r.Status, r.Error)
	}
}
