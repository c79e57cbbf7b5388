package drover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/droverhq/drover/internal/expression"
)

// maxProblems is how many problems one answer lists.
const maxProblems = 100

// problems gathers what is wrong, in the order of the source.
type problems struct {
	list []Problem
	more int // that found no room
}

func (p *problems) add(problem Problem) {
	if len(p.list) >= maxProblems {
		p.more++
		return
	}
	p.list = append(p.list, problem)
}

// shape walks a tree along the grammar.
type shape struct {
	*problems
	above []level
}

// level is an object on the way from the top to where the walk is.
type level struct {
	form  *form
	place string
}

func (s *shape) place() string { return s.above[len(s.above)-1].place }

func (s *shape) fail(line int, place, fix, format string, args ...any) {
	s.add(Problem{Place: place, Line: line, Message: fmt.Sprintf(format, args...), Fix: fix})
}

func below(place, key string) string { return strings.TrimPrefix(place+"."+key, ".") }

// value checks t, that stands at place, against f.
func (s *shape) value(f *form, t *tree, place string) {
	if f.any {
		s.duplicates(t, place)
		return
	}
	if f.or != nil && t.kind == f.or.kind {
		f = f.or
	}
	if t.kind != f.kind {
		s.wrongKind(f, t, place)
		return
	}
	switch t.kind {
	case isObject:
		s.object(f, t, place)
	case isList:
		if len(t.items) == 0 && f.filled {
			s.fail(t.line, place, f.why, "the list is empty")
		}
		for i, item := range t.items {
			s.value(f.each, item, fmt.Sprintf("%s[%d]", place, i))
		}
	case isText:
		s.text(f, t, place)
	case isNumber:
		s.number(f, t, place)
	case isNull, isBool:
	}
}

// duplicates looks for keys that come twice where every key goes.
func (s *shape) duplicates(t *tree, place string) {
	first := make(map[string]int, len(t.entries))
	for _, e := range t.entries {
		at := below(place, e.key)
		if line, twice := first[e.key]; twice {
			s.twice(e, line, at)
		}
		first[e.key] = e.line
		s.duplicates(e.value, at)
	}
	for i, item := range t.items {
		s.duplicates(item, fmt.Sprintf("%s[%d]", place, i))
	}
}

func (s *shape) twice(e entry, line int, place string) {
	s.fail(e.line, place, "keep one of them", "the key %s is there already, in line %d", quote(e.key), line)
}

func (s *shape) wrongKind(f *form, t *tree, place string) {
	if t.kind == isNull {
		s.fail(t.line, place, "give it one, or leave the key out", "it has no value")
		return
	}
	want := f.kind.String()
	if f.or != nil && f.or.kind != f.kind {
		want += " or " + f.or.kind.String()
	}
	fix := f.why
	if fix == "" && len(f.words) > 0 {
		fix = "write " + strings.Join(f.words, " or ")
	}
	s.fail(t.line, place, fix, "it is %s, and must be %s", t.kind, want)
}

func (s *shape) text(f *form, t *tree, place string) {
	if strings.TrimSpace(t.text) == "" && !f.blank {
		s.fail(t.line, place, "fill it in", "it is blank")
		return
	}
	if len(f.words) > 0 && !slices.Contains(f.words, t.text) {
		s.fail(t.line, place, "write "+strings.Join(f.words, " or "), "%s is not known here", quote(t.text))
		return
	}
	if f.text != nil {
		if p := f.text(t.text); p != nil {
			s.fail(t.line, place, p.Fix, "%s", p.Message)
		}
	}
}

func (s *shape) number(f *form, t *tree, place string) {
	n, err := strconv.ParseFloat(t.text, 64)
	switch {
	case err != nil || n < f.number.least || n > f.number.most:
		s.fail(t.line, place, fmt.Sprintf("write a number from %v to %v", f.number.least, f.number.most), "%.40s is out of range", t.text)
	case f.number.whole && strings.ContainsAny(t.text, ".eE"):
		s.fail(t.line, place, "write a whole number", "%.40s is no whole number", t.text)
	}
}

func (s *shape) object(f *form, t *tree, place string) {
	s.above = append(s.above, level{f, place})
	defer func() { s.above = s.above[:len(s.above)-1] }()
	first := make(map[string]int, len(t.entries))
	for _, e := range t.entries {
		at := below(place, e.key)
		if line, twice := first[e.key]; twice {
			s.twice(e, line, at)
			continue
		}
		first[e.key] = e.line
		if f.each != nil {
			s.value(f.each, e.value, at)
			continue
		}
		i := slices.IndexFunc(f.keys, func(k key) bool { return k.name == e.key })
		if i < 0 {
			s.unknown(f, t, e, at)
			continue
		}
		s.value(f.keys[i].form, e.value, at)
	}
	for _, k := range f.keys {
		if _, there := first[k.name]; k.need != "" && !there {
			s.fail(t.line, below(place, k.name), k.need, "%s is missing", quote(k.name))
		}
	}
	if f.check != nil {
		f.check(s, t)
	}
}

// unknown says of a key that is not in a form where it belongs: above, below,
// elsewhere, or to another spelling.
func (s *shape) unknown(f *form, t *tree, e entry, place string) {
	message := fmt.Sprintf("the key %s is not known here", quote(e.key))
	fix := "leave it out"
	switch home, where := s.home(f, t, e.key); {
	case home != nil && where != "":
		fix = fmt.Sprintf("it belongs to %s: move it to %s", home.name, where)
	case home != nil:
		fix = fmt.Sprintf("it belongs to %s", home.name)
	default:
		if near := expression.Nearest(e.key, keyNames(f)); near != "" {
			fix = fmt.Sprintf("did you mean %s?", near)
		}
	}
	s.fail(e.line, place, fix, "%s", message)
}

// home finds the form that has a key: the nearest above, else one below, of
// which those that are there come first, else any. Where says the place of a form above or right below.
func (s *shape) home(f *form, t *tree, name string) (home *form, where string) {
	for _, l := range slices.Backward(s.above[:len(s.above)-1]) {
		if hasKey(l.form, name) {
			return l.form, below(l.place, name)
		}
	}
	for _, there := range []bool{true, false} {
		for _, k := range f.keys {
			if hasKey(k.form, name) && k.form != s.above[0].form && (t.get(k.name) != nil) == there {
				return k.form, below(below(s.place(), k.name), name)
			}
		}
	}
	return search(s.above[0].form, name, map[*form]bool{}), ""
}

func hasKey(f *form, name string) bool { return slices.Contains(keyNames(f), name) }

func keyNames(f *form) []string {
	names := make([]string, len(f.keys))
	for i, k := range f.keys {
		names[i] = k.name
	}
	return names
}

// search looks for a form with a key, those with a name only, near ones first.
func search(f *form, name string, seen map[*form]bool) *form {
	next := []*form{f}
	for len(next) > 0 {
		f, next = next[0], next[1:]
		if f == nil || seen[f] {
			continue
		}
		seen[f] = true
		if f.name != "" && hasKey(f, name) {
			return f
		}
		next = append(next, f.each)
		for _, k := range f.keys {
			next = append(next, k.form)
		}
	}
	return nil
}
