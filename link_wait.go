package drover

import (
	"bytes"
	"maps"
	"slices"

	"github.com/droverhq/drover/internal/expression"
	"github.com/droverhq/drover/internal/schema"
)

// What waits, releases and responds say of each other, and their expressions.

// deliveries checks the references to hooks and waits.
func (n *nodeLinker) deliveries(step *Step) {
	switch {
	case step.Wait != nil && step.Wait.From != "":
		n.held(step.Wait.From, n.place+".wait.from")
	case step.Release != nil:
		n.held(step.Release.Hook, n.place+".release.hook")
	case step.Respond != nil:
		n.answered(step.Respond.To, n.place+".respond.to")
	}
}

// held checks that other is a node whose hook is still there when it is done.
func (n *nodeLinker) held(other NodeID, place string) {
	if !n.known(other, place) {
		return
	}
	wait := n.d.Nodes[other].Wait
	switch {
	case wait == nil || wait.Hook == nil:
		fix := "name a node with wait: {hook: <token>, hold: true}"
		if wait != nil && wait.From != "" && other != n.id {
			fix = "name the node that it is from: " + string(wait.From)
		}
		n.fail(place, fix, "node %s has no hook", other)
	case !wait.Holds():
		n.fail(place, "add hold: true to its wait", "the hook of node %s is over when the node is", other)
	}
}

// answered checks that other is a wait whose hook has the run answer.
func (n *nodeLinker) answered(other NodeID, place string) {
	if !n.known(other, place) {
		return
	}
	hook, wait := other, n.d.Nodes[other].Wait
	if wait != nil && wait.From != "" {
		if hook = wait.From; n.d.Nodes[hook] == nil || n.d.Nodes[hook].Wait == nil {
			return // told at that wait
		}
		wait = n.d.Nodes[hook].Wait
	}
	switch {
	case wait == nil || wait.Name != "":
		n.fail(place, "name a wait with hook, from or approve", "node %s reads no deliveries to a hook", other)
	case wait.Respond == nil || !wait.Respond.Run:
		n.fail(place, "add respond: {run: true} to the wait of "+string(hook), "nobody waits for an answer to the hook of node %s", hook)
	}
}

// Holds reports whether the run keeps the token of the wait once the wait is
// over, until a release or its own end.
func (w *Wait) Holds() bool {
	return w.Hook != nil && (w.Hold || w.OnUnread == OnUnreadRestart)
}

// Collects reports whether the wait gives a list of payloads, and not one.
func (w *Wait) Collects() bool { return w.Count > 0 || w.Until != "" }

// notArray is notArrayAt of the output of a wait.
func (w *Wait) notArray(path []string) (string, bool) {
	if w.Approve != nil {
		if len(path) == 0 {
			return "an object, as it is an approval", true
		}
		return "", false
	}
	if w.Collects() {
		switch {
		case len(path) == 0:
			return "", false
		case !isIndex(path[0]):
			return "a key of the list that a wait with count or until gives", true
		}
		path = path[1:]
	}
	if w.Schema == nil {
		return "", false
	}
	return schema.NotArray(w.Schema, path)
}

// wait compiles what a wait says. A wait has no fan-out, and so no item.
func (f *formulaLinker) wait(w *Wait) {
	place := f.place + ".wait"
	f.schema(w.Schema, place+".schema")
	f.single(w.Until, place+".until", expression.Scope{Nodes: f.known, Payload: true}, expression.Bool)
	if w.From != "" {
		f.needs.need(f.id, w.From)
	}
	if w.Hook != nil {
		f.templateText(w.Hook.Text, place+".hook", false)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Tags)) {
		f.templateText(w.Tags[name], below(place+".tags", name), false)
	}
	if w.Metadata != nil {
		f.template(w.Metadata, place+".metadata", false)
	}
	if w.Approve != nil {
		f.template(w.Approve, place+".approve", false)
	}
	if w.Respond != nil && w.Respond.With != nil {
		f.template(w.Respond.With, place+".respond.with", false)
	}
}

func (f *formulaLinker) respond(r *Respond) {
	f.needs.need(f.id, r.To)
	if r.With != nil {
		f.template(r.With, f.place+".respond.with", false)
	}
}

// unanswered warns of hooks whose callers wait for an answer that no node gives.
func (l *linker) unanswered(d *Definition, place string) {
	answered := map[NodeID]bool{}
	for _, step := range d.Nodes {
		if step == nil || step.Respond == nil {
			continue
		}
		to := step.Respond.To
		answered[to] = true
		if wait := d.Nodes[to]; wait != nil && wait.Wait != nil && wait.Wait.From != "" {
			answered[wait.Wait.From] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.Nodes)) {
		step := d.Nodes[id]
		if step != nil && step.Wait != nil && step.Wait.Respond != nil && step.Wait.Respond.Run && !answered[id] {
			l.idle.add(Problem{
				Place:   below(place, "nodes."+string(id)+".wait.respond.run"),
				Message: "no node answers: whoever delivers by HTTP waits in vain, until the timeout",
				Fix:     "add a node respond: {to: " + string(id) + ", with: ...}, or leave respond out",
			})
		}
	}
}

// shared warns of waits that share a name and differ in their schemas: a delivery to
// the name is held to all of them, whichever reads it, so that perhaps none fits.
func (l *linker) shared(d *Definition, place string) {
	first := map[string]NodeID{}
	for _, id := range slices.Sorted(maps.Keys(d.Nodes)) {
		step := d.Nodes[id]
		if step == nil || step.Wait == nil || step.Wait.Name == "" {
			continue
		}
		other, ok := first[step.Wait.Name]
		if !ok {
			first[step.Wait.Name] = id
			continue
		}
		if bytes.Equal(d.Nodes[other].Wait.Schema, step.Wait.Schema) {
			continue
		}
		l.idle.add(Problem{
			Place:   below(place, "nodes."+string(id)+".wait.schema"),
			Message: "node " + string(other) + " waits for the name " + quote(step.Wait.Name) + " too, with another schema: a delivery must fit both, whichever reads it",
			Fix:     "give each wait a name of its own, or the same schema",
		})
	}
}
