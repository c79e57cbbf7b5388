package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/droverhq/drover/internal/rawjson"
)

// Decode reads JSON: null, bool, string, []any, map[string]any; a number that
// is written as an integer and fits is an int, every other a float64. Empty
// input is null.
func Decode(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := decodeNumbers(raw)
	if err != nil {
		return nil, err
	}
	return numbers(v)
}

// decodeNumbers reads JSON and leaves the numbers as they are written.
func decodeNumbers(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("the JSON ends too early")
		}
		return nil, fmt.Errorf("this is no JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the JSON value")
	}
	return v, nil
}

func numbers(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %.40s is too large", v)
		}
		return f, nil
	case []any:
		for i := range v {
			if v[i], err = numbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = numbers(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// verify makes sure that JSON can hold v.
func (m *meter) verify(v any, depth int) error {
	if err := m.charge(1); err != nil {
		return err
	}
	if depth > maxNested {
		return errNested
	}
	switch v := v.(type) {
	case nil, bool, int:
		return nil
	case string:
		return m.text(len(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return faultf("the result %v is no number that JSON can hold", v)
		}
		return nil
	case []any:
		for _, item := range v {
			if err := m.verify(item, depth+1); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if err := m.verify(v[k], depth+1); err != nil {
				return err
			}
		}
		return nil
	default:
		return faultf("the result holds %s, which JSON cannot hold", kind(v))
	}
}

// appendJSON writes v as JSON: keys sorted, no space, no HTML escapes.
func (m *meter) appendJSON(b []byte, v any, depth int) ([]byte, error) {
	if depth > maxNested {
		return nil, errNested
	}
	if err := m.charge(1); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case json.Number:
		return append(b, v...), nil
	case float64:
		text, err := json.Marshal(v)
		if err != nil {
			return nil, faultf("%v is no number that JSON can hold", v)
		}
		return append(b, text...), nil
	case string:
		if err := m.text(len(v)); err != nil {
			return nil, err
		}
		return appendString(b, v), nil
	case []any:
		return m.appendList(b, v, depth)
	case map[string]any:
		return m.appendObject(b, v, depth)
	default:
		return nil, faultf("JSON cannot hold %s", kind(v))
	}
}

func (m *meter) appendList(b []byte, list []any, depth int) (_ []byte, err error) {
	b = append(b, '[')
	for i, item := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = m.appendJSON(b, item, depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func (m *meter) appendObject(b []byte, object map[string]any, depth int) (_ []byte, err error) {
	b = append(b, '{')
	for i, k := range slices.Sorted(maps.Keys(object)) {
		if err := m.text(len(k)); err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		if b, err = m.appendJSON(b, object[k], depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendString writes text as JSON. Bytes that are no UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	easy := true
	for i := 0; i < len(s) && easy; i++ {
		easy = s[i] >= ' ' && s[i] != '"' && s[i] != '\\' && s[i] < utf8.RuneSelf
	}
	if easy {
		b = append(b, '"')
		return append(append(b, s...), '"')
	}
	return rawjson.AppendString(b, s)
}

// kind names the kind of a value for people.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case int, float64:
		return "a number"
	case string:
		return "text"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("a %T", v)
}
