package expression

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
)

// Unmarked finds what was meant for an expression in the strings of a template,
// but has no $ before its braces, and so would stay text: {{ e }} where e is an
// expression that reads the input, the item or a node. Other braces are text.
func Unmarked(raw json.RawMessage) Errors {
	if !strings.Contains(string(raw), "{{") {
		return nil
	}
	v, err := decodeNumbers(raw)
	if err != nil {
		return nil // CompileTemplate tells
	}
	u := unmarked{config: checkConfig(), left: maxUnmarked}
	u.value("", v)
	return u.found
}

// maxUnmarked bounds how many braces of a template are looked into.
const maxUnmarked = 1000

type unmarked struct {
	config *conf.Config
	left   int
	found  Errors
}

func (u *unmarked) value(path string, v any) {
	switch v := v.(type) {
	case string:
		pieces, _ := cutText(v)
		for _, p := range pieces {
			if !p.isExpr {
				u.text(path, p.text)
			}
		}
	case []any:
		for i := range v {
			u.value(fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			u.value(strings.TrimPrefix(path+"."+k, "."), v[k])
		}
	}
}

func (u *unmarked) text(path, s string) {
	for ; u.left > 0; u.left-- {
		_, after, ok := strings.Cut(s, "{{")
		if !ok {
			return
		}
		end := closingAt(after)
		if end < 0 {
			return
		}
		if src := strings.TrimSpace(after[:end]); u.reads(src) {
			u.found = append(u.found, &Error{
				Path: path, Source: "{{ " + src + " }}", Message: "without a $ before the braces this is text",
				Fix: fmt.Sprintf("write ${{ %s }}; if it is to stay text, write ${{ %s }}", src, appendString(nil, "{{ "+src+" }}")),
			})
		}
		s = after[end+len(closing):]
	}
}

// reads reports whether src is an expression that reads the input, the item or
// a node.
func (u *unmarked) reads(src string) bool {
	if len(src) > maxSource || !strings.Contains(src, "input") && !strings.Contains(src, "item") && !strings.Contains(src, "nodes") {
		return false
	}
	tree, err := parser.ParseWithConfig(src, u.config)
	if err != nil {
		return false
	}
	var r roots
	ast.Walk(&tree.Node, &r)
	return bool(r)
}

type roots bool

func (r *roots) Visit(n *ast.Node) {
	if name, ok := (*n).(*ast.IdentifierNode); ok && slices.Contains([]string{"input", "item", "nodes"}, name.Value) {
		*r = true
	}
}
