package drover

import (
	"fmt"
	"strings"
	"time"
)

// What no table can say of a definition: how keys go together, and what is in
// a text. Each check of a text gives nil, or a problem without a place.

// oneOf demands exactly one of some keys.
func oneOf(names ...string) func(*shape, *tree) {
	return func(s *shape, t *tree) {
		have := keysOf(t, names)
		list := strings.Join(names, " or ")
		switch {
		case len(have) == 0 && !s.meant(names...):
			s.fail(t.line, s.place(), "add "+list, "it has neither %s", strings.Join(names, " nor "))
		case len(have) > 1:
			s.fail(t.line, s.place(), "keep one of them", "it has %s", strings.Join(have, " and "))
		}
	}
}

func checkDefinition(s *shape, t *tree) {
	checkSubscribers(s, t)
	// The form of a definition stands above itself once for each run that it
	// is in.
	depth := -1
	for _, l := range s.above {
		if l.form == s.above[0].form {
			depth++
		}
	}
	if depth == MaxDepth+1 {
		s.fail(0, s.place(), "register the inner ones, and run them by name", "definitions are nested deeper than %d", MaxDepth)
	}
}

func checkNodes(s *shape, t *tree) {
	if len(t.entries) == 0 {
		s.fail(t.line, s.place(), "add a node: {<id>: {call: <function>}}", "there are no nodes")
	}
	if len(t.entries) > MaxNodes {
		s.fail(t.line, s.place(), "split it into workflows that run each other", "there are %d nodes, and may be %d", len(t.entries), MaxNodes)
	}
	for _, e := range t.entries {
		if _, err := ParseNodeID(e.key); err != nil {
			s.fail(e.line, below(s.place(), e.key), "", "%s", err.Error())
		}
	}
}

func checkNode(s *shape, t *tree) {
	have := kindsOf(t)
	switch len(have) {
	case 0:
		if !s.meant(kinds...) {
			s.fail(t.line, s.place(), "add one of "+strings.Join(kinds, ", "), "the node has no kind")
		}
		return
	case 1:
	default:
		s.fail(t.line, s.place(), "make a node of each, and keep one here", "the node has %d kinds: %s", len(have), strings.Join(have, ", "))
		return
	}
	kind := have[0]
	for _, e := range t.entries {
		if fix, misfit := misfits[e.key][kind]; misfit {
			s.fail(e.line, below(s.place(), e.key), fix, "%s node has no %s", article(kind), e.key)
		}
	}
	s.checkTwice(t, kind)
	if template := t.get("input").get("template"); template != nil && kind != "agent" {
		s.fail(template.line, below(s.place(), "input.template"), "put the text into input.with", "only agents have a template")
	}
}

// twice are settings that a node could have in two places.
var twice = []struct{ kind, key string }{
	{"agent", "output"}, {"wait", "timeout"}, {"run", "input"},
}

func (s *shape) checkTwice(t *tree, kind string) {
	for _, both := range twice {
		if kind == both.kind && t.get(both.key) != nil && t.get(kind).get(both.key) != nil {
			s.fail(t.get(both.key).line, below(s.place(), both.key), "keep one of them",
				"the node has %s, and %s.%s as well", both.key, kind, both.key)
		}
	}
	if kind == "http" && t.get("input") != nil && t.get("http").get("body") != nil {
		s.fail(t.get("input").line, below(s.place(), "input"), "keep one of them: the input is the body, where there is none",
			"the node has input, and http.body as well")
	}
	for _, place := range []string{"compensate", "run"} {
		if template := t.get(place).get("input").get("template"); template != nil {
			s.fail(template.line, below(s.place(), place+".input.template"), "put the text into with", "only the input of an agent has a template")
		}
	}
}

func checkRun(s *shape, t *tree) { oneOf("workflow", "definition")(s, t) }

func checkRetry(s *shape, t *tree) {
	initial, most := t.get("initial"), t.get("max")
	if initial == nil || most == nil {
		return
	}
	first, err := ParseDuration(initial.text)
	last, err2 := ParseDuration(most.text)
	if err == nil && err2 == nil && first > last {
		s.fail(most.line, below(s.place(), "max"), "make max the longer one", "it is shorter than initial, which is %s", initial.text)
	}
}

func checkContract(s *shape, t *tree) {
	if schema := t.get("schema"); schema != nil && t.get("type") != nil && t.get("type").text == "text" {
		s.fail(schema.line, below(s.place(), "schema"), "write type: json, or leave the schema out", "text has no schema")
	}
}

func wrong(fix, format string, args ...any) *Problem {
	return &Problem{Message: fmt.Sprintf(format, args...), Fix: fix}
}

// textOf makes a check of a parser of ids, whose error says the fix.
func textOf[T any](parse func(string) (T, error)) func(string) *Problem {
	return func(s string) *Problem {
		if _, err := parse(s); err != nil {
			return wrong("", "%s", err.Error())
		}
		return nil
	}
}

func functionText(s string) *Problem {
	if s[0] == '_' {
		return wrong("name the function otherwise", "function names that begin with _ belong to Drover, as %s does", quote(s))
	}
	return textOf(ParseFunctionName)(s)
}

func subjectText(s string) *Problem {
	fix := "write the subject that the service listens on, like billing.charge"
	if len(s) > 1024 {
		return wrong(fix, "the subject is longer than 1024 bytes")
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n") || strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return wrong(fix, "%s is no subject that can be published on", quote(s))
		}
	}
	return nil
}

// programText takes what is one token of a subject.
func programText(s string) *Problem {
	const most = 64
	if _, err := ParseFunctionName(s); err != nil || len(s) > most || strings.Contains(s, ".") {
		return wrong("choose another name", "the name of a program, %s, must be 1 to %d letters, digits, - or _", quote(s), most)
	}
	return nil
}

// waitText takes any name that can be typed.
func waitText(s string) *Problem {
	if len(s) > maxID || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return wrong("choose a shorter, printable name", "the name %s must be 1 to %d printable bytes", quote(s), maxID)
	}
	return nil
}

func methodText(s string) *Problem {
	if len(s) > 32 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return wrong("write it like GET or POST", "%s is no method of HTTP", quote(s))
	}
	return nil
}

func urlText(s string) *Problem {
	rest, ok := strings.CutPrefix(s, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "http://")
	}
	if (ok && rest != "") || strings.HasPrefix(s, "${{") {
		return nil
	}
	return wrong("begin it with https:// or http://, or with an ${{ expression }}", "%s is no URL of HTTP", quote(s))
}

func refText(s string) *Problem {
	if _, err := ParseRef(s); err != nil {
		return wrong("", "%s", err.Error())
	}
	return nil
}

func nodeRefText(s string) *Problem {
	ref, err := ParseRef(s)
	if err == nil && ref.Kind == RefNode {
		return nil
	}
	return wrong("write node:<id>; for anything else use with", "%s names no node", quote(s))
}

func durationText(s string) *Problem { return durationFrom(minDuration, s) }

// versionWaitText checks how long a run waits for its version.
func versionWaitText(s string) *Problem { return durationFrom(minVersionWait, s) }

func durationFrom(least time.Duration, s string) *Problem {
	d, err := ParseDuration(s)
	if err != nil {
		return wrong("", "%s", err.Error())
	}
	if v := time.Duration(d); v < least || v > maxDuration {
		return wrong(fmt.Sprintf("write %s to 365d", least), "the duration %s is out of range", quote(s))
	}
	return nil
}
