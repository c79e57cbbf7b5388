package expression

import "testing"

func TestPayloadsOfAWait(t *testing.T) {
	env := testEnv(t)
	env.Payload = map[string]any{"done": true, "n": 2}
	env.Payloads = []any{nil, env.Payload}
	for src, want := range map[string]bool{
		`payload.done`:                       true,
		`payload?.missing == nil`:            true,
		`len(payloads) == 2`:                 true,
		`payloads[0] != nil`:                 false,
		`payloads[-1] == payload`:            true,
		`sum(payloads, #?.n ?? 0) == 2`:      true,
		`payload.n > len(nodes.plan.output)`: false,
	} {
		e, err := Compile(src, Scope{Nodes: testScope.Nodes, Payload: true}, Bool)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if v, err := e.Eval(env); err != nil || v != want {
			t.Errorf("%s gives %v, %v", src, v, err)
		}
	}
	e, err := Compile(`payload`, Scope{Payload: true}, Bool)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := e.Eval(Env{}); err == nil {
		t.Errorf("without a payload it gives %v", v)
	}
}
