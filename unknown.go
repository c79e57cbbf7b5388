package drover

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/droverhq/drover/internal/expression"
)

// What to do about a key that is not known where it stands. An advice that is
// followed must not lead to the next problem, so it goes by what the kind of
// the node may have, and by what is there already.

// home is a form that has a key, and the place that the key would have there.
type home struct {
	form  *form
	place string
	key   string // of the form that the walk is in: the way to a home below it
}

func (s *shape) unknown(f *form, t *tree, e entry, place string) {
	s.fail(e.line, place, s.advice(f, t, e.key), "the key %s is not known here", quote(e.key))
}

// advice is the first that fits: a part of t that has such a key, the data of
// a source, the spelling of another system, other letters, a part that t may
// have or an object around it, a name that is near, any other part.
func (s *shape) advice(f *form, t *tree, written string) string {
	name := snake(written)
	if h := within(f, t, name, s.place()); h != nil {
		return s.move(*h)
	}
	if f.free {
		return s.data(f, written)
	}
	if fix := s.spelled(f, t, name); fix != "" {
		return fix
	}
	if slices.Contains(f.open(t), name) {
		return s.mean(name)
	}
	if homes := append(s.below(f, t, name), s.around(name)...); len(homes) > 0 {
		return s.move(homes...)
	}
	if fix := s.elsewhere(f, t, name); fix != "" {
		return fix
	}
	if near := expression.Nearest(name, f.open(t)); near != "" {
		return s.mean(near)
	}
	if i := slices.IndexFunc(f.keys, func(k key) bool { return k.name == name && k.with != "" }); i >= 0 {
		return fmt.Sprintf("leave it out: it goes with %s only", f.keys[i].with)
	}
	if found := search(s.above[0].form, name, map[*form]bool{}); found != nil {
		return "it belongs to " + found.name
	}
	return "leave it out"
}

// mean tells that a key is meant.
func (s *shape) mean(key string) string {
	s.note(key)
	return fmt.Sprintf("did you mean %s?", key)
}

// note keeps that a key is meant, so that its absence is not told as well.
func (s *shape) note(key string) {
	at := &s.above[len(s.above)-1]
	at.meant = append(at.meant, key)
}

// meant reports whether an unknown key was told to be one of keys.
func (s *shape) meant(keys ...string) bool {
	return slices.ContainsFunc(s.above[len(s.above)-1].meant, func(key string) bool { return slices.Contains(keys, key) })
}

func (s *shape) move(homes ...home) string {
	var names, places []string
	for _, h := range homes {
		if h.key != "" {
			s.note(h.key)
		}
		names, places = append(names, h.form.name), append(places, h.place)
	}
	return fmt.Sprintf("it belongs to %s: move it to %s", strings.Join(names, " or "), strings.Join(places, " or "))
}

// data is the advice for a key of a source, or of set: as anything may be the
// data of it, that is what it is taken for.
func (s *shape) data(f *form, name string) string {
	under := "put it under with: " + below(s.place(), "with."+name)
	if slices.Contains([]string{"node", "ref", "reference", "source"}, name) && hasKey(f, "from") {
		return s.mean("from") + " Write from: node:<id>; data goes under with"
	}
	if near := expression.Nearest(name, keyNames(f)); near != "" {
		s.note("with")
		return s.mean(near) + " Data goes under with"
	}
	s.note("with")
	if homes := s.around(name); len(homes) > 0 && homes[0].form == s.above[len(s.above)-2].form {
		return fmt.Sprintf("move it to %s; or, if it is data, %s", homes[0].place, under)
	}
	return under
}

// within looks for an object that is there, below t, and has the key. It does
// not look into the definitions of children.
func within(f *form, t *tree, name, place string) *home {
	for _, k := range f.keys {
		sub := t.get(k.name)
		if sub == nil || sub.kind != isObject || k.form.name == definitionName {
			continue
		}
		at := below(place, k.name)
		if hasKey(k.form, name) {
			if sub.get(name) != nil {
				continue
			}
			return &home{k.form, below(at, name), k.name}
		}
		if h := within(k.form, sub, name, at); h != nil {
			return &home{h.form, h.place, k.name}
		}
	}
	return nil
}

