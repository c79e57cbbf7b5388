package drover

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxYAMLTokens bounds what the parser is given: its time grows faster than
// its input.
const maxYAMLTokens = 200_000

// readYAML reads one document of YAML. Its only problem is what is no YAML, or
// YAML that JSON cannot say. An alias is the value of its anchor again; its
// size is for the caller to bound.
func readYAML(data []byte) (t *tree, problem *Problem) {
	// The parser is a library that meets what anyone sends.
	defer func() {
		if r := recover(); r != nil {
			t, problem = nil, &Problem{Message: fmt.Sprintf("this YAML cannot be read (%v)", r), Fix: "send it as JSON"}
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if problem := checkTokens(tokens); problem != nil {
		return nil, problem
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, yamlProblem(err, string(data))
	}
	r := yamlReader{anchors: map[string]*tree{}}
	var body ast.Node
	for _, doc := range file.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); directive || doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &Problem{
				Line:    doc.Body.GetToken().Position.Line,
				Message: "there is a second document",
				Fix:     "keep one definition in one file",
			}
		}
		body = doc.Body
	}
	if body == nil {
		return &tree{line: 1}, nil
	}
	t = r.value(body, 0)
	return t, r.problem
}

// checkTokens bounds the nesting before anything recurses on it.
func checkTokens(tokens token.Tokens) *Problem {
	if len(tokens) > maxYAMLTokens {
		return &Problem{Message: fmt.Sprintf("the YAML has %d parts, and may have %d", len(tokens), maxYAMLTokens), Fix: "send it as JSON"}
	}
	flow, inLine, line := 0, 0, 0
	for _, tk := range tokens {
		if tk.Position.Line != line {
			line, inLine = tk.Position.Line, 0
		}
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			inLine++
			if flow > 0 {
				inLine = 0
			}
		default:
		}
		if max(flow, inLine) > maxTreeDepth {
			return &Problem{Line: line, Message: fmt.Sprintf("it is nested deeper than %d", maxTreeDepth)}
		}
	}
	return nil
}

type yamlReader struct {
	anchors map[string]*tree
	merged  int      // entries that came by <<
	problem *Problem // the first
}

func (r *yamlReader) fail(n ast.Node, fix, format string, args ...any) *tree {
	if r.problem == nil {
		r.problem = &Problem{Line: n.GetToken().Position.Line, Message: fmt.Sprintf(format, args...), Fix: fix}
	}
	return &tree{}
}

func (r *yamlReader) value(n ast.Node, depth int) *tree {
	if depth > maxTreeDepth {
		return r.fail(n, "", "it is nested deeper than %d", maxTreeDepth)
	}
	if n == nil {
		return &tree{}
	}
	t := &tree{line: n.GetToken().Position.Line}
	switch v := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		t.kind, t.text = isBool, fmt.Sprint(v.Value)
	case *ast.IntegerNode:
		t.kind, t.text = isNumber, fmt.Sprint(v.Value)
	case *ast.FloatNode:
		t.kind, t.text = isNumber, yamlFloat(v)
	case *ast.StringNode:
		return plainScalar(t, v)
	case *ast.LiteralNode:
		t.kind, t.text = isText, v.Value.Value
	case *ast.MappingNode:
		t.kind = isObject
		r.mapping(t, v.Values, depth)
	case *ast.MappingValueNode:
		t.kind = isObject
		r.mapping(t, []*ast.MappingValueNode{v}, depth)
	case *ast.SequenceNode:
		t.kind = isList
		for _, item := range v.Values {
			if text, ok := splitText(item); ok {
				t.items = append(t.items, text)
				continue
			}
			t.items = append(t.items, r.value(item, depth+1))
		}
	case *ast.AnchorNode:
		t = r.value(v.Value, depth+1)
		r.anchors[v.Name.GetToken().Value] = t
	case *ast.AliasNode:
		return r.alias(v, depth)
	case *ast.TagNode:
		return r.tag(v, depth)
	case *ast.InfinityNode, *ast.NanNode:
		return r.fail(n, "write a number", "%s is no number that JSON has", n.GetToken().Value)
	default:
		return r.fail(n, "write it as JSON would", "%s is not understood here", quote(n.String()))
	}
	t.measure()
	return t
}

