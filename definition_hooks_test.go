package drover_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

// hooked gives a definition with a wait x.
func hooked(t *testing.T, wait map[string]any) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"nodes":  map[string]any{"x": map[string]any{"wait": wait}},
		"output": map[string]any{"from": "node:x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestHooks03Tokens(t *testing.T) {
	for _, c := range []struct {
		name  string
		token any
		want  string
	}{
		{"colon", "order:1", ""},
		{"spaces, dots and wildcards", " a b.c.*.> ", ""},
		{"only a space", " ", ""},
		{"line and zero", "a\nb\x00", ""},
		{"word", "true", ""},
		{"any language", "заказ/日本/🦉", ""},
		{"made", true, ""},
		{"the longest", strings.Repeat("x", drover.MaxToken), ""},
		{"empty", "", "the token is empty; write the token, or true to have one made"},
		{"too long", strings.Repeat("x", drover.MaxToken+1), "the token has 513 bytes, and may have 512"},
		{"too long in bytes", strings.Repeat("ж", 257), "the token has 514 bytes, and may have 512"},
		{"known when it is claimed", "${{ input.id }}" + strings.Repeat("x", drover.MaxToken), ""},
		{"not made", false, "false is not known here; write the token, or true to have one made"},
		{"null", nil, "it has no value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := drover.ParseDefinition(hooked(t, map[string]any{"hook": c.token}))
			if c.want != "" {
				if problems := problemsOf(t, err); len(problems) != 1 || !strings.Contains(err.Error(), "nodes.x.wait.hook (line 1): "+c.want) {
					t.Errorf("got %v\nwant %s", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			token := d.Nodes["x"].Wait.Hook
			if text, isText := c.token.(string); token.Made == isText || token.Text != text {
				t.Errorf("%v is read as %+v", c.token, token)
			}
			roundTrip(t, d)
		})
	}
}

// roundTrip checks that the canonical JSON of d reads as d, to the same hash.
func roundTrip(t *testing.T, d *drover.Definition) {
	t.Helper()
	text, hash, err := d.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	again, err := drover.ParseDefinition(text)
	if err != nil {
		t.Fatalf("the canonical JSON is refused: %v\n%s", err, text)
	}
	if text2, hash2, err := again.Canonical(); err != nil || hash2 != hash || string(text2) != string(text) {
		t.Errorf("%v\n%s\n%s", err, text, text2)
	}
}

func TestHooks05MetadataAndTagsAreSmall(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n-2) } // n bytes as JSON
	tags := map[string]any{}
	for i := range 20 {
		tags[fmt.Sprintf("k%d", i)] = strings.Repeat("x", 250)
	}
	many := map[string]any{}
	for i := range drover.MaxTags + 1 {
		many[fmt.Sprintf("k%d", i)] = ""
	}
	for _, c := range []struct {
		name string
		wait map[string]any
		want string
	}{
		{"fits", map[string]any{"hook": "a", "metadata": long(drover.MaxMetadata)}, ""},
		{"metadata", map[string]any{"hook": "a", "metadata": long(drover.MaxMetadata + 1)}, "nodes.x.wait.metadata (line 1): it has 4097 bytes as JSON, and may have 4096"},
		{"what is asked", map[string]any{"approve": long(drover.MaxMetadata + 1)}, "nodes.x.wait.approve (line 1): it has 4097 bytes"},
		{"answer", map[string]any{"hook": "a", "respond": map[string]any{"with": long(drover.MaxMetadata + 1)}}, "nodes.x.wait.respond.with (line 1): it has 4097 bytes"},
		{"known when it is claimed", map[string]any{"hook": "a", "metadata": "${{ input.x }}" + long(drover.MaxMetadata)}, ""},
		{"tags", map[string]any{"hook": "a", "tags": tags}, "nodes.x.wait.tags (line 1): they have "},
		{"how many tags", map[string]any{"hook": "a", "tags": many}, "nodes.x.wait.tags (line 1): there are 65 tags, and may be 64"},
		{"one tag", map[string]any{"hook": "a", "tags": map[string]any{"k": strings.Repeat("x", drover.MaxTag+1)}}, "nodes.x.wait.tags.k (line 1): the value has 257 bytes, and may have 256"},
		{"key of a tag", map[string]any{"hook": "a", "tags": map[string]any{strings.Repeat("k", drover.MaxTag+1): ""}}, "must have 1 to 256 bytes"},
		{"a tag may be empty", map[string]any{"approve": "a", "tags": map[string]any{"k": ""}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := drover.ParseDefinition(hooked(t, c.wait))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				roundTrip(t, d)
			} else if problems := problemsOf(t, err); len(problems) != 1 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestHooks22OnlyMadeTokensArePublic(t *testing.T) {
	for _, token := range []any{"order:1", "${{ input.secret }}"} {
		_, err := drover.ParseDefinition(hooked(t, map[string]any{"hook": token, "public": true}))
		if problems := problemsOf(t, err); len(problems) != 1 || problems[0].Place != "nodes.x.wait.public" {
			t.Errorf("%v: %v", token, err)
		}
	}
	for _, wait := range []map[string]any{{"hook": true, "public": true}, {"approve": 1, "public": true}, {"hook": "a", "public": false}} {
		if _, err := drover.ParseDefinition(hooked(t, wait)); err != nil {
			t.Errorf("%v: %v", wait, err)
		}
	}
}

// What a node says of the hook of another makes it wait for that.
func TestHooksAreDependencies(t *testing.T) {
	for _, node := range []string{
		`{wait: {from: open, until: payload.done}}`, `{respond: {to: open}}`, `{release: {hook: open}}`,
		`{wait: {hook: "${{ nodes.open.output }}"}}`, `{wait: {approve: "${{ nodes.open.output }}"}}`,
		`{wait: {hook: a, tags: {b: "${{ nodes.open.output }}"}}}`, `{wait: {hook: a, metadata: ["${{ nodes.open.output }}"]}}`,
		`{wait: {hook: a, respond: {with: "${{ nodes.open.output }}"}}}`, `{wait: {name: a, until: payload == nodes.open.output}}`,
	} {
		d, err := drover.ParseDefinition([]byte(`
nodes:
  open: {wait: {hook: b, hold: true, respond: {run: true}}}
  x: ` + node + `
output: {from: node:x}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range d.Warnings() {
			if w.Place == "nodes.open" {
				t.Errorf("%s does not need what it names: %v", node, w)
			}
		}
	}
}

func TestWarningsOfAnswersThatNobodyGives(t *testing.T) {
	d, err := drover.ParseDefinition([]byte(`
nodes:
  mute: {wait: {hook: true, respond: {run: true}}}
  asked: {wait: {approve: x, respond: {run: true}}}
  fixed: {wait: {hook: true, respond: {with: 1}}}
  held: {wait: {hook: true, hold: true, respond: {run: true}}}
  more: {wait: {from: held}}
  say: {respond: {to: more}}
  say_asked: {respond: {to: asked}}
output: {with: ["${{ nodes.mute.output }}", "${{ nodes.fixed.output }}", "${{ nodes.say.output }}", "${{ nodes.say_asked.output }}"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if w := d.Warnings(); len(w) != 1 || w[0].Place != "nodes.mute.wait.respond.run" || !strings.Contains(w[0].Fix, "respond: {to: mute") {
		t.Errorf("the warnings are %v", w)
	}
}

func TestWaitsThatGiveLists(t *testing.T) {
	array, object := `schema: {type: array}`, `schema: {type: object}`
	for wait, want := range map[string]string{
		"name: n":                       "",
		"name: n, " + array:             "",
		"name: n, " + object:            "is an object, and a fan-out needs an array",
		"name: n, count: 2, " + object:  "",
		"hook: n, until: 'true'":        "",
		"hook: n, count: 2, " + array:   "",
		"approve: {a: 1}":               "is an object, as it is an approval",
		"hook: n, count: 1, hold: true": "",
	} {
		_, err := drover.ParseDefinition(fmt.Appendf(nil, "nodes:\n  w: {wait: {%s}}\n  x: {call: f, fanout: {over: node:w}}\noutput: {from: node:x}", wait))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s gives %v", wait, err)
		}
	}
	_, err := drover.ParseDefinition([]byte("nodes:\n  w: {wait: {name: n, count: 2, schema: {type: object, properties: {a: {type: text}}}}}\n  x: {call: f, fanout: {over: node:w.a}}\noutput: {from: node:x}"))
	if err == nil {
		t.Error("a key of a list is gone over")
	}
}

func TestHooksAreReadAsWritten(t *testing.T) {
	data, err := os.ReadFile("testdata/valid/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := drover.ParseDefinition(data)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, d)
	inbox, called, ship := d.Nodes["inbox"].Wait, d.Nodes["called"].Wait, d.Nodes["ship"].Wait
	if inbox.Hook.Text != "order:${{ input.order }}" || inbox.Count != 10 || !inbox.Collects() || !inbox.Holds() || !inbox.Takeover ||
		inbox.OnUnread != drover.OnUnreadRestart || inbox.Retain.String() != "1h0m0s" || inbox.Tags["queue"] != "orders" {
		t.Errorf("the hook is read as %+v", inbox)
	}
	if !called.Hook.Made || !called.Public || !called.Respond.Run || called.Respond.Timeout.String() != "1m0s" || called.Holds() || called.Collects() {
		t.Errorf("the public hook is read as %+v", called)
	}
	if string(ship.Approve) != `{"question":"Ship ${{ input.order }}?"}` || string(ship.Respond.With) != `{"thanks":true}` || ship.Respond.Status != 202 {
		t.Errorf("the approval is read as %+v", ship)
	}
	if more, leave, reply := d.Nodes["more"], d.Nodes["leave"], d.Nodes["reply"]; more.Wait.From != "inbox" ||
		leave.Release.Unread != drover.UnreadTake || leave.Kind() != drover.KindRelease || reply.Respond.To != "called" || reply.Kind() != drover.KindRespond {
		t.Errorf("the others are read as %+v, %+v, %+v", more.Wait, leave.Release, reply.Respond)
	}
}

// Two spellings of one meaning have one hash; another meaning has another.
func TestHashesOfHooks(t *testing.T) {
	hash := func(wait string) drover.Hash {
		d, err := drover.ParseDefinition([]byte("nodes: {x: {wait: " + wait + "}}\noutput: {from: node:x}"))
		if err != nil {
			t.Fatal(wait, err)
		}
		_, hash, err := d.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	one := hash(`{hook: a, timeout: 60s, tags: {b: c, a: b}}`)
	for _, same := range []string{`{"tags": {"a": "b", "b": "c"}, "timeout": "1m", "hook": "a"}`, `{hook: "a", timeout: 1m0s, tags: {a: b, b: c}, hold: false, public: false}`} {
		if hash(same) != one {
			t.Errorf("%s has another hash", same)
		}
	}
	hashes := []drover.Hash{one}
	for _, other := range []string{
		`{hook: "true"}`, `{hook: true}`, `{hook: a}`, `{name: a}`, `{approve: a}`, `{hook: a, hold: true}`, `{hook: a, on_unread: restart}`, `{hook: a, retain: 1h}`,
		`{hook: a, takeover: true}`, `{hook: true, public: true}`, `{hook: a, count: 2}`, `{hook: a, until: payload}`, `{hook: a, metadata: null}`, `{hook: a, metadata: 0}`,
		`{hook: a, respond: {run: true}}`, `{hook: a, respond: {with: null}}`, `{hook: a, respond: {with: null, status: 201}}`,
	} {
		h := hash(other)
		if slices.Contains(hashes, h) {
			t.Errorf("%s has the hash of another", other)
		}
		hashes = append(hashes, h)
	}
}

// A delivery to a name is held to the schemas of all waits that have it, so two that
// differ may be more than any delivery can fit.
func TestWarningsOfWaitsThatShareANameAndNoSchema(t *testing.T) {
	for _, c := range []struct {
		name, waits string
		place       string
	}{
		{"the same schema", `a: {wait: {name: n, schema: {type: string}}}, b: {wait: {name: n, schema: {"type": "string"}}, depends_on: [a]}`, ""},
		{"no schema", `a: {wait: {name: n}}, b: {wait: {name: n}, depends_on: [a]}`, ""},
		{"other names", `a: {wait: {name: m, schema: {type: string}}}, b: {wait: {name: n, schema: {type: number}}, depends_on: [a]}`, ""},
		{"other schemas", `a: {wait: {name: n, schema: {type: string}}}, b: {wait: {name: n, schema: {type: number}}, depends_on: [a]}`, "nodes.b.wait.schema"},
		{"one schema", `a: {wait: {name: n, schema: {type: string}}}, b: {wait: {name: n}, depends_on: [a]}`, "nodes.b.wait.schema"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := drover.ParseDefinition([]byte("nodes: {" + c.waits + "}\noutput: {from: node:b}"))
			if err != nil {
				t.Fatal(err)
			}
			var places []string
			for _, w := range d.Warnings() {
				places = append(places, w.Place)
			}
			if got := strings.Join(places, " "); got != c.place {
				t.Errorf("warned of %q, want %q", got, c.place)
			}
		})
	}
}
