package drover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
)

// readJSON reads JSON. Its only problem is what is no JSON.
func readJSON(data []byte) (*tree, *Problem) {
	r := jsonReader{dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	for i, c := range data {
		if c == '\n' {
			r.newlines = append(r.newlines, i)
		}
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		p := &Problem{Message: "this is no JSON: " + err.Error(), Fix: "look for a missing quote, comma or bracket before it"}
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			p.Line = r.lineOf(int(syntax.Offset) - 1)
		}
		return nil, p
	}
	t, err := r.value(0)
	if err != nil {
		return nil, &Problem{Line: r.line(), Message: err.Error()}
	}
	return t, nil
}

type jsonReader struct {
	dec      *json.Decoder
	newlines []int
}

// line is that of the token that was read last: no token of JSON goes over
// the end of a line.
func (r *jsonReader) line() int { return r.lineOf(int(r.dec.InputOffset()) - 1) }

func (r *jsonReader) lineOf(offset int) int { return 1 + sort.SearchInts(r.newlines, offset) }

func (r *jsonReader) value(depth int) (*tree, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	t := &tree{line: r.line()}
	switch v := token.(type) {
	case nil:
	case bool:
		t.kind, t.text = isBool, fmt.Sprint(v)
	case json.Number:
		t.kind, t.text = isNumber, canonicalNumber(v.String())
	case string:
		t.kind, t.text = isText, v
	case json.Delim:
		if depth >= maxTreeDepth {
			return nil, fmt.Errorf("it is nested deeper than %d", maxTreeDepth)
		}
		if v == '[' {
			return t, r.list(t, depth)
		}
		return t, r.object(t, depth)
	}
	return t, nil
}

func (r *jsonReader) list(t *tree, depth int) error {
	t.kind = isList
	for r.dec.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		t.items = append(t.items, item)
	}
	_, err := r.dec.Token()
	return err
}

func (r *jsonReader) object(t *tree, depth int) error {
	t.kind = isObject
	for r.dec.More() {
		token, err := r.dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		line := r.line()
		value, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		t.entries = append(t.entries, entry{key, line, value})
	}
	_, err := r.dec.Token()
	return err
}