// below lists the parts with the key that t does not have, and may have: rare
// ones only where there is no other.
func (s *shape) below(f *form, t *tree, name string) []home {
	var homes, others []home
	for _, k := range f.keys {
		if !hasKey(k.form, name) || k.form.name == definitionName || f.name == nodeName && refusal(t, k.name) != "" || !k.fits(t) {
			continue
		}
		h := home{k.form, below(below(s.place(), k.name), name), k.name}
		if f.name == nodeName && slices.Contains(rare, k.name) {
			others = append(others, h)
		} else {
			homes = append(homes, h)
		}
	}
	if homes == nil {
		return others
	}
	return homes
}

// around gives the nearest object above with the key, if it can take it.
func (s *shape) around(name string) []home {
	for _, l := range slices.Backward(s.above[:len(s.above)-1]) {
		switch {
		case !slices.Contains(l.form.open(l.tree), name), l.form.name == definitionName && (name == "name" || name == "version"):
		case l.tree.get(name) != nil, l.form.name == nodeName && refusal(l.tree, name) != "":
			return nil
		default:
			return []home{{form: l.form, place: below(l.place, name)}}
		}
	}
	return nil
}

// elsewhere tells of a key that belongs to what this node cannot have, or to
// an object above that has it, or cannot take it.
func (s *shape) elsewhere(f *form, t *tree, name string) string {
	for _, l := range slices.Backward(s.above[:len(s.above)-1]) {
		if l.form.name != nodeName || !hasKey(l.form, name) {
			continue
		}
		if l.tree.get(name) != nil {
			return fmt.Sprintf("it belongs to the node, which has %s already: leave it out", name)
		}
		return refusal(l.tree, name)
	}
	if f.name != nodeName {
		return ""
	}
	for _, k := range f.keys {
		if !hasKey(k.form, name) || k.form.name == definitionName {
			continue
		}
		if slices.Contains(kinds, k.name) {
			return fmt.Sprintf("it belongs to %s nodes, and this is %s node: leave it out", k.name, article(kindsOf(t)[0]))
		}
		return fmt.Sprintf("it belongs to %s: %s", k.form.name, refusal(t, k.name))
	}
	return ""
}

// refusal says why a node cannot have a key, or "".
func refusal(node *tree, key string) string {
	have := kindsOf(node)
	if len(have) == 0 {
		return ""
	}
	if slices.Contains(kinds, key) && !slices.Contains(have, key) {
		return fmt.Sprintf("a node has one kind, and this one has %s: make it a node of its own, or leave it out", have[0])
	}
	if fix := misfits[key][have[0]]; fix != "" {
		return fmt.Sprintf("%s node has no %s: %s", article(have[0]), key, fix)
	}
	return ""
}

// kindsOf lists the kinds that a node has.
func kindsOf(node *tree) []string { return keysOf(node, kinds) }

// keysOf lists those of names that are keys of t.
func keysOf(t *tree, names []string) []string {
	var have []string
	for _, name := range names {
		if t.get(name) != nil {
			have = append(have, name)
		}
	}
	return have
}

func article(word string) string {
	if strings.ContainsAny(word[:1], "aeio") || word == "http" {
		return "an " + word
	}
	return "a " + word
}

// snake spells a key as ours are: dependsOn and depends-on as depends_on.
func snake(s string) string {
	var b strings.Builder
	small := false
	for _, r := range s {
		switch {
		case r == '-' || r == ' ':
			b.WriteByte('_')
		case unicode.IsUpper(r) && small:
			b.WriteByte('_')
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(unicode.ToLower(r))
		}
		small = unicode.IsLower(r) || unicode.IsDigit(r)
	}
	return b.String()
}

func hasKey(f *form, name string) bool { return slices.Contains(keyNames(f), name) }

// open names the keys that t may have, as far as that depends on what stands
// beside them.
func (f *form) open(t *tree) []string {
	var names []string
	for i := range f.keys {
		if f.keys[i].fits(t) {
			names = append(names, f.keys[i].name)
		}
	}
	return names
}

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
			if k.with == "" {
				next = append(next, k.form)
			}
		}
	}
	return nil
}
