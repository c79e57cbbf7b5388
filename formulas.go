package drover

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover/internal/expression"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/internal/schema"
)

// formulas compiles every expression and schema of d, that stands at place,
// and of the definitions within it. The references are known to be right.
func (l *linker) formulas(d *Definition, place string) {
	before := len(l.list)
	l.schema(d.InputSchema, below(place, "input_schema"))
	known := make(map[string]bool, len(d.Nodes))
	for id := range d.Nodes {
		known[string(id)] = true
	}
	needs := graph{}
	for _, id := range slices.Sorted(maps.Keys(d.Nodes)) {
		f := formulaLinker{linker: l, known: known, needs: needs, id: id, place: below(place, "nodes."+string(id))}
		if step := d.Nodes[id]; step != nil {
			f.node(step)
		}
	}
	out := formulaLinker{linker: l, known: known, needs: graph{}}
	out.source(d.Output, below(place, "output"), false)
	if l.idle != nil {
		l.unneeded(d, needs, out.needs[""], place)
		l.unanswered(d, place)
		l.shared(d, place)
	}
	if len(l.list) == before {
		l.circles(needs, below(place, "nodes"))
	}
}

func (l *linker) schema(raw json.RawMessage, place string) {
	if raw == nil {
		return
	}
	if _, err := schema.Compile(raw); err != nil {
		l.fail(place, "", "%s", err.Error())
	}
}

// formulaLinker compiles what one node says.
type formulaLinker struct {
	*linker
	known map[string]bool
	needs graph
	id    NodeID
	place string
}

func (f *formulaLinker) node(step *Step) {
	item := step.Fanout != nil
	for _, dep := range step.DependsOn {
		f.needs.need(f.id, dep)
	}
	f.bare(step.When, f.place+".when", expression.Bool)
	f.source(step.Input, f.place+".input", item)
	if item {
		f.over(step.Fanout.Over)
	}
	f.kind(step, item)
	if step.Output != nil {
		f.schema(step.Output.Schema, f.place+".output.schema")
	}
	if step.Compensate != nil {
		circle := f.needs[f.id][f.id]
		f.source(step.Compensate.Input, f.place+".compensate.input", item)
		if !circle && f.needs[f.id][f.id] {
			delete(f.needs[f.id], f.id) // it is over when it is undone
			if item {
				f.selfRead(f.id, f.place+".compensate.input")
			}
		}
	}
}

func (f *formulaLinker) kind(step *Step, item bool) {
	switch {
	case step.HTTP != nil:
		f.http(step.HTTP, item)
	case step.Agent != nil && step.Agent.Output != nil:
		f.schema(step.Agent.Output.Schema, f.place+".agent.output.schema")
	case step.Sleep != nil:
		f.bare(step.Sleep.Until, f.place+".sleep.until", expression.Any)
	case step.Wait != nil:
		f.wait(step.Wait)
	case step.Run != nil:
		f.source(step.Run.Input, f.place+".run.input", item)
		if step.Run.Definition != nil {
			f.formulas(step.Run.Definition, f.place+".run.definition")
		}
	case step.Set != nil:
		f.template(step.Set.With, f.place+".set.with", item)
	case step.Release != nil:
		f.needs.need(f.id, step.Release.Hook)
	case step.Respond != nil:
		f.respond(step.Respond)
	}
}

func (f *formulaLinker) http(h *HTTP, item bool) {
	f.templateText(h.URL, f.place+".http.url", item)
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		f.templateText(h.Headers[name], below(f.place+".http.headers", name), item)
	}
	if h.Body != nil {
		f.template(h.Body, f.place+".http.body", item)
	}
}

func (f *formulaLinker) source(s *Source, place string, item bool) {
	for _, ref := range s.Reads() {
		if ref.Kind == RefNode {
			f.needs.need(f.id, ref.Node)
		}
	}
	if s != nil && s.With != nil {
		f.template(s.With, place+".with", item)
	}
}

func (f *formulaLinker) over(text string) {
	place := f.place + ".fanout.over"
	if !expression.HasExpression(text) {
		if ref, err := ParseRef(text); err == nil && ref.Kind == RefNode {
			f.needs.need(f.id, ref.Node)
		}
		return
	}
	if _, ok := expression.Single(text); !ok {
		f.fail(place, "write ${{ expression }} and nothing around it", "text with expressions in it is no array")
		return
	}
	f.bare(text, place, expression.Any)
}

// bare compiles an expression that stands alone, with or without ${{ }}.
func (f *formulaLinker) bare(text, place string, want expression.Want) {
	f.single(text, place, expression.Scope{Nodes: f.known}, want)
}

func (f *formulaLinker) single(text, place string, scope expression.Scope, want expression.Want) {
	if text == "" {
		return
	}
	if inner, ok := expression.Single(text); ok {
		text = inner
	}
	e, err := expression.Compile(text, scope, want)
	if err != nil && expression.HasExpression(text) {
		f.fail(place, "put all of it into ${{ }}, or leave ${{ }} out", "this is one expression, and ${{ }} stands within it")
		return
	}
	if err != nil {
		f.expressionFailed(place, err)
		return
	}
	f.reads(e.Nodes())
}

func (f *formulaLinker) templateText(text, place string, item bool) {
	if strings.Contains(text, "{{") {
		f.template(rawjson.AppendString(nil, text), place, item)
	}
}

func (f *formulaLinker) template(raw json.RawMessage, place string, item bool) {
	if bare := expression.Unmarked(raw); len(bare) > 0 {
		f.expressionFailed(place, bare)
	}
	t, err := expression.CompileTemplate(raw, expression.Scope{Nodes: f.known, Item: item})
	if err != nil {
		f.expressionFailed(place, err)
		return
	}
	f.reads(t.Nodes())
}

func (f *formulaLinker) reads(ids []string) {
	for _, id := range ids {
		f.needs.need(f.id, NodeID(id))
	}
}

func (f *formulaLinker) expressionFailed(place string, err error) {
	all, ok := errors.AsType[expression.Errors](err)
	if !ok {
		if one, ok := errors.AsType[*expression.Error](err); ok {
			all = expression.Errors{one}
		} else {
			f.fail(place, "", "%s", err.Error())
		}
	}
	for _, e := range all {
		at := below(place, e.Path)
		if e.Path == "" || strings.HasPrefix(e.Path, "[") {
			at = place + e.Path
		}
		fix := e.Fix
		bare := *e
		bare.Path, bare.Fix = "", ""
		f.fail(at, fix, "%s", bare.Error())
	}
}
