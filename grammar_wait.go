package drover

import (
	"strings"
	"time"
)

// The part of the grammar that is about deliveries: waits, and what ends or
// answers a hook.

// The kinds of wait, by the key that says which.
const (
	waitName    = "name"
	waitHook    = "hook"
	waitFrom    = "from"
	waitApprove = "approve"
)

var waitKinds = []string{waitName, waitHook, waitFrom, waitApprove}

const maxAnswerTime = 5 * time.Minute

func waitForm() *form {
	made := &form{kind: isBool, words: []string{"true"}, why: "write the token, or true to have one made"}
	return &form{name: "wait", kind: isObject, check: checkWait, why: "write {name: <name of the delivery>}, or {hook: <token>}", keys: []key{
		{name: waitName, form: textForm(waitText)},
		{name: waitHook, form: &form{kind: isText, text: tokenText, blank: true, or: made, why: "write the token in quotes, or true to have one made"}},
		{name: waitFrom, form: &form{kind: isText, text: textOf(ParseNodeID), why: "write the id of the node whose hook it is"}},
		{name: waitApprove, form: anyForm()},
		{name: "timeout", form: durationForm()},
		{name: "schema", form: schemaForm()},
		{name: "count", form: countForm(MaxUnread)},
		{name: "until", form: textForm(nil)},
		{name: "tags", form: &form{
			name: "tags", kind: isObject, each: &form{kind: isText, blank: true}, check: checkHookTags,
			why: "write {<key>: <value>, <key>: <value>}",
		}},
		{name: "metadata", form: anyForm()},
		{name: "hold", form: &form{kind: isBool}},
		{name: "on_unread", form: wordForm(string(OnUnreadCount), string(OnUnreadRestart))},
		{name: "retain", form: durationForm()},
		{name: "takeover", form: &form{kind: isBool}},
		{name: "public", form: &form{kind: isBool}},
		{name: "respond", form: answerForm()},
	}}
}

func answerForm() *form {
	return &form{name: "wait.respond", kind: isObject, check: checkAnswer, why: "write {with: <answer>}, or {run: true}", keys: []key{
		{name: "status", form: statusForm()},
		{name: "with", form: anyForm()},
		{name: "run", form: &form{kind: isBool}},
		{name: "timeout", form: durationForm()},
	}}
}

func releaseForm() *form {
	return &form{name: "release", kind: isObject, why: "write {hook: <node that has the hook>}", keys: []key{
		{name: "hook", form: textForm(textOf(ParseNodeID)), need: "add hook: the node that has it"},
		{name: "unread", form: wordForm(string(UnreadDrain), string(UnreadTake), string(UnreadDiscard))},
	}}
}

func respondForm() *form {
	return &form{name: "respond", kind: isObject, why: "write {to: <wait>, with: <answer>}", keys: []key{
		{name: "to", form: textForm(textOf(ParseNodeID)), need: "add to: the wait that read what is answered"},
		{name: "status", form: statusForm()},
		{name: "with", form: anyForm()},
	}}
}

func statusForm() *form {
	return &form{kind: isNumber, number: &limits{200, 599, true}, why: "write a status of HTTP, like 200"}
}

// waitMisfits are the keys that some kinds of wait have no use for, with what
// would do instead.
var waitMisfits = map[string]map[string]string{
	"schema":    {waitFrom: "write it at the hook: a delivery is checked when it is accepted"},
	"count":     {waitApprove: "leave it out: one answer decides"},
	"until":     {waitApprove: "leave it out: one answer decides"},
	"tags":      {waitName: "leave it out, or use hook", waitFrom: atTheHook},
	"metadata":  {waitName: "leave it out, or use hook", waitFrom: atTheHook, waitApprove: "write it into approve: that is the metadata"},
	"hold":      {waitName: "leave it out: only a hook is held", waitFrom: atTheHook, waitApprove: "leave it out: one answer decides"},
	"on_unread": {waitName: "leave it out: only a hook is handed on", waitFrom: atTheHook, waitApprove: "leave it out: one answer decides"},
	"retain":    {waitName: "leave it out: only a token is retained", waitFrom: atTheHook, waitApprove: "leave it out, or use hook: true"},
	"takeover":  {waitName: "leave it out: only a token is taken over", waitFrom: atTheHook, waitApprove: "leave it out: nobody else has its token"},
	"public":    {waitName: "leave it out, or use hook: true", waitFrom: atTheHook},
	"respond":   {waitName: "leave it out, or use hook: true", waitFrom: atTheHook},
}

const atTheHook = "write it at the node that has the hook"

