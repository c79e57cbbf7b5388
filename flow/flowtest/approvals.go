package flowtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover"
)

// approvals are the ids of the questions that the body has asked, and that nobody has
// answered, sorted.
func (w *world) approvals() []string {
	open := map[string]bool{}
	for _, e := range w.journal(1) {
		switch e.Kind {
		case drover.EntryNode:
			if asks(e) {
				open[e.ID] = true
			}
		case drover.EntryEnded, drover.EntryCancel:
			delete(open, e.ID)
		case drover.EntryStep, drover.EntryAttempt, drover.EntryUndo, drover.EntryValue, drover.EntryMeta, drover.EntryPanic, drover.EntryStop:
		}
	}
	return slices.Sorted(maps.Keys(open))
}

// asks reports whether a node is an approval.
func asks(e drover.Entry) bool {
	var step drover.Step
	return json.Unmarshal(e.Step, &step) == nil && step.Wait != nil && len(step.Wait.Approve) > 0
}

// undecided says which approval of a journal nobody answered in time, and how a
// script does.
func undecided(journal []drover.Entry) string {
	asked := map[string]bool{}
	for _, e := range journal {
		switch {
		case e.Kind == drover.EntryNode && asks(e):
			asked[e.ID] = true
		case e.Kind == drover.EntryEnded && asked[e.ID] && e.Error != nil && errors.Is(e.Error, drover.CodeTimeout):
			return "; " + decide(e.ID)
		}
	}
	return ""
}

// decide says how a script answers an approval.
func decide(id string) string {
	return fmt.Sprintf("have the script answer it: e.After(d, func() { e.Decide(%q, true) })", id)
}

// list names ids for people.
func list(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	quoted := make([]string, len(ids))
	for i, id := range ids {
		quoted[i] = fmt.Sprintf("%q", id)
	}
	return strings.Join(quoted, ", ")
}
