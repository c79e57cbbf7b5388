package drover

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The part of the grammar that is about who is told how a run ended.

// ways are the keys that say who is told. A session is set by Drover alone.
var ways = []string{"subject", "stream_subject", "url", "function"}

// notifyForm is one subscriber, or a list of them.
func notifyForm() *form {
	one := form{name: "notify", kind: isObject, check: checkNotify, why: "write {subject: <subject>}, {url: https://...}, or a list of such", keys: []key{
		{name: "subject", form: textForm(nil)},
		{name: "stream_subject", form: textForm(nil)},
		{name: "url", form: textForm(nil)},
		{name: "function", form: textForm(nil)},
		{name: "secret", form: textForm(nil)},
		{name: "batch", form: &form{name: "batch", kind: isObject, why: "write {max: 100, wait: 1s}", keys: []key{
			{name: "max", form: countForm(MaxBatch), need: "add max: how many outcomes may share a request"},
			{name: "wait", form: durationForm()},
		}}},
		{name: "inline", form: &form{kind: isBool}},
		{name: "timeout", form: durationForm()},
		{name: "max_age", form: durationForm()},
		{name: "max_attempts", form: countForm(1_000_000)},
	}}
	either := one
	either.or = &form{kind: isList, each: &one, filled: true, why: one.why}
	return &either
}

// checkNotify checks one subscriber as a start's is checked.
func checkNotify(s *shape, t *tree) {
	if oneOf(ways...)(s, t); len(keysOf(t, ways)) != 1 {
		return
	}
	var n Notify
	if json.Unmarshal(t.appendJSON(nil), &n) != nil {
		return // its shape is wrong, which is told
	}
	n.Session, n.Seal, n.Template = "", "", "" // told as keys that are not known
	key, why := n.problem()
	at := below(s.place(), key)
	told := slices.ContainsFunc(s.list, func(p Problem) bool { return p.Place == at || strings.HasPrefix(p.Place, at+".") })
	if why != "" && t.get(key) != nil && !told {
		s.fail(t.get(key).line, at, "", "%s", why)
	}
}

// checkSubscribers checks how many there are.
func checkSubscribers(s *shape, t *tree) {
	if notify := t.get("notify"); notify != nil && len(notify.items) > MaxSubscribers {
		s.fail(notify.line, below(s.place(), "notify"), fmt.Sprintf("tell at most %d, one of whom tells others", MaxSubscribers),
			"there are %d subscribers, and may be %d", len(notify.items), MaxSubscribers)
	}
}
