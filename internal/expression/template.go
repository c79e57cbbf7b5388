package expression

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Template is compiled JSON with expressions in its strings. It is safe for
// concurrent use.
type Template struct {
	root  part
	nodes []string
}

// part is a piece of a template that writes its JSON.
type part interface {
	write(m *meter, b []byte, env *Env) ([]byte, error)
}

// CompileTemplate compiles JSON in whose strings, but not in its keys, each
// ${{ expression }} is replaced. Its error is an Errors with every problem of
// every expression, or one that says why it is no JSON.
func CompileTemplate(raw json.RawMessage, scope Scope) (*Template, error) {
	v, err := decodeNumbers(raw)
	if err != nil {
		return nil, err
	}
	c := templateCompiler{scope: scope, nodes: map[string]bool{}}
	root := c.value("", v)
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	return &Template{root: root, nodes: slices.Sorted(maps.Keys(c.nodes))}, nil
}

// Nodes gives the sorted ids of the nodes that the template reads.
func (t *Template) Nodes() []string { return slices.Clone(t.nodes) }

// Eval gives the JSON with every expression replaced: a string that is one
// expression by its value; in other strings text as it is, and everything else
// as JSON. Keys are sorted, and there is no space. Its error is an *Error that
// says where.
func (t *Template) Eval(env Env) (json.RawMessage, error) {
	return t.root.write(newMeter(), nil, &env)
}

type templateCompiler struct {
	scope Scope
	nodes map[string]bool
	errs  Errors
}

func (c *templateCompiler) value(path string, v any) part {
	switch v := v.(type) {
	case string:
		return c.text(path, v)
	case []any:
		parts := make(list, len(v))
		for i := range v {
			parts[i] = c.value(fmt.Sprintf("%s[%d]", path, i), v[i])
		}
		return fold(parts, allConstant(parts))
	case map[string]any:
		parts := make(object, 0, len(v))
		constants := true
		for _, k := range slices.Sorted(maps.Keys(v)) {
			sub := c.value(strings.TrimPrefix(path+"."+k, "."), v[k])
			_, constant := sub.(constant)
			constants = constants && constant
			parts = append(parts, field{append(appendString(nil, k), ':'), sub})
		}
		return fold(parts, constants)
	default:
		return c.constant(v)
	}
}

func (c *templateCompiler) constant(v any) part {
	b, _ := newMeter().appendJSON(nil, v, 0) // a number, bool or null
	return constant(b)
}

func (c *templateCompiler) text(path, s string) part {
	pieces, err := cutText(s)
	if err != nil {
		c.fail(path, err)
		return constant("null")
	}
	for i, piece := range pieces {
		if !piece.isExpr {
			continue
		}
		e, err := Compile(piece.text, c.scope, Any)
		if err != nil {
			c.fail(path, translate(piece.text, err))
			continue
		}
		pieces[i].expr = e
		for _, id := range e.nodes {
			c.nodes[id] = true
		}
	}
	switch {
	case len(pieces) == 1 && pieces[0].isExpr:
		return &hole{path, pieces[0].expr}
	case slices.ContainsFunc(pieces, func(p piece) bool { return p.isExpr }):
		return &text{path, pieces}
	}
	return constant(appendString(nil, s))
}

func (c *templateCompiler) fail(path string, err *Error) {
	err.Path = path
	c.errs = append(c.errs, err)
}

// piece is text, or an expression within it.
type piece struct {
	text   string
	isExpr bool
	expr   *Expr
}

const (
	opening = "${{"
	closing = "}}"
)

func cutText(s string) ([]piece, *Error) {
	var pieces []piece
	for s != "" {
		before, after, ok := strings.Cut(s, opening)
		if before != "" {
			pieces = append(pieces, piece{text: before})
		}
		if !ok {
			break
		}
		end := closingAt(after)
		if end < 0 {
			return nil, &Error{Source: opening + after, Message: "the expression has no end", Fix: "close it with }}"}
		}
		pieces = append(pieces, piece{text: strings.TrimSpace(after[:end]), isExpr: true})
		s = after[end+len(closing):]
	}
	return pieces, nil
}

// closingAt finds the }} that ends an expression: one that is in no quotes and
// closes no brace of the expression. -1: there is none.
func closingAt(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case strings.HasPrefix(s[i:], closing):
			return i
		}
	}
	return -1
}

// HasExpression reports whether text holds an expression of a template.
func HasExpression(s string) bool { return strings.Contains(s, opening) }

// Single gives the expression that text consists of, if it is one and nothing
// else but space around it.
func Single(s string) (string, bool) {
	pieces, err := cutText(strings.TrimSpace(s))
	if err != nil || len(pieces) != 1 || !pieces[0].isExpr {
		return "", false
	}
	return pieces[0].text, true
}

// constant is JSON without an expression.
type constant []byte

func (p constant) write(m *meter, b []byte, _ *Env) ([]byte, error) {
	return append(b, p...), m.text(len(p))
}

// fold makes one constant of a part that has no expression in it.
func fold(p part, constants bool) part {
	if !constants {
		return p
	}
	m := &meter{left: 1 << 40}
	b, _ := p.write(m, nil, nil) // constants do not fail
	return constant(b)
}

func allConstant(parts []part) bool {
	for _, p := range parts {
		if _, ok := p.(constant); !ok {
			return false
		}
	}
	return true
}

type list []part

func (p list) write(m *meter, b []byte, env *Env) (_ []byte, err error) {
	b = append(b, '[')
	for i, item := range p {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = item.write(m, b, env); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

type field struct {
	key   []byte // as JSON, with its colon
	value part
}

type object []field

func (p object) write(m *meter, b []byte, env *Env) (_ []byte, err error) {
	b = append(b, '{')
	for i, f := range p {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = f.value.write(m, append(b, f.key...), env); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// hole is a string that is one expression.
type hole struct {
	path string
	expr *Expr
}

func (p *hole) write(m *meter, b []byte, env *Env) ([]byte, error) {
	v, err := p.expr.run(env, m)
	if err == nil {
		b, err = m.appendJSON(b, v, 0)
	}
	return b, at(p.path, p.expr, err)
}

// text is a string with expressions in it.
type text struct {
	path   string
	pieces []piece
}

func (p *text) write(m *meter, b []byte, env *Env) ([]byte, error) {
	var s strings.Builder
	for _, piece := range p.pieces {
		if !piece.isExpr {
			s.WriteString(piece.text)
			continue
		}
		v, err := piece.expr.run(env, m)
		if err == nil {
			var part string
			part, err = m.spell(v)
			s.WriteString(part)
		}
		if err != nil {
			return nil, at(p.path, piece.expr, err)
		}
	}
	return appendString(b, s.String()), nil
}

// at adds the path to an error of an expression.
func at(path string, e *Expr, err error) error {
	if err == nil {
		return nil
	}
	own := translate(e.source, err)
	own.Path = path
	return own
}
