package drover_test

import (
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// A definition of a program has no nodes and no output, in its canonical form
// either, and runs as a child as well.
func TestADefinitionOfAProgram(t *testing.T) {
	d, err := drover.ParseDefinition([]byte("program: order-1\nname: orders\ntimeout: 1h\ncompute_timeout: 5m\nmax_drives: 7\nretry: {max_attempts: 2}\nnotify: {subject: a.b}\ninput_schema: {type: object}\ndefault_functions: {deny: [x]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d.Program != "order-1" || d.MaxDrives != 7 || d.ComputeTimeout == 0 || d.Retry.MaxAttempts != 2 {
		t.Fatalf("%+v", d)
	}
	roundTrip(t, d)
	text, _, err := (&drover.Definition{Program: "order"}).Canonical()
	if err != nil || string(text) != `{"program":"order"}` {
		t.Fatalf("%s (%v)", text, err)
	}
	if warnings := d.Warnings(); warnings != nil {
		t.Fatal(warnings)
	}
	child, err := drover.ParseDefinition([]byte(`{"nodes":{"a":{"run":{"definition":{"program":"order"}}},"b":{"run":{"workflow":"orders"}}},"output":{"with":["${{ nodes.a.output }}","${{ nodes.b.output }}"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, child)
}

// A definition without a program has the hash that it always had.
func TestHashesOfDefinitionsStay(t *testing.T) {
	d, err := drover.ParseDefinition([]byte(`{"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	text, hash, err := d.Canonical()
	const was = "f90e0bd7d8c963ee"
	if err != nil || string(text) != `{"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}` || !strings.HasPrefix(string(hash), was) {
		t.Fatalf("%s has hash %s (%v)", text, hash, err)
	}
}

// What the code of a program does, its definition does not say; the name and the
// bounds are held.
func TestDefinitionsOfProgramsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"program":"a.b"}`:                             `program (line 1): the name of a program, "a.b", must be 1 to 64 letters, digits, - or _; choose another name`,
		`{"program":"` + strings.Repeat("x", 65) + `"}`: `must be 1 to 64`,
		`{"program":""}`:                                `program (line 1): it is blank`,
		`{"program":5}`:                                 `program (line 1): it is a number, and must be text`,
		`{"program":"p","nodes":{"a":{}}}`:              `nodes (line 1): a definition with program has no nodes; leave it out: the code of the program does that`,
		`{"program":"p","output":{"from":"node:a"}}`:    `output (line 1): a definition with program has no output`,
		`{"program":"p","max_parallel":3}`:              `max_parallel (line 1): a definition with program has no max_parallel`,
		`{"program":"p","max_drives":0}`:                `max_drives (line 1): 0 is out of range; write a number from 1 to 100000`,
		`{"program":"p","max_drives":100001}`:           `100001 is out of range`,
		`{"program":"p","steps":{}}`:                    `the key "steps" is not known here; leave it out: the code of the program does that`,
		`{"program":"p","max_drive":3}`:                 `did you mean max_drives?`,
		`{"program":"p","retry":{"attempts":3}}`:        `retry.attempts (line 1): the key "attempts" is not known here; did you mean max_attempts?`,
		`{"programme":"p"}`:                             "the definition has a problem\n  programme (line 1): the key \"programme\" is not known here; did you mean program?",
		`{"max_drives":3,"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`:   `max_drives (line 1): the key "max_drives" is not known here; leave it out: it goes with program only`,
		`{"retry":{},"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`:       `retry (line 1): the key "retry" is not known here; leave it out: it goes with program only`,
		`{"nodes":{"a":{"run":{"program":"p"}}},"output":{"from":"node:a"}}`:       `did you mean definition? Write definition: {program: <name>}`,
		`{"nodes":{"a":{"call":"f","max_drives":3}},"output":{"from":"node:a"}}`:   `nodes.a.max_drives (line 1): the key "max_drives" is not known here`,
		`{"max_attempts":3,"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`: `the key "max_attempts" is not known here`,
		`{"name":"x"}`: "the definition has 2 problems\n  nodes (line 1): \"nodes\" is missing; add nodes: {<id>: {call: <function>}}\n  output (line 1): \"output\" is missing; add output: {from: node:<id>}",
	} {
		_, err := drover.ParseDefinition([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives\n%v\nwant\n%s", text, err, want)
		}
	}
}
