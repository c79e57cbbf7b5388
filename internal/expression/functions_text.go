package expression

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

var textFunctions = map[string]function{
	"upper":       oneText("upper", strings.ToUpper),
	"lower":       oneText("lower", strings.ToLower),
	"trim":        trimmer("trim", strings.TrimSpace, strings.Trim),
	"trimPrefix":  trimmer("trimPrefix", trimSpacePrefix, strings.TrimPrefix),
	"trimSuffix":  trimmer("trimSuffix", trimSpaceSuffix, strings.TrimSuffix),
	"split":       splitter("split", strings.SplitN),
	"splitAfter":  splitter("splitAfter", strings.SplitAfterN),
	"indexOf":     twoTexts("indexOf", func(a, b string) any { return strings.Index(a, b) }),
	"lastIndexOf": twoTexts("lastIndexOf", func(a, b string) any { return strings.LastIndex(a, b) }),
	"hasPrefix":   twoTexts("hasPrefix", func(a, b string) any { return strings.HasPrefix(a, b) }),
	"hasSuffix":   twoTexts("hasSuffix", func(a, b string) any { return strings.HasSuffix(a, b) }),
	"contains":    nullable("contains", strings.Contains),
	"startsWith":  nullable("startsWith", strings.HasPrefix),
	"endsWith":    nullable("endsWith", strings.HasSuffix),
	"replace":     replaceText,
	"repeat":      repeatText,
	"join":        joinTexts,
	"matches":     matches,
}

func trimSpacePrefix(s string) string { return strings.TrimPrefix(s, " ") }
func trimSpaceSuffix(s string) string { return strings.TrimSuffix(s, " ") }

// texts reads arguments that are all text, and charges for them.
func texts(m *meter, name string, args []any, least, most int) ([]string, error) {
	if err := arity(name, args, least, most); err != nil {
		return nil, err
	}
	list := make([]string, len(args))
	for i := range args {
		s, err := textAt(name, args, i)
		if err != nil {
			return nil, err
		}
		if err := m.text(len(s)); err != nil {
			return nil, err
		}
		list[i] = s
	}
	return list, nil
}

func oneText(name string, f func(string) string) function {
	return func(m *meter, args []any) (any, error) {
		s, err := texts(m, name, args, 1, 1)
		if err != nil {
			return nil, err
		}
		return f(s[0]), nil
	}
}

func twoTexts(name string, f func(a, b string) any) function {
	return func(m *meter, args []any) (any, error) {
		s, err := texts(m, name, args, 2, 2)
		if err != nil {
			return nil, err
		}
		return f(s[0], s[1]), nil
	}
}

// nullable is an operator that is false where a side is null.
func nullable(name string, f func(a, b string) bool) function {
	return func(m *meter, args []any) (any, error) {
		if args[0] == nil || args[1] == nil {
			return false, nil
		}
		s, err := texts(m, name, args, 2, 2)
		if err != nil {
			return nil, err
		}
		return f(s[0], s[1]), nil
	}
}

func trimmer(name string, one func(string) string, two func(s, cut string) string) function {
	return func(m *meter, args []any) (any, error) {
		s, err := texts(m, name, args, 1, 2)
		if err != nil {
			return nil, err
		}
		if len(s) == 1 {
			return one(s[0]), nil
		}
		// Trim looks up every letter in its second argument.
		if err := m.charge(len(s[0]) / 16 * min(len(s[1]), 1000)); err != nil {
			return nil, err
		}
		return two(s[0], s[1]), nil
	}
}

func splitter(name string, f func(s, sep string, n int) []string) function {
	return func(m *meter, args []any) (any, error) {
		if err := arity(name, args, 2, 3); err != nil {
			return nil, err
		}
		s, err := texts(m, name, args[:2], 2, 2)
		if err != nil {
			return nil, err
		}
		n := -1
		if len(args) == 3 {
			if n, err = integerAt(name, args, 2); err != nil {
				return nil, err
			}
		}
		pieces := utf8.RuneCountInString(s[0])
		if s[1] != "" {
			pieces = strings.Count(s[0], s[1]) + 1
		}
		if err := m.charge(pieces); err != nil {
			return nil, err
		}
		if n > pieces {
			n = -1
		}
		parts := f(s[0], s[1], n)
		list := make([]any, len(parts))
		for i, part := range parts {
			list[i] = part
		}
		return list, nil
	}
}

func replaceText(m *meter, args []any) (any, error) {
	if err := arity("replace", args, 3, 4); err != nil {
		return nil, err
	}
	s, err := texts(m, "replace", args[:3], 3, 3)
	if err != nil {
		return nil, err
	}
	n := strings.Count(s[0], s[1])
	if len(args) == 4 {
		most, err := integerAt("replace", args, 3)
		if err != nil {
			return nil, err
		}
		if most >= 0 {
			n = min(n, most)
		}
	}
	// Both factors are at most a few million: no overflow.
	if err := m.text(len(s[0]) + n*len(s[2])); err != nil {
		return nil, err
	}
	return strings.Replace(s[0], s[1], s[2], n), nil
}

func repeatText(m *meter, args []any) (any, error) {
	if err := arity("repeat", args, 2, 2); err != nil {
		return nil, err
	}
	s, err := textAt("repeat", args, 0)
	if err != nil {
		return nil, err
	}
	n, err := integerAt("repeat", args, 1)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, faultf("repeat wants a count from 0, and got %d", n)
	}
	if len(s) > 0 && n > 16*maxWork/len(s) {
		return nil, errWork
	}
	if err := m.text(len(s) * n); err != nil {
		return nil, err
	}
	return strings.Repeat(s, n), nil
}

func joinTexts(m *meter, args []any) (any, error) {
	if err := arity("join", args, 1, 2); err != nil {
		return nil, err
	}
	list, err := listAt("join", args, 0)
	if err != nil {
		return nil, err
	}
	glue := ""
	if len(args) == 2 {
		if glue, err = textAt("join", args, 1); err != nil {
			return nil, err
		}
	}
	if err := m.text((len(glue) + 16) * len(list)); err != nil {
		return nil, err
	}
	parts := make([]string, len(list))
	for i := range list {
		if parts[i], err = textAt("join", list, i); err != nil {
			return nil, faultf("join wants an array of text, and its element %d is %s", i, kind(list[i]))
		}
		if err := m.text(len(parts[i])); err != nil {
			return nil, err
		}
	}
	return strings.Join(parts, glue), nil
}

// matches charges for the automaton as well: its work is the length of the
// text times that of the pattern.
func matches(m *meter, args []any) (any, error) {
	if args[0] == nil || args[1] == nil {
		return false, nil
	}
	s, err := texts(m, "matches", args, 2, 2)
	if err != nil {
		return nil, err
	}
	text, pattern := s[0], s[1]
	if len(pattern) > 1000 {
		return nil, faultf("matches wants a pattern of at most 1,000 bytes")
	}
	if err := m.charge(100 + 10*len(pattern) + len(text)/16*(1+len(pattern))); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, &fault{"matches got a pattern that cannot be read: " + err.Error(), "write it in RE2 syntax"}
	}
	return re.MatchString(text), nil
}
