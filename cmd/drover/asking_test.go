package main

import (
	"strings"
	"testing"
)

// asking is a command that asks a fleet which gives one reply, and prints it.
type asking struct {
	name   string
	args   []string
	stdin  string
	verb   string
	reply  any
	asked  string
	status int
	out    []string // one after the other
	err    string
}

func (c *asking) run(t *testing.T) {
	f := newFleet(t)
	f.answers(c.verb, c.reply)
	status, out, err := f.cli(c.stdin, c.args...)
	if status != c.status || !strings.Contains(err, c.err) || c.err == "" && err != "" {
		t.Errorf("exit status %d, and on standard error %q; want %d and %q", status, err, c.status, c.err)
	}
	rest := out
	for _, want := range c.out {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("printed\n%s\nwhich lacks %q", out, want)
		}
		rest = after
	}
	if got := f.got(c.verb); got != c.asked {
		t.Errorf("asked %s, want %s", got, c.asked)
	}
}
