package drover_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

func TestYAMLAndJSONAreOneDefinition(t *testing.T) {
	yaml := `
# The same in two ways.
version: 1
name: naming
timeout: 1h
default_functions:
  deny: [mail::*]
defaults_are_not_added: 0
nodes:
  plan: &plan
    call: llm.plan
    retry: &retry
      max_attempts: 0x3
      factor: 1.50
    timeout: 60s
  other:
    <<: *plan
    call: llm.other
    retry: *retry
  join:
    set:
      with:
        text: |
          two
          lines
        "on": yes
        number: 1e3
        big: 123456789012345678901234567890
        nothing: ~
        date: 2026-01-31
        port: !!str 80
    depends_on: [plan]
  last: {agent: {model: m, functions: [a]}, input: {from: [node:plan, node:join]}}
  rest: {sleep: 5m}
output: {from: node:last}
`
	json := `{"output":{"from":"node:last"},"nodes":{
		"rest": {"sleep": {"for": "300s"}},
		"last": {"agent": {"model": "m", "functions": {"allow": ["a"]}}, "input": {"from": ["node:plan", "node:join"]}},
		"join": {"set": {"with": {"text": "two\nlines\n", "on": "yes", "number": 1000.0, "big": 123456789012345678901234567890, "nothing": null, "date": "2026-01-31", "port": "80"}}, "depends_on": ["plan"]},
		"other": {"call": "llm.other", "retry": {"max_attempts": 3, "factor": 1.5}, "timeout": "1m"},
		"plan": {"call": "llm.plan", "retry": {"max_attempts": 3, "factor": 1.5}, "timeout": "1m"}
	}, "default_functions": {"deny": ["mail::*"]}, "timeout": "60m", "name": "naming", "version": 1}`
	yaml = strings.Replace(yaml, "defaults_are_not_added: 0\n", "", 1)
	a, err := drover.ParseDefinition([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	b, err := drover.ParseDefinition([]byte(json))
	if err != nil {
		t.Fatal(err)
	}
	textA, hashA, errA := a.Canonical()
	textB, hashB, errB := b.Canonical()
	if errA != nil || errB != nil || hashA != hashB {
		t.Errorf("%v %v\n%s\n%s", errA, errB, textA, textB)
	}
	if _, err := drover.ParseHash(string(hashA)); err != nil {
		t.Error(err)
	}
	want := `{"default_functions":{"deny":["mail::*"]},"name":"naming","nodes":{"join":{"depends_on":["plan"],"set":{"with":{"big":123456789012345678901234567890,"date":"2026-01-31","nothing":null,"number":1000,"on":"yes","port":"80","text":"two\nlines\n"}}},"last":{"agent":{"functions":{"allow":["a"]},"model":"m"},"input":{"from":["node:plan","node:join"]}},"other":{"call":"llm.other","retry":{"factor":1.5,"max_attempts":3},"timeout":"1m0s"},"plan":{"call":"llm.plan","retry":{"factor":1.5,"max_attempts":3},"timeout":"1m0s"},"rest":{"sleep":{"for":"5m0s"}}},"output":{"from":"node:last"},"timeout":"1h0m0s","version":1}`
	if string(textA) != want {
		t.Errorf("got\n%s\nwant\n%s", textA, want)
	}
}

func TestYAMLProblems(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n---\nb: 2":      "(line 3): there is a second document",
		"a: 1\nb: *none":       `(line 2): there is no anchor "none"`,
		"a: &a [*a]":           `there is no anchor "a"`,
		"\n\na: .inf":          "(line 3): .inf is no number that JSON has",
		"a: !secret x":         `the tag "!secret" is not known`,
		"a: [1\nb: 2":          "(line 2): this is no YAML",
		"a: b: c":              "(line 1): this is no YAML",
		"? [a]\n: 1":           "found an invalid key",
		"nodes: {}\nnodes: {}": `nodes (line 2): the key "nodes" is there already, in line 1`,
		"just text":            "it is text, and must be an object",
		"# nothing":            "it is empty, and must be an object",
		"n:\n  a: {call: f, input: {with: ${{ input.a }}}}": `(line 2): this is no YAML: ',' or '}' must be specified, at column 30; put the expression in quotes`,
		"n:\n  a: {call: f, depends_on: [${{ input.a }}]}":  "at column 29; put the expression in quotes",
		"n: {q: \"ü {{ x }}\", w: ${{ x }}}":                "at column 24; put the expression in quotes",
		"when: {{ input.a }}":                               "at column 7; put the expression in quotes",
		"when: ${{ input.a == \"x: y\" }}":                  "at column 7; put the expression in quotes",
		"a: {q: \"${{ x }}\", b: [1, c: 2":                  "close what is open",
		"when: input.a == 'x' ? 'a' : 'b'":                  `put text that holds ": " in quotes`,
		"when: 'x' == input.a":                              "put all of the value in quotes",
		"a:\n\tb: 1":                                        "indent with spaces",
		"a: [" + strings.Repeat("1,", 110_000) + "]":        "parts, and may have",
	} {
		_, err := drover.ParseDefinition([]byte(text))
		if !errors.Is(err, drover.CodeInvalidDefinition) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s\n got %v\nwant %s", text, err, want)
		}
	}
}
