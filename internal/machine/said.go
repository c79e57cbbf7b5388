package machine

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/internal/schema"
)

// hookPlan is what a wait says of its hook, compiled.
type hookPlan struct {
	made    bool     // the token is made by the run
	parts   *formula // token, tags, metadata and answer
	approve bool
	holds   bool
	restart bool
}

// approval is the schema of what a person says.
const approval = `{"anyOf":[{"type":"boolean"},{"type":"object","required":["approved"],"properties":{"approved":{"type":"boolean"}}}]}`

// hook compiles a wait with hook or approve.
func (c *compiler) hook(w *drover.Wait) (*hookPlan, error) {
	h := &hookPlan{approve: w.Approve != nil, holds: w.Holds(), restart: w.Hook != nil && w.OnUnread == drover.OnUnreadRestart}
	parts := map[string]any{}
	if w.Hook == nil || w.Hook.Made {
		h.made = true
	} else {
		parts["token"] = w.Hook.Text
	}
	if len(w.Tags) > 0 {
		parts["tags"] = w.Tags
	}
	switch {
	case h.approve:
		parts["metadata"] = map[string]json.RawMessage{"approve": w.Approve}
	case w.Metadata != nil:
		parts["metadata"] = w.Metadata
	}
	if w.Respond != nil && w.Respond.With != nil {
		parts["answer"] = w.Respond.With
	}
	raw, err := rawjson.Encode(parts)
	if err != nil {
		return nil, err
	}
	h.parts, err = c.template(raw)
	return h, err
}

// mayClaim reports whether a node may claim a token that a start brought, as far
// as that is known before its expressions are evaluated.
func (n *node) mayClaim(token string) bool {
	return n.hook != nil && !n.hook.made && (n.step.Wait.Hook.Text == token || strings.Contains(n.step.Wait.Hook.Text, "${{"))
}

// payloads compiles what the payloads of a wait have to be.
func (c *compiler) payloads(n *node) (err error) {
	w := n.step.Wait
	if w.Schema != nil {
		if n.payload, err = schema.Compile(w.Schema); err != nil {
			return err
		}
	}
	if w.Approve != nil {
		n.approval, err = schema.Compile(json.RawMessage(approval))
	}
	return err
}

// said is the claim of a node's token, as far as the node says of it. It is the
// same whenever it is made: all that it reads is over. Its error is errMissing
// or a *drover.Error.
func (f *fold) said(i int) (*Claim, error) {
	n := f.p.nodes[i]
	raw, err := f.formula(n.hook.parts, n, drover.NoItem)
	if err != nil {
		return nil, err
	}
	var parts struct {
		Token    json.RawMessage            `json:"token"`
		Tags     map[string]json.RawMessage `json:"tags"`
		Metadata json.RawMessage            `json:"metadata"`
		Answer   json.RawMessage            `json:"answer"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, err
	}
	w := n.step.Wait
	c := &Claim{Schema: w.Schema, Public: w.Public || n.hook.approve, Takeover: w.Takeover, Metadata: parts.Metadata}
	if n.hook.approve && c.Schema == nil {
		c.Schema = json.RawMessage(approval)
	}
	if c.Token, err = f.tokenOf(n, parts.Token); err != nil {
		return nil, err
	}
	if c.Tags, err = hookTags(parts.Tags); err != nil {
		return nil, err
	}
	if w.Respond != nil {
		answer := *w.Respond
		answer.With = parts.Answer
		c.Answer = &answer
	}
	for _, part := range []struct {
		what string
		json json.RawMessage
	}{{"metadata", parts.Metadata}, {"answer", parts.Answer}} {
		if len(part.json) > drover.MaxMetadata {
			return nil, drover.Errorf(drover.CodeTooLarge, "its %s has %d bytes, more than %d: give a reference to it", part.what, len(part.json), drover.MaxMetadata)
		}
	}
	return c, nil
}

// tokenOf is the token of a node: one that nobody can guess, or what its
// template gives.
func (f *fold) tokenOf(n *node, raw json.RawMessage) (string, error) {
	if n.hook.made {
		return f.tokenMade(n.id), nil
	}
	token, bad := hookText(raw)
	if bad != "" {
		return "", drover.Errorf(drover.CodeExpression, "its token must become text, and is %s", bad)
	}
	if err := checkToken(token); err != nil {
		return "", err
	}
	return token, nil
}

// tokenMade is the token that a run makes for a node.
func (f *fold) tokenMade(id drover.NodeID) string { return "h_" + f.token("hook/"+string(id)) }

// checkToken says why text is no token, or nil.
func checkToken(token string) error {
	switch {
	case token == "":
		return drover.Errorf(drover.CodeInvalidRequest, "its token is empty: give text, or hook: true to have one made")
	case len(token) > drover.MaxToken:
		return drover.Errorf(drover.CodeTooLarge, "its token has %d bytes, more than %d: use a hash of it", len(token), drover.MaxToken)
	}
	return nil
}

// hookTags are tags whose values have become text.
func hookTags(raw map[string]json.RawMessage) (map[string]string, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	tags, size := make(map[string]string, len(raw)), 0
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		value, bad := hookText(raw[key])
		if bad != "" {
			return nil, drover.Errorf(drover.CodeExpression, "its tag %s must become text, and is %s", key, bad)
		}
		if len(value) > drover.MaxTag {
			return nil, drover.Errorf(drover.CodeTooLarge, "its tag %s has %d bytes, more than %d", key, len(value), drover.MaxTag)
		}
		size += len(key) + len(value)
		tags[key] = value
	}
	if size > drover.MaxMetadata {
		return nil, drover.Errorf(drover.CodeTooLarge, "its tags have %d bytes, more than %d", size, drover.MaxMetadata)
	}
	return tags, nil
}

// hookText is a JSON value as text. bad says what it is, where it cannot be.
func hookText(raw json.RawMessage) (text, bad string) {
	switch k := kind(raw); k {
	case "a string":
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", "no text"
		}
		return text, ""
	case "a number", "a boolean":
		return string(raw), ""
	default:
		return "", k
	}
}
