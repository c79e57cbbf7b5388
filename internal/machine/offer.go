package machine

import (
	"encoding/json"

	"github.com/droverhq/drover"
)

// CheckInput says why a run of the plan cannot start with an input, or nil: for
// those who want to know before a start is durable.
func (p *Plan) CheckInput(run drover.RunID, input json.RawMessage) *drover.Error {
	if p.input == nil {
		return nil
	}
	if err := p.input.Validate(orNull(input)); err != nil {
		return drover.Errorf(drover.CodeInvalidInput, "the input of run %s does not fit the input_schema: %s", run, err)
	}
	return nil
}

// CheckHook says why a run of the plan would have no use for a first delivery
// to a token that it holds from its start, or nil. What a token with an
// expression will be is not known here, so that one may be any; nor is what the
// body of a program will claim.
func (p *Plan) CheckHook(token string, payload json.RawMessage) *drover.Error {
	if p.Definition.Program != "" {
		return nil
	}
	var able []*node
	made := false
	for _, n := range p.nodes {
		w := n.step.Wait
		if w == nil || w.Hook == nil {
			continue
		}
		made = made || w.Hook.Made
		if n.mayClaim(token) {
			able = append(able, n)
		}
	}
	if len(able) == 0 {
		why := ""
		if made {
			why = " (one with hook: true claims a token that Drover makes)"
		}
		return drover.Errorf(drover.CodeInvalidRequest,
			"the definition to start has no wait for the token %q%s: give it a node with wait: {hook: <that token>}, or an expression that makes it of the input", token, why)
	}
	// Of several, which one reads it depends on how the run goes.
	if schema := able[0].payload; len(able) == 1 && schema != nil {
		if err := schema.Validate(orNull(payload)); err != nil {
			return drover.Errorf(drover.CodeInvalidInput, "the payload for the token %q does not fit the schema of wait %s: %s", token, able[0].id, err)
		}
	}
	return nil
}

// Holds reports whether the run claims or holds a token, or has handed it over
// to its successor, as far as the record knows.
func (s *State) Holds(token string) bool { return s.hook(token) >= 0 }
