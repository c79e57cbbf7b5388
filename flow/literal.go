package flow

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	"github.com/droverhq/drover"
)

// What opens an expression in a definition, and an expression that gives it.
const (
	opening = "${{"
	opened  = `${{ "$" + "{{" }}`
)

// literal has the texts of a step mean what they say: in a definition, and so in
// the step of a program, they may hold expressions.
func literal(step *drover.Step) *drover.Step {
	s := *step
	if s.HTTP != nil {
		h := *s.HTTP
		h.URL, h.Headers, h.Body = plain(h.URL), plainAll(h.Headers), plainJSON(h.Body)
		s.HTTP = &h
	}
	if s.Wait != nil {
		w := *s.Wait
		w.Tags, w.Metadata, w.Approve = plainAll(w.Tags), plainJSON(w.Metadata), plainJSON(w.Approve)
		if w.Hook != nil {
			hook := *w.Hook
			hook.Text = plain(hook.Text)
			w.Hook = &hook
		}
		s.Wait = &w
	}
	return &s
}

func plain(text string) string { return strings.ReplaceAll(text, opening, opened) }

func plainAll(texts map[string]string) map[string]string {
	all := maps.Clone(texts)
	for k, v := range all {
		all[k] = plain(v)
	}
	return all
}

// plainJSON does it for all strings of a value: what opens an expression stands in
// strings only.
func plainJSON(raw json.RawMessage) json.RawMessage {
	return bytes.ReplaceAll(raw, []byte(opening), []byte(strings.ReplaceAll(opened, `"`, `\"`)))
}
