package drover

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/droverhq/drover/internal/rawjson"
)

// tree is a definition as it was written: what JSON has, with the line of
// each value, and every key, also those that came twice.
type tree struct {
	kind    treeKind
	line    int
	text    string // of a text; of a number as JSON writes it; of a bool true or false
	entries []entry
	items   []*tree
	height  int // levels of lists and objects, itself included
}

type entry struct {
	key   string
	line  int
	value *tree
}

type treeKind int

const (
	isNull treeKind = iota
	isBool
	isNumber
	isText
	isList
	isObject
)

// String names the kind for people.
func (k treeKind) String() string {
	return [...]string{"empty", "true or false", "a number", "text", "a list", "an object"}[k]
}

// maxTreeDepth bounds the nesting of a definition: everything that walks it
// recurses.
const maxTreeDepth = 200

// measure sets the height, once everything below has one.
func (t *tree) measure() {
	for _, e := range t.entries {
		t.height = max(t.height, e.value.height)
	}
	for _, item := range t.items {
		t.height = max(t.height, item.height)
	}
	if t.kind == isList || t.kind == isObject {
		t.height++
	}
}

// get gives the value of a key, or nil.
func (t *tree) get(key string) *tree {
	if t == nil {
		return nil
	}
	for _, e := range t.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// lineAt gives the line of what is at a place, as far as it can be followed.
// Keys may hold dots and brackets themselves.
func (t *tree) lineAt(place string) int {
	line := t.line
	for place != "" {
		var next *tree
		for _, e := range t.entries {
			rest, ok := strings.CutPrefix(place, e.key)
			if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				next, line, place = e.value, e.line, strings.TrimPrefix(rest, ".")
				break
			}
		}
		if t.kind == isList && place[0] == '[' {
			index, rest, _ := strings.Cut(place[1:], "]")
			if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(t.items) {
				next, line, place = t.items[i], t.items[i].line, strings.TrimPrefix(rest, ".")
			}
		}
		if next == nil {
			return line
		}
		t = next
	}
	return line
}

// size is how many bytes appendJSON writes, or limit+1 if that is more. A
// value that is shared counts each time.
func (t *tree) size(limit int) int {
	n := len(t.text) + 2
	for _, e := range t.entries {
		if n > limit {
			break
		}
		n += len(e.key) + 4 + e.value.size(limit-n)
	}
	for _, item := range t.items {
		if n > limit {
			break
		}
		n += 1 + item.size(limit-n)
	}
	return min(n, limit+1)
}

// appendJSON writes the canonical JSON: keys sorted, no space, one spelling
// for each number and text.
func (t *tree) appendJSON(b []byte) []byte {
	switch t.kind {
	case isNull:
		return append(b, "null"...)
	case isBool, isNumber:
		return append(b, t.text...)
	case isText:
		return rawjson.AppendString(b, t.text)
	case isList:
		b = append(b, '[')
		for i, item := range t.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	case isObject:
	}
	entries := slices.Clone(t.entries)
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.key, y.key) })
	b = append(b, '{')
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.value.appendJSON(append(rawjson.AppendString(b, e.key), ':'))
	}
	return append(b, '}')
}

// canonicalNumber spells a number of JSON in the one way: an integer with its
// digits, everything else as the nearest number of 64 bits. What is beyond
// those stays as it is.
func canonicalNumber(s string) string {
	if s == "-0" {
		return "0"
	}
	if !strings.ContainsAny(s, ".eE") {
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	b, _ := json.Marshal(f) // finite, as it was read
	return string(b)
}
