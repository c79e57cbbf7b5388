package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover"
)

// consume takes the next entry of the journal.
func (c *core) consume() {
	e := c.journal[0]
	c.journal = c.journal[1:]
	if len(c.journal) == 0 {
		c.journal = nil
	}
	c.consumed = e.Number
	if e.At != nil {
		c.now = *e.At
	}
	switch e.Kind {
	case drover.EntryStep:
		if !c.denied(e) {
			c.over(c.steps, e)
		}
	case drover.EntryUndo:
		c.over(c.undos, e)
	case drover.EntryAttempt:
		c.attemptFailed(e)
	case drover.EntryEnded:
		if e.Attempt > 0 {
			c.pauseOver(e)
		} else {
			c.nodeOver(e)
		}
	case drover.EntryNode, drover.EntryValue, drover.EntryCancel, drover.EntryMeta:
		c.match(e)
	case drover.EntryPanic:
		c.fails(e)
	case drover.EntryStop:
		c.stop = drover.Errorf(drover.CodeStopped, "the run was stopped: %s", e.ID)
		c.cancel(c.root, c.stop, true)
	default:
		c.misfit(e)
	}
}

// misfit blocks the run: nobody may guess what the body meant.
func (c *core) misfit(e drover.Entry) {
	remedy := "bring back what the journal has, or mark the change with Patched"
	if e.Kind == drover.EntryValue {
		remedy = "put that mark back where it was: it must stay while runs that have it are not over"
	}
	c.breakOff(&drover.DriveEnd{Status: drover.DriveBlocked, Error: permanent(drover.CodeConflict,
		"program %s does not fit the journal of its run: entry %d is %s, and the body %s: %s",
		c.def.name, e.Number, describe(e), c.doing(), remedy)})
}

// over ends a step or an undo.
func (c *core) over(list map[string]*op, e drover.Entry) {
	o := list[e.ID]
	if o == nil || o.state == stepPausing {
		c.misfit(e)
		return
	}
	delete(list, e.ID)
	o.attempt = max(e.Attempt, 1)
	c.resolve(o, e.Output, entryError(e))
}

// denied takes an entry which says that something else could not be asked for.
func (c *core) denied(e drover.Entry) bool {
	if e.Error == nil || c.steps[e.ID] != nil || len(c.issued) == 0 || c.issued[0].entry.ID != e.ID {
		return false
	}
	o := c.issued[0]
	c.issued = c.issued[1:]
	c.unsent = min(c.unsent, len(c.issued))
	delete(c.nodes, e.ID)
	c.resolve(o, nil, e.Error)
	return true
}

// attemptFailed has a step or an undo pause.
func (c *core) attemptFailed(e drover.Entry) {
	o := c.steps[e.ID]
	if o == nil {
		o = c.undos[e.ID]
	}
	if o == nil || o.state == stepPausing || e.Attempt != o.attempt {
		c.misfit(e)
		return
	}
	o.state = stepPausing
	if err := o.scope.cancelled(); err != nil && o == c.steps[e.ID] {
		delete(c.steps, e.ID)
		c.resolve(o, nil, err)
	}
}

// pauseOver has the next attempt come. One of a step that nobody waits for any
// more has no meaning.
func (c *core) pauseOver(e drover.Entry) {
	o := c.steps[e.ID]
	if o == nil {
		o = c.undos[e.ID]
	}
	if o != nil && o.state == stepPausing && e.Attempt == o.attempt+1 {
		o.state, o.attempt = stepDue, e.Attempt
		c.due = append(c.due, o)
	}
}

// nodeOver ends a node. What a wait got that was dropped meanwhile goes to
// another one for the same.
func (c *core) nodeOver(e drover.Entry) {
	o := c.nodes[e.ID]
	if o == nil {
		return
	}
	delete(c.nodes, e.ID)
	if !o.over {
		c.resolve(o, e.Output, entryError(e))
		return
	}
	if !o.dropped || o.source == "" || e.Error != nil {
		return
	}
	o.dropped, o.output, o.err = false, e.Output, nil
	for _, id := range sortedKeys(c.nodes) {
		if other := c.nodes[id]; !other.over && other.source == o.source {
			c.drop(other, nil)
			other.output = o.output
			return
		}
	}
	c.spare = append(c.spare, o)
}

