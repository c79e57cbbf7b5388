package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestValidate(t *testing.T) {
	object := `{"type": "object", "properties": {"sections": {"type": "array", "items": {"type": "string"}}, "at": {"format": "date-time"}}, "required": ["sections"], "additionalProperties": false}`
	for _, c := range []struct{ schema, value, want string }{
		{object, `{"sections": ["a"]}`, ""},
		{object, `{"sections": ["a", 1]}`, "sections[1]: got number, want string"},
		{object, `{}`, "the value: missing property 'sections'"},
		{object, `[]`, "the value: got array, want object"},
		{object, `{"sections": [], "z": 1, "b": 2}`, "the value: additional properties 'b', 'z' not allowed"},
		{object, `{"sections": [], "at": "yesterday"}`, "at: 'yesterday' is not valid date-time"},
		{object, `{"sections": `, "the value is no JSON: it ends too early"},
		{object, `{"sections": []} x`, "the value is no JSON"},
		{object, ``, "the value is no JSON"},
		{`true`, `1`, ""},
		{`false`, `1`, "nothing is allowed here"},
		{`{"anyOf": [{"type": "string"}, {"type": "number", "minimum": 3}]}`, `1`, "the value: it fits none of the alternatives (the value: got number, want string | the value: minimum: got 1, want 3)"},
		{`{"type": "array", "items": {"type": "string"}}`, `[1,2,3,4,5,6,7]`, "; and 2 more"},
		{`{"minimum": 3}`, `1e999999999`, "exponent is beyond 400"},
		{`{"minimum": 3}`, strings.Repeat("1", 2000), "holds a number of 2000 digits"},
		{`{"multipleOf": 0.1}`, `0.3`, ""},
		{`{"pattern": "^a"}`, `"` + strings.Repeat("b", 5000) + `"`, "..."},
	} {
		s, err := Compile(json.RawMessage(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		err = s.Validate(json.RawMessage(c.value))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s on %.40s\n got %v\nwant %s", c.schema, c.value, err, c.want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type": "strng"}`:                      "the schema is no JSON Schema: type",
		`{"type": 1}`:                            "the schema is no JSON Schema",
		`[]`:                                     "the schema is no JSON Schema",
		`{`:                                      "the schema is no JSON",
		`{"$ref": "https://example.com/x.json"}`: "cannot refer to https://example.com/x.json: put what it needs below $defs",
		`{"$ref": "file:///etc/passwd"}`:         "cannot refer to file:///etc/passwd",
		`{"$ref": "other.json"}`:                 "cannot refer to",
		`{"$ref": "#/$defs/none"}`:               "the schema cannot be used",
		`{"$schema": "https://example.com/s"}`:   "cannot refer to https://example.com/s",
		`{"pattern": "("}`:                       "pattern",
		`{"minimum": 1e999999999}`:               "exponent",
		`{"items": [` + strings.Repeat("{},", maxParts) + `{}]}`: "may have 10000",
	} {
		if _, err := Compile(json.RawMessage(schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s\n got %v\nwant %s", schema, err, want)
		}
	}
}

func TestWorkIsBounded(t *testing.T) {
	double := `{"$defs": {"z": {"type": "integer"}`
	for i := range 40 {
		next := "z"
		if i > 0 {
			next = fmt.Sprint("a", i-1)
		}
		double += fmt.Sprintf(`, "a%d": {"allOf": [{"$ref": "#/$defs/%s"}, {"$ref": "#/$defs/%s"}]}`, i, next, next)
	}
	double += `}, "$ref": "#/$defs/a39"}`
	deep := `{"allOf": [{"properties": {"n": {"$ref": "#"}}}, {"properties": {"n": {"$ref": "#"}}}]}`
	for schema, value := range map[string]string{
		double: `1`,
		deep:   strings.Repeat(`{"n":`, 60) + `1` + strings.Repeat(`}`, 60),
	} {
		s, err := Compile(json.RawMessage(schema))
		if err != nil {
			t.Fatal(err)
		}
		s.work.most = 20_000                                              // it would be told later otherwise, but as surely
		if err := s.Validate(json.RawMessage(value)); err != errTooMuch { //nolint:errorlint // returned as it is
			t.Errorf("%.80s: %v", schema, err)
		}
		if err := s.Validate(json.RawMessage(`{}`)); schema == deep && err != nil {
			t.Errorf("the work of one validation counts in the next: %v", err)
		}
	}
}

func TestReferenceInACircle(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"$ref": "#"}`))
	if err != nil {
		return
	}
	if err := s.Validate(json.RawMessage(`1`)); err == nil {
		t.Error("a schema that is nothing but itself lets all pass")
	}
}

func TestMessagesAreTheSameEachTime(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"additionalProperties": {"type": "string"}, "propertyNames": {"maxLength": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	value := json.RawMessage(`{"aa": 1, "bb": 2, "cc": 3, "dd": 4, "ee": 5, "ff": 6, "gg": 7}`)
	first := s.Validate(value).Error()
	for range 30 {
		if again := s.Validate(value).Error(); again != first {
			t.Fatalf("first %s\nthen %s", first, again)
		}
	}
}

func TestSchemaIsSafeForConcurrentUse(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"items": {"type": "integer"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				if err := s.Validate(json.RawMessage(`[1,2,3]`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func TestNotArray(t *testing.T) {
	for _, c := range []struct{ schema, path, want string }{
		{`{"type": "string"}`, "", "a string"},
		{`{"type": ["object", "null"]}`, "", "an object or null"},
		{`{"type": "array"}`, "", ""},
		{`{"type": ["array", "null"]}`, "", ""},
		{`{}`, "", ""},
		{`true`, "", ""},
		{`{"enum": ["a", 1]}`, "", "one of the values that it lists"},
		{`{"enum": ["a", []]}`, "", ""},
		{`{"const": 1}`, "", "one of the values"},
		{`{"type": "object", "properties": {"a": {"properties": {"b": {"type": "number"}}}}}`, "a.b", "a number"},
		{`{"type": "object", "properties": {"a": {"type": "array"}}}`, "a", ""},
		{`{"type": "object", "properties": {"a": {}}}`, "z", ""},
		{`{"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false}`, "z", `missing: there is no key "z", but a, b`},
		{`{"type": "object", "patternProperties": {".": {}}, "additionalProperties": false}`, "z", ""},
		{`{"additionalProperties": {"type": "string"}}`, "z", "a string"},
		{`{"type": "string"}`, "a", "below a string, which has no keys"},
		{`{"type": "array", "items": {"type": "string"}}`, "0", ""},
		{`{"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}`, "", "a string"},
		{`{"$ref": "#"}`, "", ""},
		{`{"allOf": [{}, {"type": "string"}]}`, "", "a string"},
		{`{"anyOf": [{"type": "string"}, {"type": "number"}]}`, "", "a number"},
		{`{"oneOf": [{"type": "string"}, {"type": "array"}]}`, "", ""},
		{`{`, "", ""},
	} {
		var path []string
		if c.path != "" {
			path = strings.Split(c.path, ".")
		}
		what, proven := NotArray(json.RawMessage(c.schema), path)
		if proven != (c.want != "") || !strings.Contains(what, c.want) {
			t.Errorf("%s at %q gives %q %v, want %q", c.schema, c.path, what, proven, c.want)
		}
	}
}

func FuzzSchema(f *testing.F) {
	f.Add(`{"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"anyOf": [true, {"enum": [1]}]}}}`, `{"a": 1}`)
	f.Add(`{"items": {"multipleOf": 0.01}, "uniqueItems": true}`, `[1.1, 2e300]`)
	f.Add(`{"$dynamicRef": "#x", "$defs": {"x": {"$dynamicAnchor": "x"}}}`, `null`)
	f.Fuzz(func(t *testing.T, schema, value string) {
		s, err := Compile(json.RawMessage(schema))
		if err != nil {
			return
		}
		first := s.Validate(json.RawMessage(value))
		if second := s.Validate(json.RawMessage(value)); fmt.Sprint(first) != fmt.Sprint(second) {
			t.Errorf("first %v, then %v", first, second)
		}
		if _, proven := NotArray(json.RawMessage(schema), nil); proven && s.Validate(json.RawMessage(`[]`)) == nil {
			t.Error("a schema that was proven to allow no array allows one")
		}
	})
}
