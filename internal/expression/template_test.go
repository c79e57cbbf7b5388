package expression

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestTemplateSharesOneMeter(t *testing.T) {
	var raw []string
	for range 200 {
		raw = append(raw, `"${{ len(map(1..10000, #)) }}"`)
	}
	tmpl, err := CompileTemplate(json.RawMessage("["+strings.Join(raw, ",")+"]"), Scope{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tmpl.Eval(Env{})
	var own *Error
	if !errors.As(err, &own) || own.Message != errWork.message || own.Path == "" {
		t.Errorf("200 loops of 10,000 gave %v", err)
	}
}

func TestTemplate(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`{"b": 1.50, "a": "plain <text>", "c": [true, null, {"d": 1e400}]}`, `{"a":"plain <text>","b":1.50,"c":[true,null,{"d":1e400}]}`},
		{`"${{ input.topic }}"`, `"owls"`},
		{`"${{input.list}}"`, `[3,1,2]`},
		{`"n=${{ input.n }}, o=${{ input.o }}, t=${{ input.topic }}, none=${{ input.none }}"`, `"n=3, o={\"a\":1,\"b\":2,\"c\":3}, t=owls, none=null"`},
		{`{"x": {"y": ["a", "${{ item }}", {"z": "${{ index }}"}]}}`, `{"x":{"y":["a","it",{"z":2}]}}`},
		{`"${{ {\"a\": {\"b\": 1}} }}"`, `{"a":{"b":1}}`},
		{`"${{ \"}}\" }} and ${{ '}}' }}"`, `"}} and }}"`},
		{`"${{ \"${{\" }}"`, `"${{"`},
		{`" ${{ input.n }}"`, `" 3"`},
		{`"$ {{ x }} }} $"`, `"$ {{ x }} }} $"`},
		{`{"${{ key }}": 1}`, `{"${{ key }}":1}`},
		{`"${{ nodes.plan.output.go }}"`, `true`},
	} {
		tmpl, err := CompileTemplate(json.RawMessage(c.raw), testScope)
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		got, err := tmpl.Eval(testEnv(t))
		if err != nil || string(got) != c.want {
			t.Errorf("%s\n got %s %v\nwant %s", c.raw, got, err, c.want)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	_, err := CompileTemplate(json.RawMessage(`{"a": {"b": ["ok", "${{ nodes.pln.output }}"]}, "c": "x ${{ 1 + }}", "d": "${{ open"}`), testScope)
	var all Errors
	if !errors.As(err, &all) || len(all) != 3 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []string{"a.b[1]", "c", "d"} {
		if all[i].Path != want {
			t.Errorf("error %d is at %q, not %q", i, all[i].Path, want)
		}
	}
	tmpl, err := CompileTemplate(json.RawMessage(`{"a": ["${{ input.none.x }}"]}`), testScope)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tmpl.Eval(testEnv(t))
	var one *Error
	if !errors.As(err, &one) || one.Path != "a[0]" {
		t.Errorf("got %v", err)
	}
	if _, err := CompileTemplate(json.RawMessage(`{"a": `), testScope); err == nil {
		t.Error("half of a template compiled")
	}
}

func TestDecode(t *testing.T) {
	for raw, want := range map[string]any{
		`9223372036854775807`: 9223372036854775807,
		`9223372036854775808`: 9223372036854775808.0,
		`-7`:                  -7,
		`1.0`:                 1.0,
		`1e3`:                 1000.0,
		`[1, {"a": 2}]`:       []any{1, map[string]any{"a": 2}},
		``:                    nil,
	} {
		if got, err := Decode(json.RawMessage(raw)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s gave %v (%T) %v", raw, got, got, err)
		}
	}
	for _, raw := range []string{`{`, `1 2`, `1e999`, `nope`, strings.Repeat("[", 20_000)} {
		if v, err := Decode(json.RawMessage(raw)); err == nil {
			t.Errorf("%.20s gave %v", raw, v)
		}
	}
}
