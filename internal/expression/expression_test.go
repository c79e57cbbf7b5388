package expression

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/expr-lang/expr/builtin"
)

func testEnv(t testing.TB) Env {
	t.Helper()
	input, err := Decode(json.RawMessage(`{
		"topic": "owls", "n": 3, "ratio": 0.5, "big": 12345678901234567890, "on": true, "none": null,
		"list": [3, 1, 2], "names": ["b", "a", "b"],
		"people": [{"name": "Ada", "age": 36, "team": "x"}, {"name": "Bob", "age": 25, "team": "y"}, {"name": "Cyd", "age": 36, "team": "x"}],
		"o": {"b": 2, "a": 1, "c": 3}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	return Env{
		Input: input,
		Nodes: map[string]Node{
			"plan":    {Output: map[string]any{"names": []any{"x", "y"}, "go": true}, Status: "done"},
			"my-node": {Status: "failed", Error: map[string]any{"code": "failed", "message": "no"}},
		},
		Item: "it", Index: 2,
		Run: Run{ID: "r1", Workflow: "w", Tags: map[string]string{"k": "v"}, StartedAt: "2026-01-31T12:00:00Z"},
	}
}

var testScope = Scope{Nodes: map[string]bool{"plan": true, "my-node": true, "outline": true}, Item: true}

func TestEval(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{`input.topic`, `"owls"`},
		{`input.missing`, `null`},
		{`input.missing?.deeper`, `null`},
		{`input.none ?? "x"`, `"x"`},
		{`input.n + 1`, `4`},
		{`input.n + 0.5`, `3.5`},
		{`input.n / 2`, `1.5`},
		{`input.n % 2`, `1`},
		{`2 ** 3`, `8`},
		{`"a" + "b"`, `"ab"`},
		{`input.on and not false`, `true`},
		{`input.n > 2 ? "many" : "few"`, `"many"`},
		{`if input.n > 2 { "many" } else { "few" }`, `"many"`},
		{`let n = input.n; n * n`, `9`},
		{`1 == 1.0`, `true`},
		{`[1, {"a": [2]}] == [1.0, {"a": [2]}]`, `true`},
		{`input.o == {"a": 1, "b": 2, "c": 3}`, `true`},
		{`input.o != nil`, `true`},
		{`3 in input.list`, `true`},
		{`"a" in input.o`, `true`},
		{`"z" in input.o`, `false`},
		{`"a" < "b" && 1 <= 1.5`, `true`},
		{`input.topic contains "ow" && input.topic matches "^o.ls$" && input.topic startsWith "o"`, `true`},
		{`input.none contains "x"`, `false`},
		{`input.list[0]`, `3`},
		{`input.list[-1]`, `2`},
		{`input.list[1:]`, `[1,2]`},
		{`input.topic[1:3]`, `"wl"`},
		{`input["topic"]`, `"owls"`},
		{`nodes.plan.output.names`, `["x","y"]`},
		{`nodes["my-node"].status`, `"failed"`},
		{`nodes["my-node"].error.message`, `"no"`},
		{`nodes.outline.output`, `null`},
		{`nodes.plan`, `{"error":null,"output":{"go":true,"names":["x","y"]},"status":"done"}`},
		{`let p = nodes.plan; p.output.go`, `true`},
		{`[item, index]`, `["it",2]`},
		{`run`, `{"id":"r1","started_at":"2026-01-31T12:00:00Z","tags":{"k":"v"},"workflow":"w"}`},
		{`run.id + run.workflow + run.tags.k`, `"r1wv"`},
		{`run.tags.missing`, `null`},
		{`1..3`, `[1,2,3]`},
		{`3..1`, `[]`},
		{`input.people | filter(.age > 30) | map(.name)`, `["Ada","Cyd"]`},
		{`map(input.people, {{"n": .name, "i": #index}})`, `[{"i":0,"n":"Ada"},{"i":1,"n":"Bob"},{"i":2,"n":"Cyd"}]`},
		{`all(input.list, # > 0) && any(input.list, # == 2) && none(input.list, # > 9) && one(input.list, # == 1)`, `true`},
		{`find(input.people, .age == 36).name + findLast(input.people, .age == 36).name`, `"AdaCyd"`},
		{`[findIndex(input.list, # == 1), findLastIndex(input.list, # < 3)]`, `[1,2]`},
		{`[count(input.list, # > 1), count([true, false, true]), sum(input.list), sum(input.people, .age)]`, `[2,2,6,97]`},
		{`reduce(input.list, #acc + #, 0)`, `6`},
		{`[0, find([1], true), find([], true), find([1], false), findIndex([1], true), any([1], true), all([1], false), none([1], true), one([1], true), 9]`, `[0,1,null,null,0,true,false,false,true,9]`},
		{`[0, findLast([1, 2], true), findLast([1], false), findLastIndex([1, 2], true), findLastIndex([1], false), 9]`, `[0,2,null,1,null,9]`},
		{`sortBy(input.people, .age) | map(.name)`, `["Bob","Ada","Cyd"]`},
		{`sortBy(input.people, .age, "desc") | map(.name)`, `["Ada","Cyd","Bob"]`},
		{`sortBy(0..39, # % 2) == concat(map(0..19, # * 2), map(0..19, # * 2 + 1))`, `true`},
		{`groupBy(input.people, .team)`, `{"x":[{"age":36,"name":"Ada","team":"x"},{"age":36,"name":"Cyd","team":"x"}],"y":[{"age":25,"name":"Bob","team":"y"}]}`},
		{`keys(groupBy(input.people, .age))`, `["25","36"]`},
		{`sort(input.list)`, `[1,2,3]`},
		{`sort(input.names, "desc")`, `["b","b","a"]`},
		{`[keys(input.o), values(input.o), toPairs(input.o)]`, `[["a","b","c"],[1,2,3],[["a",1],["b",2],["c",3]]]`},
		{`fromPairs([["a", 1]])`, `{"a":1}`},
		{`[uniq(input.names), uniq([1, 1.0, {"a": 1}, {"a": 1}])]`, `[["b","a"],[1,{"a":1}]]`},
		{`[reverse(input.list), concat([1], [2, 3]), flatten([1, [2, [3]]])]`, `[[2,1,3],[1,2,3],[1,2,3]]`},
		{`[first(input.list), last(input.list), first([]), take(input.list, 2), get(input.o, "z"), get(input.list, 9), get(input.o, "b")]`, `[3,2,null,[3,1],null,null,2]`},
		{`[len("häh"), len(input.list), len(input.o)]`, `[3,3,3]`},
		{`[type(1), type(1.5), type("x"), type(nil), type([]), type({}), type(true)]`, `["int","float","string","nil","array","map","bool"]`},
		{`[abs(-2), abs(-2.5), ceil(1.2), floor(1.8), round(1.5), int("7"), int(7.9), float("1.5")]`, `[2,2.5,2,1,2,7,7,1.5]`},
		{`[max(1, 3, 2), min([4, 2]), mean([1, 2]), median([3, 1, 2])]`, `[3,2,1.5,2]`},
		{`[bitand(6, 3), bitor(6, 3), bitxor(6, 3), bitnand(6, 3), bitshl(1, 3), bitshr(8, 2), bitushr(8, 2), bitnot(0)]`, `[2,7,5,4,8,2,2,-1]`},
		{`[upper("a"), lower("A"), trim(" a "), trim("xax", "x"), trimPrefix("xa", "x"), trimSuffix("ax", "x")]`, `["A","a","a","a","a","a"]`},
		{`[split("a,b,c", ","), split("a,b,c", ",", 2), splitAfter("a,b", ",")]`, `[["a","b","c"],["a","b,c"],["a,","b"]]`},
		{`[replace("aaa", "a", "b"), replace("aaa", "a", "b", 2), repeat("ab", 2), join(["a", "b"], "-"), join(["a", "b"])]`, `["bbb","bba","abab","a-b","ab"]`},
		{`[indexOf("abc", "c"), lastIndexOf("aba", "a"), hasPrefix("ab", "a"), hasSuffix("ab", "a")]`, `[2,2,true,false]`},
		{`[toJSON({"b": [1, "<"], "a": nil}), fromJSON("{\"a\": 1}").a, string(1.5), string("x"), string(nil)]`, `["{\"a\":null,\"b\":[1,\"<\"]}",1,"1.5","x","null"]`},
		{`[toBase64("hi"), fromBase64("aGk=")]`, `["aGk=","hi"]`},
		{`[unix("1970-01-02T00:00:00+01:00"), unix("1970-01-02"), rfc3339(90), rfc3339(0.5), seconds("1h30m"), seconds("500ms")]`, `[82800,86400,"1970-01-01T00:01:30Z","1970-01-01T00:00:00.5Z",5400,0.5]`},
		{`input.big`, `12345678901234567000`},
		{`1; 2`, `2`},
	} {
		e, err := Compile(c.src, testScope, Any)
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		v, err := e.Eval(testEnv(t))
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		got, err := newMeter().appendJSON(nil, v, 0)
		if err != nil || string(got) != c.want {
			t.Errorf("%s\n got %s %v\nwant %s", c.src, got, err, c.want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	inNode := Scope{Nodes: testScope.Nodes}
	inWait := Scope{Nodes: testScope.Nodes, Payload: true}
	for _, c := range []struct {
		src, want string
		scope     Scope
		bool      bool
	}{
		{src: `nodes.outlin.output`, want: "column 7: there is no node \"outlin\"; did you mean nodes[\"outline\"]?"},
		{src: `nodes.my-node.output`, want: `did you mean nodes["my-node"]?`},
		{src: `nodes[input.x].output`, want: "must be known before the run"},
		{src: `nodes`, want: "nodes is no value by itself; name the node"},
		{src: `keys(nodes)`, want: "nodes is no value by itself"},
		{src: `nodes.plan.outputs`, want: "a node has no outputs; read one of output, status, error"},
		{src: `nodes.plan.names`, want: "what the node gave is below output"},
		{src: `run.idd`, want: "run has no idd; read one of id"},
		{src: `item.x`, scope: inNode, want: "item is there only within a fan-out"},
		{src: `index`, scope: inNode, want: "index is there only within a fan-out"},
		{src: `payload.x`, want: "payload is there only in the until of a wait; read nodes.<id>.output"},
		{src: `len(payloads) > 1`, want: "payloads is there only in the until of a wait"},
		{src: `payloda`, want: "unknown name payloda; the names are input, nodes, run"},
		{src: `payloda`, scope: inWait, want: "unknown name payloda; did you mean payload?"},
		{src: `payloadss`, scope: inWait, want: "did you mean payloads?"},
		{src: `whatever`, scope: inWait, want: "the names are payload, payloads, input, nodes and run"},
		{src: `item`, scope: inWait, want: "item is there only within a fan-out"},
		{src: `len(payloads)`, scope: inWait, bool: true, want: "it gives an integer, and must give true or false"},
		{src: `inptu.x`, want: "unknown name inptu; did you mean input?"},
		{src: `outline`, want: "unknown name outline"},
		{src: `lenn(input)`, want: "did you mean len?"},
		{src: `upper`, want: "upper is a function; call it: upper(...)"},
		{src: `now()`, want: "the function now is not allowed; an expression has no clock"},
		{src: `date("2026")`, want: "use unix(text)"},
		{src: `$env["nodes"]`, want: "$env is not allowed"},
		{src: `input.foo()`, want: "values have no methods"},
		{src: `b"x"`, want: "there are no byte strings"},
		{src: `1 + "a"`, want: "column 3: invalid operation: + (mismatched types int and string)"},
		{src: `upper(1)`, want: "cannot use int as argument (type string) to call upper"},
		{src: `unix(1)`, want: "cannot use int"},
		{src: `filter([1], "x")`, want: "predicate should return boolean"},
		{src: `not "a"`, want: "invalid operation: not"},
		{src: `"a" ? 1 : 2`, want: "non-bool expression"},
		{src: `"x" matches "("`, want: "column 5: error parsing regexp"},
		{src: `1 +`, want: "it ends too early"},
		{src: `(1`, want: "it ends too early"},
		{src: ` `, want: "it is empty"},
		{src: strings.Repeat("(", maxSource+1), want: "longer than 16 KiB"},
		{src: strings.Repeat("1+", maxNodes) + "1", want: "exceeds maximum allowed nodes"},
		{src: `len(input.x)`, bool: true, want: "it gives an integer, and must give true or false"},
		{src: `{"a": 1}`, bool: true, want: "it gives an object, and must give true or false"},
	} {
		scope, want := testScope, Any
		if c.scope.Nodes != nil {
			scope = c.scope
		}
		if c.bool {
			want = Bool
		}
		_, err := Compile(c.src, scope, want)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s\n got %v\nwant %s", c.src, err, c.want)
		}
	}
}

func TestEvalErrors(t *testing.T) {
	for _, c := range []struct {
		src, want string
		bool      bool
	}{
		{src: `input.none.x`, want: "cannot read x of null"},
		{src: `input.topic.x`, want: "an array is indexed by numbers"},
		{src: `input.list[7]`, want: "index out of range"},
		{src: `input.o[1]`, want: "does not fit"},
		{src: `input[input.o]`, want: "an index is an integer or text, and this is an object"},
		{src: `input.o[1:2]`, want: "arrays and text can be cut, and this is an object"},
		{src: `input.topic + 1`, want: "+ adds numbers or joins text, and got text and a number; use string(x)"},
		{src: `input.topic - 1`, want: "invalid operation: string - int"},
		{src: `input.topic < 1`, want: "< compares numbers or text, and got text and a number"},
		{src: `input.topic ? 1 : 2`, want: "true or false is needed here, and this is a string"},
		{src: `input.o in input.topic`, want: "in looks into arrays and objects"},
		{src: `upper(input.n)`, want: "upper wants text, and got a number"},
		{src: `map(input.topic, #)`, want: "map wants an array, and got text"},
		{src: `sum(input.topic)`, want: "sum wants an array"},
		{src: `input.n / 0`, want: "no number that JSON can hold"},
		{src: `[0.0 / 0.0]`, want: "no number that JSON can hold"},
		{src: `input.n % 0`, want: "divide by zero"},
		{src: `int(1e300)`, want: "wants an integer of 64 bits"},
		{src: `input.topic matches "(" + ""`, want: "cannot be read"},
		{src: `groupBy(input.people, #)`, want: "groupBy wants keys"},
		{src: `sort([1, "a"])`, want: "sort compares"},
		{src: `sort([2, 1], input.topic)`, want: `"asc" or "desc"`},
		{src: `join(input.list)`, want: "its element 0 is a number"},
		{src: `input.topic[0]`, want: "which JSON cannot hold"},
		{src: `input.topic`, bool: true, want: "it gives text, and must give true or false"},
		{src: `input.none`, bool: true, want: "it gives null"},
		{src: `fromJSON("{")`, want: "ends too early"},
		{src: `unix("tomorrow")`, want: "write it like 2026-01-31"},
		{src: `seconds("1x")`, want: "write it like 90s"},
		{src: `rfc3339(-1)`, want: "seconds since 1970"},
	} {
		want := Any
		if c.bool {
			want = Bool
		}
		e, err := Compile(c.src, testScope, want)
		if err != nil {
			t.Errorf("%s does not compile: %v", c.src, err)
			continue
		}
		_, err = e.Eval(testEnv(t))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.src, err, c.want)
		}
		var own *Error
		if !errors.As(err, &own) || own.Source != c.src {
			t.Errorf("%s: the error %#v does not say its source", c.src, err)
		}
	}
}

// Each of these would run for hours, or fill the memory, if it were let.
func TestWorkIsBounded(t *testing.T) {
	for _, src := range []string{
		`map(1..10000, map(1..10000, # + 1))`,
		`map(1..10000, sum(1..10000))`,
		`any(1..10000, all(1..10000, any(1..10000, false)))`,
		`reduce(1..100, #acc + #acc, "x")`,
		`reduce(1..100, concat(#acc, #acc), [1])`,
		`reduce(1..100, [#acc, #acc], 1)`,
		`reduce(1..100, [#acc, #acc], 1) == reduce(1..100, [#acc, #acc], 1)`,
		`toJSON(reduce(1..100, [#acc, #acc], 1))`,
		`flatten(reduce(1..100, [#acc, #acc], 1))`,
		`max(reduce(1..100, [#acc, #acc], 1))`,
		`input[reduce(1..100, [#acc, #acc], 1)]`,
		`reduce(1..100, [#acc, #acc], 1)[1:2][0] contains "x"`,
		`reduce(1..200000, [#acc], 1)`,
		`repeat(repeat("x", 1000000), 1000000)`,
		`repeat("", 9000000000000000000) + repeat("ab", 9000000000000000000)`,
		`1..9000000000000000000`,
		`-9000000000000000000..9000000000000000000`,
		`replace(repeat("a", 100000), "", repeat("b", 100000))`,
		`join(map(1..10000, "a"), repeat("b", 100000))`,
		`map(1..100000, input.text contains "b")`,
		`map(1..100000, input.text < input.same)`,
		`map(1..100000, input.text == input.same)`,
		`map(1..10000, input.text matches "(a+)+$")`,
		`uniq(map(1..10000, [#]))`,
		`map(1..1000, sort(reverse(1..10000)))`,
		`map(1..1000, sortBy(1..10000, -#))`,
		`map(1..1000, groupBy(1..10000, #))`,
		`map(1..100000, split(input.text, ""))`,
		`map(1..100000, len(input.text))`,
		`map(1..100000, upper(input.text))`,
		`map(1..100000, 5 in 10..1000)`,
	} {
		e, err := Compile(src, Scope{}, Any)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		long := strings.Repeat("a", 1_000_000)
		// A tenth of the work, or this would take long under the race detector.
		m := &meter{left: maxWork / 10}
		v, err := e.run(&Env{Input: map[string]any{"text": long, "same": strings.Clone(long)}}, m)
		if err == nil {
			err = m.verify(v, 0)
		}
		if err == nil {
			t.Errorf("%s came to an end", src)
		}
	}
}

// Every function of the library is looked at, once: allowed and replaced by
// one of ours, a loop that the machine runs, or forbidden. A new version that
// brings a new one fails here.
func TestEveryBuiltinIsDecided(t *testing.T) {
	loops := []string{
		"all", "none", "any", "one", "filter", "map", "find", "findIndex", "count", "sum", "reduce",
	}
	for _, name := range builtin.Names {
		decided := 0
		if functions[name] != nil {
			decided++
		}
		if forbidden[name] != "" {
			decided++
		}
		if slices.Contains(loops, name) {
			decided++
		}
		if decided != 1 {
			t.Errorf("%s is decided %d times", name, decided)
		}
	}
	if n := len(builtin.Names); n != 71 {
		t.Errorf("the library has %d functions", n)
	}
}

func TestObjectsGoInTheOrderOfTheirKeys(t *testing.T) {
	e, err := Compile(`[keys(input), values(input), toPairs(input), toJSON(input), map(keys(input), input[#]), string(input)]`, Scope{}, Any)
	if err != nil {
		t.Fatal(err)
	}
	var first any
	for i := range 50 {
		input := map[string]any{}
		for _, k := range strings.Split("q w e r t y u i o p a s d f g", " ") {
			input[k] = k + k
		}
		v, err := e.Eval(Env{Input: input})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = v
		} else if !reflect.DeepEqual(v, first) {
			t.Fatalf("round %d gave %v, the first %v", i, v, first)
		}
	}
}

func TestEvalChangesNothing(t *testing.T) {
	env := testEnv(t)
	for _, src := range []string{
		`sort(input.list)`, `reverse(input.list)`, `concat(input.list, [1])`, `uniq(input.names)`,
		`sortBy(input.people, .name, "desc")`, `concat(take(input.list, 1), [9])`, `concat(input.list[0:1], [9])`,
	} {
		e, err := Compile(src, testScope, Any)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Eval(env); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(env, testEnv(t)) {
			t.Fatalf("%s changed the input", src)
		}
	}
}

func TestExprIsSafeForConcurrentUse(t *testing.T) {
	e, err := Compile(`let a = nodes.plan.output.names; map(a, # + input.topic) | sortBy(#)`, testScope, Any)
	if err != nil {
		t.Fatal(err)
	}
	env := testEnv(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				v, err := e.Eval(env)
				if err != nil || !reflect.DeepEqual(v, []any{"xowls", "yowls"}) {
					t.Errorf("%v %v", v, err)
				}
			}
		})
	}
	group.Wait()
}

