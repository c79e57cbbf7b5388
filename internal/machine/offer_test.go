package machine

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// A run whose inbox is full goes on by what its other waits read.
func TestHooks13WhatAWaitReadsAtOnceNeedsNoRoom(t *testing.T) {
	w := newWorld(t, held)
	w.sparing = true
	w.start(`1`)
	w.owned("in", "t")
	for range drover.MaxUnread + 2 { // two are read
		w.deliverHook("t", `1`, "")
	}
	w.deliverHook("t", `1`, "")
	w.wantRefused(drover.CodeFull, "1000")
	w.deliver("go", `"on"`, "")
	w.wantResult(`[1,1,"on"]`)
}

func TestCheckHookFindsTheWaitForAToken(t *testing.T) {
	definition := func(waits ...string) string {
		var b strings.Builder
		for i, w := range waits {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(`"n` + string(rune('a'+i)) + `":{"wait":` + w + `}`)
		}
		return `{"nodes":{` + b.String() + `},"output":{"from":"node:na"}}`
	}
	number := `,"schema":{"type":"number"}}`
	for _, c := range []struct {
		waits   []string
		payload string
		code    drover.Code
		says    string
	}{
		{[]string{`{"hook":"t"}`}, `1`, "", ""},
		{[]string{`{"hook":"x:${{ input }}"}`}, `1`, "", ""},
		{[]string{`{"hook":"u"}`}, `1`, drover.CodeInvalidRequest, `no wait for the token "t": give it`},
		{[]string{`{"name":"t"}`}, `1`, drover.CodeInvalidRequest, `no wait for the token "t": give it`},
		{[]string{`{"hook":true}`, `{"hook":"u"}`}, `1`, drover.CodeInvalidRequest, "one with hook: true claims a token that Drover makes"},
		{[]string{`{"hook":"t"` + number}, `"x"`, drover.CodeInvalidInput, "wait na"},
		{[]string{`{"hook":"t"` + number}, ``, drover.CodeInvalidInput, "wait na"},
		{[]string{`{"hook":"t"` + number, `{"hook":"u"}`}, `"x"`, drover.CodeInvalidInput, "wait na"},
		{[]string{`{"hook":"t"` + number, `{"hook":"${{ input }}"}`}, `"x"`, "", ""}, // either may read it
	} {
		p := compileText(t, definition(c.waits...))
		err := p.CheckHook("t", json.RawMessage(c.payload))
		if c.code == "" && err != nil || c.code != "" && (!errors.Is(err, c.code) || !strings.Contains(err.Message, c.says)) {
			t.Errorf("%v, payload %s: %v", c.waits, c.payload, err)
		}
	}
}