// splitText mends what the parser makes of [node:a] within {}: an object, where
// YAML has text, as no space follows the colon.
func splitText(n ast.Node) (*tree, bool) {
	if object, ok := n.(*ast.MappingNode); ok && len(object.Values) == 1 && object.Start.Type != token.MappingStartType {
		n = object.Values[0]
	}
	pair, ok := n.(*ast.MappingValueNode)
	if !ok || pair.Value == nil {
		return nil, false
	}
	key, plain := pair.Key.(*ast.StringNode)
	value, isScalar := pair.Value.(ast.ScalarNode)
	if !plain || !isScalar || key.Token.Type != token.StringType {
		return nil, false
	}
	from, colon, to := key.Token, pair.Start, value.GetToken()
	switch to.Type {
	case token.SingleQuoteType, token.DoubleQuoteType, token.LiteralType, token.FoldedType, token.ImplicitNullType:
		return nil, false
	default:
	}
	if colon.Position.Offset+1 != to.Position.Offset || colon.Position.Line != to.Position.Line {
		return nil, false
	}
	return &tree{kind: isText, line: from.Position.Line, text: from.Value + ":" + to.Value}, true
}

// plainScalar is text, but for the numbers that the parser does not know:
// long integers and 1e3.
func plainScalar(t *tree, v *ast.StringNode) *tree {
	t.kind, t.text = isText, v.Value
	if v.Token.Type == token.StringType && len(v.Value) > 1 && strings.Trim(v.Value, "-+.eE0123456789") == "" && json.Valid([]byte(v.Value)) {
		t.kind, t.text = isNumber, canonicalNumber(v.Value)
	}
	return t
}

func yamlFloat(v *ast.FloatNode) string {
	if text := v.GetToken().Value; json.Valid([]byte(text)) {
		return canonicalNumber(text)
	}
	if math.IsInf(v.Value, 0) || math.IsNaN(v.Value) {
		return "0"
	}
	b, _ := json.Marshal(v.Value) // finite
	return canonicalNumber(string(b))
}

func (r *yamlReader) alias(v *ast.AliasNode, depth int) *tree {
	name := v.Value.GetToken().Value
	if t := r.anchors[name]; t != nil {
		if depth+t.height > maxTreeDepth {
			return r.fail(v, "", "it is nested deeper than %d", maxTreeDepth)
		}
		return t
	}
	return r.fail(v, "define it with &"+name+" before it is used", "there is no anchor %s", quote(name))
}

// tag understands !!str, which makes text of anything that has one spelling,
// and ignores the other standard ones, which say what is plain anyhow.
func (r *yamlReader) tag(v *ast.TagNode, depth int) *tree {
	switch name := v.GetToken().Value; name {
	case "!!str":
		if scalar, ok := v.Value.(ast.ScalarNode); ok {
			t := r.value(v.Value, depth+1)
			if t.kind != isText {
				t = &tree{kind: isText, line: t.line, text: scalar.GetToken().Value}
			}
			return t
		}
		return r.fail(v, "", "!!str takes one word or text")
	case "!!map", "!!seq", "!!int", "!!float", "!!bool", "!!null":
		return r.value(v.Value, depth+1)
	default:
		return r.fail(v, "leave it out", "the tag %s is not known", quote(name))
	}
}

func (r *yamlReader) mapping(t *tree, values []*ast.MappingValueNode, depth int) {
	var merged []*tree
	for _, v := range values {
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			merged = append(merged, r.value(v.Value, depth+1))
			continue
		}
		key, ok := r.key(v.Key)
		if !ok {
			return
		}
		t.entries = append(t.entries, entry{key, v.Key.GetToken().Position.Line, r.value(v.Value, depth+1)})
	}
	for _, from := range merged {
		r.merge(t, from)
	}
}

// merge adds the entries of a `<<` that the mapping does not have.
func (r *yamlReader) merge(t, from *tree) {
	if from.kind == isList {
		for _, item := range from.items {
			r.merge(t, item)
		}
		return
	}
	have := make(map[string]bool, len(t.entries))
	for _, e := range t.entries {
		have[e.key] = true
	}
	if r.merged += len(from.entries); r.merged > maxYAMLTokens {
		r.problem = &Problem{Line: t.line, Message: "there is too much to merge by <<", Fix: "send it as JSON"}
		return
	}
	for _, e := range from.entries {
		if !have[e.key] {
			t.entries = append(t.entries, e)
		}
	}
}

func (r *yamlReader) key(n ast.MapKeyNode) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return n.GetToken().Value, true
	}
	r.fail(n, "write a plain key", "%s cannot be a key", quote(n.String()))
	return "", false
}