func TestNodes(t *testing.T) {
	e, err := Compile(`nodes.plan.output ?? nodes["my-node"].status ?? map([1], nodes.plan.output)`, testScope, Any)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Nodes(); !slices.Equal(got, []string{"my-node", "plan"}) {
		t.Errorf("it reads %q", got)
	}
}

func FuzzEval(f *testing.F) {
	for _, src := range []string{
		`map(1..3, # + 1)`, `nodes.plan.output.names[0]`, `sortBy(input.people, .age, "desc")`,
		`let x = {"a": [1, 2]}; x.a[-1:] | len`, `input.a?.b ?? [item, index, run]`, `reduce([1], #acc + #, 0)`,
		`groupBy(input, #) | keys | map(upper(#))`, `"a" matches "b" ? toJSON(1) : fromJSON("2")`,
		`if 1 in [1] {1;2} else {3}`, `input[input]`, `#`, `nodes.plan?.["output"]`, `::len([1])`, `$env`,
	} {
		f.Add(src, `{"people": [{"age": 1}, {"age": 2.5}], "a": null}`)
	}
	f.Fuzz(func(t *testing.T, src, input string) {
		e, err := Compile(src, testScope, Any)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a word")
			}
			return
		}
		env := testEnv(t)
		if v, err := Decode(json.RawMessage(input)); err == nil {
			env.Input = v
		}
		v, err := e.Eval(env)
		if err != nil {
			return
		}
		first, err := newMeter().appendJSON(nil, v, 0)
		if err != nil {
			return // too large to be written within one allowance
		}
		again, err := e.Eval(env)
		if err != nil {
			t.Fatalf("the second time: %v", err)
		}
		second, _ := newMeter().appendJSON(nil, again, 0)
		if string(first) != string(second) {
			t.Errorf("first %s, then %s", first, second)
		}
	})
}

func BenchmarkEval(b *testing.B) {
	e, err := Compile(`nodes.plan.output.go && input.n > 2`, testScope, Bool)
	if err != nil {
		b.Fatal(err)
	}
	env := testEnv(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Eval(env); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(`nodes.plan.output.go && input.n > 2`, testScope, Bool); err != nil {
			b.Fatal(err)
		}
	}
}
