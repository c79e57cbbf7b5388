package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/expression"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// source is a drover.Source, compiled: references, or a formula. Neither is
// null.
type source struct {
	refs     []drover.Ref
	list     bool
	formula  *formula
	template string
	fixed    *Value // what the body of a program gave
}

// formula is an expression, or a template of them.
type formula struct {
	expr     *expression.Expr
	template *expression.Template
	reads    []string
}

// function is the function that performs a node, or "" where none does.
func function(step *drover.Step) drover.FunctionName {
	switch step.Kind() {
	case drover.KindCall:
		return step.Call
	case drover.KindRequest:
		return subjects.FunctionRequest
	case drover.KindHTTP:
		return subjects.FunctionHTTP
	case drover.KindAgent:
		return subjects.FunctionAgent
	case drover.KindSleep, drover.KindWait, drover.KindRun, drover.KindSet, drover.KindRelease, drover.KindRespond:
	}
	return ""
}

// kind compiles what belongs to the kind of the node.
func (c *compiler) kind(n *node) (err error) {
	step := n.step
	if id, _ := target(step); id != "" {
		c.reads[id] = true
	}
	switch n.kind {
	case drover.KindCall, drover.KindRequest, drover.KindAgent:
	case drover.KindHTTP:
		n.http, err = c.http(step.HTTP)
	case drover.KindSleep:
		if step.Sleep.Until != "" {
			n.until, err = c.expression(step.Sleep.Until, expression.Any)
		}
	case drover.KindWait:
		if step.Wait.Timeout != 0 {
			n.timeout = time.Duration(step.Wait.Timeout)
		}
		err = c.wait(n)
	case drover.KindRun:
		err = c.run(n)
	case drover.KindSet:
		n.set, err = c.template(step.Set.With)
	case drover.KindRelease:
	case drover.KindRespond:
		if step.Respond.With != nil {
			n.answer, err = c.template(step.Respond.With)
		}
	default:
		return fmt.Errorf("it has no kind: give it one of call, request, http, agent, sleep, wait, run, set, release, respond")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.kind, err)
	}
	return nil
}

func (c *compiler) wait(n *node) (err error) {
	w := n.step.Wait
	if w.Until != "" {
		scope := c.scope()
		scope.Payload = true
		if n.until, err = c.within(w.Until, scope, expression.Bool); err != nil {
			return fmt.Errorf("until: %w", err)
		}
	}
	if w.Hook != nil || w.Approve != nil {
		if n.hook, err = c.hook(w); err != nil {
			return err
		}
	}
	return c.payloads(n)
}

func (c *compiler) run(n *node) (err error) {
	if n.step.Run.Definition != nil {
		if n.child, _, err = n.step.Run.Definition.Canonical(); err != nil {
			return err
		}
	}
	if n.step.Run.Input != nil {
		n.childInput, err = c.source(n.step.Run.Input)
	}
	return err
}

// http makes one template of all parts of the request.
func (c *compiler) http(h *drover.HTTP) (*formula, error) {
	parts, err := rawjson.Encode(struct {
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body,omitempty"`
	}{h.URL, h.Headers, h.Body})
	if err != nil {
		return nil, err
	}
	return c.template(parts)
}

func (c *compiler) source(s *drover.Source) (*source, error) {
	if s.With != nil {
		f, err := c.template(s.With)
		return &source{formula: f, template: s.Template}, err
	}
	src := &source{list: s.From.List, template: s.Template}
	for _, name := range s.From.Names {
		ref, err := drover.ParseRef(name)
		if err != nil {
			return nil, err
		}
		if ref.Kind == drover.RefNode {
			c.reads[ref.Node] = true
		}
		src.refs = append(src.refs, ref)
	}
	return src, nil
}

// over compiles what a fan-out goes over: a reference, or an expression.
func (c *compiler) over(text string) (*source, error) {
	if strings.Contains(text, "${{") {
		f, err := c.expression(text, expression.Any)
		return &source{formula: f}, err
	}
	return c.source(&drover.Source{From: drover.Refs{Names: []string{text}}})
}

// expression compiles an expression, that may stand in ${{ }}.
func (c *compiler) expression(text string, want expression.Want) (*formula, error) {
	return c.within(text, c.scope(), want)
}

// within is expression in a scope of its own.
func (c *compiler) within(text string, scope expression.Scope, want expression.Want) (*formula, error) {
	bare := strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(bare, "${{"); ok {
		if inner, ok = strings.CutSuffix(inner, "}}"); ok {
			bare = inner
		}
	}
	e, err := expression.Compile(bare, scope, want)
	if err != nil {
		return nil, err
	}
	return c.formula(&formula{expr: e, reads: e.Nodes()}), nil
}

func (c *compiler) template(raw json.RawMessage) (*formula, error) {
	t, err := expression.CompileTemplate(raw, c.scope())
	if err != nil {
		return nil, err
	}
	return c.formula(&formula{template: t, reads: t.Nodes()}), nil
}

func (c *compiler) formula(f *formula) *formula {
	for _, id := range f.reads {
		c.reads[drover.NodeID(id)] = true
	}
	return f
}
