package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// NotArray reports whether a schema proves that what is found at a path of
// keys, in any value that fits it, is no array: proven, and what it is or why
// there is nothing. It is false where it cannot tell; it follows references
// within the schema, and what all or each of the alternatives say.
func NotArray(raw json.RawMessage, path []string) (what string, proven bool) {
	doc, err := decode(raw)
	if err != nil {
		return "", false
	}
	p := prover{doc: doc, left: 10_000}
	return p.notArray(doc, path)
}

type prover struct {
	doc  any
	left int // steps, against references in a circle
}

func (p *prover) notArray(schema any, path []string) (string, bool) {
	s, ok := schema.(map[string]any)
	if p.left--; !ok || p.left < 0 {
		return "", false
	}
	if target, ok := p.reference(s["$ref"]); ok {
		if what, ok := p.notArray(target, path); ok {
			return what, true
		}
	}
	if all, ok := s["allOf"].([]any); ok {
		for _, sub := range all {
			if what, ok := p.notArray(sub, path); ok {
				return what, true
			}
		}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if what, ok := p.each(s[key], path); ok {
			return what, true
		}
	}
	if len(path) == 0 {
		return typeOf(s)
	}
	return p.below(s, path)
}

// each proves it for every alternative.
func (p *prover) each(list any, path []string) (what string, proven bool) {
	subs, _ := list.([]any)
	for _, sub := range subs {
		if what, proven = p.notArray(sub, path); !proven {
			return "", false
		}
	}
	return what, proven
}

// below looks at the first key of the path.
func (p *prover) below(s map[string]any, path []string) (string, bool) {
	key := path[0]
	_, err := strconv.Atoi(key)
	types := typesOf(s)
	if types != nil && !slices.Contains(types, "object") && (err != nil || !slices.Contains(types, "array")) {
		return fmt.Sprintf("below %s, which has no keys", article(types)), true
	}
	if err == nil {
		return "", false // an index or a key
	}
	properties, _ := s["properties"].(map[string]any)
	if sub, ok := properties[key]; ok {
		return p.notArray(sub, path[1:])
	}
	if s["patternProperties"] != nil {
		return "", false
	}
	switch more := s["additionalProperties"].(type) {
	case bool:
		if !more && slices.Contains(types, "object") && len(types) == 1 {
			known := slices.Sorted(maps.Keys(properties))
			return fmt.Sprintf("missing: there is no key %q, but %s", key, strings.Join(known, ", ")), true
		}
	case map[string]any:
		return p.notArray(more, path[1:])
	}
	return "", false
}

// reference finds what a reference within the document means.
func (p *prover) reference(ref any) (any, bool) {
	text, ok := ref.(string)
	if !ok {
		return nil, false
	}
	pointer, ok := strings.CutPrefix(text, "#/")
	if !ok {
		return p.doc, text == "#"
	}
	at := p.doc
	for key := range strings.SplitSeq(pointer, "/") {
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
		object, _ := at.(map[string]any)
		if at, ok = object[key]; !ok {
			return nil, false
		}
	}
	return at, true
}

// typesOf gives the types that a schema allows, or nil where it does not say.
func typesOf(s map[string]any) []string {
	switch t := s["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var types []string
		for _, item := range t {
			name, _ := item.(string)
			types = append(types, name)
		}
		return types
	}
	return nil
}

func typeOf(s map[string]any) (string, bool) {
	if types := typesOf(s); len(types) > 0 && !slices.Contains(types, "array") {
		return article(types), true
	}
	values, ok := s["enum"].([]any)
	if c, is := s["const"]; is {
		values, ok = []any{c}, true
	}
	if !ok || len(values) == 0 {
		return "", false
	}
	for _, v := range values {
		if _, array := v.([]any); array {
			return "", false
		}
	}
	return "one of the values that it lists", true
}

func article(types []string) string {
	names := slices.Clone(types)
	for i, name := range names {
		switch {
		case name == "null":
		case strings.HasPrefix(name, "o") || strings.HasPrefix(name, "i"):
			names[i] = "an " + name
		default:
			names[i] = "a " + name
		}
	}
	return strings.Join(names, " or ")
}