func checkWait(s *shape, t *tree) {
	have := keysOf(t, waitKinds)
	switch len(have) {
	case 0:
		if !s.meant(waitKinds...) {
			s.fail(t.line, s.place(), "add name: what the delivery is called; hook: its token; from: the node that has the hook; or approve: what is asked",
				"it has neither %s", strings.Join(waitKinds, " nor "))
		}
		return
	case 1:
	default:
		s.fail(t.line, s.place(), "keep one of them, and make a node of each other", "it has %s", strings.Join(have, " and "))
		return
	}
	kind := have[0]
	for _, e := range t.entries {
		if fix, misfit := waitMisfits[e.key][kind]; misfit {
			s.fail(e.line, below(s.place(), e.key), fix, "a wait with %s has no %s", kind, e.key)
		}
	}
	switch kind {
	case waitHook:
		checkHook(s, t)
	case waitApprove:
		s.small(t, waitApprove)
		if t.get(waitApprove).kind == isNull {
			s.fail(t.get(waitApprove).line, below(s.place(), waitApprove), "write what is asked, like approve: {question: Ship it?}", "it has no value")
		}
		if public := t.get("public"); public != nil && public.text == "false" {
			s.fail(public.line, below(s.place(), "public"), "leave it out, or use hook: true", "an approval is always public")
		}
	}
}

// checkHook checks what goes only with a token that Drover makes, or only with
// one that it does not.
func checkHook(s *shape, t *tree) {
	s.small(t, "metadata")
	made := t.get(waitHook).kind == isBool
	if public := t.get("public"); public != nil && public.text == "true" && !made {
		s.fail(public.line, below(s.place(), "public"), "write hook: true, or leave public out",
			"only a token that nobody can guess is public, and this one is given")
	}
	if takeover := t.get("takeover"); takeover != nil && takeover.text == "true" && made {
		s.fail(takeover.line, below(s.place(), "takeover"), "leave it out, or give the token",
			"nobody else has a token that is made for this run")
	}
	if unread := t.get("on_unread"); unread != nil && unread.text == string(OnUnreadRestart) && made {
		s.fail(unread.line, below(s.place(), "on_unread"), "give the token, as in hook: order:${{ input.id }}",
			"a successor would not ask for a token that was made for this run")
	}
}

// small checks the size of what is kept with a token, where it holds no
// expressions.
func (s *shape) small(t *tree, name string) {
	value := t.get(name)
	if value == nil {
		return
	}
	data := value.appendJSON(nil)
	if len(data) > MaxMetadata && !strings.Contains(string(data), "${{") {
		s.fail(value.line, below(s.place(), name), "keep it elsewhere, and write where it is",
			"it has %d bytes as JSON, and may have %d", len(data), MaxMetadata)
	}
}

func checkHookTags(s *shape, t *tree) {
	if len(t.entries) > MaxTags {
		s.fail(t.line, s.place(), "leave some out, or write them into metadata", "there are %d tags, and may be %d", len(t.entries), MaxTags)
		return
	}
	for _, e := range t.entries {
		if e.key == "" || len(e.key) > MaxTag {
			s.fail(e.line, below(s.place(), e.key), "choose a shorter one", "the key %s must have 1 to %d bytes", quote(e.key), MaxTag)
		}
		if len(e.value.text) > MaxTag && !strings.Contains(e.value.text, "${{") {
			s.fail(e.line, below(s.place(), e.key), "write it into metadata", "the value has %d bytes, and may have %d", len(e.value.text), MaxTag)
		}
	}
	if data := t.appendJSON(nil); len(data) > MaxMetadata && !strings.Contains(string(data), "${{") {
		s.fail(t.line, s.place(), "leave some out", "they have %d bytes as JSON, and may have %d", len(data), MaxMetadata)
	}
}

func checkAnswer(s *shape, t *tree) {
	run := t.get("run") != nil && t.get("run").text == "true"
	switch with := t.get("with"); {
	case with == nil && !run && !s.meant("with", "run"):
		s.fail(t.line, s.place(), "add with: the answer, or run: true", "it has neither with nor run")
	case with != nil && run:
		s.fail(t.line, s.place(), "keep one of them", "it has with and run")
		return
	}
	s.small(t, "with")
	timeout := t.get("timeout")
	if timeout != nil && !run {
		s.fail(timeout.line, below(s.place(), "timeout"), "leave it out", "only an answer of the run has a timeout: this one is given at once")
	} else if timeout != nil {
		if d, err := ParseDuration(timeout.text); err == nil && time.Duration(d) > maxAnswerTime {
			s.fail(timeout.line, below(s.place(), "timeout"), "write at most 5m", "an answer of %s comes too late for HTTP", quote(timeout.text))
		}
	}
	if status := t.get("status"); status != nil && run {
		s.fail(status.line, below(s.place(), "status"), "write it into the respond node", "the run answers, and says with what status")
	}
}

// tokenText takes any text that is not too long; one with expressions is
// checked when it is claimed.
func tokenText(s string) *Problem {
	switch {
	case s == "":
		return wrong("write the token, or true to have one made", "the token is empty")
	case len(s) > MaxToken && !strings.Contains(s, "${{"):
		return wrong("write a shorter one, such as a hash of it", "the token has %d bytes, and may have %d", len(s), MaxToken)
	}
	return nil
}
