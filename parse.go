package drover

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/droverhq/drover/internal/expression"
)

// ParseDefinition reads a definition, in JSON or YAML, and validates it.
//
// Its error is an *Error. With CodeInvalidDefinition it lists everything that
// is wrong, each with its place, its line and what to do: all problems of
// shape at once; where there are none, all references that lead nowhere; where
// there are none, all expressions and schemas that do not compile. With
// CodeTooLarge the definition has more than MaxDefinition bytes.
func ParseDefinition(data []byte) (*Definition, error) {
	if len(data) > MaxDefinition {
		return nil, tooLarge(fmt.Sprint(len(data)))
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		line := 1 + bytes.Count(data[:firstInvalid(data)], []byte("\n"))
		return nil, invalid(&problems{list: []Problem{{Line: line, Message: "this is no UTF-8", Fix: "save it as UTF-8"}}})
	}
	read := readYAML
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) > 0 && first[0] == '{' {
		read = readJSON
	}
	t, problem := read(data)
	if problem != nil {
		return nil, invalid(&problems{list: []Problem{*problem}})
	}
	return fromTree(t)
}

func fromTree(t *tree) (*Definition, error) {
	if t.size(8*MaxDefinition) > 8*MaxDefinition { // by aliases
		return nil, tooLarge("far more")
	}
	found := &problems{}
	if t.kind != isObject {
		found.add(Problem{Line: t.line, Message: fmt.Sprintf("it is %s, and must be an object", t.kind), Fix: "write nodes and output"})
		return nil, invalid(found)
	}
	s := shape{problems: found}
	s.value(grammar(), t, "")
	if len(found.list) > 0 {
		return nil, invalid(found)
	}
	data := t.appendJSON(nil)
	if len(data) > MaxDefinition {
		return nil, tooLarge(fmt.Sprint(len(data)))
	}
	var d Definition
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, Errorf(CodeInvalidDefinition, "the definition cannot be read: %v", err)
	}
	l := linker{problems: found, source: t}
	l.references(&d, "")
	if len(found.list) == 0 {
		l.formulas(&d, "")
	}
	if len(found.list) > 0 {
		slices.SortStableFunc(found.list, func(a, b Problem) int { return a.Line - b.Line })
		return nil, invalid(found)
	}
	return &d, nil
}

func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

func tooLarge(size string) *Error {
	return Errorf(CodeTooLarge, "the definition has %s bytes, and may have %d: split it into workflows that run each other", size, MaxDefinition)
}

func invalid(p *problems) *Error {
	message := "the definition has a problem"
	if n := len(p.list); n > 1 {
		message = fmt.Sprintf("the definition has %d problems", n)
	}
	if p.more > 0 {
		message += fmt.Sprintf(", and %d more that are not listed", p.more)
	}
	return &Error{Code: CodeInvalidDefinition, Message: message, Problems: p.list}
}

// Validate checks a definition that was made by hand, as ParseDefinition would
// check its JSON. Problems have no lines.
func (d *Definition) Validate() error {
	t, err := d.tree()
	if err == nil {
		_, err = fromTree(t)
	}
	if e := AsError(err, CodeInvalidDefinition); e != nil {
		for i := range e.Problems {
			e.Problems[i].Line = 0
		}
		return e
	}
	return nil
}

// Canonical gives the definition as the one JSON of its meaning, and the hash
// of that: keys are sorted, there is no space, no default is filled in. What
// YAML and JSON say alike has one hash. The error has CodeInvalidDefinition
// where the definition holds JSON that is none.
func (d *Definition) Canonical() ([]byte, Hash, error) {
	t, err := d.tree()
	if err != nil {
		return nil, "", err
	}
	data := t.appendJSON(nil)
	sum := sha256.Sum256(data)
	return data, Hash(hex.EncodeToString(sum[:])), nil
}

func (d *Definition) tree() (*tree, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, Errorf(CodeInvalidDefinition, "the definition cannot be written as JSON: %v", err)
	}
	t, problem := readJSON(data)
	if problem != nil {
		return nil, invalid(&problems{list: []Problem{*problem}})
	}
	return t, nil
}

// StartWarnings tells of the keys of a StartRequest that are none, and are
// ignored, in the order of their lines. It is nil for what is no JSON object.
func StartWarnings(data []byte) []Problem {
	t, problem := readJSON(data)
	if problem != nil {
		return nil
	}
	var known []string
	for field := range reflect.TypeFor[StartRequest]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		known = append(known, name)
	}
	var warnings []Problem
	for _, e := range t.entries {
		if slices.Contains(known, e.key) || len(warnings) == maxProblems {
			continue
		}
		p := Problem{Place: e.key, Line: e.line, Message: fmt.Sprintf("the key %s is not known, and was ignored", quote(e.key))}
		if near := expression.Nearest(e.key, known); near != "" {
			p.Fix = fmt.Sprintf("did you mean %s?", near)
		}
		warnings = append(warnings, p)
	}
	return warnings
}
