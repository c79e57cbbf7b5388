package drover

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// yamlProblem says why a text is no YAML, where, and what to do. The library
// gives the place at which it gave up; what is to be mended is before that, and
// most often an expression without quotes.
func yamlProblem(err error, text string) *Problem {
	p := &Problem{Message: "this is no YAML: " + err.Error()}
	at, ok := errors.AsType[yaml.Error](err)
	if !ok {
		return p
	}
	message := at.GetMessage()
	p.Message, p.Fix = "this is no YAML: "+message, yamlFix(message)
	tk := at.GetToken()
	if tk == nil || tk.Position == nil {
		return p
	}
	column := tk.Position.Column
	p.Line = tk.Position.Line
	if open := unquoted(lineOf(text, p.Line)); open > 0 {
		column, p.Fix = open, `put the expression in quotes, as in "${{ input.name }}"`
	}
	if column > 0 {
		p.Message += fmt.Sprintf(", at column %d", column)
	}
	return p
}

// yamlFix is what to do about the messages of the library that people meet.
func yamlFix(message string) string {
	switch {
	case strings.Contains(message, "must be specified"), strings.Contains(message, "not found"), strings.Contains(message, "flow map"):
		return "close what is open, or put text that holds , : [ ] { } in quotes"
	case strings.Contains(message, "mapping value is not allowed"):
		return `put text that holds ": " in quotes, or its keys on lines of their own`
	case strings.Contains(message, "cannot start any token"):
		return "indent with spaces"
	case strings.Contains(message, "reserved character"), strings.Contains(message, "value is not allowed"):
		return "put all of the value in quotes"
	}
	return ""
}

func lineOf(text string, line int) string {
	for l := range strings.Lines(text) {
		if line--; line == 0 {
			return l
		}
	}
	return ""
}

// unquoted gives the column, from 1 in characters, of the first {{ of a line,
// or ${{, that is in no quotes. 0: there is none.
func unquoted(line string) int {
	column, quote, before := 0, rune(0), rune(0)
	for i, r := range line {
		column++
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case strings.HasPrefix(line[i:], "{{") && before == '$':
			return column - 1
		case strings.HasPrefix(line[i:], "{{"):
			return column
		}
		before = r
	}
	return 0
}