// spared gives what a wait got that was dropped, for another one for the same.
func (c *core) spared(source string) (*op, bool) {
	at := slices.IndexFunc(c.spare, func(o *op) bool { return o.source == source })
	if at < 0 {
		return nil, false
	}
	o := c.spare[at]
	c.spare = slices.Delete(c.spare, at, at+1)
	return o, true
}

// match takes an entry of what the body asks for in order.
func (c *core) match(e drover.Entry) {
	if len(c.issued) == 0 {
		c.misfit(e)
		return
	}
	o := c.issued[0]
	if o.entry.Kind != e.Kind || o.entry.ID != e.ID || e.Kind == drover.EntryNode && purpose(o.entry.Step) != purpose(e.Step) {
		c.misfit(e)
		return
	}
	c.issued = c.issued[1:]
	c.unsent = min(c.unsent, len(c.issued))
	o.matched = true
	if e.Kind == drover.EntryCancel { // nothing comes of that node any more
		delete(c.nodes, e.ID)
	}
	if len(e.Output) > 0 {
		o.value = e.Output
	}
	c.notify(o)
}

// passed reports whether the journal has more of the body than what the body has
// asked for up to now: it came by here before.
func (c *core) passed() bool {
	inOrder := 0
	for _, e := range c.journal {
		switch e.Kind {
		case drover.EntryNode, drover.EntryValue, drover.EntryCancel, drover.EntryMeta:
			if inOrder++; inOrder > len(c.issued) {
				return true
			}
		case drover.EntryStep, drover.EntryAttempt, drover.EntryUndo:
			if c.steps[e.ID] == nil && c.undos[e.ID] == nil {
				if inOrder++; inOrder > len(c.issued) || c.issued[inOrder-1].entry.ID != e.ID {
					return true
				}
			}
		case drover.EntryPanic, drover.EntryEnded, drover.EntryStop:
		}
	}
	return false
}

// ahead reports whether the journal has a value that the body has not come to.
func (c *core) ahead(id string) bool {
	return slices.ContainsFunc(c.journal, func(e drover.Entry) bool { return e.Kind == drover.EntryValue && e.ID == id })
}

func entryError(e drover.Entry) error {
	if e.Error == nil {
		return nil
	}
	return e.Error
}

// purpose is what a node is for: its kind, and whom it is about. Two drives must
// agree on that; a timeout or an input may change.
func purpose(raw json.RawMessage) string {
	var s drover.Step
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	kind := s.Kind()
	text := string(kind)
	switch kind {
	case drover.KindCall:
		text += " of " + string(s.Call)
	case drover.KindRequest:
		text += " to " + s.Request
	case drover.KindWait:
		switch w := s.Wait; {
		case w.Name != "":
			text += " for " + w.Name
		case w.From != "":
			text += " for hook " + string(w.From)
		case w.Hook != nil:
			text = "hook"
		case w.Approve != nil:
			text = "approve"
		}
	case drover.KindRun:
		switch r := s.Run; {
		case r.Workflow != "":
			text += " of workflow " + string(r.Workflow)
		case r.Definition != nil && r.Definition.Program != "":
			text += " of program " + r.Definition.Program
		}
	case drover.KindRelease:
		text += " of hook " + string(s.Release.Hook)
	case drover.KindHTTP, drover.KindAgent, drover.KindSleep, drover.KindSet, drover.KindRespond:
	}
	return text
}

// describe names an entry for people.
func describe(e drover.Entry) string {
	switch {
	case e.Kind == drover.EntryNode:
		return fmt.Sprintf("node %q (%s)", e.ID, purpose(e.Step))
	case e.Kind == drover.EntryPanic && e.Error != nil:
		return "a panic (" + cut(e.Error.Message, 200) + ")"
	case e.Kind == drover.EntryValue: // a body asks for no other value
		return fmt.Sprintf("Patched %q", e.ID)
	}
	return fmt.Sprintf("%s %q", e.Kind, e.ID)
}

func join(list []string) string { return strings.Join(list, ", ") }

func sortedKeys(m map[string]*op) []string { return slices.Sorted(maps.Keys(m)) }
