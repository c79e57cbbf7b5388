package drover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	tree  *tree
	place string
	meant []string // the keys that unknown ones were told to be, or to go into
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
	case isBool:
		if len(f.words) > 0 && !slices.Contains(f.words, t.text) {
			s.fail(t.line, place, f.why, "%s is not known here", t.text)
		}
	case isNull:
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
	s.fail(t.line, place, f.instead(t), "it is %s, and must be %s", t.kind, want)
}

// instead says what to write in place of a value of another kind.
func (f *form) instead(t *tree) string {
	switch {
	case f.why != "":
		return f.why
	case len(f.words) > 0:
		return "write " + strings.Join(f.words, " or ")
	case f.kind == isText && (t.kind == isNumber || t.kind == isBool):
		return "put it in quotes"
	case f.kind == isText:
		return "write one text"
	case f.kind == isNumber:
		return "write a number, without quotes"
	case f.kind == isBool:
		return "write true or false, without quotes"
	}
	return ""
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
	s.above = append(s.above, level{form: f, tree: t, place: place})
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
		if i < 0 || !f.keys[i].fits(t) && f.keys[i].with != "" {
			s.unknown(f, t, e, at)
			continue
		}
		if !f.keys[i].fits(t) {
			s.fail(e.line, at, "leave it out: the code of the program does that", "a definition with %s has no %s", f.keys[i].sans, e.key)
			continue
		}
		s.value(f.keys[i].form, e.value, at)
	}
	for _, k := range f.keys {
		if _, there := first[k.name]; k.need != "" && !there && k.fits(t) && !s.meant(k.name, k.sans) {
			s.fail(t.line, below(place, k.name), k.need, "%s is missing", quote(k.name))
		}
	}
	if f.check != nil {
		f.check(s, t)
	}
}
