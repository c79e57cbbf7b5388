package expression

import (
	"errors"
	"fmt"
	"strings"

	"github.com/expr-lang/expr/file"
)

// Error says what is wrong with one expression, when it is compiled or when it
// is evaluated.
type Error struct {
	Path    string // where in the template: "topic[2].name"; "" for a bare expression or the whole
	Source  string // the expression
	Column  int    // in the expression, from 1 in characters; 0 where unknown
	Message string // what is wrong
	Fix     string // what to do about it; may be ""
}

// Error gives all of it in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		fmt.Fprintf(&b, "%s: ", e.Path)
	}
	fmt.Fprintf(&b, "expression %s", shorten(e.Source))
	if e.Column > 0 {
		fmt.Fprintf(&b, ", column %d", e.Column)
	}
	fmt.Fprintf(&b, ": %s", e.Message)
	if e.Fix != "" {
		fmt.Fprintf(&b, "; %s", e.Fix)
	}
	return b.String()
}

// Errors are the errors of a template, in the order of its paths.
type Errors []*Error

// Error gives a line for each.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// fault is an Error that does not know its source yet, as the functions give
// it.
type fault struct{ message, fix string }

func (f *fault) Error() string { return f.message }

func faultf(format string, args ...any) error {
	return &fault{message: fmt.Sprintf(format, args...)}
}

// words turns what the library says in terms of Go into terms of JSON.
var words = strings.NewReplacer(
	"[]interface {}", "an array", "[]int", "an array of integers", "[]string", "an array of strings",
	"map[string]interface {}", "an object", "interface {}", "any value",
	"map[string]any", "an object", "expression.Node", "a node", "expression.runView", "the run",
	"cannot fetch ", "cannot read ", " from <nil>", " of null", "<nil>", "null",
	"invalid operation: int(string)", "an array is indexed by numbers, and this is text", "float64", "number", "unexpected token EOF", "it ends too early",
	"interface conversion: any value is nil, not", "null is not a",
	"compilation failed: ", "",
)

// translate makes an Error of what the library, or a function, returned.
func translate(src string, err error) *Error {
	if done, ok := errors.AsType[*Error](err); ok {
		return done
	}
	e := &Error{Source: src, Message: err.Error()}
	if at, ok := errors.AsType[*file.Error](err); ok {
		e.Column, e.Message = at.Column+1, at.Message
	}
	if own, ok := errors.AsType[*fault](err); ok {
		e.Message, e.Fix = own.message, own.fix
		return e
	}
	e.Fix = libraryFix(e.Message)
	e.Message = strings.TrimSpace(words.Replace(e.Message))
	if rest, ok := strings.CutPrefix(e.Message, "interface conversion: any value is "); ok {
		if got, want, ok := strings.Cut(rest, ", not "); ok {
			e.Message = fmt.Sprintf("%s is needed here, and this is %s", article(want), article(got))
		}
	}
	if strings.Contains(e.Message, "reflect") || strings.Contains(e.Message, "runtime error") {
		e.Message = "the operation does not fit the values (" + e.Message + ")"
	}
	return e
}

// libraryFix is what to do about the messages of the library that people meet.
func libraryFix(message string) string {
	switch {
	case strings.Contains(message, "mismatched types"):
		return `both sides must be of one type: string(x) makes text, int("1") and float("1.5") a number`
	case strings.HasPrefix(message, "cannot use "):
		return `give it what it takes: string(x) makes text, int("1") and float("1.5") a number`
	case strings.Contains(message, "unexpected token EOF"):
		return "finish it, or close what is open"
	case strings.Contains(message, "unexpected token"):
		return "write it like input.name, nodes.plan.output or len(input.names) > 3; text goes in quotes"
	case strings.Contains(message, "non-bool expression"), strings.Contains(message, "predicate should return boolean"):
		return "compare it with something, as in x > 3 or x != nil"
	case strings.Contains(message, "error parsing regexp"):
		return "write a regular expression of Go (RE2)"
	}
	return ""
}

func article(name string) string {
	switch name {
	case "bool":
		return "true or false"
	case "int":
		return "an integer"
	case "string", "number":
		return "a " + name
	}
	return name
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:57]) + "..."
	}
	return "`" + s + "`"
}

// Nearest gives the name that s is the beginning of, that is spelled most like
// it, or that it begins like; "" where none is near.
func Nearest(s string, names []string) string {
	best, at := "", len(s)/3+1
	for _, name := range names {
		if len(s) > 1 && strings.HasPrefix(name, s) {
			return name
		}
		if d := distance(s, name); d < at {
			best, at = name, d
		}
	}
	if best != "" {
		return best
	}
	return alike(s, names)
}

// alike gives the name that has the longest beginning in common with s, if that
// is at least four letters, two thirds of the name, and half of s or all of the
// name: timeout_seconds is like timeout, and retries like retry.
func alike(s string, names []string) string {
	best, at := "", 3
	for _, name := range names {
		n := common(s, name)
		if n > at && 3*n >= 2*len(name) && (2*n >= len(s) || n == len(name)) {
			best, at = name, n
		}
	}
	return best
}

// common is how many bytes a and b begin with alike.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is the number of letters to add, drop, change, or swap with the
// next.
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			if a[i] == b[j] {
				next[j+1] = row[j]
			} else {
				next[j+1] = 1 + min(row[j], row[j+1], next[j])
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
